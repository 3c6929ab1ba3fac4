#include "player.h"

#include <stdio.h>
#include <string.h>

static void remember(struct history *history, const char *title)
{
    int slot = history->total % HISTORY_SIZE;

    strcpy(history->titles[slot], title);
    history->total++;
}

static void start(struct player *player, struct track *track)
{
    player->current = track;
    player->state = PLAYING;
    remember(&player->history, track->title);
    printf("playing %s (%d s)\n", track->title, track->seconds);
}

void player_play(struct player *player, int number)
{
    struct track *track = playlist_at(&player->list, number);

    if (track == NULL) {
        printf("no track %d\n", number);
        return;
    }
    start(player, track);
}

void player_next(struct player *player)
{
    struct track *track;

    if (player->list.count == 0) {
        printf("the list is empty\n");
        return;
    }
    if (player->state == STOPPED) {
        start(player, player->list.first);
        return;
    }
    track = player->current->next;
    if (track == NULL)
        track = player->list.first;
    start(player, track);
}

void player_drop(struct player *player)
{
    struct track *dropped = player->current;

    if (player->state == STOPPED) {
        printf("nothing is playing\n");
        return;
    }
    printf("dropped %s\n", dropped->title);
    player->current = dropped->next;
    playlist_remove(&player->list, dropped);
    if (player->list.count == 0)
        player->state = STOPPED;
}

void player_show_list(const struct player *player)
{
    const struct track *track;
    int number = 1;

    for (track = player->list.first; track != NULL; track = track->next) {
        printf("%c %d %s\n", track == player->current ? '*' : ' ', number, track->title);
        number++;
    }
}

void player_show_history(const struct player *player)
{
    const struct history *history = &player->history;
    int oldest = history->total > HISTORY_SIZE ? history->total - HISTORY_SIZE : 0;
    int i;

    for (i = oldest; i < history->total; i++)
        printf("played %s\n", history->titles[i % HISTORY_SIZE]);
}
