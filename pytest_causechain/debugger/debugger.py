"""What the debug information says of a program and its libraries: from an earlier session, or else from gdb.

gdb is started when it is first needed, which may be never.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_causechain.debugger.descriptions import DescriptionStore
from pytest_causechain.debugger.gdb import Gdb, GdbFailure, GdbLost, find_gdb
from pytest_causechain.debugger.layouts import FrameLayouts
from pytest_causechain.debugger.program import (
    ProgramMap,
    Signature,
    ask_description,
    is_relocated,
    make_program,
    make_signatures,
)
from pytest_causechain.kernel.companion import Closing
from pytest_causechain.model.load_map import module_address
from pytest_causechain.model.refusal import Refusal


class Debugger(Closing):
    """`program` and `layouts` grow with each visit; leaving it keeps them, below the directory `cache`."""

    def __init__(self, path: str, libraries: Sequence[str] = (), cache: Path | None = None) -> None:
        is_relocated(path)  # before gdb meets a program that it cannot read
        gdb = find_gdb()
        self._path = path
        self._gdb: Gdb | None = None
        self._store = DescriptionStore(cache, (path, *libraries), gdb) if cache is not None else None
        description = self._store.load() if self._store is not None else None
        # How many layouts are on the disk; -1: not even the description, which is most worth keeping.
        self._kept = len(description["layouts"]) if description is not None else -1
        try:
            self._description = description or self._describe(libraries)
            self.program: ProgramMap = make_program(path, libraries, self._description)
        except GdbFailure as failure:
            self._close_gdb()
            if isinstance(failure, GdbLost):
                raise
            raise Refusal(f"gdb cannot read {path} ({failure}): build it anew with -g.") from None
        except BaseException:
            self._close_gdb()
            raise
        self.layouts = FrameLayouts(self.program, self._description["layouts"])
        self._keep()

    def _describe(self, libraries: Sequence[str]) -> dict[str, Any]:
        """At the addresses that hold for all runs, before there is one."""
        places = [[path, module_address(number)] for number, path in enumerate(libraries, 1)]
        return ask_description(self._start([], places)) | {"layouts": []}

    @property
    def signatures(self) -> dict[int, Signature]:
        return make_signatures(self._description)

    @property
    def gdb(self) -> Gdb:
        return self._gdb or self._start(self.program.types, [])

    def processes(self) -> list[int]:
        return [self._gdb.pid] if self._gdb is not None else []

    def _start(self, types: list[dict[str, Any]], libraries: list[list[Any]]) -> Gdb:
        """A gdb that goes on to number types where an earlier one ended."""
        self._gdb = Gdb(self._path)
        self._gdb.ask({"job": "prepare", "types": types, "libraries": libraries})
        return self._gdb

    def _keep(self) -> None:
        layouts = self.layouts.rows()
        if self._store is not None and len(layouts) > self._kept:
            self._store.save(self._description | {"types": self.program.types, "layouts": layouts})
            self._kept = len(layouts)

    def close(self) -> None:
        self._keep()
        self._close_gdb()

    def _close_gdb(self) -> None:
        if self._gdb is not None:
            self._gdb.close()
            self._gdb = None
