"""Turns a compared Python object into a Value: bounded plain text that can cross to another process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

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
    """The first line of an exception's text."""
    return _read_text(error).partition("\n")[0][:MAX_MESSAGE_CHARACTERS]


def digest_message(error: BaseException) -> str:
    return hashlib.sha256(_read_text(error).encode(errors="replace")).hexdigest()


def _read_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def locate_crash(report: pytest.TestReport) -> str | None:
    """Where pytest reports that the exception came up; None where it does not."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{crash.path}:{crash.lineno}" if crash is not None else None
