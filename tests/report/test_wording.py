from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chains import party
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.model.alteration import Kind
from pytest_causechain.model.chain import Cause, Party, Repair
from pytest_causechain.report.wording import (
    describe_causes,
    describe_change,
    describe_command,
    describe_lines,
    describe_repair,
    end_sentence,
    name_code,
    name_function,
    name_test,
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
    assert describe_causes(causes, "was", first=False) == was
    if became is not None:
        assert describe_causes(causes, "became", first=False) == became
    assert describe_change(causes, "failing") == done
    if undone is not None:
        assert describe_change(causes, "passing") == undone


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("stdin line 4", 'line 4 of stdin was "b" (none)'),
        ("stdin lines 4-5", 'lines 4-5 of stdin were "b" (none)'),
        ("file data line 2", 'line 2 of file data was "b" (none)'),
        ("return value", 'the return value was "b" (none)'),
        ("&name", 'name was "b" (none)'),
    ],
)
def test_variables_go_by_what_a_reader_calls_them(variable: str, told: str) -> None:
    assert describe_causes([Cause(variable, "", "", '"b"', "value")], "was", first=False) == told


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
    assert describe_causes(causes[:3], "was", first=True) == (
        "a was 2 (1 in the passing run), b was 2 (1) and c was 2 (1)"
    )
    assert describe_causes(causes, "was", first=False) == "a was 2 (1), b was 2 (1), c was 2 (1) and 4 more"


@given(st.text(min_size=1, max_size=200), st.text("ab", max_size=3), st.text("ab", max_size=3))
def test_long_values_that_differ_look_different(common: str, one: str, other: str) -> None:
    passing, failing = shorten_pair(common + one, common + other)
    assert (passing == failing) == (one == other)
    assert max(len(passing), len(failing)) <= 32


def test_lines_are_joined_to_ranges() -> None:
    assert describe_lines([("a.c", 3), ("a.c", 2), ("b.c", 4), ("a.c", 7), ("a.c", 2)]) == "a.c:2-3, a.c:7 and b.c:4"
    assert describe_lines([("a.c", 3)]) == "a.c:3"


def make_repair(
    kind: Kind, variable: str | None, was: str, then: str, visit: int = 1, callee: str | None = None
) -> Repair:
    return Repair(kind, "a.c", 1, "f", visit, variable, was, then, callee)


@pytest.mark.parametrize(
    ("repair", "told"),
    [
        (make_repair("value", "count", "3", "4"), "with count = 4 instead of 3"),
        (make_repair("value", None, "3", "4"), "with 4 stored instead of 3"),
        (make_repair("value", None, "7", "8", visit=0), "with the constant 8 instead of 7"),
        (make_repair("value", None, "+", "-", visit=0), "with - instead of +"),
        (make_repair("value", None, "+", "one operand alone", visit=0), "with one operand alone instead of +"),
        (make_repair("argument", "size", "3", "2", callee="sort"), "with size = 2 instead of 3 passed to sort"),
        (make_repair("argument", "argument 2", "3", "2"), "with 2 passed as argument 2 instead of 3"),
        (make_repair("return", None, "GOOD", "BAD"), "with BAD returned instead of GOOD"),
        (make_repair("branch", None, "this way", "the other way"), "with the first branch taken the other way"),
        (
            make_repair("branch", None, "this way", "the other way", visit=12),
            "with the 12th branch taken the other way",
        ),
        (
            make_repair("branch", None, "equal values this way", "equal values the other way", visit=0),
            "with equal values the other way in the condition",
        ),
        (make_repair("branch", None, "this way round", "turned round", visit=0), "with the condition turned round"),
        (make_repair("value", "x\x1b", "\n", "9" * 99), "with x\\x1b = " + "9" * 29 + "... instead of \\n"),
    ],
)
def test_repair(repair: Repair, told: str) -> None:
    assert describe_repair(repair) == told


@pytest.mark.parametrize(
    ("repair", "told"),
    [
        (make_repair("value", None, "-3", "-2", visit=0), ("the constant in {}", "-2", "-3")),
        (make_repair("value", None, "+", "-", visit=0), ("the operator in {}", "-", "+")),
        (
            make_repair("branch", None, "this way round", "turned round", visit=0),
            ("the condition in {}", "turned round", "as written"),
        ),
        (
            make_repair("branch", None, "equal values this way", "equal values the other way", visit=0),
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
