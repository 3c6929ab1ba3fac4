/* colony: the game of life in a world whose edges meet.
 *
 *     colony COLUMNS ROWS GENERATIONS COLUMN,ROW...
 *
 * Prints the living cells after that many generations, row by row.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
    int columns;
    int rows;
    char *cells;
};

static int world_init(struct world *world, int columns, int rows)
{
    world->columns = columns;
    world->rows = rows;
    world->cells = calloc((size_t)columns * (size_t)rows, 1);
    return world->cells == NULL ? -1 : 0;
}

/* Behind the last place comes the first, before the first one the last. */
static int wrap(int place, int size)
{
    if (place < 0)
        return 0;
    if (place >= size)
        return place - size;
    return place;
}

static char *cell_at(const struct world *world, int column, int row)
{
    column = wrap(column, world->columns);
    row = wrap(row, world->rows);
    return &world->cells[row * world->columns + column];
}

static int count_neighbours(const struct world *world, int column, int row)
{
    int count = 0;
    int right;
    int down;

    for (down = -1; down <= 1; down++) {
        for (right = -1; right <= 1; right++) {
            if (right != 0 || down != 0)
                count += *cell_at(world, column + right, row + down);
        }
    }
    return count;
}

static void age(const struct world *world, struct world *next)
{
    int column;
    int row;

    for (row = 0; row < world->rows; row++) {
        for (column = 0; column < world->columns; column++) {
            int i = row * world->columns + column;
            int neighbours = count_neighbours(world, column, row);

            next->cells[i] = neighbours == 3 || (neighbours == 2 && world->cells[i]);
        }
    }
}

static void live(struct world *world, struct world *next, int generations)
{
    size_t size = (size_t)world->columns * (size_t)world->rows;
    int i;

    for (i = 0; i < generations; i++) {
        age(world, next);
        memcpy(world->cells, next->cells, size);
    }
}

/* Returns 0, or -1 when the text names no cell of the world. */
static int settle(struct world *world, const char *text)
{
    int column;
    int row;

    if (sscanf(text, "%d,%d", &column, &row) != 2)
        return -1;
    if (column < 0 || column >= world->columns || row < 0 || row >= world->rows)
        return -1;
    world->cells[row * world->columns + column] = 1;
    return 0;
}

/* Returns 0, or 2 when one of the texts names no cell. */
static int settle_all(struct world *world, char *texts[])
{
    for (; *texts != NULL; texts++) {
        if (settle(world, *texts) != 0) {
            fprintf(stderr, "colony: no cell: %s\n", *texts);
            return 2;
        }
    }
    return 0;
}

static void print_living(const struct world *world)
{
    int column;
    int row;

    for (row = 0; row < world->rows; row++) {
        for (column = 0; column < world->columns; column++) {
            if (world->cells[row * world->columns + column])
                printf("%d,%d\n", column, row);
        }
    }
}

int main(int argc, char *argv[])
{
    struct world world;
    struct world next;
    int columns = argc > 3 ? atoi(argv[1]) : 0;
    int rows = argc > 3 ? atoi(argv[2]) : 0;
    int status;

    if (columns < 3 || rows < 3) {
        fprintf(stderr, "usage: colony COLUMNS ROWS GENERATIONS COLUMN,ROW...\n");
        return 2;
    }
    if (world_init(&world, columns, rows) != 0 || world_init(&next, columns, rows) != 0)
        return 2;
    status = settle_all(&world, argv + 4);
    if (status == 0) {
        live(&world, &next, atoi(argv[3]));
        print_living(&world);
    }
    free(world.cells);
    free(next.cells);
    return status;
}
