#ifndef CONFIG_H
#define CONFIG_H

struct config {
    int max_length;   /* characters in a line */
    int max_blank;    /* blank lines in a row */
    int max_warnings; /* findings that are still tolerated */
    int quiet;        /* print no findings */
};

extern struct config config;

/* Set config from the command line; returns 0, or -1 when it is wrong. */
int parse_options(int argc, char *argv[]);

#endif
