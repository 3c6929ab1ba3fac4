"""The variables of the environment, read from the memory of a run."""

from __future__ import annotations

from pytest_causechain.states.memory import WORD, Memory

# A program whose memory is ruined may have a vector without end.
VARIABLES_LIMIT = 10_000


def read_environment(memory: Memory, environment: tuple[int, int] | None) -> dict[bytes, bytes]:
    """By name; nothing where it is not known. Of two variables of one name the program finds the first."""
    return {
        name: value
        for text in reversed(list_texts(memory, environment))
        for name, separator, value in (text.partition(b"="),)
        if separator
    }


def list_texts(memory: Memory, environment: tuple[int, int] | None) -> list[bytes]:
    texts: list[bytes] = []
    address = environment[1] if environment is not None else 0
    while address and len(texts) < VARIABLES_LIMIT and (pointer := memory.word(address)):
        texts.append((memory.read_text(pointer) or b"").rstrip(b"\0"))
        address += WORD.size
    return texts
