/* ledger: books what standard input says, one line each, and prints the balances asked for.
 *
 *     deposit NAME AMOUNT    transfer FROM TO AMOUNT    balance NAME    total
 */

#include "accounts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void book(struct account *account, long amount)
{
    account->balance += amount;
    account->bookings++;
}

static int deposit(struct accounts *accounts, const char *name, long amount)
{
    struct account *account = accounts_open(accounts, name);

    if (account == NULL)
        return -1;
    book(account, amount);
    return 0;
}

static int transfer(struct accounts *accounts, const char *payer, const char *payee, long amount)
{
    struct account *from = accounts_find(accounts, payer);
    struct account *to;

    if (from == NULL || from->balance < amount)
        return -1;
    to = accounts_open(accounts, payee);
    if (to == NULL)
        return -1;
    book(from, -amount);
    book(to, amount);
    return 0;
}

static int show_balance(const struct accounts *accounts, const char *name)
{
    const struct account *account = accounts_find(accounts, name);

    if (account == NULL)
        return -1;
    printf("%s has %ld after %d bookings\n", name, account->balance, account->bookings);
    return 0;
}

static void show_total(const struct accounts *accounts)
{
    long total = 0;
    size_t i;

    for (i = 0; i < accounts->capacity; i++)
        total += accounts->slots[i].balance;
    printf("%zu accounts have %ld\n", accounts->used, total);
}

/* Returns 0, or -1 when the line could not be obeyed. */
static int obey(struct accounts *accounts, const char *line)
{
    char words[4][NAME_SIZE] = {"", "", "", ""};
    int count = sscanf(line, "%19s %19s %19s %19s", words[0], words[1], words[2], words[3]);

    if (count == 3 && strcmp(words[0], "deposit") == 0)
        return deposit(accounts, words[1], atol(words[2]));
    if (count == 4 && strcmp(words[0], "transfer") == 0)
        return transfer(accounts, words[1], words[2], atol(words[3]));
    if (count == 2 && strcmp(words[0], "balance") == 0)
        return show_balance(accounts, words[1]);
    if (count == 1 && strcmp(words[0], "total") == 0) {
        show_total(accounts);
        return 0;
    }
    return -1;
}

int main(void)
{
    struct accounts accounts;
    char line[100];
    int refused = 0;

    if (accounts_init(&accounts) != 0)
        return 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(&accounts, line) != 0) {
            printf("refused: %s", line);
            refused++;
        }
    }
    accounts_free(&accounts);
    return refused == 0 ? 0 : 1;
}
