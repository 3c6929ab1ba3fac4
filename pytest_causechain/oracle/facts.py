"""Turns what a failing test says into bounded plain text that can cross to another process, and compared values into
facts: what the failing run shows that no right run does.

A mixed state has no expected output. What it may be asked is whether it shows what only the failing run shows,
so facts are derived from three values: the failing run's, the passing run's, and the one the test expects.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Literal

from pytest_causechain.model.verdict import Comparison, Value

if TYPE_CHECKING:
    import pytest

# A comparison crosses a pipe with each verdict. What is longer is cut and gets a digest of the whole, so that
# different values stay different; no reader sees that much of it.
MAX_TEXT_CHARACTERS = 2000
MAX_ELEMENT_CHARACTERS = 300
MAX_ELEMENTS = 2000
MAX_MESSAGE_CHARACTERS = 200


def describe_comparison(operator: str, left: object, right: object) -> Comparison:
    return Comparison(operator, describe_value(left), describe_value(right))


def describe_value(value: object) -> Value:
    text = _bound(_represent(value), MAX_TEXT_CHARACTERS)
    match value:
        case str():
            return _describe_text(value, text)
        case bytes() | bytearray():
            return _describe_text(value.decode(errors="backslashreplace"), text)
        case list() | tuple():
            return Value("sequence", text, _take_elements(map(_represent, value)))
        case set() | frozenset():
            # Equal sets may be written in different orders.
            members = sorted(map(_represent, value))
            text = _bound(f"{{{', '.join(members)}}}", MAX_TEXT_CHARACTERS)
            return Value("set", text, _take_elements(members))
        case dict():
            return Value("mapping", text, _take_elements(f"{_represent(k)}: {_represent(v)}" for k, v in value.items()))
        case _:
            return Value("scalar", text)


def _describe_text(string: str, text: str) -> Value:
    lines = string.removesuffix("\n").split("\n")
    if len(lines) > 1:
        return Value("lines", text, _take_elements(lines))
    return Value("words", text, _take_elements(string.split()))


def _take_elements(elements: Iterable[str]) -> tuple[str, ...]:
    return tuple(_bound(element, MAX_ELEMENT_CHARACTERS) for element in islice(elements, MAX_ELEMENTS))


def _represent(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


def _bound(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def describe_message(error: BaseException) -> str:
    """Returns the first line of an exception's text."""
    return _read_text(error).partition("\n")[0][:MAX_MESSAGE_CHARACTERS]


def digest_message(error: BaseException) -> str:
    return hashlib.sha256(_read_text(error).encode(errors="replace")).hexdigest()


def _read_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def locate_crash(report: pytest.TestReport) -> str | None:
    """Returns where pytest reports that the exception was raised; None where it does not."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.path}:{crash.lineno}" if crash is not None else None


# Facts

TEXT_KINDS = frozenset({"lines", "words"})
ORDERED_KINDS = frozenset({"sequence", "lines", "words"})

# A reader takes in three facts at a glance; the others are counted.
MAX_FACTS_SHOWN = 3
MAX_SHOWN_CHARACTERS = 30
# The sentence stands on one line of the report, behind "A run fails when".
MAX_SENTENCE_CHARACTERS = 100

_NOUNS = {"sequence": "list", "set": "set", "mapping": "dictionary", "lines": "text", "words": "text"}
_PLACES = {"sequence": "at index {0}", "lines": "in line {1}", "words": "as word {1}"}
_MISSING = {"sequence": "element {0}", "lines": "line {1}", "words": "word {1}"}


@dataclass(frozen=True, slots=True)
class Fact:
    """Something true of the failing run's value and untrue of the passing run's.

    "contains" and "lacks" are about `element` anywhere, "at" about `element` at `index`, "short" about there being
    nothing at `index`, "is" about the whole value's text.
    """

    kind: Literal["contains", "lacks", "at", "short", "is"]
    element: str = ""
    index: int = 0

    def holds(self, value: Value, members: frozenset[str]) -> bool:
        """`members` are the value's elements, made a set once for all facts."""
        match self.kind:
            case "contains":
                return self.element in members
            case "lacks":
                return self.element not in members
            case "at":
                return value.elements[self.index : self.index + 1] == (self.element,)
            case "short":
                return len(value.elements) <= self.index
            case "is":
                return value.text == self.element


@dataclass(frozen=True, slots=True)
class Symptom:
    """Facts about a value taken as `kind`; `passing` is the passing run's whole value where only that counts."""

    kind: str
    facts: tuple[Fact, ...]
    passing: str | None = None

    def compare(self, value: Value) -> Literal["all", "none", "some"]:
        """Tells how many of the facts hold. A whole value that is neither run's is "some": there are no degrees."""
        seen = as_words(value) if self.kind == "words" else value
        members = frozenset(seen.elements)
        held = sum(fact.holds(seen, members) for fact in self.facts)
        if held == len(self.facts):
            return "all"
        if held or (self.passing is not None and value.text != self.passing):
            return "some"
        return "none"


def derive_symptoms(passing: Value, failing: Value, expected: Value) -> Iterator[Symptom]:
    """Yields the symptoms that tell the two runs' values apart, best first: by membership, by position, by equality."""
    views = list(_common_views(passing, failing, expected))
    for derive in (_derive_membership, _derive_positions):
        symptoms = [Symptom(view[0].kind, facts) for view in views if (facts := derive(*view))]
        # Few facts survive in a mixed state, many hardly ever do; in a tie the finer view, which comes first, tells
        # the wrong word from its innocent line.
        yield from sorted(symptoms, key=lambda symptom: len(symptom.facts))
        # The words of a list's texts have no positions of their own.
        views = [view for view in views if failing.kind != "sequence" or view[0].kind == "sequence"]
    if failing.text != passing.text:
        yield Symptom(failing.kind, (Fact("is", failing.text),), passing.text)


def _common_views(passing: Value, failing: Value, expected: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Yields the values in each form in which all can be compared, the finest first.

    An expectation of another kind (None, a number, a regular expression) says nothing about elements.
    """
    if failing.kind in TEXT_KINDS and passing.kind in TEXT_KINDS:
        known = expected if expected.kind in TEXT_KINDS else Value("words", expected.text)
        yield as_words(passing), as_words(failing), as_words(known)
        if failing.kind == passing.kind == "lines":
            yield passing, failing, _as_lines(known)
    elif failing.kind == passing.kind != "scalar":
        known = expected if expected.kind == failing.kind else replace(expected, kind=failing.kind, elements=())
        if _holds_sentences(failing) or _holds_sentences(passing):
            yield as_words(passing), as_words(failing), as_words(known)
        yield passing, failing, known


def _holds_sentences(value: Value) -> bool:
    """Tells whether it is a list of texts of several words, such as the lines of an output."""
    return (
        value.kind == "sequence"
        and all(element[:1] in ("'", '"') for element in value.elements)
        and any(len(_read_element(element).split()) > 1 for element in value.elements)
    )


def as_words(value: Value) -> Value:
    match value.kind:
        case "lines":
            texts: Iterable[str] = value.elements
        case "sequence":
            texts = map(_read_element, value.elements)
        case _:
            return value
    return replace(value, kind="words", elements=tuple(" ".join(texts).split()))


def _read_element(element: str) -> str:
    """Returns the text of which a list's element is the repr; anything else is left as it is."""
    try:
        text = ast.literal_eval(element)
    except (ValueError, SyntaxError):  # such as one that was cut
        return element
    return text if isinstance(text, str) else element


def _as_lines(value: Value) -> Value:
    """Takes words as a text of one line; how they were spaced matters only where whole texts are compared."""
    if value.kind != "words":
        return value
    return replace(value, kind="lines", elements=(" ".join(value.elements),) if value.elements else ())


def _derive_membership(passing: Value, failing: Value, expected: Value) -> tuple[Fact, ...]:
    right = set(passing.elements).union(expected.elements)
    shown = [element for element in dict.fromkeys(failing.elements) if element not in right]
    wanted = set(expected.elements).difference(failing.elements)
    missing = [element for element in dict.fromkeys(passing.elements) if element in wanted]
    return (*(Fact("contains", element) for element in shown), *(Fact("lacks", element) for element in missing))


def _derive_positions(passing: Value, failing: Value, expected: Value) -> tuple[Fact, ...]:
    if failing.kind not in ORDERED_KINDS:
        return ()
    facts = []
    for index, element in enumerate(failing.elements):
        right = passing.elements[index : index + 1] + expected.elements[index : index + 1]
        if element not in right:
            facts.append(Fact("at", element, index))
    end = len(failing.elements)
    if end < min(len(passing.elements), len(expected.elements)):
        facts.append(Fact("short", index=end))
    return tuple(facts)


def tell_symptom(symptom: Symptom, value: Value, where: str) -> str:
    """Returns the sentence behind "A run fails when", about the value compared at `where`, here the failing run's."""
    subject = f"the {tell_kind(value)} compared at {where}"
    if symptom.passing is not None:
        return f"{subject} is {shorten(value.text)} ({shorten(symptom.passing)} in the passing run)"
    for count in range(MAX_FACTS_SHOWN, 0, -1):
        sentence = f"{subject} {_tell_facts(symptom, value, count)}"
        if len(sentence) <= MAX_SENTENCE_CHARACTERS:
            break
    return sentence


def tell_kind(value: Value) -> str:
    return _NOUNS.get(value.kind, "value")


def _tell_facts(symptom: Symptom, value: Value, count: int) -> str:
    """Words the first `count` facts, each verb said once: "contains '0', '7' and lacks '14' and 4 more"."""
    told: dict[str, list[str]] = {}
    for fact in symptom.facts[:count]:
        verb, thing = _word_fact(fact, symptom.kind)
        if symptom.kind == "words" and value.kind == "sequence":
            verb += " the word"
        told.setdefault(verb, []).append(thing)
    rest = len(symptom.facts) - count
    phrases = [f"{verb} {', '.join(things)}" for verb, things in told.items()]
    return " and ".join(phrases + ([f"{rest} more"] if rest > 0 else []))


def _word_fact(fact: Fact, kind: str) -> tuple[str, str]:
    # Elements of collections are reprs already.
    element = shorten(repr(fact.element) if kind in TEXT_KINDS else fact.element)
    match fact.kind:
        case "at":
            return "has", f"{element} {_PLACES[kind].format(fact.index, fact.index + 1)}"
        case "short":
            return "has no", _MISSING[kind].format(fact.index, fact.index + 1)
        case _:
            return fact.kind, element


def shorten(text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Cuts a text to one line of at most `limit` characters."""
    line = " ".join(text.splitlines())
    return line if len(line) <= limit else line[: limit - 3] + "..."
