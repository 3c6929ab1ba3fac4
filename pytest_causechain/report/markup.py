"""Text inside HTML and SVG, with nothing in it that a browser obeys or a reader cannot see."""

from __future__ import annotations

import html

from pytest_causechain.report.wording import printable


def escape(text: str) -> str:
    """Letters of all languages stay; what has no shape, or turns the direction of writing, is written out."""
    return html.escape("".join(c if c.isprintable() else printable(c) for c in text))


def escape_block(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(escape(line) for line in text.split("\n"))
