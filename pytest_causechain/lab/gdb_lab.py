"""Experiments by re-running the program under a living gdb: slow, but works wherever gdb does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from pytest_causechain.debugger.gdb import Gdb, GdbFailure
from pytest_causechain.debugger.launch import Launch, write_launch
from pytest_causechain.debugger.program import describe_program
from pytest_causechain.debugger.visit import REGISTERS, Visit, find_register, make_visit
from pytest_causechain.lab.laboratory import FIRST_RUN_SECONDS, LOW_HALF, RECORD, Side, Trace
from pytest_causechain.model.command import Command
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Frame, Observation
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.process.closing import Closing


class GdbLab(Closing):
    """Use as a context manager. `deadline` is a time.monotonic() after which nothing new is begun.

    `run_seconds` is how long one run may take; the owner sets it once the original runs have been timed.
    """

    name = "gdb"
    recordable = 10_000

    def __init__(self, passing: Command, failing: Command, deadline: float) -> None:
        self.deadline = deadline
        self.run_seconds = FIRST_RUN_SECONDS
        self._gdb = Gdb(failing.program.path)
        try:
            self.program = describe_program(self._gdb)
            directory = self._gdb.directory
            self._launches: dict[Side, Launch] = {
                "passing": write_launch(passing, directory, "passing"),
                "failing": write_launch(failing, directory, "failing"),
            }
        except GdbFailure as failure:
            self._gdb.close()
            raise Refusal(f"gdb cannot read {failing.program.path} ({failure}): build it anew with -g.") from None
        except BaseException:
            self._gdb.close()
            raise

    def close(self) -> None:
        self._gdb.close()

    def experiment(self, side: Side, stops: Sequence[Stop] = (), transfer: Transfer = NOTHING) -> Observation:
        steps = [reach(stops), encode_transfer(transfer), {"do": "finish"}]
        return self._observe(side, self._run(side, steps))

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        memory, output = self._gdb.directory / "memory", self._gdb.directory / "visit.json"
        types = self.program.types
        steps = [reach(stops), encode_transfer(transfer), reach(then)]
        visit = {"do": "visit", "memory": str(memory), "output": str(output), "types_known": len(types)}
        steps.append(visit | {"registers": REGISTERS})
        if self._run(side, steps)["done"] < len(steps):
            return None
        answer = json.loads(output.read_bytes())
        types.extend(answer["types"])
        return make_visit(answer, memory.read_bytes(), types)

    def trace(
        self,
        side: Side,
        stops: Sequence[Stop],
        addresses: Sequence[int],
        until: Stop | None = None,
        limit: int = 10_000,
    ) -> Trace:
        output = self._gdb.directory / "trace.json"
        output.unlink(missing_ok=True)
        entries = [a for a in addresses if self.program.is_entry(a)]
        step = {"do": "trace", "addresses": list(addresses), "entries": entries, "limit": limit}
        step |= {"output": str(output), "until": [until.address, until.visit] if until else None}
        self._run(side, [reach(stops), step])
        if not output.exists():
            return Trace((), (), 0, False)
        answer = json.loads(output.read_bytes())
        records = b"".join(RECORD.pack(back & LOW_HALF, number, sp) for number, sp, back in answer["events"])
        return Trace(tuple(addresses), (records,), answer["base"], answer["complete"])

    def _run(self, side: Side, steps: list[dict[str, Any]]) -> dict[str, Any]:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise BudgetUsedUp
        launch = self._launches[side]
        launch.prepare()
        request = {
            "job": "run",
            "program": self.program.path,
            "relocated": self.program.relocated,
            "launcher": str(launch.script),
            "stdin": str(launch.stdin),
            "steps": steps,
        }
        answer = self._gdb.run(request, launch, min(left, self.run_seconds))
        ended = answer["ended"]
        if ended is not None and ended["ending"] == "timeout" and time.monotonic() >= self.deadline:
            raise BudgetUsedUp  # it might have ended, given more time
        return answer

    def _observe(self, side: Side, answer: dict[str, Any]) -> Observation:
        launch, ended = self._launches[side], answer["ended"]
        frames = tuple(Frame(f["function"], f["file"], f["line"]) for f in ended["backtrace"])
        stdout, stderr = launch.stdout.read_bytes(), launch.stderr.read_bytes()
        return Observation(ended["ending"], ended["code"], stdout, stderr, frames)


def reach(stops: Sequence[Stop]) -> dict[str, Any]:
    return {"do": "reach", "stops": [[stop.address, stop.visit] for stop in stops]}


def encode_transfer(transfer: Transfer) -> dict[str, Any]:
    places = [(find_register(address), address, data.hex()) for address, data in transfer.writes]
    return {
        "do": "transfer",
        "writes": [[address, data] for register, address, data in places if register is None],
        "registers": [[*register, data] for register, _, data in places if register is not None],
        "allocations": [{"size": a.size, "data": a.data.hex()} for a in transfer.allocations],
        "references": [[r.holder, (find_register(r.at) or [r.at])[0], r.block, r.offset] for r in transfer.references],
        "stdin": None if transfer.stdin is None else transfer.stdin.hex(),
    }
