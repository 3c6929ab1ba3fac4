#ifndef ARENA_H
#define ARENA_H

#include <stddef.h>

/* Memory that is given out piece by piece and returned all at once. */
struct arena {
    struct block *blocks;
};

/* Memory for an object of any type. Ends the program when there is none. */
void *arena_alloc(struct arena *arena, size_t size);

/* A copy of the first length characters of a text, as a string. */
char *arena_copy(struct arena *arena, const char *text, size_t length);

void arena_free(struct arena *arena);

#endif
