#ifndef READER_H
#define READER_H

#include <stdio.h>

#define MAX_FIELDS 16

/* One record of a CSV file; the fields point into text. */
struct record {
    char text[512];
    char *fields[MAX_FIELDS];
    int count;
};

enum read_status { RECORD_READ, NO_MORE_RECORDS, RECORD_BROKEN };

/* Read the next record. Fields are separated by commas; one that contains commas or quotation marks is quoted, and
 * a quotation mark within is doubled. */
enum read_status read_record(struct record *record, FILE *input);

#endif
