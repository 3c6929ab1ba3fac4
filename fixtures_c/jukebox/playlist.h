#ifndef PLAYLIST_H
#define PLAYLIST_H

#define TITLE_SIZE 32

struct track {
    char title[TITLE_SIZE];
    int seconds;
    struct track *next;
};

struct playlist {
    struct track *first;
    struct track *last;
    int count;
};

/* Append a track; returns 0, or -1 when there is no memory. */
int playlist_append(struct playlist *list, const char *title, int seconds);

/* The track with this number, counted from 1; NULL when there is none. */
struct track *playlist_at(const struct playlist *list, int number);

/* Take a track of the list out of it and free it. */
void playlist_remove(struct playlist *list, struct track *track);

void playlist_clear(struct playlist *list);

#endif
