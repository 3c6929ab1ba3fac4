import subprocess

import pytest

MEANINGS = {
    "bow": "front of a ship",
    "hull": "body of a ship",
    "keel": "lowest beam",
    "mast": "pole for sails",
    "stern": "back of a ship",
}


def run_glossary(program, words, *arguments):
    lines = "".join(f"{word} {MEANINGS[word]}\n" for word in words.split())
    return subprocess.run([program, *arguments], input=lines, capture_output=True, text=True)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("hull bow keel", id="balanced"),
        pytest.param("bow hull keel", id="ascending"),
        pytest.param("keel hull bow", id="descending"),
        pytest.param("hull bow keel mast stern", id="five"),
    ],
)
def test_alphabetical_order(program, words):
    run = run_glossary(program, words)
    assert run.returncode == 0
    assert run.stdout.splitlines() == [f"{word}: {MEANINGS[word]}" for word in sorted(words.split())]


@pytest.mark.parametrize("words", ["bow hull keel", "hull bow keel", "hull keel bow"])
def test_tree_is_balanced(program, words):
    run = run_glossary(program, words, "-d")
    assert run.stdout.splitlines() == ["1 bow", "0 hull", "1 keel"]


def test_looks_up(program):
    run = run_glossary(program, "hull keel", "keel")
    assert (run.returncode, run.stdout) == (0, "lowest beam\n")


def test_unknown_word(program):
    run = run_glossary(program, "hull keel", "mast")
    assert (run.returncode, run.stderr) == (1, "glossary: what is mast?\n")


def test_later_meaning_replaces(program):
    run = subprocess.run([program], input="bow weapon\nbow front of a ship\n", capture_output=True, text=True)
    assert run.stdout == "bow: front of a ship\n"
