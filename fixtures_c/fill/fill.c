/* fill: fills the paragraphs of standard input into lines.
 *
 *     fill [-w WIDTH] [-i INDENT]
 *
 * Paragraphs are separated by blank lines. A line that starts with ">" is a quotation and stays as it is. INDENT is how
 * many blanks the first line of a paragraph starts with. Words are at most 100 characters long.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_WIDTH = 10, MAX_WORD = 100 };

struct filler {
    int width;
    int indent;
    int column;     /* characters in the line that is being filled */
    int paragraphs; /* paragraphs begun so far */
    int open;       /* within a paragraph */
};

static void break_line(struct filler *filler)
{
    printf("\n");
    filler->column = 0;
}

static void begin_paragraph(struct filler *filler)
{
    if (filler->paragraphs > 0)
        printf("\n");
    filler->paragraphs++;
    filler->open = 1;
    printf("%*s", filler->indent, "");
    filler->column += filler->indent;
}

static void end_paragraph(struct filler *filler)
{
    if (!filler->open)
        return;
    printf("\n");
    filler->open = 0;
}

static void add_word(struct filler *filler, const char *word)
{
    int length = (int)strlen(word);
    int first = 0;

    if (!filler->open) {
        begin_paragraph(filler);
        first = 1;
    }
    if (!first && filler->column + 1 + length > filler->width) {
        break_line(filler);
    } else if (!first) {
        printf(" ");
        filler->column++;
    }
    printf("%s", word);
    filler->column += length;
}

static void add_line(struct filler *filler, const char *text)
{
    char word[MAX_WORD + 1];
    int length;

    while (sscanf(text, "%100s%n", word, &length) == 1) {
        add_word(filler, word);
        text += length;
    }
}

static int is_blank(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return *text == '\0';
}

static void fill_text(struct filler *filler, FILE *input)
{
    char text[512];

    while (fgets(text, sizeof text, input) != NULL) {
        if (is_blank(text)) {
            end_paragraph(filler);
        } else if (text[0] == '>') {
            end_paragraph(filler);
            printf("%s", text);
        } else {
            add_line(filler, text);
        }
    }
    end_paragraph(filler);
}

/* Returns 0, or -1 when the options are wrong. */
static int read_options(struct filler *filler, int argc, char *argv[])
{
    int i;

    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-w") == 0)
            filler->width = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "-i") == 0)
            filler->indent = atoi(argv[i + 1]);
        else
            return -1;
    }
    if (i != argc || filler->width < MIN_WIDTH || filler->indent < 0 || filler->indent >= filler->width)
        return -1;
    return 0;
}

int main(int argc, char *argv[])
{
    struct filler filler = {.width = 72};

    if (read_options(&filler, argc, argv) != 0) {
        fprintf(stderr, "usage: fill [-w WIDTH] [-i INDENT]\n");
        return 2;
    }
    fill_text(&filler, stdin);
    return 0;
}
