import subprocess

import pytest


def run_fill(program, text, *options):
    return subprocess.run([program, *options], input=text, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("one two\nthree four\n", "one two three\nfour\n", id="short-lines"),
        pytest.param("one two three four five\n", "one two three\nfour five\n", id="long-line"),
        pytest.param("one   two\n  three\n", "one two three\n", id="blanks"),
        pytest.param("one\n\n\ntwo\n", "one\n\ntwo\n", id="two-paragraphs"),
        pytest.param("one two\n\nthree four five\n", "one two\n\nthree four\nfive\n", id="second-is-longer"),
        pytest.param("> as  it is\none\n", "> as  it is\none\n", id="quotation"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_fills_lines(program, text, expected):
    run = run_fill(program, text, "-w", "14")
    assert (run.returncode, run.stdout) == (0, expected)


def test_indented_paragraphs(program):
    run = run_fill(program, "one two three\n\none two three\n", "-w", "12", "-i", "3")
    assert run.stdout == "   one two\nthree\n\n   one two\nthree\n"


def test_word_longer_than_the_line(program):
    run = run_fill(program, "a incomprehensible b\n", "-w", "10")
    assert run.stdout == "a\nincomprehensible\nb\n"


@pytest.mark.parametrize("options", ["-w 9", "-i", "-x 3"])
def test_usage(program, options):
    assert run_fill(program, "", *options.split()).returncode == 2
