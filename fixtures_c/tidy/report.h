#ifndef REPORT_H
#define REPORT_H

/* What was found, in the order of the lines. */
struct finding {
    int line;
    const char *what;
    struct finding *next;
};

struct report {
    struct finding *first;
    struct finding *last;
    int warnings;
};

void report_add(struct report *report, int line, const char *what);
void report_print(const struct report *report);
void report_free(struct report *report);

#endif
