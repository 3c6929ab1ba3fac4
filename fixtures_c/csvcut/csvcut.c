/* csvcut: prints chosen columns of the CSV file on standard input, separated by tabs.
 *
 *     csvcut COLUMN...
 *
 * A column is chosen by its number, counted from 1, or by its name in the first record.
 */

#include "reader.h"

#include <stdlib.h>
#include <string.h>

struct selection {
    int columns[MAX_FIELDS];
    int count;
};

/* The index of the column, -1 when there is none. */
static int find_column(const struct record *header, const char *name)
{
    int number = atoi(name);
    int i;

    if (number >= 1 && number <= header->count)
        return number - 1;
    for (i = 0; i < header->count; i++) {
        if (strcmp(header->fields[i], name) == 0)
            return i;
    }
    return -1;
}

static int select_columns(struct selection *selection, const struct record *header, char *names[])
{
    for (; *names != NULL && selection->count < MAX_FIELDS; names++) {
        int column = find_column(header, *names);

        if (column < 0) {
            fprintf(stderr, "csvcut: no column %s\n", *names);
            return -1;
        }
        selection->columns[selection->count++] = column;
    }
    return 0;
}

static void print_columns(const struct record *record, const struct selection *selection)
{
    int i;

    for (i = 0; i < selection->count; i++) {
        int column = selection->columns[i];

        if (i > 0)
            putchar('\t');
        if (column < record->count)
            fputs(record->fields[column], stdout);
    }
    putchar('\n');
}

int main(int argc, char *argv[])
{
    struct record record;
    struct selection selection = {0};
    enum read_status status = read_record(&record, stdin);

    if (argc < 2) {
        fprintf(stderr, "usage: csvcut COLUMN...\n");
        return 2;
    }
    if (status == RECORD_READ && select_columns(&selection, &record, argv + 1) != 0)
        return 1;
    while (status == RECORD_READ) {
        print_columns(&record, &selection);
        status = read_record(&record, stdin);
    }
    if (status == RECORD_BROKEN) {
        fprintf(stderr, "csvcut: a quotation mark is missing\n");
        return 1;
    }
    return 0;
}
