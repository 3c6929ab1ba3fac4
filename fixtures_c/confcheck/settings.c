#include "settings.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void settings_default(struct settings *settings)
{
    strcpy(settings->host, "localhost");
    settings->port = 8080;
    settings->workers = 4;
    settings->verbose = 0;
}

/* Takes off the white space around a text, in place. */
static char *trim(char *text)
{
    size_t length;

    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

static enum problem set_number(int *number, const char *value, long least, long most)
{
    char *end;
    long read = strtol(value, &end, 10);

    if (end == value || *end != '\0')
        return NO_NUMBER;
    if (read < least || read > most)
        return OUT_OF_RANGE;
    *number = (int)read;
    return NO_PROBLEM;
}

static enum problem set_boolean(int *boolean, const char *value)
{
    if (strcmp(value, "yes") == 0)
        *boolean = 1;
    else if (strcmp(value, "no") == 0)
        *boolean = 0;
    else
        return NO_BOOLEAN;
    return NO_PROBLEM;
}

static enum problem set_text(char *text, size_t size, const char *value)
{
    if (strlen(value) >= size)
        return TOO_LONG;
    strcpy(text, value);
    return NO_PROBLEM;
}

static enum problem set_value(struct settings *settings, const char *key, const char *value)
{
    if (strcmp(key, "host") == 0)
        return set_text(settings->host, sizeof settings->host, value);
    if (strcmp(key, "port") == 0)
        return set_number(&settings->port, value, 1, 65535);
    if (strcmp(key, "workers") == 0)
        return set_number(&settings->workers, value, 1, 64);
    if (strcmp(key, "verbose") == 0)
        return set_boolean(&settings->verbose, value);
    return UNKNOWN_KEY;
}

enum problem settings_obey(struct settings *settings, char *line)
{
    char *value;

    line[strcspn(line, "#\n")] = '\0';
    line = trim(line);
    if (*line == '\0')
        return NO_PROBLEM;
    value = strchr(line, '=');
    if (value == NULL)
        return NO_VALUE;
    *value++ = '\0';
    value = trim(value);
    if (*value == '\0')
        return NO_VALUE;
    return set_value(settings, trim(line), value);
}

const char *describe_problem(enum problem problem)
{
    switch (problem) {
    case NO_PROBLEM:
        return "no problem";
    case UNKNOWN_KEY:
        return "unknown key";
    case NO_VALUE:
        return "no value";
    case NO_NUMBER:
        return "not a number";
    case OUT_OF_RANGE:
        return "out of range";
    case NO_BOOLEAN:
        return "neither yes nor no";
    case TOO_LONG:
        return "too long";
    }
    return "unknown problem";
}
