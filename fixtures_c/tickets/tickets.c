/* tickets: simulates the waiting room of an office.
 *
 *     tickets PLAN...
 *
 * A plan is COUNTxSTEPS: COUNT times the steps are done, each one a letter: e a customer enters, s one is served.
 */

#include "office.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void follow_steps(struct office *office, const char *steps)
{
    for (; *steps != '\0'; steps++) {
        if (*steps == 'e')
            office_enter(office);
        else
            office_serve(office);
    }
}

/* Returns 0, or -1 when this is no plan. */
static int follow_plan(struct office *office, const char *plan)
{
    char *steps;
    long count = strtol(plan, &steps, 10);
    long i;

    if (count < 0 || *steps != 'x')
        return -1;
    steps++;
    if (steps[strspn(steps, "es")] != '\0')
        return -1;
    for (i = 0; i < count; i++)
        follow_steps(office, steps);
    return 0;
}

static void print_summary(const struct office *office)
{
    int waiting = office_waiting(office);
    int i;

    printf("served %ld, sent away %ld, waiting %d\n", office->served, office->sent_away, waiting);
    for (i = 0; i < waiting; i++)
        printf("ticket %05d\n", office->seats[(office->next + i) % SEATS]);
}

int main(int argc, char *argv[])
{
    struct office office = {0};
    int i;

    for (i = 1; i < argc; i++) {
        if (follow_plan(&office, argv[i]) != 0) {
            fprintf(stderr, "tickets: no plan: %s\n", argv[i]);
            return 2;
        }
    }
    print_summary(&office);
    return 0;
}
