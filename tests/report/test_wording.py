from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from chains import party
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.alteration import Kind
from pytest_causechain.model.budget import Shortfall
from pytest_causechain.model.chain import Cause, Change, Party, Repair
from pytest_causechain.report.wording import (
    describe_causes,
    describe_change,
    describe_command,
    describe_lines,
    describe_repair,
    describe_shortfall,
    end_sentence,
    name_code,
    name_function,
    name_test,
    plain,
    printable,
    quote_argument,
    shorten_pair,
    shorten_value,
)


@given(st.text(st.characters()))
def test_printable_lets_nothing_through_that_a_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert shown.isascii()
    assert shown.isprintable()


def test_printable_shows_bytes_that_are_no_text() -> None:
    assert printable(b"\xff\xc3\xa9\x1b".decode("utf-8", "surrogateescape")) == "\\xff\\u00e9\\x1b"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"], max_codepoint=0x7F), max_size=20))
def test_bash_reads_a_quoted_argument_as_it_was(argument: str) -> None:
    command = f"printf %s {quote_argument(argument)}"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout == argument.encode()


def test_command_names_the_program_without_its_directory_and_tells_its_input() -> None:
    one = Party("t", ("/opt/x/sum up", "-n", "a b"), "/", "1 2\n3\n", "")
    assert describe_command(one) == "'sum up' -n 'a b' <<< $'1 2\\n3'"
    assert describe_command(party("t", "./sum 1", "")) == "sum 1"


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("a/test_x.py::test_one[1]", "test_one[1]"),
        ("a/test_y.py::test_one[b/c]", "test_y.py::test_one[b/c]"),
        ("a/test_x.py::TestA::test_one", "TestA::test_one"),
        ("odd", "odd"),
    ],
)
def test_names_a_test_as_short_as_it_stays_clear(test: str, name: str) -> None:
    assert name_test(test, beside="a/test_x.py::test_fails") == name


@pytest.mark.parametrize(
    ("kind", "passing", "failing", "was", "became", "done", "undone"),
    [
        ("value", "7", "0", "x was 0 (7)", "x became 0 (7)", "x = 0", "x = 7"),
        ("repoint", "&a", "NULL", "x was NULL (&a)", "x became NULL (&a)", "x = NULL", "x pointing to &a"),
        ("repoint", "&a", "&b", "x pointed to &b (&a)", "x came to point to &b (&a)", "x pointing to &b", None),
        (
            "create",
            "NULL",
            "{1}",
            "x pointed to {1} (NULL)",
            "x came to point to {1} (NULL)",
            "x pointing to {1}",
            None,
        ),
        ("create", '"ab"', '"abc"', 'x was "abc" ("ab")', 'x became "abc" ("ab")', 'x = "abc"', 'x = "ab"'),
        ("delete", "{1}", "NULL", "x was NULL ({1})", "x became NULL ({1})", "x = NULL", "x pointing to {1}"),
        ("input", "", '"b"', 'x was "b" (none)', None, 'x = "b"', "x removed"),
        ("input", '"a"', "", 'x was missing ("a")', None, "x removed", 'x = "a"'),
    ],
)
def test_each_kind_of_cause_has_its_words(
    kind: str, passing: str, failing: str, was: str, became: str | None, done: str, undone: str | None
) -> None:
    causes = (Cause("x", "int", passing, failing, kind),)
    assert plain(describe_causes(causes, "was", first=False)) == was
    if became is not None:
        assert plain(describe_causes(causes, "became", first=False)) == became
    assert plain(describe_change(causes, "failing")) == done
    if undone is not None:
        assert plain(describe_change(causes, "passing")) == undone


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (Cause("stdin line 4", "", "", '"b"', "input", lines=(4, 4)), 'line 4 of stdin was "b" (none)'),
        (Cause("stdin lines 4-5", "", "", '"b"', "input", lines=(4, 5)), 'lines 4-5 of stdin were "b" (none)'),
        (Cause("file data line 2", "", "", '"b"', "input", lines=(2, 2)), 'line 2 of file data was "b" (none)'),
        (Cause("return value", "", "", '"b"', "value", is_returned=True), 'the return value was "b" (none)'),
        (Cause("&name", "", "", '"b"', "value"), 'name was "b" (none)'),
        # Not a line of an input, whatever it is called.
        (Cause("lines 4", "", "", '"b"', "value"), 'lines 4 was "b" (none)'),
    ],
)
def test_variables_go_by_what_a_reader_calls_them(cause: Cause, told: str) -> None:
    assert plain(describe_causes([cause], "was", first=False)) == told


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("12345678901234567890", "12345678901234567890"),
        ("x" * 30, "x" * 17 + "..."),
        ('"' + "x" * 30 + '"', '"' + "x" * 15 + '..."'),
        ("{1, 22, 333, 4444, 55555}", "{1, 22, 333, ...}"),
        ('{"a", {1, 2, 3}, 4, 5, 6}', '{"a", {1, 2, ...}}'),
        ("{" + "x" * 30 + "}", "{...}"),
    ],
)
def test_values_are_closed_where_they_are_cut(value: str, shown: str) -> None:
    assert shorten_value(value, 20) == shown


def test_functions_lose_their_namespaces_first() -> None:
    assert name_function("library::Catalogue::give_back", 20) == "Catalogue::give_back"
    assert name_function("library::Catalogue::give_back", 12) == "give_back"
    assert name_function("an_unusually_long_name", 12) == "an_unusua..."


def test_pair_shows_as_much_before_the_difference_as_there_is_room() -> None:
    one, other = (f"run {'x' * 40} {end}" for end in ("a", "b"))
    assert shorten_pair(one, other, 30, head=4) == (f"run ...{'x' * 21} a", f"run ...{'x' * 21} b")


def test_more_than_three_causes_are_counted() -> None:
    causes = tuple(Cause(name, "int", "1", "2", "value") for name in "abcdefg")
    assert plain(describe_causes(causes[:3], "was", first=True)) == (
        "a was 2 (1 in the passing run), b was 2 (1) and c was 2 (1)"
    )
    assert plain(describe_causes(causes, "was", first=False)) == "a was 2 (1), b was 2 (1), c was 2 (1) and 4 more"


@given(st.text(min_size=1, max_size=200), st.text("ab", max_size=3), st.text("ab", max_size=3))
def test_long_values_that_differ_look_different(common: str, one: str, other: str) -> None:
    passing, failing = shorten_pair(common + one, common + other)
    assert (passing == failing) == (one == other)
    assert max(len(passing), len(failing)) <= 32


def test_lines_are_joined_to_ranges() -> None:
    assert describe_lines([("a.c", 3), ("a.c", 2), ("b.c", 4), ("a.c", 7), ("a.c", 2)]) == "a.c:2-3, a.c:7 and b.c:4"
    assert describe_lines([("a.c", 3)]) == "a.c:3"


def make_repair(
    kind: Kind, variable: str | None, old: str, new: str, visit: int = 1, callee: str | None = None, **more: object
) -> Repair:
    return replace(Repair(kind, "a.c", 1, "f", visit, variable, old, new, callee), **more)


def make_change(change: Change, old: str = "", new: str = "", **more: object) -> Repair:
    """Of the code."""
    kind: Kind = "value" if change in ("constant", "operator") else "branch"
    return make_repair(kind, None, old, new, visit=0, change=change, **more)


@pytest.mark.parametrize(
    ("repair", "told"),
    [
        (make_repair("value", "count", "3", "4"), "with count = 4 instead of 3"),
        (make_repair("value", None, "3", "4"), "with 4 stored instead of 3"),
        (make_change("constant", "7", "8"), "with the constant 8 instead of 7"),
        (make_change("operator", "+", "-"), "with - instead of +"),
        (make_change("operator", "+"), "with one operand alone instead of +"),
        (make_repair("argument", "size", "3", "2", callee="sort"), "with size = 2 instead of 3 passed to sort"),
        (make_repair("argument", "size", "3", "2"), "with size = 2 instead of 3 passed"),
        (
            make_repair("argument", "argument 2", "3", "2", argument=2),
            "with 2 passed as argument 2 instead of 3",
        ),
        # A variable may be called like a word of ours.
        (make_repair("argument", "argument ", "3", "2"), "with argument  = 2 instead of 3 passed"),
        (make_repair("value", "x", "1", "equal", visit=0), "with x = equal instead of 1"),
        (make_repair("return", None, "GOOD", "BAD"), "with BAD returned instead of GOOD"),
        (make_repair("branch", None, "", "", change="other way"), "with the first branch taken the other way"),
        (
            make_repair("branch", None, "", "", visit=12, change="other way"),
            "with the 12th branch taken the other way",
        ),
        (make_change("equal values"), "with equal values the other way in the condition"),
        (make_change("turned round"), "with the condition turned round"),
        (make_change("forced", target=12), "with the condition always leading to line 12"),
        (make_repair("value", "x\x1b", "\n", "9" * 99), "with x\\x1b = " + "9" * 29 + "... instead of \\n"),
    ],
)
def test_repair(repair: Repair, told: str) -> None:
    assert describe_repair(repair) == told


@pytest.mark.parametrize(
    ("repair", "told"),
    [
        (make_change("constant", "-3", "-2"), ("the constant in {}", "-2", "-3")),
        (make_change("operator", "+", "-"), ("the operator in {}", "-", "+")),
        (make_change("operator", "+"), ("the operator in {}", "one operand alone", "+")),
        (make_change("turned round"), ("the condition in {}", "turned round", "as written")),
        (make_change("forced", target=12), ("the condition in {}", "always leading to line 12", "as written")),
        (
            make_change("equal values"),
            ("the condition in {}", "with equal values the other way", "as written"),
        ),
    ],
)
def test_code_as_a_variable(repair: Repair, told: tuple[str, str, str]) -> None:
    name, passing, failing = told
    assert name_code(repair) == (name.format(f"{Path(repair.file).name}:{repair.line}"), passing, failing)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("it fails", "it fails."), ("it fails.", "it fails."), ("it contains 'a...", "it contains 'a...")],
)
def test_a_sentence_ends_once(text: str, sentence: str) -> None:
    assert end_sentence(text) == sentence


@pytest.mark.parametrize(
    ("shortfall", "expected"),
    [
        (Shortfall("repairs", 212, 900), "The search for repairs was cut short: 212 of 900 places tried."),
        (
            Shortfall("repairs", 52, 52),
            "The search for repairs was cut short: all 52 places tried, but not in every way.",
        ),
        (Shortfall("repairs", 0), "The search for repairs was cut short before it began."),
        (Shortfall("twin", 1), "The comparison with the twin was cut short: 1 moment tried."),
    ],
)
def test_what_was_cut_short(shortfall: Shortfall, expected: str) -> None:
    assert describe_shortfall(shortfall) == expected
