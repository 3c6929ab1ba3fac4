/* codepoints: shows the characters of the UTF-8 text on standard input.
 *
 *     codepoints [-s]
 *
 * Prints the number of each character, as in U+00E9, one per line. With -s, prints how many there are of each length.
 * Exit status: 0, or 1 when bytes make no character.
 */

#include <stdio.h>
#include <string.h>

enum { LONGEST = 4 };

struct decoder {
    FILE *input;
    long offset; /* of the byte that is read next */
    long counts[LONGEST + 1];
};

struct character {
    unsigned long number;
    int length;
};

/* Splits the first byte of a character: sets its length and the bits it contributes. Returns 0, or -1 when no
 * character starts with it. */
static int read_lead(struct character *character, unsigned byte)
{
    if (byte < 0x80) {
        character->length = 1;
        character->number = byte;
    } else if (byte >= 0xc2 && byte < 0xe0) {
        character->length = 2;
        character->number = byte & 0x1f;
    } else if (byte >= 0xe0 && byte < 0xf0) {
        character->length = 3;
        character->number = byte & 0x07;
    } else if (byte >= 0xf0 && byte < 0xf5) {
        character->length = 4;
        character->number = byte & 0x07;
    } else {
        return -1;
    }
    return 0;
}

/* Returns 1, 0 at the end of the text, or -1 when it is wrong. */
static int read_character(struct decoder *decoder, struct character *character)
{
    int byte = getc(decoder->input);
    int i;

    if (byte == EOF)
        return 0;
    if (read_lead(character, (unsigned)byte) != 0)
        return -1;
    for (i = 1; i < character->length; i++) {
        byte = getc(decoder->input);
        if (byte == EOF || (byte & 0xc0) != 0x80)
            return -1;
        character->number = character->number << 6 | (unsigned long)(byte & 0x3f);
    }
    decoder->offset += character->length;
    decoder->counts[character->length]++;
    return 1;
}

static void print_character(const struct character *character)
{
    printf("U+%04lX", character->number);
    if (character->number > 0x20 && character->number < 0x7f)
        printf(" %c", (int)character->number);
    printf("\n");
}

static void print_summary(const struct decoder *decoder)
{
    int length;

    for (length = 1; length <= LONGEST; length++) {
        if (decoder->counts[length] > 0)
            printf("%ld of %d bytes\n", decoder->counts[length], length);
    }
}

int main(int argc, char *argv[])
{
    struct decoder decoder = {.input = stdin};
    struct character character;
    int summary = argc > 1 && strcmp(argv[1], "-s") == 0;
    int status;

    if (argc > 1 && !summary) {
        fprintf(stderr, "usage: codepoints [-s]\n");
        return 2;
    }
    while ((status = read_character(&decoder, &character)) > 0) {
        if (!summary)
            print_character(&character);
    }
    if (status < 0) {
        fprintf(stderr, "codepoints: no character at byte %ld\n", decoder.offset);
        return 1;
    }
    if (summary)
        print_summary(&decoder);
    return 0;
}
