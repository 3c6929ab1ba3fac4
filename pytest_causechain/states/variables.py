"""The roots of a memory graph: all variables of the frames and of static storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pytest_causechain.debugger.program import ProgramMap
from pytest_causechain.debugger.types import ArrayType
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
    for static in sorted(program.globals, key=lambda static: static.address):
        address, size = static.locate(visit.load_map, visit.thread_pointer), layouts.size(static.type)
        if not size or not memory.has(address, size):
            continue
        name = static.name
        key = ":".join(part for part in (static.file, static.function, name) if part)
        # Two blocks of one function may each have a static variable of one name.
        seen[key] += 1
        if seen[key] > 1:
            key = f"{key}:{seen[key]}"
        if static.function and static.function != visit.frames[0].function:
            name = f"{static.function}::{name}"
        elif name in taken and not static.function:
            name = f"'{static.file.rpartition('/')[2]}'::{name}" if static.file else name
        name = name.replace("(anonymous namespace)::", "")
        yield Variable(address, shape_variable(layouts, static.type), name, key)


def shape_variable(layouts: Layouts, kind: int) -> Shape:
    key = ("variable", kind)
    shape = layouts.shapes.get(key)
    if shape is None:
        shape = Shape(layouts, layouts.size(kind), (variable_run(layouts, kind),), type=kind)
        layouts.shapes[key] = shape
    return shape


def shape_untyped(layouts: Layouts, size: int) -> Shape:
    """A number where it has the size of one."""
    if size == layouts.size(INTEGER):
        return shape_variable(layouts, INTEGER)
    key = ("untyped", size)
    shape = layouts.shapes.get(key)
    if shape is None:
        shape = layouts.shapes[key] = Shape(layouts, size, (Run(0, 0, BYTE, size),))
    return shape


def variable_run(layouts: Layouts, kind: int) -> Run:
    array = layouts.type(kind)
    if isinstance(array, ArrayType) and not layouts.is_text(kind) and array.count:
        return Run(0, 0, array.target, array.count, is_direct=True, is_array=True)
    return Run(0, 0, kind, 1, is_direct=True)
