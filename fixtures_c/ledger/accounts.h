#ifndef ACCOUNTS_H
#define ACCOUNTS_H

#include <stddef.h>

#define NAME_SIZE 20

struct account {
    char name[NAME_SIZE]; /* empty: the slot is free */
    int bookings;
    long balance;
};

/* A hash table with open addressing; capacity is a power of two. */
struct accounts {
    struct account *slots;
    size_t capacity;
    size_t used;
};

int accounts_init(struct accounts *accounts);

/* The account with this name, NULL when there is none. */
struct account *accounts_find(const struct accounts *accounts, const char *name);

/* The same, but opens the account when there is none; NULL when there is no memory. */
struct account *accounts_open(struct accounts *accounts, const char *name);

void accounts_free(struct accounts *accounts);

#endif
