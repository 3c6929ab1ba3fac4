"""The program's source files: the lines around a place, for the terminal and for a page in colours.

Pygments, which pytest itself needs, tells what the words are; it is imported when somebody wants colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

ReadSource = Callable[[str], Sequence[str]]

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
# A file without end must not keep the report waiting.
MOST_CHARACTERS = 2_000_000

Words = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The lines from `first` to `last` of a `source`, all counted from 1; `focus` is the one that matters."""

    source: Sequence[str]
    first: int
    focus: int
    last: int

    @property
    def lines(self) -> list[tuple[int, str]]:
        return [(number, self.source[number - 1].rstrip()) for number in range(self.first, self.last + 1)]

    def narrow(self, around: int) -> Excerpt:
        """No more than so many lines on either side, and none that are empty at the ends."""
        first, last = max(self.focus - around, self.first), min(self.focus + around, self.last)
        while first < self.focus and not self.source[first - 1].strip():
            first += 1
        while last > self.focus and not self.source[last - 1].strip():
            last -= 1
        return replace(self, first=first, last=last)


def read_lines(file: str) -> Sequence[str]:
    """The lines of a source file; OSError when it is not there (any more)."""
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(file)
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")


def find_excerpt(source: Sequence[str], line: int, around: int) -> Excerpt | None:
    """The line between its neighbours; None when the source has no such line (any more)."""
    if not 1 <= line <= len(source) or not source[line - 1].strip():
        return None
    return Excerpt(source, 1, line, len(source)).narrow(around)


def locate_file(file: str, root: Path | None) -> str:
    """Debug information may have a path from the directory the program was built in."""
    return file if root is None else str(root / file)


def show_path(path: str | Path, root: Path | None) -> str:
    """As seen from `root` where it lies below."""
    path = Path(path)
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else str(path)


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
