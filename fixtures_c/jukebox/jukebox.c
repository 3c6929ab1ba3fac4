/* jukebox: obeys commands on standard input, one per line:
 *
 *     add TITLE SECONDS    play NUMBER    next    drop    list    history
 */

#include "player.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 0, or -1 when the line is no command. */
static int obey(struct player *player, const char *line)
{
    char verb[16] = "";
    char argument[TITLE_SIZE] = "";
    int number = 0;

    sscanf(line, "%15s %31s %d", verb, argument, &number);

    if (strcmp(verb, "add") == 0)
        return playlist_append(&player->list, argument, number);
    if (strcmp(verb, "play") == 0) {
        number = atoi(argument);
        player_play(player, number);
    } else if (strcmp(verb, "next") == 0) {
        player_next(player);
    } else if (strcmp(verb, "drop") == 0) {
        player_drop(player);
    } else if (strcmp(verb, "list") == 0) {
        player_show_list(player);
    } else if (strcmp(verb, "history") == 0) {
        player_show_history(player);
    } else {
        return -1;
    }
    return 0;
}

int main(void)
{
    struct player player = {0};
    char line[80] = "";
    int status = 0;

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (obey(&player, line) != 0) {
            fprintf(stderr, "jukebox: cannot obey: %s", line);
            status = 1;
        }
    }
    playlist_clear(&player.list);
    return status;
}
