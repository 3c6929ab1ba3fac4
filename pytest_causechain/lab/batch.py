"""Work that several engines do together, part by part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batch(Generic[Item, Result]):
    """Parts are taken from the front, smaller ones towards the end, so that all engines are through at about the same
    time; neighbouring items, which often begin at the same moment, stay together. A part that is given back is taken by
    another engine."""

    def __init__(self, items: Sequence[Item], engines: int, least: int = 1) -> None:
        """Parts of fewer than `least` are not worth asking for."""
        self._items = items
        self._engines, self._least = engines, least
        self._results: dict[int, Result] = {}
        self._waiting: list[range] = [range(len(items))] if items else []
        self._taken = 0
        self._is_over = False
        self._changed = threading.Condition()

    def take(self) -> range | None:
        """Waits while a part may yet be given back; None when nothing is left to do."""
        with self._changed:
            while not self._waiting and self._taken and not self._is_over:
                self._changed.wait()
            if not self._waiting or self._is_over:
                return None
            rest = self._waiting.pop()
            size = len(rest) if self._engines == 1 else max(self._least, -(-len(rest) // (2 * self._engines)))
            if len(rest) > size:
                self._waiting.append(rest[size:])
            self._taken += 1
            return rest[:size]

    def items_of(self, part: range) -> Sequence[Item]:
        return self._items[part.start : part.stop]

    def fill(self, part: range, results: Sequence[Result]) -> None:
        with self._changed:
            self._results.update(zip(part, results, strict=True))
            self._taken -= 1
            self._changed.notify_all()

    def give_back(self, part: range) -> None:
        """What has not been filled in the meantime."""
        with self._changed:
            if part.start not in self._results:
                self._waiting.append(part)
                self._taken -= 1
                self._changed.notify_all()

    def stop(self) -> None:
        """Nobody takes anything any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def results(self) -> list[Result]:
        return [self._results[number] for number in range(len(self._items))]
