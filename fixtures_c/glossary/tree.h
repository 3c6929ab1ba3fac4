#ifndef TREE_H
#define TREE_H

/* A balanced tree (AVL) of terms in alphabetical order. */
struct term {
    char *word;
    char *meaning;
    int height;
    struct term *left;
    struct term *right;
};

/* Called for each term; depth is 0 at the top. */
typedef void visit_term(const struct term *term, int depth);

/* Add a term, or replace its meaning; returns the new top of the tree. */
struct term *tree_insert(struct term *top, const char *word, const char *meaning);

/* The term for this word, NULL when there is none. */
const struct term *tree_find(const struct term *top, const char *word);

/* Visit all terms in order. */
void tree_walk(const struct term *top, int depth, visit_term *visit);

void tree_free(struct term *top);

#endif
