#include "queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void unlink_job(struct queue *queue, struct job *job)
{
    if (job->prev != NULL)
        job->prev->next = job->next;
    if (job->next != NULL)
        job->next->prev = job->prev;

    if (job == queue->first)
        queue->first = job->next;
    else if (job == queue->last)
        queue->last = job->prev;
    queue->pages -= job->pages;
}

int queue_append(struct queue *queue, const char *name, int pages)
{
    struct job *job = calloc(1, sizeof *job);

    if (job == NULL)
        return -1;
    snprintf(job->name, sizeof job->name, "%s", name);
    job->pages = pages;

    job->prev = queue->last;
    if (queue->last == NULL)
        queue->first = job;
    else
        queue->last->next = job;
    queue->last = job;
    queue->pages += pages;
    return 0;
}

struct job *queue_find(const struct queue *queue, const char *name)
{
    struct job *job = queue->first;

    while (job != NULL && strcmp(job->name, name) != 0)
        job = job->next;
    return job;
}

void queue_remove(struct queue *queue, struct job *job)
{
    unlink_job(queue, job);
    free(job);
}

void queue_promote(struct queue *queue, struct job *job)
{
    if (job == queue->first)
        return;
    unlink_job(queue, job);
    job->prev = NULL;
    job->next = queue->first;
    queue->first->prev = job;
    queue->first = job;
    queue->pages += job->pages;
}

void queue_clear(struct queue *queue)
{
    while (queue->first != NULL)
        queue_remove(queue, queue->first);
}
