#include "office.h"

enum { HIGHEST_TICKET = 99999 };

/* Tickets have five digits; after the highest one the numbers start again. */
static int draw_ticket(struct office *office)
{
    office->last_ticket++;
    if (office->last_ticket > HIGHEST_TICKET)
        office->last_ticket = 0;
    return office->last_ticket;
}

int office_waiting(const struct office *office)
{
    int waiting = 0;
    int i;

    for (i = 0; i < SEATS; i++)
        waiting += office->seats[i] != 0;
    return waiting;
}

int office_enter(struct office *office)
{
    int waiting = office_waiting(office);
    int ticket;

    if (waiting == SEATS) {
        office->sent_away++;
        return 0;
    }
    ticket = draw_ticket(office);
    office->seats[(office->next + waiting) % SEATS] = ticket;
    return ticket;
}

int office_serve(struct office *office)
{
    int ticket = office->seats[office->next];

    if (ticket == 0)
        return 0;
    office->seats[office->next] = 0;
    office->next = (office->next + 1) % SEATS;
    office->served++;
    return ticket;
}
