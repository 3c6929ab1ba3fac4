"""What the containers of the C++ library hold, and which objects belong to which of them, under what label.

All offsets come from the debug information. What does not look like a container in use (it may not be constructed yet)
is left the plain struct that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_causechain.states.layout import VTABLE, Leaf
from pytest_causechain.states.literals import show_leaf, show_text
from pytest_causechain.states.objects import Object

if TYPE_CHECKING:
    from pytest_causechain.states.graph import MemoryGraph

# A container with more elements is not looked through: the self-check tells whether that mattered.
ELEMENTS_LIMIT = 100_000
# Elements of a container, members of a key: enough to recognise it by.
SHOWN = 4
BITS = 64
ASSOCIATIVE = ("tree", "hash")
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Container:
    """One in use, at an offset of the object it lies in. `nodes` are the objects of its elements, in order, each with
    its label if it has one; `parts` the live bytes of each buffer, with the number of the first element in it; `owned`
    what else belongs to it alone. `text` is what a string holds; `size` counts the elements."""

    holder: Object
    offset: int
    type: int
    plan: dict[str, Any]
    size: int = 0
    nodes: tuple[tuple[Object, str], ...] = ()
    parts: tuple[tuple[Object, Span, int], ...] = ()
    owned: tuple[Object, ...] = ()
    text: bytes | None = None

    @property
    def kind(self) -> str:
        return str(self.plan["kind"])


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
        has_any = any("container" in row for row in self._layouts.rows)
        for o in graph.objects if has_any else ():
            if not o.is_unset and o.kept is None and o.shape.containers:
                region = self._memory.region(o.address)
                assert region is not None
                for offset, kind in o.shape.containers:
                    size = self._layouts.size(kind)
                    if not o.shape.is_present(region.data, o.address - region.start, offset, size):
                        continue
                    container = self.read(o, offset, kind)
                    if container is not None:
                        self.found[o, offset, kind] = container
                        self._own(container)

    def _own(self, container: Container) -> None:
        hidden = ".second" if container.plan.get("is_map") else ""
        for node, label in container.nodes:
            self.owners.setdefault(node, Owner(container, label, hidden))
        for buffer, _, first in container.parts:
            self.owners.setdefault(buffer, Owner(container, f"[{first}]"))

    # Reading

    def read(self, o: Object, offset: int, kind: int) -> Container | None:
        plan = self._layouts.row(kind)["container"]
        try:
            return READERS[plan["kind"]](self, Container(o, offset, kind, plan))
        except Unusable:
            return None

    def word(self, container: Container, member: str) -> int:
        value = self._memory.word(container.holder.address + container.offset + container.plan[member])
        if value is None:
            raise Unusable
        return value

    def _read_string(self, c: Container) -> Container:
        start, length = self.word(c, "pointer"), self.word(c, "length")
        width = self._layouts.size(c.plan["element"])
        local = c.holder.address + c.offset + c.plan["local"]
        buffer = self._graph.starts.get(start)
        if start != local and (buffer is None or (length + 1) * width > buffer.size):
            raise Unusable
        text = self._memory.read(start, length * width)
        if text is None or (start == local and length * width >= self._layouts.size(c.type) - c.plan["local"]):
            raise Unusable
        return make(c, size=length, text=text, owned=(buffer,) if buffer is not None and start != local else ())

    def _read_view(self, c: Container) -> Container:
        length = self.word(c, "length")
        text = self._memory.read(self.word(c, "pointer"), length * self._layouts.size(c.plan["element"]))
        return make(c, size=length, text=text if length else b"")

    def _read_vector(self, c: Container) -> Container:
        start, finish, end = (self.word(c, member) for member in ("start", "finish", "end"))
        width = self._layouts.size(c.plan["element"])
        if not start and not end:
            return c
        buffer = self._graph.starts.get(start)
        if buffer is None or not start <= finish <= end <= start + buffer.size or not width or (finish - start) % width:
            raise Unusable
        return make(c, size=(finish - start) // width, parts=((buffer, (0, finish - start), 0),))

    def _read_bits(self, c: Container) -> Container:
        start, finish = self.word(c, "start"), self.word(c, "finish")
        if not start and not finish:
            return c
        buffer, offset = self._graph.starts.get(start), self.word(c, "offset") & 0xFFFFFFFF
        if buffer is None or not start <= finish <= start + buffer.size or offset >= BITS:
            raise Unusable
        count = (finish - start) * 8 + offset
        data = self._memory.read(start, (count + 7) // 8)
        if data is None:
            raise Unusable
        # The first bit comes first; as digits, since each of very many shifts would take as long as all of this.
        text = f"{int.from_bytes(data, 'little'):0{count}b}"[::-1][:count].encode()
        return make(c, size=count, owned=(buffer,), text=text)

    def _read_deque(self, c: Container) -> Container:
        width, first_node, last_node = (
            self._layouts.size(c.plan["element"]),
            self.word(c, "start_node"),
            self.word(c, "finish_node"),
        )
        table = self._graph.starts.get(self.word(c, "map"))
        if table is None or not width or not first_node <= last_node < first_node + 8 * ELEMENTS_LIMIT:
            raise Unusable
        parts, count = [], 0
        for at in range(first_node, last_node + 1, 8):
            block = self._graph.starts.get(self._memory.word(at) or 0)
            if block is None:
                raise Unusable
            start = self.word(c, "start_cur") - block.address if at == first_node else 0
            capacity = self.word(c, "start_last") - self.word(c, "start_first")
            end = self.word(c, "finish_cur") - block.address if at == last_node else capacity
            if not 0 <= start <= end <= block.size:
                raise Unusable
            parts.append((block, (start, end), count - start // width))
            count += (end - start) // width
        return make(c, size=count, parts=tuple(parts), owned=(table,))

    def _read_tree(self, c: Container) -> Container:
        count, plan = self.word(c, "count"), c.plan
        header = c.holder.address + c.offset + plan["header"]
        nodes: list[Object] = []
        above: list[Object] = []
        at = self._memory.word(header + plan["parent"])
        while at or above:
            while at:
                above.append(self._node(at, plan))
                if len(above) > BITS * 2:
                    raise Unusable
                at = self._memory.word(at + plan["left"])
            node = above.pop()
            nodes.append(node)
            if len(nodes) > min(count, ELEMENTS_LIMIT):
                raise Unusable
            at = self._memory.word(node.address + plan["right"])
        if len(nodes) != count:
            raise Unusable
        return make(c, size=count, nodes=self._label(nodes, plan))

    def _read_hash(self, c: Container) -> Container:
        nodes = self._chain(c, 0)
        if len(nodes) != self.word(c, "count"):
            raise Unusable
        table = self._graph.starts.get(self.word(c, "buckets"))
        return make(c, size=len(nodes), nodes=self._label(nodes, c.plan), owned=(table,) if table is not None else ())

    def _read_list(self, c: Container) -> Container:
        is_double = c.plan["count"] is not None
        nodes = self._chain(c, c.holder.address + c.offset + c.plan["first"] if is_double else 0)
        if is_double and len(nodes) != self.word(c, "count"):
            raise Unusable
        return make(c, size=len(nodes), nodes=tuple((node, f"[{n}]") for n, node in enumerate(nodes)))

    def _chain(self, c: Container, last: int) -> list[Object]:
        nodes: list[Object] = []
        seen = set[int]()
        at = self.word(c, "first")
        while at != last:
            if at in seen or len(nodes) > ELEMENTS_LIMIT:
                raise Unusable
            seen.add(at)
            nodes.append(self._node(at, c.plan))
            at = self._memory.word(at + c.plan["next"]) or 0
        return nodes

    def _node(self, address: int, plan: dict[str, Any]) -> Object:
        node = self._graph.starts.get(address)
        if node is None or node.type != plan["node"] or node.kept is not None:
            raise Unusable
        return node

    def _label(self, nodes: list[Object], plan: dict[str, Any]) -> tuple[tuple[Object, str], ...]:
        """By key; the second of several with the same key gets a number behind it."""
        offset, kind = self.key_place(plan)
        seen: Counter[str] = Counter()
        labelled = []
        for node in nodes:
            label = f"[{self.show(node.address + offset, kind)}]"
            seen[label] += 1
            labelled.append((node, label if seen[label] == 1 else f"{label}#{seen[label]}"))
        return tuple(labelled)

    def key_place(self, plan: dict[str, Any]) -> tuple[int, int]:
        """Offset in a node, and type, of what it is found by."""
        if plan["is_map"]:
            for name, bit, _, kind in self._layouts.row(plan["element"])["fields"]:
                if name == "first":
                    return plan["value"] + bit // 8, kind
        return plan["value"], plan["element"]

    def mapped_span(self, plan: dict[str, Any]) -> Span:
        """The bytes of a node of a map that are not its key."""
        if plan["is_map"]:
            for name, bit, _, kind in self._layouts.row(plan["element"])["fields"]:
                if name == "second":
                    start = plan["value"] + bit // 8
                    return start, start + self._layouts.size(kind)
        return 0, 0

    def _read_optional(self, c: Container) -> Container:
        flag = self._memory.read(c.holder.address + c.offset + c.plan["flag"], 1)
        if flag not in (b"\0", b"\1"):
            raise Unusable
        return make(c, size=flag[0])

    def _read_variant(self, c: Container) -> Container:
        data = self._memory.read(c.holder.address + c.offset + c.plan["index"], c.plan["width"])
        index = int.from_bytes(data or b"\xff", "little")
        return make(c, size=index if index < len(c.plan["elements"]) else -1)

    def _read_shared(self, c: Container) -> Container:
        counts = self._graph.starts.get(self.word(c, "count"))
        if counts is None and self.word(c, "count"):
            raise Unusable
        return c

    def _read_function(self, c: Container) -> Container:
        """What it has captured may lie in a block of its own."""
        held = self._graph.starts.get(self.word(c, "functor")) if self.word(c, "manager") else None
        return make(c, owned=(held,) if held is not None and held.shape.is_text else ())

    # Showing

    def show(self, address: int, kind: int, depth: int = 2) -> str:
        """A value as an initialiser."""
        layouts, row = self._layouts, self._layouts.row(kind)
        if "container" in row:
            target = self._graph.target(address)
            if target.object is not None:
                container = self.read(target.object, target.offset, kind)
                if container is not None:
                    return self.show_container(container, depth)
        if row["kind"] == "struct":
            shown = list(self._show_members(address, row, depth - 1)) if depth else ["..."]
            return layouts.class_name(kind) + "{" + ", ".join(cut(shown)) + "}"
        data = self._memory.read(address, layouts.value_size(kind))
        if data is None:
            return "?"
        shown_value = show_leaf(layouts, Leaf("", 0, len(data), kind), data, self._follow)
        return shown_value.partition(" ")[2] or shown_value if row["kind"] == "char" else shown_value

    def _show_members(self, address: int, row: dict[str, Any], depth: int) -> Iterator[str]:
        """Those of base classes too."""
        for name, bit, width, kind in row["fields"]:
            inner = self._layouts.row(kind)
            if not name and inner["kind"] == "struct" and "container" not in inner:
                yield from self._show_members(address + bit // 8, inner, depth)
            elif not width and self._layouts.weight(kind) and not name.startswith(VTABLE):
                yield self.show(address + bit // 8, kind, depth)

    def _follow(self, value: int, kind: int) -> str:
        text = self._memory.read_text(value) if self._layouts.kind(kind) == "char" else None
        return show_text(text) if text is not None else "..."

    def show_container(self, c: Container, depth: int = 2) -> str:
        if c.text is not None:
            return c.text.decode("ascii") if c.kind == "bits" else show_text(c.text.replace(b"\0", b"\\0"))
        match c.kind:
            case "optional":
                place = c.holder.address + c.offset + c.plan["value"]
                return self.show(place, c.plan["element"], depth) if c.size else "nullopt"
            case "variant" if c.size >= 0:
                place = c.holder.address + c.offset + c.plan["value"]
                return self.show(place, c.plan["elements"][c.size], depth)
            case "shared":
                return "..." if self.word(c, "pointer") else "NULL"
            case "function":
                return "{...}" if self.word(c, "manager") else "{}"
        return "{" + ", ".join(cut(self.list_elements(c, depth - 1))) + "}" if depth > 0 else "{...}"

    def list_elements(self, c: Container, depth: int = 1) -> list[str]:
        """Keys where there are some: they are what tells containers apart."""
        if c.kind in ASSOCIATIVE:
            return [label[1:].partition("]#")[0].removesuffix("]") for _, label in c.nodes]
        places = [node.address + c.plan["value"] for node, _ in c.nodes] or list(self._places(c))
        return [self.show(place, c.plan["element"], depth) for place in places]

    def _places(self, c: Container) -> Iterator[int]:
        width = self._layouts.size(c.plan["element"]) if c.parts else 0
        for buffer, (start, end), _ in c.parts:
            yield from range(buffer.address + start, buffer.address + end, width)


def make(container: Container, **changes: Any) -> Container:
    values = {name: getattr(container, name) for name in ("holder", "offset", "type", "plan")}
    return Container(**values, **changes)


def cut(shown: list[str]) -> list[str]:
    return shown if len(shown) <= SHOWN else [*shown[:SHOWN], "..."]


READERS: dict[str, Callable[[Containers, Container], Container]] = {
    "string": Containers._read_string,
    "view": Containers._read_view,
    "vector": Containers._read_vector,
    "bits": Containers._read_bits,
    "deque": Containers._read_deque,
    "tree": Containers._read_tree,
    "hash": Containers._read_hash,
    "list": Containers._read_list,
    "optional": Containers._read_optional,
    "variant": Containers._read_variant,
    "shared": Containers._read_shared,
    "function": Containers._read_function,
}
