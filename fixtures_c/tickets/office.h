#ifndef OFFICE_H
#define OFFICE_H

#define SEATS 6

/* A ticket number is never 0: that is an empty seat. */
struct office {
    int seats[SEATS]; /* a ring of waiting customers' tickets */
    int next;         /* the seat to be served next */
    int last_ticket;
    long served;
    long sent_away;
};

/* A customer comes and takes a ticket and a seat. Returns the ticket, or 0 when all seats are taken. */
int office_enter(struct office *office);

/* Calls the customer who waits longest. Returns the ticket, or 0 when nobody waits. */
int office_serve(struct office *office);

int office_waiting(const struct office *office);

#endif
