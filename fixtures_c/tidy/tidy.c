/* tidy: look for untidy lines on standard input.
 *
 *     tidy [-l LENGTH] [-b BLANK-LINES] [-w WARNINGS] [-q]
 *
 * Exit status: 0 tidy, 1 more warnings than tolerated, 2 wrong usage.
 */

#include "config.h"
#include "report.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum status { TIDY = 0, UNTIDY = 1, USAGE = 2 };

static void check_line(struct report *report, int number, const char *text)
{
    size_t length = strlen(text);

    if (length > (size_t)config.max_length)
        report_add(report, number, "line too long");
    if (length > 0 && isspace((unsigned char)text[length - 1]))
        report_add(report, number, "trailing white space");
}

static void check_input(struct report *report, FILE *input)
{
    char text[256];
    int number = 0;
    int blank = 0;

    while (fgets(text, sizeof text, input) != NULL) {
        text[strcspn(text, "\n")] = '\0';
        number++;
        blank = text[0] == '\0' ? blank + 1 : 0;
        if (blank > config.max_blank)
            report_add(report, number, "too many blank lines");
        check_line(report, number, text);
    }
}

static enum status judge(const struct report *report)
{
    if (report->warnings > config.max_warnings)
        return UNTIDY;
    return TIDY;
}

int main(int argc, char *argv[])
{
    struct report report = {0};
    enum status status;

    if (parse_options(argc, argv) != 0) {
        fprintf(stderr, "usage: tidy [-l LENGTH] [-b BLANK-LINES] [-w WARNINGS] [-q]\n");
        return USAGE;
    }
    check_input(&report, stdin);
    if (!config.quiet)
        report_print(&report);
    status = judge(&report);
    report_free(&report);
    return status;
}
