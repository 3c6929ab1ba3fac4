"""Causes that are not in the memory of a run: its files, its directory, its environment, what it has written."""

from __future__ import annotations

import pytest
from cases import told

# Reads a file line by line, and says whether one of them is long.
LONGEST = r"""
#include <stdio.h>
#include <string.h>
static int is_long;
static void look(const char *line)
{
    if (strlen(line) > 6)
        is_long = 1;
}
static void read_all(FILE *file)
{
    char line[100];
    while (fgets(line, sizeof line, file))
        look(line);
}
int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "r");
    read_all(file);
    puts(is_long ? "bad" : "good"); /* print */
    return 0;
}
"""

# Goes back to the beginning of what it has in a file of its own, or to where it has been in its input.
BACK = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void show(FILE *file)
{
    char line[100] = "";
    rewind(file);
    fgets(line, sizeof line, file);
    puts(line);
}
int main(int argc, char **argv)
{
    char line[100];
    FILE *file = strcmp(argv[1], "scratch") ? fopen("data", "r") : tmpfile();
    FILE *data = fopen("data", "r");
    fgets(line, sizeof line, data);
    fclose(data);
    if (strcmp(argv[1], "scratch"))
        fgets(line, sizeof line, file);
    else
        fputs(line, file);
    memset(line, 0, sizeof line);
    show(file);
    return 0;
}
"""

WIDTH = r"""
#include <stdio.h>
#include <stdlib.h>
static void show(void)
{
    const char *width = getenv("WIDTH");
    printf("%s\n", width && atoi(width) > 9 ? "bad" : "good");
}
int main(void)
{
    show();
    return 0;
}
"""

# The failure is one line of two, of which the first is out, or waits in a buffer, when the second is made.
TWO_LINES = r"""
#include <stdio.h>
#include <stdlib.h>
static int number;
static void second(void)
{
    printf("second %d\n", number); /* second */
}
int main(int argc, char **argv)
{
    number = atoi(argv[1]);
    printf("first %d\n", number);
    if (argc > 2)
        fflush(stdout);
    second();
    return 0; /* end */
}
"""


@pytest.fixture
def directories(tmp_path):
    """make(passing, failing): two directories with a file `data` of these contents."""

    def make(passing: str, failing: str):
        for name, text in (("one", passing), ("other", failing)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "data").write_text(text)
        return tmp_path / "one", tmp_path / "other"

    return make


class TestFiles:
    def test_same_name_in_another_directory(self, open_case, directories):
        places = directories("a\nshort\nb\n", "a\nmuch longer\nb\n")
        case = open_case(LONGEST, ["data"], ["data"], directories=places)
        start = case.isolate(case.call("main"))
        assert told(start) == [("working directory", f'"{places[0]}"', f'"{places[1]}"')]
        opened = case.isolate(case.call("read_all"))
        assert told(opened) == [("file data line 2", '"short"', '"much longer"')]
        assert opened.confirmed == start.confirmed == "both"
        assert case.inquiry.leads_to((case.call("main"), start), (case.call("read_all"), opened))
        replay, undo = case.inquiry.script(case.call("main"), start)
        for script, place in ((replay, places[1]), (undo, places[0])):
            assert script.commands[-2:] == (
                f'causechain-text $causechain_directory "{place}"',
                "causechain-call chdir $causechain_directory",
            )
        assert case.inquiry.script(case.call("read_all"), opened)[0].obstacle == "gdb cannot change the file data"
        assert [(place / "data").read_text() for place in places] == ["a\nshort\nb\n", "a\nmuch longer\nb\n"]

    def test_of_another_name(self, open_case, directories, tmp_path):
        places = directories("a\nshort\n", "")
        (places[0] / "more").write_text("a\nshort\nmuch longer\n")
        case = open_case(LONGEST, ["data"], ["more"], directories=(places[0], places[0]))
        assert told(case.isolate(case.call("read_all"))) == [("file more line 3", "", '"much longer"')]

    def test_position(self, open_case, directories):
        places = directories("a\nb\nmuch long\n", "a\nb\nmuch long\n")
        source = LONGEST.replace(
            "    read_all(file);", "    fseek(file, argv[2][0] - '0', SEEK_SET);\n    read_all(file);"
        )
        case = open_case(source, ["data", "9"], ["data", "4"], directories=places)
        # Without the arguments, of which fseek was the last to know.
        isolated = case.isolate(case.call("read_all"))
        assert told(isolated) == [("position in data", "9", "4")]

    @pytest.mark.parametrize(
        ("how", "name"), [("scratch", "what was read of scratch file"), ("input", "what was read of data")]
    )
    def test_what_a_program_goes_back_to(self, open_case, directories, how, name):
        places = directories("good\n", "evil\n")
        case = open_case(BACK, [how], [how], directories=places)
        assert told(case.isolate(case.call("show"))) == [(name, '"good\\n"', '"evil\\n"')]


class TestEnvironment:
    @pytest.mark.parametrize(
        ("passing", "failing", "told_passing", "told_failing"),
        [
            ((("WIDTH", "5"),), (("WIDTH", "50"),), '"5"', '"50"'),
            ((("WIDTH", None),), (("WIDTH", "50"),), "", '"50"'),
        ],
    )
    def test_variable(self, open_case, passing, failing, told_passing, told_failing):
        case = open_case(WIDTH, [], [], environment=(passing, failing))
        isolated = case.isolate(case.call("show"))
        assert told(isolated) == [("environment WIDTH", told_passing, told_failing)]
        assert isolated.confirmed == "both"
        replay, undo = case.inquiry.script(case.call("show"), isolated)
        assert replay.commands[-3:] == (
            'causechain-text $causechain_name "WIDTH"',
            'causechain-text $causechain_value "50"',
            "causechain-call setenv $causechain_name $causechain_value 1",
        )
        ending = " $causechain_value 1" if told_passing else ""
        assert undo.commands[-1] == f"causechain-call {'' if told_passing else 'un'}setenv $causechain_name{ending}"

    def test_program_that_knows_all_variables(self, open_case):
        source = WIDTH.replace("    show();", "    extern char **environ;\n    if (environ)\n        show();")
        case = open_case(source, [], [], environment=((("WIDTH", "5"),), (("WIDTH", "50"), ("MORE", "x"))))
        comparison = case.inquiry._compare(case.call("show")).comparison
        told_names = {delta.name for delta in comparison.deltas}
        assert {"environment WIDTH", "environment MORE"} <= told_names
        assert "environ" not in told_names
        assert told(case.isolate(case.call("show"))) == [("environment WIDTH", '"5"', '"50"')]

    def test_variable_that_is_missing(self, open_case):
        source = WIDTH.replace("&&", "&& 0 ||").replace("|| atoi(width) > 9 ?", "|| !width ?")
        case = open_case(source, [], [], environment=((("WIDTH", "5"),), (("WIDTH", None),)))
        assert told(case.isolate(case.call("show"))) == [("environment WIDTH", '"5"', "")]


class TestOutput:
    @pytest.mark.parametrize("more", [[], ["flush"]])
    @pytest.mark.parametrize("where", ["second", "end"])
    def test_failure_that_has_begun_to_show(self, open_case, directories, more, where):
        places = directories("", "")
        case = open_case(TWO_LINES, ["1", *more], ["2", *more], directories=places)
        moment = case.call("second") if where == "second" else case.at("end")
        assert case.inquiry.isolate(moment, []) is None
        assert case.inquiry.shown == {moment}
        assert case.inquiry.refused == {}

    def test_of_the_time_before_is_no_cause(self, open_case, directories):
        places = directories("", "")
        source = TWO_LINES.replace('printf("first', 'fprintf(stderr, "first')  # by which no run is judged here
        case = open_case(source, ["1"], ["2"], directories=places)
        assert told(case.isolate(case.call("second"))) == [("number", "1", "2")]
