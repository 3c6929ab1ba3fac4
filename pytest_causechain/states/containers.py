"""What the containers of the C++ library hold, and which objects belong to which of them, under what label.

All offsets come from the debug information. What does not look like a container in use (it may not be constructed yet)
is left the plain struct that it is. Unfolding asks for the buffers as they become known, all else is found later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from pytest_causechain.debugger.types import (
    AssociativeType,
    BitVectorType,
    CharType,
    ContainerType,
    DequeType,
    FunctionObjectType,
    HashType,
    ListType,
    Member,
    OptionalType,
    SharedPointerType,
    StringType,
    StringViewType,
    StructType,
    TreeType,
    VariantType,
    VectorType,
)
from pytest_causechain.states.layout import POINTER_SIZE, VTABLE, Layouts, Leaf, Span, show_leaf, show_text
from pytest_causechain.states.memory import Memory
from pytest_causechain.states.shapes import Object

if TYPE_CHECKING:
    from pytest_causechain.states.graph import MemoryGraph

# A container with more elements is not looked through: the self-check tells whether that mattered.
ELEMENTS_LIMIT = 100_000
# Elements of a container, members of a key: enough to recognise it by.
SHOWN = 4
BITS = 64


class Buffers:
    """`spans` are, by address of a buffer, from and up to where there are elements, and how many bytes are kept for
    them. `texts` are blocks that hold the characters of strings, and nothing else."""

    def __init__(self, layouts: Layouts, memory: Memory) -> None:
        self._layouts, self._memory = layouts, memory
        self.spans: dict[int, tuple[int, int, int]] = {}
        self.texts: set[int] = set()
        self._noted: set[tuple[int, tuple[int, int, int]]] = set()

    def note(self, o: Object) -> Iterator[int]:
        """The buffers of all containers in an object, as they become known."""
        for offset, kind in o.shape.find_containers(*self._memory.around(o.address)):
            place = o.address + offset
            match self._layouts.container(kind):
                case StringType(pointer=pointer):
                    self.texts.add(self._word(place + pointer))
                case VectorType() as vector:
                    yield from self._note_all(vector, place)
                case DequeType() as deque:
                    first, last = self._word(place + deque.start_node), self._word(place + deque.finish_node)
                    table = self._word(place + deque.map)
                    end = table + self._memory.blocks.get(table, 0)
                    if table <= first <= last < end:
                        yield from self._note_one(table, first, last + POINTER_SIZE, end)
                        yield from self._note_all(deque, place)

    def _note_all(self, plan: VectorType | DequeType, place: int) -> Iterator[int]:
        for buffer in find_buffers(plan, place, self._word):
            yield from self._note_one(*buffer)

    def _note_one(self, block: int, start: int, end: int, limit: int) -> Iterator[int]:
        if block and block <= start <= end <= limit <= block + self._memory.blocks.get(block, 0):
            span = start - block, end - block, limit - block
            # Each is news only once: the container may lie in the very block, which is looked through anew for it.
            if (block, span) not in self._noted:
                self._noted.add((block, span))
                self.spans[block] = span
                yield block

    def extent(self, o: Object, kind: int) -> tuple[Span, list[tuple[int, int, int | None]]]:
        """Of a buffer with elements of this type: the part that holds some, and how many there is room for."""
        start, end, limit = self.spans[o.address]
        return (start, end), [(0, kind, max(1, limit // self._layouts.size(kind)))]

    def _word(self, address: int) -> int:
        return self._memory.word(address) or 0


def find_buffers(
    plan: VectorType | DequeType, place: int, word: Callable[[int], int]
) -> Iterator[tuple[int, int, int, int]]:
    """Of each buffer of a container: where it begins, where its elements begin and end, and the room for them ends."""
    if isinstance(plan, VectorType):
        start, finish, end = (word(place + member) for member in (plan.start, plan.finish, plan.end))
        yield start, start, finish, end
        return
    first, last = word(place + plan.start_node), word(place + plan.finish_node)
    capacity = word(place + plan.start_last) - word(place + plan.start_first)
    for at in range(first, last + 1, POINTER_SIZE):
        block = word(at)
        start = word(place + plan.start_cur) if at == first else block
        yield block, start, word(place + plan.finish_cur) if at == last else block + capacity, block + capacity


@dataclass(frozen=True, slots=True)
class Container:
    """One in use, at an offset of the object it lies in. `nodes` are the objects of its elements, in order, each with
    its label if it has one; `parts` the live bytes of each buffer, with the number of the first element in it; `owned`
    what else belongs to it alone. `text` is what a string holds; `size` counts the elements."""

    holder: Object
    offset: int
    type: int
    plan: ContainerType
    size: int = 0
    nodes: tuple[tuple[Object, str], ...] = ()
    parts: tuple[tuple[Object, Span, int], ...] = ()
    owned: tuple[Object, ...] = ()
    text: bytes | None = None

    @property
    def address(self) -> int:
        return self.holder.address + self.offset

    @property
    def place(self) -> tuple[Object, int]:
        """The object it lies in, and where that begins in its block."""
        return self.holder, self.holder.shape.base_of(self.offset)


@dataclass(frozen=True, slots=True)
class Owner:
    """The container an object belongs to, and its label or number there: `["bolt"]`, `[3]`. `hidden` is the member
    that the label stands for."""

    container: Container
    label: str
    hidden: str = ""


class Unusable(Exception):
    """Not a container, or not one yet."""


class Containers:
    def __init__(self, graph: MemoryGraph) -> None:
        self._graph = graph
        self._layouts, self._memory = graph.layouts, graph.memory
        self.found: dict[tuple[Object, int, int], Container] = {}
        self.owners: dict[Object, Owner] = {}
        # A program in C has none, and may have a million objects.
        has_any = any(map(self._layouts.container, range(len(self._layouts.types))))
        for o in graph.objects if has_any else ():
            if not o.is_unset and o.kept is None and o.shape.containers:
                for offset, kind in o.shape.find_containers(*self._memory.around(o.address)):
                    container = self.read(o, offset, kind)
                    if container is not None:
                        self.found[o, offset, kind] = container
                        self._own(container)

    def _own(self, container: Container) -> None:
        hidden = ".second" if isinstance(container.plan, AssociativeType) and container.plan.is_map else ""
        for node, label in container.nodes:
            self.owners.setdefault(node, Owner(container, label, hidden))
        for buffer, _, first in container.parts:
            self.owners.setdefault(buffer, Owner(container, f"[{first}]"))

    # Reading

    def read(self, o: Object, offset: int, kind: int) -> Container | None:
        plan = self._layouts.container(kind)
        assert plan is not None
        try:
            return self._read(plan, Container(o, offset, kind, plan))
        except Unusable:
            return None

    @singledispatchmethod
    def _read(self, plan: ContainerType, c: Container) -> Container:
        raise NotImplementedError

    def word(self, container: Container, member: int) -> int:
        """The pointer or number at the offset of a member."""
        value = self._memory.word(container.address + member)
        if value is None:
            raise Unusable
        return value

    @_read.register
    def _read_string(self, plan: StringType, c: Container) -> Container:
        start, length = self.word(c, plan.pointer), self.word(c, plan.length)
        width = self._layouts.size(plan.element)
        local = c.address + plan.local
        buffer = self._graph.starts.get(start)
        if start != local and (buffer is None or (length + 1) * width > buffer.size):
            raise Unusable
        text = self._memory.read(start, length * width)
        if text is None or (start == local and length * width >= self._layouts.size(c.type) - plan.local):
            raise Unusable
        return replace(c, size=length, text=text, owned=(buffer,) if buffer is not None and start != local else ())

    @_read.register
    def _read_view(self, plan: StringViewType, c: Container) -> Container:
        length = self.word(c, plan.length)
        text = self._memory.read(self.word(c, plan.pointer), length * self._layouts.size(plan.element))
        return replace(c, size=length, text=text if length else b"")

    @_read.register
    def _read_vector(self, plan: VectorType, c: Container) -> Container:
        is_empty = not self.word(c, plan.start) and not self.word(c, plan.end)
        return c if is_empty else self._read_buffers(c, plan)

    @_read.register
    def _read_deque(self, plan: DequeType, c: Container) -> Container:
        table = self._graph.starts.get(self.word(c, plan.map))
        first, last = self.word(c, plan.start_node), self.word(c, plan.finish_node)
        if table is None or not first <= last < first + POINTER_SIZE * ELEMENTS_LIMIT:
            raise Unusable
        return replace(self._read_buffers(c, plan), owned=(table,))

    def _read_buffers(self, c: Container, plan: VectorType | DequeType) -> Container:
        width, parts, count = self._layouts.size(plan.element), [], 0
        for block, start, end, limit in find_buffers(plan, c.address, lambda at: self._memory.word(at) or 0):
            buffer = self._graph.starts.get(block)
            if buffer is None or not block <= start <= end <= limit <= block + buffer.size:
                raise Unusable
            if not width or (end - start) % width:
                raise Unusable
            parts.append((buffer, (start - block, end - block), count - (start - block) // width))
            count += (end - start) // width
        return replace(c, size=count, parts=tuple(parts))

    @_read.register
    def _read_bits(self, plan: BitVectorType, c: Container) -> Container:
        start, finish = self.word(c, plan.start), self.word(c, plan.finish)
        if not start and not finish:
            return c
        buffer, offset = self._graph.starts.get(start), self.word(c, plan.offset) & 0xFFFFFFFF
        if buffer is None or not start <= finish <= start + buffer.size or offset >= BITS:
            raise Unusable
        count = (finish - start) * 8 + offset
        data = self._memory.read(start, (count + 7) // 8)
        if data is None:
            raise Unusable
        # The first bit comes first; as digits, since each of very many shifts would take as long as all of this.
        text = f"{int.from_bytes(data, 'little'):0{count}b}"[::-1][:count].encode()
        return replace(c, size=count, owned=(buffer,), text=text)

    @_read.register
    def _read_tree(self, plan: TreeType, c: Container) -> Container:
        count, header = self.word(c, plan.count), c.address + plan.header
        nodes: list[Object] = []
        above: list[Object] = []
        at = self._memory.word(header + plan.parent)
        while at or above:
            while at:
                above.append(self._node(at, plan.node))
                if len(above) > BITS * 2:
                    raise Unusable
                at = self._memory.word(at + plan.left)
            node = above.pop()
            nodes.append(node)
            if len(nodes) > min(count, ELEMENTS_LIMIT):
                raise Unusable
            at = self._memory.word(node.address + plan.right)
        if len(nodes) != count:
            raise Unusable
        return replace(c, size=count, nodes=self._label(nodes, plan))

    @_read.register
    def _read_hash(self, plan: HashType, c: Container) -> Container:
        nodes = self._chain(c, plan, 0)
        if len(nodes) != self.word(c, plan.count):
            raise Unusable
        table = self._graph.starts.get(self.word(c, plan.buckets))
        return replace(c, size=len(nodes), nodes=self._label(nodes, plan), owned=(table,) if table is not None else ())

    @_read.register
    def _read_list(self, plan: ListType, c: Container) -> Container:
        # With links in both directions it ends where it began.
        nodes = self._chain(c, plan, 0 if plan.count is None else c.address + plan.first)
        if plan.count is not None and len(nodes) != self.word(c, plan.count):
            raise Unusable
        return replace(c, size=len(nodes), nodes=tuple((node, f"[{n}]") for n, node in enumerate(nodes)))

    def _chain(self, c: Container, plan: HashType | ListType, last: int) -> list[Object]:
        nodes: list[Object] = []
        seen = set[int]()
        at = self.word(c, plan.first)
        while at != last:
            if at in seen or len(nodes) > ELEMENTS_LIMIT:
                raise Unusable
            seen.add(at)
            nodes.append(self._node(at, plan.node))
            at = self._memory.word(at + plan.next) or 0
        return nodes

    def _node(self, address: int, kind: int) -> Object:
        node = self._graph.starts.get(address)
        if node is None or node.type != kind or node.kept is not None:
            raise Unusable
        return node

    def _label(self, nodes: list[Object], plan: AssociativeType) -> tuple[tuple[Object, str], ...]:
        """By key; the second of several with the same key gets a number behind it."""
        offset, kind = self.key_place(plan)
        seen: Counter[str] = Counter()
        labelled = []
        for node in nodes:
            label = f"[{self.show(node.address + offset, kind)}]"
            seen[label] += 1
            labelled.append((node, label if seen[label] == 1 else f"{label}#{seen[label]}"))
        return tuple(labelled)

    def key_place(self, plan: AssociativeType) -> tuple[int, int]:
        """Offset in a node, and type, of what it is found by."""
        first = self._find_half(plan, "first")
        return (plan.value, plan.element) if first is None else (plan.value + first.offset, first.type)

    def mapped_span(self, plan: AssociativeType) -> Span:
        """The bytes of a node of a map that are not its key."""
        second = self._find_half(plan, "second")
        if second is None:
            return 0, 0
        start = plan.value + second.offset
        return start, start + self._layouts.size(second.type)

    def _find_half(self, plan: AssociativeType, name: str) -> Member | None:
        """Of the pairs that are the elements of a map."""
        pair = self._layouts.type(plan.element)
        members = pair.members if plan.is_map and isinstance(pair, StructType) else ()
        return next((member for member in members if member.name == name), None)

    @_read.register
    def _read_optional(self, plan: OptionalType, c: Container) -> Container:
        flag = self._memory.read(c.address + plan.flag, 1)
        if flag not in (b"\0", b"\1"):
            raise Unusable
        return replace(c, size=flag[0])

    @_read.register
    def _read_variant(self, plan: VariantType, c: Container) -> Container:
        data = self._memory.read(c.address + plan.index, plan.width)
        index = int.from_bytes(data or b"\xff", "little")
        return replace(c, size=index if index < len(plan.elements) else -1)

    @_read.register
    def _read_shared(self, plan: SharedPointerType, c: Container) -> Container:
        counts = self._graph.starts.get(self.word(c, plan.count))
        if counts is None and self.word(c, plan.count):
            raise Unusable
        return c

    @_read.register
    def _read_function(self, plan: FunctionObjectType, c: Container) -> Container:
        """What it has captured may lie in a block of its own."""
        held = self._graph.starts.get(self.word(c, plan.functor)) if self.word(c, plan.manager) else None
        return replace(c, owned=(held,) if held is not None and held.shape.is_text else ())

    # Showing

    def show(self, address: int, kind: int, depth: int = 2) -> str:
        """A value as an initialiser."""
        layouts, shown_type = self._layouts, self._layouts.type(kind)
        if layouts.container(kind) is not None:
            target = self._graph.target(address)
            if target.object is not None:
                container = self.read(target.object, target.offset, kind)
                if container is not None:
                    return self.show_container(container, depth)
        if isinstance(shown_type, StructType):
            shown = list(self._show_members(address, shown_type, depth - 1)) if depth else ["..."]
            return layouts.class_name(kind) + "{" + ", ".join(cut(shown)) + "}"
        data = self._memory.read(address, layouts.value_size(kind))
        if data is None:
            return "?"
        shown_value = show_leaf(layouts, Leaf("", 0, len(data), kind), data, self._follow)
        return shown_value.partition(" ")[2] or shown_value if isinstance(shown_type, CharType) else shown_value

    def _show_members(self, address: int, record: StructType, depth: int) -> Iterator[str]:
        """Those of base classes too."""
        for member in record.members:
            inner = self._layouts.type(member.type)
            if not member.name and isinstance(inner, StructType) and inner.container is None:
                yield from self._show_members(address + member.offset, inner, depth)
            elif not member.width and self._layouts.weight(member.type) and not member.name.startswith(VTABLE):
                yield self.show(address + member.offset, member.type, depth)

    def _follow(self, value: int, kind: int) -> str:
        text = self._memory.read_text(value) if self._layouts.is_char(kind) else None
        return show_text(text) if text is not None else "..."

    def show_container(self, c: Container, depth: int = 2) -> str:
        if c.text is not None:
            is_bits = isinstance(c.plan, BitVectorType)
            return c.text.decode("ascii") if is_bits else show_text(c.text.replace(b"\0", b"\\0"))
        place = c.address
        match c.plan:
            case OptionalType(value=value, element=element):
                return self.show(place + value, element, depth) if c.size else "nullopt"
            case VariantType(value=value, elements=elements) if c.size >= 0:
                return self.show(place + value, elements[c.size], depth)
            case SharedPointerType(pointer=pointer):
                return "..." if self.word(c, pointer) else "NULL"
            case FunctionObjectType(manager=manager):
                return "{...}" if self.word(c, manager) else "{}"
        return "{" + ", ".join(cut(self.list_elements(c, depth - 1))) + "}" if depth > 0 else "{...}"

    def list_elements(self, c: Container, depth: int = 1) -> list[str]:
        """Keys where there are some: they are what tells containers apart."""
        match c.plan:
            case TreeType() | HashType():
                return [label[1:].partition("]#")[0].removesuffix("]") for _, label in c.nodes]
            case ListType(value=value, element=element):
                return [self.show(node.address + value, element, depth) for node, _ in c.nodes]
            case VectorType(element=element) | DequeType(element=element):
                width = self._layouts.size(element)
                spans = [(b.address + start, b.address + end) for b, (start, end), _ in c.parts]
                return [self.show(at, element, depth) for start, end in spans for at in range(start, end, width)]
        return []


def cut(shown: list[str]) -> list[str]:
    return shown if len(shown) <= SHOWN else [*shown[:SHOWN], "..."]
