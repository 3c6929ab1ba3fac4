#ifndef QUEUE_H
#define QUEUE_H

#define NAME_SIZE 24

struct job {
    char name[NAME_SIZE];
    int pages;
    struct job *prev;
    struct job *next;
};

struct queue {
    struct job *first;
    struct job *last;
    int pages; /* of all jobs that wait */
};

/* Put a new job at the end; returns 0, or -1 when there is no memory. */
int queue_append(struct queue *queue, const char *name, int pages);

/* The first job with this name; NULL when there is none. */
struct job *queue_find(const struct queue *queue, const char *name);

/* Take a job of the queue out of it and free it. */
void queue_remove(struct queue *queue, struct job *job);

/* Let a job of the queue be the next one. */
void queue_promote(struct queue *queue, struct job *job);

void queue_clear(struct queue *queue);

#endif
