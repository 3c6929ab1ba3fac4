"""Tells gdb how to repeat an intervention."""

from __future__ import annotations

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.model.intervention import Patch
from pytest_causechain.model.moment import Stop
from pytest_causechain.tracee.effects import Effect

TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}


def script_intervention(effect: Effect, data: bytes) -> tuple[str, ...]:
    """Commands for where the program stands before the instruction."""
    value = hex(int.from_bytes(data, "little"))
    match effect.kind:
        case "branch":
            return (
                "set $causechain = $pc",
                "stepi",
                f"if $pc == $causechain + {effect.length}",
                f"  set $pc = $causechain + {effect.target - effect.address}",
                "else",
                f"  set $pc = $causechain + {effect.length}",
                "end",
            )
        case "value":
            store = f"set {{{TYPES[len(data)]}}} $causechain = {value}"
            return (f"set $causechain = (unsigned long) ({effect.operand})", "stepi", store)
        case _:
            return (f"set ${effect.register} = {value}",)


def script_patch(program: ProgramMap, patch: Patch) -> tuple[str, ...]:
    """Commands for where the program has been loaded."""
    place = program.breakpoint(Stop(patch.address, 1))
    start = f"(unsigned char *) &'{place.function}' + {place.offset}"
    return tuple(f"set *({start} + {number}) = {byte:#04x}" for number, byte in enumerate(patch.code))
