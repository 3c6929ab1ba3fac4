"""Experiments by re-running the program under a living gdb: slow, but works wherever gdb does."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_causechain.debugger.debugger import Debugger
from pytest_causechain.debugger.gdb import Gdb
from pytest_causechain.debugger.launch import Launch, write_launch
from pytest_causechain.debugger.visit import REGISTERS, Visit, find_register, make_visit
from pytest_causechain.kernel.processes import Mapping, NotMapped, locate_modules
from pytest_causechain.lab.laboratory import FIRST_RUN_SECONDS, RECORD, Lab, Side, Trace
from pytest_causechain.lab.libraries import Libraries, choose_libraries
from pytest_causechain.lab.presence import Presence
from pytest_causechain.model.command import Command
from pytest_causechain.model.load_map import LOW_HALF, LoadMap
from pytest_causechain.model.moment import Stop
from pytest_causechain.model.observation import Frame, Observation
from pytest_causechain.model.refusal import BudgetUsedUp, Refusal
from pytest_causechain.model.transfer import NOTHING, Transfer
from pytest_causechain.sandbox.stage import Stage
from pytest_causechain.sandbox.subject import CannotStart, explain_other_libraries


class GdbLab(Lab):
    """`deadline` is a time.monotonic() after which nothing new is begun.

    `run_seconds` is how long one run may take; the owner sets it once the original runs have been timed.
    """

    name = "gdb"
    recordable = 10_000
    width = 1

    def __init__(
        self,
        passing: Command,
        failing: Command,
        deadline: float,
        libraries: Sequence[str] = (),
        cache: Path | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._stage = stage
        self._presence = Presence(stage)
        self.deadline = deadline
        self.run_seconds = FIRST_RUN_SECONDS
        self._load_maps: dict[Side, LoadMap] = {}
        found = find_libraries(failing, libraries, self._seconds()) if libraries else Libraries()
        self.notes = found.notes
        self._debugger = Debugger(failing.program.path, found.paths, cache)
        self.program = self._debugger.program
        try:
            self._gdb = self._debugger.gdb
            directory = self._gdb.directory
            self._launches: dict[Side, Launch] = {
                "passing": write_launch(passing, directory, "passing"),
                "failing": write_launch(failing, directory, "failing"),
            }
        except BaseException:
            self._debugger.close()
            raise

    def close(self) -> None:
        self._debugger.close()

    def processes(self) -> list[int]:
        """Those that it keeps between two calls."""
        return [self._gdb.pid]

    def experiments(self, side: Side, stops: Sequence[Stop], transfers: Sequence[Transfer]) -> list[Observation]:
        way = self._reach(side, stops)
        return [
            self._observe(side, self._run(side, [way, encode_transfer(transfer), {"do": "finish"}]))
            for transfer in transfers
        ]

    def visit(
        self, side: Side, stops: Sequence[Stop], transfer: Transfer = NOTHING, then: Sequence[Stop] = ()
    ) -> Visit | None:
        memory, output = self._gdb.directory / "memory", self._gdb.directory / "visit.json"
        types = self.program.types
        steps = [self._reach(side, stops), encode_transfer(transfer), self._reach(side, then)]
        visit = {"do": "visit", "memory": str(memory), "output": str(output), "types_known": len(types)}
        steps.append(visit | {"registers": REGISTERS})
        if self._run(side, steps)["done"] < len(steps):
            return None
        answer = json.loads(output.read_bytes())
        types.extend(answer["types"])
        stdin = self._launches[side].command.stdin
        return make_visit(answer, memory.read_bytes(), types, self._load_map(side), stdin)

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
        load_map = self._load_map(side)
        places = [load_map.to_run(address) for address in addresses]
        entries = [place for place, a in zip(places, addresses, strict=True) if self.program.is_entry(a)]
        step = {"do": "trace", "addresses": places, "entries": entries, "limit": limit, "output": str(output)}
        step["until"] = [load_map.to_run(until.address), until.visit] if until else None
        self._run(side, [self._reach(side, stops), step])
        if not output.exists():
            return Trace((), (), load_map, False)
        answer = json.loads(output.read_bytes())
        records = b"".join(RECORD.pack(back & LOW_HALF, number, sp) for number, sp, back in answer["events"])
        return Trace(tuple(addresses), (records,), load_map, answer["complete"])

    def _reach(self, side: Side, stops: Sequence[Stop]) -> dict[str, Any]:
        places = [[self._load_map(side).to_run(stop.address), stop.visit] for stop in stops]
        return {"do": "reach", "stops": places}

    def _load_map(self, side: Side) -> LoadMap:
        """The same in each run of a side: gdb refuses a system where it is not."""
        if side not in self._load_maps:
            program = self.program
            mappings = read_mappings(self._gdb, self._launches[side], self._seconds())
            try:
                load_map = locate_modules(mappings, program.path, program.relocated, program.libraries)
            except NotMapped as missing:
                raise Refusal(explain_other_libraries(missing.path)) from None
            self._load_maps[side] = load_map
        return self._load_maps[side]

    def _seconds(self) -> float:
        """For the next run."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise BudgetUsedUp
        return min(left, self.run_seconds)

    def _run(self, side: Side, steps: list[dict[str, Any]]) -> dict[str, Any]:
        command = self._launches[side].command
        self._presence.require(command)
        if self._stage is not None:
            self._stage.renew()
        for file in self._presence.settle(command).inputs:
            file.restore()
        own = {"own": self.program.modules, "libraries": self.program.place_libraries(self._load_map(side))}
        answer = run_program(self._gdb, self._launches[side], self._seconds(), steps, **own)
        ended = answer["ended"]
        if ended is not None and ended["ending"] == "timeout" and time.monotonic() >= self.deadline:
            raise BudgetUsedUp  # it might have ended, given more time
        return answer

    def _observe(self, side: Side, answer: dict[str, Any]) -> Observation:
        launch, ended = self._launches[side], answer["ended"]
        frames = tuple(Frame(f["function"], f["file"], f["line"]) for f in ended["backtrace"])
        stdout, stderr = launch.stdout.read_bytes(), launch.stderr.read_bytes()
        files = self._stage.collect_shared(launch.command) if self._stage is not None else ()
        return Observation(ended["ending"], ended["code"], stdout, stderr, frames, files)


def run_program(
    gdb: Gdb, launch: Launch, timeout_seconds: float, steps: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    launch.prepare()
    files = {"launcher": str(launch.script), "stdin": str(launch.stdin)}
    request = {"job": "run", "program": gdb.program, "steps": steps, "libraries": (), **files, **more}
    return gdb.run(request, launch, timeout_seconds)


def read_mappings(gdb: Gdb, launch: Launch, timeout_seconds: float) -> list[Mapping]:
    """Those of the program by the time it begins."""
    output = gdb.directory / "mappings.json"
    answer = run_program(gdb, launch, timeout_seconds, [{"do": "mappings", "output": str(output)}])
    if not answer["done"]:
        raise CannotStart(f"{gdb.program} ends before its first instruction")
    return [Mapping(*row) for row in json.loads(output.read_bytes())]


def find_libraries(command: Command, patterns: Sequence[str], timeout_seconds: float) -> Libraries:
    with Gdb(command.program.path) as gdb:
        mappings = read_mappings(gdb, write_launch(command, gdb.directory, "run"), timeout_seconds)
    return choose_libraries([mapping.name for mapping in mappings], command.program.path, patterns)


def encode_transfer(transfer: Transfer) -> dict[str, Any]:
    """Of what lies outside the memory, only the standard input is altered here."""
    stdin = next((file.content[file.position :].hex() for file in transfer.files if file.number == 0), None)
    places = [(find_register(address), address, data.hex()) for address, data in transfer.writes]
    return {
        "do": "transfer",
        "writes": [[address, data] for register, address, data in places if register is None],
        "registers": [[*register, data] for register, _, data in places if register is not None],
        "allocations": [{"size": a.size, "data": a.data.hex()} for a in transfer.allocations],
        "references": [[r.holder, (find_register(r.at) or [r.at])[0], r.block, r.offset] for r in transfer.references],
        "stdin": stdin,
    }
