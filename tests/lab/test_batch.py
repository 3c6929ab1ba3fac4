"""Work that engines do together: every item once, in order, whoever fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_causechain.lab.remote_lab import Batch


def work(batch: Batch[int, int], failures: int = 0) -> None:
    """Squares numbers, and gives the first few parts back."""
    while (part := batch.take()) is not None:
        if failures:
            failures -= 1
            batch.give_back(part)
        else:
            batch.fill(part, [number * number for number in batch.items_of(part)])


@given(st.lists(st.integers(), max_size=60), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_results_are_in_order_whoever_made_them(items, failures):
    batch = Batch[int, int](items, len(failures))
    with ThreadPoolExecutor(len(failures)) as pool:
        for hand in [pool.submit(work, batch, count) for count in failures]:
            hand.result()
    assert batch.results() == [number * number for number in items]


def test_alone_all_is_one_part():
    batch = Batch[int, int](range(48), 1)
    assert batch.take() == range(48)


def test_parts_become_smaller():
    batch = Batch[int, int](range(48), 2)
    parts = []
    while (part := batch.take()) is not None and len(parts) < 50:
        parts.append(len(part))
        batch.fill(part, part)
    assert parts == sorted(parts, reverse=True)
    assert (parts[0], parts[-1], sum(parts)) == (12, 1, 48)


def test_parts_that_are_not_worth_asking_for():
    batch = Batch[int, int](range(48), 2, least=7)
    parts = []
    while (part := batch.take()) is not None:
        parts.append(len(part))
        batch.fill(part, part)
    assert (parts[-2:], sum(parts)) == ([7, 6], 48)


def test_nothing_is_taken_once_it_is_over():
    batch = Batch[int, int](range(4), 2)
    first = batch.take()
    batch.stop()
    assert batch.take() is None
    batch.give_back(first)
    assert batch.take() is None


def test_what_is_missing_is_not_made_up():
    with pytest.raises(KeyError):
        Batch[int, int](range(4), 2).results()
