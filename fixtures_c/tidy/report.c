#include "report.h"

#include <stdio.h>
#include <stdlib.h>

void report_add(struct report *report, int line, const char *what)
{
    struct finding *finding = malloc(sizeof *finding);

    if (finding == NULL)
        abort();
    finding->line = line;
    finding->what = what;
    finding->next = NULL;

    if (report->last == NULL)
        report->first = finding;
    else
        report->last->next = finding;
    report->last = finding;
    report->warnings++;
}

void report_print(const struct report *report)
{
    const struct finding *finding;

    for (finding = report->first; finding != NULL; finding = finding->next)
        printf("%d: %s\n", finding->line, finding->what);
}

void report_free(struct report *report)
{
    struct finding *finding = report->first;

    while (finding != NULL) {
        struct finding *next = finding->next;

        free(finding);
        finding = next;
    }
    report->first = NULL;
    report->last = NULL;
}
