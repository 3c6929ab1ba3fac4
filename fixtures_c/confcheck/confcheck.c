/* confcheck: checks a configuration file and shows what it sets.
 *
 *     confcheck FILE
 *
 * Exit status: 0 fine, 1 the file has problems, 2 it cannot be read.
 */

#include "settings.h"

#include <string.h>

enum { MAX_VERBOSE_WORKERS = 8 };

/* Returns the number of problems. */
static int read_settings(struct settings *settings, FILE *file)
{
    char line[256];
    int number = 0;
    int problems = 0;

    while (fgets(line, sizeof line, file) != NULL) {
        enum problem problem = settings_obey(settings, line);

        number++;
        if (problem != NO_PROBLEM) {
            printf("line %d: %s\n", number, describe_problem(problem));
            problems++;
        }
    }
    return problems;
}

/* Returns 0, or -1 when the settings do not fit together. */
static int check_settings(const struct settings *settings)
{
    if (settings->port < 1024 && strcmp(settings->host, "localhost") != 0) {
        printf("ports below 1024 are for localhost\n");
        return -1;
    }
    if (settings->verbose && settings->workers > MAX_VERBOSE_WORKERS) {
        printf("too many workers to be verbose\n");
        return 0;
    }
    return 0;
}

static void print_settings(const struct settings *settings)
{
    printf("%s:%d, %d workers", settings->host, settings->port, settings->workers);
    printf(settings->verbose ? ", verbose\n" : "\n");
}

int main(int argc, char *argv[])
{
    struct settings settings;
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    int problems;

    if (file == NULL) {
        fprintf(stderr, "confcheck: there is no file to read\n");
        return 2;
    }
    settings_default(&settings);
    problems = read_settings(&settings, file);
    fclose(file);
    if (problems > 0 || check_settings(&settings) != 0)
        return 1;
    print_settings(&settings);
    return 0;
}
