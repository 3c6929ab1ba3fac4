#include "config.h"

#include <stdlib.h>
#include <string.h>

struct config config = {
    .max_length = 79,
    .max_blank = 2,
    .max_warnings = 0,
    .quiet = 0,
};

static int set_limit(const char *option, int value)
{
    switch (option[1]) {
    case 'l':
        config.max_length = value;
        break;
    case 'b':
        config.max_blank = value;
        if (config.max_warnings < config.max_blank)
            config.max_warnings = config.max_blank;
        break;
    case 'w':
        config.max_warnings = value;
        break;
    default:
        return -1;
    }
    return 0;
}

int parse_options(int argc, char *argv[])
{
    int i = 1;
    int value;

    while (i < argc) {
        if (strcmp(argv[i], "-q") == 0) {
            config.quiet = 1;
            i++;
            continue;
        }
        if (argv[i][0] != '-' || i + 1 == argc)
            return -1;
        value = atoi(argv[i + 1]);
        if (set_limit(argv[i], value) != 0)
            return -1;
        i += 2;
    }
    return 0;
}
