#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 8, BLOCK_SIZE = 1024 };

struct block {
    struct block *next;
    size_t used;
    size_t size;
    char bytes[];
};

static struct block *add_block(struct arena *arena, size_t size)
{
    struct block *block;

    if (size < BLOCK_SIZE)
        size = BLOCK_SIZE;
    block = calloc(1, sizeof *block + size);
    if (block == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    block->size = size;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    struct block *block = arena->blocks;
    void *result;

    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (block == NULL || block->size - block->used < size)
        block = add_block(arena, size);
    result = block->bytes + block->used;
    block->used += size;
    return result;
}

char *arena_copy(struct arena *arena, const char *text, size_t length)
{
    char *copy = arena_alloc(arena, length);

    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void arena_free(struct arena *arena)
{
    struct block *block = arena->blocks;

    while (block != NULL) {
        struct block *next = block->next;

        free(block);
        block = next;
    }
    arena->blocks = NULL;
}
