/* spool: the queue of a printer. Obeys commands on standard input, one per line:
 *
 *     add NAME PAGES    cancel NAME    urgent NAME    print    list
 */

#include "queue.h"

#include <stdio.h>
#include <string.h>

static void print_next(struct queue *queue)
{
    struct job *job = queue->first;

    if (job == NULL) {
        printf("nothing to print\n");
        return;
    }
    printf("printed %s\n", job->name);
    queue_remove(queue, job);
}

static void list_jobs(const struct queue *queue)
{
    const struct job *job;
    int ahead = 0;

    for (job = queue->first; job != NULL; job = job->next) {
        printf("%s: %d pages, %d ahead\n", job->name, job->pages, ahead);
        ahead += job->pages;
    }
    printf("%d pages in all\n", queue->pages);
}

/* Returns 0, or -1 when the line is no command or names no job. */
static int obey(struct queue *queue, const char *line)
{
    char verb[8] = "";
    char name[NAME_SIZE] = "";
    int pages = 1;
    struct job *job;

    sscanf(line, "%7s %23s %d", verb, name, &pages);

    if (strcmp(verb, "add") == 0)
        return queue_append(queue, name, pages);
    if (strcmp(verb, "print") == 0) {
        print_next(queue);
        return 0;
    }
    if (strcmp(verb, "list") == 0) {
        list_jobs(queue);
        return 0;
    }

    job = queue_find(queue, name);
    if (job == NULL)
        return -1;
    if (strcmp(verb, "cancel") == 0)
        queue_remove(queue, job);
    else if (strcmp(verb, "urgent") == 0)
        queue_promote(queue, job);
    else
        return -1;
    return 0;
}

int main(void)
{
    struct queue queue = {0};
    char line[80];

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(&queue, line) != 0)
            printf("cannot: %s", line);
    }
    queue_clear(&queue);
    return 0;
}
