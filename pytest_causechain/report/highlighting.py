"""Turns lines of C and C++ into coloured ones, for a terminal and for a page.

Pygments, which pytest itself needs, tells what the words are; it is imported when somebody wants colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# What a word is, by Pygments' names; the first that holds decides.
KINDS = (
    ("Comment.Preproc", "preprocessor"),
    ("Comment", "comment"),
    ("Keyword.Type", "type"),
    ("Keyword", "keyword"),
    ("Name.Function", "function"),
    ("Name.Class", "type"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
)
ANSI = {
    "preprocessor": "35",
    "comment": "90",
    "type": "36",
    "keyword": "94",
    "function": "1",
    "string": "33",
    "number": "35",
}
FAILS, PASSES, HEAD, FAINT = "31;1", "32;1", "1", "90"
# A file without end must not keep the report waiting.
MOST_CHARACTERS = 2_000_000

Words = list[tuple[str, str]]


def split_words(lines: Sequence[str]) -> list[Words]:
    """Kind and text of the words of each line; the kind is empty for what needs no colour."""
    text = "\n".join(lines)
    return _split_text(text) if len(text) <= MOST_CHARACTERS else [[("", line)] for line in lines]


# The links of a chain lie in a few files, many in one of them.
@lru_cache(maxsize=8)
def _split_text(text: str) -> list[Words]:
    from pygments.lexers import get_lexer_by_name

    words: list[Words] = [[]]
    for token, value in get_lexer_by_name("cpp", stripnl=False, ensurenl=False).get_tokens(text):
        name = str(token).removeprefix("Token.")
        kind = next((kind for prefix, kind in KINDS if name.startswith(prefix)), "")
        first, *rest = value.split("\n")
        words[-1].append((kind, first))
        words += [[(kind, part)] for part in rest]
    return [[word for word in line if word[1]] for line in words[: text.count("\n") + 1]]


def paint_code(line: str) -> str:
    """One line of source for a terminal."""
    (words,) = split_words([line])
    return "".join(_paint(text, ANSI.get(kind, "")) for kind, text in words)


def paint_text(text: str) -> str:
    """A whole report by `render_text` for a terminal; without the colours it is the same."""
    return "\n".join(_paint_line(line) for line in text.split("\n"))


def _paint_line(line: str) -> str:
    if excerpt := re.fullmatch(r"(  > *\d+ \| |    *\d+ \| )(.*)", line):
        is_focus = excerpt[1].startswith("  >")
        return _paint(excerpt[1], FAILS if is_focus else FAINT) + paint_code(excerpt[2])
    if party := re.fullmatch(r"(fails|passes)(   .*)", line):
        return _paint(party[1], FAILS if party[1] == "fails" else PASSES) + party[2]
    if label := re.fullmatch(r"(Proof|Replay|Incomplete|Beside|No cause-effect chain)\b(.*)", line):
        return _paint(label[1], HEAD) + label[2]
    if line.startswith("With ") or line.endswith("the test passes."):
        return _paint(line, HEAD)
    if pointer := re.fullmatch(r"(.*)(<- look .*)", line):
        return pointer[1] + _paint(pointer[2], FAILS)
    if link := re.fullmatch(r"(  +\d+)(  +\S+:\d+)(.*)", line):
        return _paint(link[1], HEAD) + _paint(link[2], ANSI["type"]) + link[3]
    return line


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text.strip() else text
