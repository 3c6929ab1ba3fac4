#include "reader.h"

#include <string.h>

/* Takes the field at from as it is; returns where the next one starts, NULL when there is none. */
static char *take_plain(char *from)
{
    char *end = from + strcspn(from, ",");

    if (*end == '\0')
        return NULL;
    *end = '\0';
    return end + 1;
}

/* Takes off the quotation marks of the field at from, in place. Returns what comes behind the closing mark, NULL when
 * that is missing. */
static char *unquote(char *from)
{
    char *to = from;
    char *read = from + 1;

    while (*read != '\0') {
        if (*read == '"') {
            read++;
            if (*read != '"') {
                *to = '\0';
                return read;
            }
            read++;
        }
        *to++ = *read++;
    }
    return NULL;
}

static enum read_status split(struct record *record)
{
    char *next = record->text;

    record->count = 0;
    while (next != NULL && record->count < MAX_FIELDS) {
        record->fields[record->count++] = next;
        if (*next == '"') {
            char *end = unquote(next);

            if (end == NULL)
                return RECORD_BROKEN;
            next = *end == ',' ? end + 1 : NULL;
        } else {
            next = take_plain(next);
        }
    }
    return RECORD_READ;
}

enum read_status read_record(struct record *record, FILE *input)
{
    if (fgets(record->text, sizeof record->text, input) == NULL)
        return NO_MORE_RECORDS;
    record->text[strcspn(record->text, "\r\n")] = '\0';
    return split(record);
}
