#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text)
{
    char *result = malloc(strlen(text) + 1);

    if (result == NULL) {
        fprintf(stderr, "glossary: out of memory\n");
        exit(2);
    }
    return strcpy(result, text);
}

static struct term *new_term(const char *word, const char *meaning)
{
    struct term *term = malloc(sizeof *term);

    if (term == NULL) {
        fprintf(stderr, "glossary: out of memory\n");
        exit(2);
    }
    term->word = copy(word);
    term->meaning = copy(meaning);
    term->height = 1;
    term->left = NULL;
    term->right = NULL;
    return term;
}

static int height_of(const struct term *top)
{
    return top == NULL ? 0 : top->height;
}

static void measure(struct term *top)
{
    int left = height_of(top->left);
    int right = height_of(top->right);

    top->height = 1 + (left > right ? left : right);
}

static struct term *rotate_left(struct term *top)
{
    struct term *pivot = top->right;

    top->right = pivot->left;
    pivot->left = top;
    measure(top);
    measure(pivot);
    return pivot;
}

static struct term *rotate_right(struct term *top)
{
    struct term *pivot = top->left;

    pivot->right = top;
    top->left = pivot->right;
    measure(top);
    measure(pivot);
    return pivot;
}

static struct term *balance(struct term *top)
{
    int lean = height_of(top->left) - height_of(top->right);

    if (lean > 1) {
        if (height_of(top->left->left) < height_of(top->left->right))
            top->left = rotate_left(top->left);
        return rotate_right(top);
    }
    if (lean < -1) {
        if (height_of(top->right->right) < height_of(top->right->left))
            top->right = rotate_right(top->right);
        return rotate_left(top);
    }
    measure(top);
    return top;
}

struct term *tree_insert(struct term *top, const char *word, const char *meaning)
{
    int order;

    if (top == NULL)
        return new_term(word, meaning);
    order = strcmp(word, top->word);
    if (order == 0) {
        free(top->meaning);
        top->meaning = copy(meaning);
        return top;
    }
    if (order < 0)
        top->left = tree_insert(top->left, word, meaning);
    else
        top->right = tree_insert(top->right, word, meaning);
    return balance(top);
}

const struct term *tree_find(const struct term *top, const char *word)
{
    int order;

    while (top != NULL) {
        order = strcmp(word, top->word);
        if (order == 0)
            return top;
        top = order < 0 ? top->left : top->right;
    }
    return NULL;
}

void tree_walk(const struct term *top, int depth, visit_term *visit)
{
    if (top == NULL)
        return;
    tree_walk(top->left, depth + 1, visit);
    visit(top, depth);
    tree_walk(top->right, depth + 1, visit);
}

void tree_free(struct term *top)
{
    if (top == NULL)
        return;
    tree_free(top->left);
    tree_free(top->right);
    free(top->word);
    free(top->meaning);
    free(top);
}
