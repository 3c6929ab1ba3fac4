"""Turns pointers into text: what they lead to says more to a reader than where that lies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pytest_causechain.debugger.types import ArrayType, CharType, FunctionType, StructType
from pytest_causechain.states.graph import MemoryGraph
from pytest_causechain.states.layout import POINTER_SIZE, VTABLE, Leaf
from pytest_causechain.states.literals import MEMBERS_SHOWN, show_leaf, show_text
from pytest_causechain.states.matching import Matching
from pytest_causechain.states.memory import WORD
from pytest_causechain.states.names import drop_this, write_part
from pytest_causechain.states.objects import IMAGE, Object

# A shorter one is more likely a number.
LEAST_TEXT = 3


def show_pointers(
    matching: Matching, passing: tuple[Object, int], failing: tuple[Object, int], kind: int
) -> tuple[str, str]:
    """A pointer of the passing run and one of the failing run, each given with the object it lies in, in such a way
    that they read differently."""
    ours, theirs, left, right = matching.passing, matching.failing, passing[1], failing[1]
    shown = (
        show_loop(ours, *passing) or show_pointer(ours, left, kind),
        show_loop(theirs, *failing) or show_pointer(theirs, right, kind),
    )
    if shown[0] == shown[1]:
        shown = show_unequal_members(ours, left, theirs, right) or shown
    if shown[0] == shown[1]:
        # The other run's name for the object: in its own run this very pointer may be the shortest way there.
        shown = (
            show_mate(matching, ours, left, theirs) or f"{shown[0]} of its own",
            show_mate(matching, theirs, right, ours) or f"{shown[1]} of its own",
        )
    if shown[0] == shown[1]:
        shown = show_place(ours, left), show_place(theirs, right)
    return shown


def show_loop(graph: MemoryGraph, holder: Object, value: int) -> str | None:
    """A pointer that leads back to an object through which one gets to it: `tree->left->left` is `tree` itself."""
    target = graph.target(value)
    if target.object is None or target.offset or target.object.kind == "variable":
        return None
    if all(o is not target.object for o, _ in graph.naming.ancestors(holder, 0)):
        return None
    return f"{graph.naming.name(target.object)} itself"


def show_unequal_members(passing: MemoryGraph, left: int, failing: MemoryGraph, right: int) -> tuple[str, str] | None:
    """Of two structs that begin alike, the first members that do not."""
    source, target = passing.target(left), failing.target(right)
    if source.object is None or target.object is None or source.object.type != target.object.type:
        return None
    if not passing.layouts.is_struct(source.object.type):
        return None
    ours = leaves_from(passing, source.object, source.offset)
    theirs = leaves_from(failing, target.object, target.offset)
    for one, other in zip(ours, theirs, strict=False):
        shown = show_value(passing, source.object, one), show_value(failing, target.object, other)
        if shown[0] != shown[1]:
            name = other.path.removeprefix(".")
            return f"{{..., {name} = {shown[0]}, ...}}", f"{{..., {name} = {shown[1]}, ...}}"
    return None


def show_mate(matching: Matching, graph: MemoryGraph, value: int, other: MemoryGraph) -> str | None:
    target = graph.target(value)
    if target.object is None:
        return hex(value)
    mate = matching.mates.get(target.object)
    return reference(other, mate, target.offset) if mate is not None else None


def show_pointer(graph: MemoryGraph, value: int, kind: int) -> str:
    """By what it leads to: a text, a function, a variable's name, a value as its initialiser."""
    if not value:
        return "NULL"
    if graph.layouts.is_char(kind):
        text = graph.memory.read_text(value)
        if text is not None:
            return show_text(text)
    target = graph.target(value)
    if target.module == IMAGE:
        function = graph.program.function_at(target.offset)
        if function is not None and function.address == target.offset:
            return function.name
    is_inside = target.offset > 0 and target.object is not None and not graph.layouts.is_struct(target.object.type)
    if target.object is not None and (is_inside or target.object.kind == "variable"):
        return reference(graph, target.object, target.offset) or hex(value)
    if target.object is None:
        return hex(value)
    owner = graph.containers.owners.get(target.object)
    if owner is not None and owner.container.nodes and not target.offset:
        return drop_this(graph, graph.naming.name(target.object), graph.naming.frame(target.object))
    run = target.object.shape.run_at(target.offset)
    if run is not None and graph.layouts.containers(run.type):
        width = graph.layouts.size(run.type)
        start = target.offset - (target.offset - run.offset) % width
        is_itself = graph.layouts.container(kind) is not None  # a string, say, and not what it lies in
        place, type_ = (target.offset, kind) if is_itself else (start, run.type)
        return graph.containers.show(target.object.address + place, type_)
    if graph.is_raw(target.object):
        data = graph.contents(target.object)
        return show_text(data) if is_plain(data) else show_raw(graph, target.object, 0, 0)
    return show_contents(graph, target.object, target.offset)


def show_place(graph: MemoryGraph, value: int) -> str:
    target = graph.target(value)
    return f"{target.object.size} bytes at {hex(value)}" if target.object is not None else hex(value)


def reference(graph: MemoryGraph, o: Object, offset: int) -> str | None:
    """A pointer to a place in an object as an expression: `list->next`, `&point.y`, `a`, `&a[3]`."""
    base = o.shape.base_of(offset)
    name = graph.naming.name(o, base)
    is_direct = o.kind == "variable" and not base
    if offset == base:
        is_array = isinstance(graph.layouts.type(o.type), ArrayType)
        return f"&{name}" if is_direct and not is_array else name
    path = path_at(graph, o, base, offset)
    if path is None:
        return None
    return drop_this(
        graph, f"&{write_part(is_direct, name, graph.naming.shorten(o, path))}", graph.naming.frame(o, base)
    )


def path_at(graph: MemoryGraph, o: Object, base: int, offset: int) -> str | None:
    """What stands behind an object's name for the element or member at an offset, or one past the last."""
    path, kind, offset = "", o.type, offset - base
    if o.kind != "variable" or base:
        run = o.shape.run_at(base)
        kind = run.type if run is not None else kind
        width = graph.layouts.size(kind)
        path, offset = f"[{offset // width}]", offset % width
    while True:
        match graph.layouts.type(kind):
            case ArrayType(target=kind):
                width = graph.layouts.size(kind)
                if not width:
                    return None
                path, offset = f"{path}[{offset // width}]", offset % width
            case _ if not offset:
                return path
            case StructType(members=members):
                before = [member for member in members if not member.width and member.offset <= offset]
                if not before:
                    return None
                kind, offset = before[-1].type, offset - before[-1].offset
                path += f".{before[-1].name}" if before[-1].name else ""
            case _:
                return None


def show_contents(graph: MemoryGraph, o: Object, offset: int) -> str:
    """The first members or elements, enough to recognise it, as an initialiser; an address would say nothing."""
    leaves = (leaf for leaf in leaves_from(graph, o, offset) if VTABLE not in leaf.path)
    members = [show_value(graph, o, leaf) for leaf in islice(leaves, MEMBERS_SHOWN + 1)]
    if len(members) > MEMBERS_SHOWN:
        members[MEMBERS_SHOWN:] = ["..."]
    run = o.shape.run_at(offset)
    name = graph.layouts.class_name(run.type) if run is not None else ""
    return name + "{" + ", ".join(members) + "}"


def leaves_from(graph: MemoryGraph, o: Object, offset: int) -> Iterator[Leaf]:
    """Of a struct its own members only, of an array all elements that follow, without the slack of a single one."""
    run = o.shape.run_at(offset)
    width = graph.layouts.size(run.type if run is not None else o.type) or 1
    is_one = run is None or graph.layouts.is_struct(run.type) or graph.is_single(o)
    start = offset - (offset - (run.offset if run is not None else 0)) % width
    for place in graph.leaves(o):
        if place.leaf.offset >= offset and (not is_one or place.leaf.offset < start + width):
            yield place.leaf


def show_raw(graph: MemoryGraph, o: Object, offset: int, first: int) -> str:
    """Memory of unknown type from an offset on, word by word, so that the word of number `first` is among those
    shown."""
    data = graph.contents(o)
    pointers = {pointer.offset: pointer.value for pointer in graph.hidden_pointers(o)}
    start = first if first >= MEMBERS_SHOWN else 0
    words = ["..."] if start else []
    for at in range(offset + start * POINTER_SIZE, len(data) - POINTER_SIZE + 1, POINTER_SIZE):
        if len(words) >= MEMBERS_SHOWN:
            words.append("...")
            break
        text = graph.memory.read_text(pointers[at]) if at in pointers else None
        if text is not None and is_plain(text):
            words.append(show_text(text))
        else:
            words.append("..." if at in pointers else str(WORD.unpack_from(data, at)[0]))
    return "{" + ", ".join(words) + "}"


def is_plain(data: bytes) -> bool:
    """Whether bytes look like a text up to their first NUL: numbers of a word have more NULs than that."""
    text, end, _ = data.partition(b"\0")
    return len(text) >= LEAST_TEXT and bool(end) and all(32 <= byte < 127 for byte in text)


def show_value(graph: MemoryGraph, o: Object, leaf: Leaf) -> str:
    """A value of an object. What a pointer leads to is shown when it is a text or a function: more would have no
    end."""

    def follow(value: int, kind: int) -> str:
        is_telling = isinstance(graph.layouts.type(kind), CharType | FunctionType)
        return show_pointer(graph, value, kind) if is_telling else "..."

    return show_leaf(graph.layouts, leaf, graph.value(o, leaf), follow)
