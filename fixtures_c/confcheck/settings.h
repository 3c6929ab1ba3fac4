#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdio.h>

struct settings {
    char host[64];
    int port;
    int workers;
    int verbose;
};

enum problem {
    NO_PROBLEM,
    UNKNOWN_KEY,
    NO_VALUE,
    NO_NUMBER,
    OUT_OF_RANGE,
    NO_BOOLEAN,
    TOO_LONG,
};

void settings_default(struct settings *settings);

/* Set what a line "KEY = VALUE" says; empty lines and comments (#) say nothing. */
enum problem settings_obey(struct settings *settings, char *line);

const char *describe_problem(enum problem problem);

#endif
