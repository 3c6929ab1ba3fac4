/* glossary: reads lines "WORD MEANING..." from standard input and prints them in alphabetical order.
 *
 *     glossary [-d] [WORD...]
 *
 * With words, prints the meanings of these only. With -d, shows how deep in the tree each word is.
 */

#include "tree.h"

#include <stdio.h>
#include <string.h>

static void print_term(const struct term *term, int depth)
{
    (void)depth;
    printf("%s: %s\n", term->word, term->meaning);
}

static void print_depth(const struct term *term, int depth)
{
    printf("%d %s\n", depth, term->word);
}

static struct term *read_terms(FILE *input)
{
    struct term *top = NULL;
    char line[256];
    char *meaning;

    while (fgets(line, sizeof line, input) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        meaning = strchr(line, ' ');
        if (meaning == NULL)
            continue;
        *meaning++ = '\0';
        top = tree_insert(top, line, meaning);
    }
    return top;
}

static int look_up(const struct term *top, const char *word)
{
    const struct term *term = tree_find(top, word);

    if (term == NULL) {
        fprintf(stderr, "glossary: what is %s?\n", word);
        return 1;
    }
    printf("%s\n", term->meaning);
    return 0;
}

int main(int argc, char *argv[])
{
    visit_term *visit = print_term;
    struct term *top = read_terms(stdin);
    int unknown = 0;
    int first = 1;
    int i;

    if (argc > 1 && strcmp(argv[1], "-d") == 0) {
        visit = print_depth;
        first = 2;
    }
    for (i = first; i < argc; i++)
        unknown += look_up(top, argv[i]);
    if (first == argc)
        tree_walk(top, 0, visit);
    tree_free(top);
    return unknown == 0 ? 0 : 1;
}
