/* rooms: keeps the bookings of meeting rooms for one day. Obeys commands on standard input, one per line:
 *
 *     book ROOM FROM TO NAME    cancel ROOM FROM    show ROOM
 *
 * Times are HH:MM. A booking ends before the minute TO.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BOOKINGS = 32, NAME_SIZE = 16 };

struct booking {
    char room[NAME_SIZE];
    char name[NAME_SIZE];
    int from; /* minutes since midnight */
    int to;
};

struct day {
    struct booking bookings[MAX_BOOKINGS]; /* sorted by their beginning */
    int count;
};

/* Minutes since midnight, -1 when the text is no time. */
static int read_time(const char *text)
{
    int hours;
    int minutes;

    if (sscanf(text, "%2d:%2d", &hours, &minutes) != 2)
        return -1;
    if (hours < 0 || minutes < 0 || minutes > 59 || 60 * hours + minutes > 24 * 60)
        return -1;
    return 60 * hours + minutes;
}

static int overlap(const struct booking *one, const struct booking *other)
{
    return one->from < other->to || other->from < one->to;
}

/* The booking that is in the way of a new one, NULL when there is none. */
static const struct booking *find_conflict(const struct day *day, const struct booking *wish)
{
    int i;

    for (i = 0; i < day->count; i++) {
        const struct booking *booking = &day->bookings[i];

        if (strcmp(booking->room, wish->room) == 0 && overlap(booking, wish))
            return booking;
    }
    return NULL;
}

static void insert_booking(struct day *day, const struct booking *wish)
{
    int i = day->count;

    while (i > 0 && day->bookings[i - 1].from > wish->from) {
        day->bookings[i] = day->bookings[i - 1];
        i--;
    }
    day->bookings[i] = *wish;
    day->count++;
}

static void book(struct day *day, const struct booking *wish)
{
    const struct booking *conflict = find_conflict(day, wish);

    if (conflict != NULL) {
        printf("%s: %s is there\n", wish->name, conflict->name);
        return;
    }
    if (day->count == MAX_BOOKINGS) {
        printf("%s: no more bookings today\n", wish->name);
        return;
    }
    insert_booking(day, wish);
    printf("%s: booked\n", wish->name);
}

static int cancel(struct day *day, const char *room, int from)
{
    int i = 0;

    while (i < day->count && (strcmp(day->bookings[i].room, room) != 0 || day->bookings[i].from != from))
        i++;
    if (i == day->count)
        return -1;
    printf("%s: cancelled\n", day->bookings[i].name);
    day->count--;
    for (; i < day->count; i++)
        day->bookings[i] = day->bookings[i + 1];
    return 0;
}

static void show(const struct day *day, const char *room)
{
    int i;

    for (i = 0; i < day->count; i++) {
        const struct booking *booking = &day->bookings[i];

        if (strcmp(booking->room, room) == 0)
            printf("%02d:%02d-%02d:%02d %s\n", booking->from / 60, booking->from % 60, booking->to / 60,
                   booking->to % 60, booking->name);
    }
}

/* Returns 0, or -1 when the line cannot be obeyed. */
static int obey(struct day *day, const char *line)
{
    char verb[8] = "";
    char from[6] = "";
    char to[6] = "";
    struct booking wish = {0};

    sscanf(line, "%7s %15s %5s %5s %15s", verb, wish.room, from, to, wish.name);
    wish.from = read_time(from);
    wish.to = read_time(to);

    if (strcmp(verb, "book") == 0) {
        if (wish.from < 0 || wish.to <= wish.from)
            return -1;
        book(day, &wish);
        return 0;
    }
    if (strcmp(verb, "cancel") == 0)
        return cancel(day, wish.room, wish.from);
    if (strcmp(verb, "show") == 0) {
        show(day, wish.room);
        return 0;
    }
    return -1;
}

int main(void)
{
    struct day day = {0};
    char line[80];

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(&day, line) != 0) {
            fprintf(stderr, "rooms: cannot obey: %s", line);
            return 1;
        }
    }
    return 0;
}
