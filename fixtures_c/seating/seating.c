/* seating: reserves seats of a theatre that lie side by side.
 *
 *     seating ROWS SEATS COUNT...
 *
 * Each COUNT is a party, which gets the seats in the first row that has enough free ones together, in the narrowest gap
 * of that row. Prints where each party sits and then the plan of the theatre.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 26, MAX_SEATS = 40 };

struct gap {
    int first;
    int length;
};

struct theatre {
    int rows;
    int seats; /* in each row */
    char plan[MAX_ROWS][MAX_SEATS + 1];
};

static void theatre_init(struct theatre *theatre, int rows, int seats)
{
    int row;

    theatre->rows = rows;
    theatre->seats = seats;
    for (row = 0; row < rows; row++) {
        memset(theatre->plan[row], '.', (size_t)seats);
        theatre->plan[row][seats] = '\0';
    }
}

/* The gap of free seats that begins here; its length is 0 when the seat is taken. */
static struct gap measure_gap(const char *row, int first, int seats)
{
    struct gap gap = {first, 0};
    int seat;

    for (seat = first; seat < seats - 1 && row[seat] == '.'; seat++)
        gap.length++;
    return gap;
}

/* The narrowest gap that is wide enough; its length is 0 when there is none. */
static struct gap find_gap(const char *row, int seats, int wanted)
{
    struct gap best = {0, 0};
    int seat = 0;

    while (seat < seats) {
        struct gap gap = measure_gap(row, seat, seats);

        if (gap.length >= wanted && (best.length == 0 || gap.length < best.length))
            best = gap;
        seat += gap.length > 0 ? gap.length : 1;
    }
    return best;
}

static void take_seats(char *row, const struct gap *gap, int count, char sign)
{
    memset(row + gap->first, sign, (size_t)count);
}

/* Returns 0, or -1 when the party cannot sit together. */
static int seat_party(struct theatre *theatre, int count, char sign)
{
    int row;

    for (row = 0; row < theatre->rows; row++) {
        struct gap gap = find_gap(theatre->plan[row], theatre->seats, count);

        if (gap.length > 0) {
            take_seats(theatre->plan[row], &gap, count, sign);
            printf("%c: row %d, seats %d to %d\n", sign, row + 1, gap.first + 1, gap.first + count);
            return 0;
        }
    }
    return -1;
}

static void print_plan(const struct theatre *theatre)
{
    int row;

    for (row = 0; row < theatre->rows; row++)
        printf("%2d %s\n", row + 1, theatre->plan[row]);
}

int main(int argc, char *argv[])
{
    struct theatre theatre;
    int rows = argc > 2 ? atoi(argv[1]) : 0;
    int seats = argc > 2 ? atoi(argv[2]) : 0;
    int refused = 0;
    int i;

    if (rows < 1 || rows > MAX_ROWS || seats < 1 || seats > MAX_SEATS || argc > 3 + 26) {
        fprintf(stderr, "usage: seating ROWS SEATS COUNT...\n");
        return 2;
    }
    theatre_init(&theatre, rows, seats);
    for (i = 3; i < argc; i++) {
        char sign = (char)('a' + i - 3);
        int count = atoi(argv[i]);

        if (count < 1 || seat_party(&theatre, count, sign) != 0) {
            printf("%c: no seats\n", sign);
            refused++;
        }
    }
    print_plan(&theatre);
    return refused == 0 ? 0 : 1;
}
