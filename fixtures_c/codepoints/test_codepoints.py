import subprocess

import pytest


def run_codepoints(program, data, *options):
    return subprocess.run([program, *options], input=data, capture_output=True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("hi!", id="ascii"),
        pytest.param("caf\u00e9", id="latin"),
        pytest.param("5 \u20ac", id="currency"),
        pytest.param("\u8a9e", id="chinese"),
        pytest.param("\u65e5\u66ac", id="two"),
        pytest.param("\U0001d11e", id="clef"),
    ],
)
def test_numbers(program, text):
    run = run_codepoints(program, text.encode())
    assert run.returncode == 0
    numbers = [line.split()[0] for line in run.stdout.decode().splitlines()]
    assert numbers == [f"U+{ord(character):04X}" for character in text]


def test_printable_characters_are_shown(program):
    assert run_codepoints(program, b"A\t").stdout == b"U+0041 A\nU+0009\n"


def test_summary(program):
    run = run_codepoints(program, "na\u00efve \u20ac".encode(), "-s")
    assert run.stdout == b"5 of 1 bytes\n1 of 2 bytes\n1 of 3 bytes\n"


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        pytest.param(b"ab\xff", 2, id="never-first"),
        pytest.param(b"a\xe2\x82", 1, id="cut-short"),
        pytest.param(b"\xc3A", 0, id="no-continuation"),
    ],
)
def test_wrong_text(program, data, offset):
    run = run_codepoints(program, data)
    assert (run.returncode, run.stderr.decode()) == (1, f"codepoints: no character at byte {offset}\n")
