"""What engines are sent and answer arrives as it was."""

from __future__ import annotations

import pickle

import pytest

from pytest_causechain.debugger.visit import LoadedFile, Region, Variable, VisitedFrame
from pytest_causechain.model.alteration import Intervention, Spot, Transfer
from pytest_causechain.model.codec import Sendable
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.runs import Frame, Observation

VARIABLE = Variable("a", 3, 1, 0x7FFF_0000, 5, pending=False)
SPOT = Spot("return", (Stop(0x1234, 2),), "rax", 4)


@pytest.mark.parametrize(
    "sent",
    [
        VisitedFrame("main", None, 7, 0x1234, 0x7FFE_0000, (VARIABLE,), 0x7FFF_0010),
        Region(0x1000, b"\0\1", "heap"),
        LoadedFile("libc", 1, 2),
        Observation("signal", 11, b"out", b"", (Frame("main", "a.c", 3),), (("file", None),)),
        Intervention(SPOT, b"\1"),
        Transfer(((0x1000, b"\2"),)),
    ],
    ids=lambda sent: type(sent).__name__,
)
def test_it_arrives(sent):
    assert isinstance(sent, Sendable)
    received = pickle.loads(pickle.dumps(sent))
    assert received == sent
    assert type(received) is type(sent)
