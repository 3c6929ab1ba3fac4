#include "accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 4 };

static size_t hash(const char *name)
{
    size_t value = 5381;

    while (*name != '\0')
        value = value * 33 + (unsigned char)*name++;
    return value;
}

/* The slot that has the name, else the free one where it belongs. */
static struct account *probe(struct account *slots, size_t capacity, const char *name)
{
    size_t i = hash(name) & (capacity - 1);

    while (slots[i].name[0] != '\0' && strcmp(slots[i].name, name) != 0)
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}

static int grow(struct accounts *accounts)
{
    size_t capacity = accounts->capacity * 2;
    struct account *slots = calloc(capacity, sizeof *slots);
    size_t i;

    if (slots == NULL)
        return -1;
    for (i = 0; i < accounts->capacity; i++) {
        if (accounts->slots[i].name[0] != '\0')
            *probe(slots, capacity, accounts->slots[i].name) = accounts->slots[i];
    }
    free(accounts->slots);
    accounts->slots = slots;
    accounts->capacity = capacity;
    return 0;
}

int accounts_init(struct accounts *accounts)
{
    accounts->slots = calloc(FIRST_CAPACITY, sizeof *accounts->slots);
    accounts->capacity = FIRST_CAPACITY;
    accounts->used = 0;
    return accounts->slots == NULL ? -1 : 0;
}

struct account *accounts_find(const struct accounts *accounts, const char *name)
{
    struct account *account = probe(accounts->slots, accounts->capacity, name);

    return account->name[0] == '\0' ? NULL : account;
}

struct account *accounts_open(struct accounts *accounts, const char *name)
{
    struct account *account = accounts_find(accounts, name);

    if (account != NULL)
        return account;
    /* A quarter of the slots stays free, so that searches are short. */
    if (4 * (accounts->used + 1) > 3 * accounts->capacity && grow(accounts) != 0)
        return NULL;
    account = probe(accounts->slots, accounts->capacity, name);
    snprintf(account->name, sizeof account->name, "%s", name);
    accounts->used++;
    return account;
}

void accounts_free(struct accounts *accounts)
{
    free(accounts->slots);
    accounts->slots = NULL;
}
