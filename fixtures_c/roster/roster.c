/* roster: reads members, one per line as "NAME;TOWN;YEAR", and prints them sorted.
 *
 *     roster [name|town|year]
 */

#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 64 };

struct member {
    int year;
    char *name;
    char *town;
};

struct roster {
    struct arena arena;
    struct member *members[MAX_MEMBERS];
    size_t count;
};

typedef int compare_members(const void *one, const void *other);

static const struct member *member_at(const void *element)
{
    return *(struct member *const *)element;
}

static int by_name(const void *one, const void *other)
{
    return strcmp(member_at(one)->name, member_at(other)->name);
}

static int by_town(const void *one, const void *other)
{
    int order = strcmp(member_at(one)->town, member_at(other)->town);

    return order != 0 ? order : by_name(one, other);
}

static int by_year(const void *one, const void *other)
{
    int difference = member_at(one)->year - member_at(other)->year;

    return difference != 0 ? difference : by_name(one, other);
}

static compare_members *find_order(const char *name)
{
    if (strcmp(name, "name") == 0)
        return by_name;
    if (strcmp(name, "town") == 0)
        return by_town;
    if (strcmp(name, "year") == 0)
        return by_year;
    return NULL;
}

/* Copies the field that begins at *text and moves *text behind it. */
static char *take_field(struct arena *arena, const char **text)
{
    size_t length = strcspn(*text, ";\n");
    char *field = arena_copy(arena, *text, length);

    *text += length;
    if (**text == ';')
        (*text)++;
    return field;
}

static void add_member(struct roster *roster, const char *line)
{
    struct member *member = arena_alloc(&roster->arena, sizeof *member);

    member->name = take_field(&roster->arena, &line);
    member->town = take_field(&roster->arena, &line);
    member->year = atoi(line);
    roster->members[roster->count++] = member;
}

static void read_members(struct roster *roster, FILE *input)
{
    char line[128];

    while (roster->count < MAX_MEMBERS && fgets(line, sizeof line, input) != NULL) {
        if (line[0] != '\n')
            add_member(roster, line);
    }
}

int main(int argc, char *argv[])
{
    struct roster roster = {0};
    compare_members *order = find_order(argc > 1 ? argv[1] : "name");
    size_t i;

    if (order == NULL) {
        fprintf(stderr, "usage: roster [name|town|year]\n");
        return 2;
    }
    read_members(&roster, stdin);
    qsort(roster.members, roster.count, sizeof roster.members[0], order);
    for (i = 0; i < roster.count; i++)
        printf("%s, %s, %d\n", roster.members[i]->name, roster.members[i]->town, roster.members[i]->year);
    arena_free(&roster.arena);
    return 0;
}
