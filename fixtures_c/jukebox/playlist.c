#include "playlist.h"

#include <stdio.h>
#include <stdlib.h>

int playlist_append(struct playlist *list, const char *title, int seconds)
{
    struct track *track = calloc(1, sizeof *track);

    if (track == NULL)
        return -1;
    snprintf(track->title, sizeof track->title, "%s", title);
    track->seconds = seconds;

    if (list->last == NULL)
        list->first = track;
    else
        list->last->next = track;
    list->last = track;
    list->count++;
    return 0;
}

struct track *playlist_at(const struct playlist *list, int number)
{
    struct track *track = list->first;

    if (number < 1)
        return NULL;
    while (track != NULL && number > 1) {
        track = track->next;
        number--;
    }
    return track;
}

void playlist_remove(struct playlist *list, struct track *track)
{
    struct track *before = NULL;
    struct track *each = list->first;

    while (each != track) {
        before = each;
        each = each->next;
    }
    if (before == NULL)
        list->first = track->next;
    else
        before->next = track->next;
    if (list->last == track)
        list->last = before;
    list->count--;
    free(track);
}

void playlist_clear(struct playlist *list)
{
    while (list->first != NULL)
        playlist_remove(list, list->first);
}
