"""The roots of a memory graph: all variables of the frames and of static storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.visit import Visit
from pytest_causechain.states.layout import BYTE, INTEGER, Layouts
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.objects import Variable
from pytest_causechain.states.shapes import Run, Shape


def find_variables(visit: Visit, program: ProgramMap, layouts: Layouts, memory: Memory) -> Iterator[Variable]:
    """Innermost frame first, then its callers, then globals: the order in which a name is looked up."""
    depth = len(visit.frames)
    taken: set[str] = set()
    for number, frame in enumerate(visit.frames):
        for variable in frame.variables:
            size = layouts.size(variable.type) or measure_unknown(visit, number, variable.address)
            if not size or not memory.has(variable.address, size):
                continue
            taken.add(variable.name)
            key = f"{depth - number}:{frame.function}:{variable.depth}:{variable.name}"
            is_known = layouts.size(variable.type) > 0
            shape = shape_variable(layouts, variable.type) if is_known else shape_untyped(layouts, size)
            # The name of a reference stands for what it refers to.
            name = f"&{variable.name}" if layouts.is_reference(variable.type) else variable.name
            yield Variable(variable.address, shape, name, key, number, variable.pending)
    yield from find_globals(visit, program, layouts, memory, taken)
    for name, offset, size in program.untyped:
        address = visit.load_map.to_run(offset)
        # The pointer to the variables of the environment is no variable: these are compared one by one.
        is_environment = visit.environment is not None and address == visit.environment[0]
        if memory.has(address, size) and not is_environment:
            yield Variable(address, shape_untyped(layouts, size), name, f":{name}:{offset:x}")


def measure_unknown(visit: Visit, number: int, address: int) -> int:
    """Of an object whose class only the library knows, a stream, say: it ends at the next variable, or with its
    frame."""
    limit = visit.frames[number].base
    following = [v.address for v in visit.frames[number].variables if address < v.address < limit]
    return max(0, min([*following, limit]) - address)


def find_globals(
    visit: Visit, program: ProgramMap, layouts: Layouts, memory: Memory, taken: set[str]
) -> Iterator[Variable]:
    seen: Counter[str] = Counter()
    # Compilers lay globals out in the order in which they are written.
    for row in sorted(program.globals, key=lambda row: int(row["address"])):
        is_of_thread = row.get("thread", False)
        address = visit.thread_pointer + row["address"] if is_of_thread else visit.load_map.to_run(row["address"])
        size = layouts.size(row["type"])
        if not size or not memory.has(address, size):
            continue
        name = row["name"]
        key = ":".join(part for part in (row["file"], row["function"], name) if part)
        # Two blocks of one function may each have a static variable of one name.
        seen[key] += 1
        if seen[key] > 1:
            key = f"{key}:{seen[key]}"
        if row["function"] and row["function"] != visit.frames[0].function:
            name = f"{row['function']}::{name}"
        elif name in taken and not row["function"]:
            name = f"'{row['file'].rpartition('/')[2]}'::{name}" if row["file"] else name
        name = name.replace("(anonymous namespace)::", "")
        yield Variable(address, shape_variable(layouts, row["type"]), name, key)


def shape_variable(layouts: Layouts, kind: int) -> Shape:
    key = ("variable", kind)
    shape: Shape | None = layouts.shapes.get(key)
    if shape is None:
        shape = Shape(layouts, layouts.size(kind), (variable_run(layouts, kind),), type=kind)
        layouts.shapes[key] = shape
    return shape


def shape_untyped(layouts: Layouts, size: int) -> Shape:
    """A number where it has the size of one."""
    if size == layouts.size(INTEGER):
        return shape_variable(layouts, INTEGER)
    key = ("untyped", size)
    shape: Shape | None = layouts.shapes.get(key)
    if shape is None:
        shape = layouts.shapes[key] = Shape(layouts, size, (Run(0, 0, BYTE, size),))
    return shape


def variable_run(layouts: Layouts, kind: int) -> Run:
    row = layouts.row(kind)
    if row["kind"] == "array" and not layouts.is_text(kind) and row["count"]:
        return Run(0, 0, row["target"], row["count"], is_direct=True, is_array=True)
    return Run(0, 0, kind, 1, is_direct=True)
