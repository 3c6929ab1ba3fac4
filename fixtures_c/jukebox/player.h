#ifndef PLAYER_H
#define PLAYER_H

#include "playlist.h"

#define HISTORY_SIZE 4

enum state { STOPPED, PLAYING };

/* The titles played last, in a ring. */
struct history {
    char titles[HISTORY_SIZE][TITLE_SIZE];
    int total;
};

struct player {
    struct playlist list;
    struct track *current;
    enum state state;
    struct history history;
};

/* Play the track with this number. */
void player_play(struct player *player, int number);

/* Play the track behind the current one; behind the last comes the first. */
void player_next(struct player *player);

/* Take the current track out of the list; the one behind it becomes the current one. */
void player_drop(struct player *player);

void player_show_list(const struct player *player);
void player_show_history(const struct player *player);

#endif
