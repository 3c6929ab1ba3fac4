from __future__ import annotations

import pytest

from pytest_causechain.recording.programs import identify_program
from pytest_causechain.recording.recorder import settle_options


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ({}, {"ASAN_OPTIONS": "detect_leaks=0"}),
        ({"ASAN_OPTIONS": "verbosity=1"}, {"ASAN_OPTIONS": "verbosity=1:detect_leaks=0"}),
        ({"ASAN_OPTIONS": "detect_leaks=1"}, {"ASAN_OPTIONS": "detect_leaks=1"}),
    ],
)
def test_leaks_are_not_looked_for(build, given, settled):
    program = identify_program(str(build("checked", "-g", "-fsanitize=address")))
    assert settle_options(program, given) == settled


def test_other_programs_are_left_alone(program):
    assert settle_options(identify_program(str(program)), {"A": "1"}) == {"A": "1"}
