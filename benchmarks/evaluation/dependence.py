"""An approximate dependence graph of C sources, for the scale of the papers: who is led astray walks along it.

Its vertices are lines with code. Edges are control dependences (a condition and what it decides), data dependences (a
definition and the uses that it may reach within the function; for global variables all definitions and uses), and
calls (a call, the function's beginning, its returns). What pointers lead to is not followed. Needs tree-sitter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_causechain.repairs.findings import Line

if TYPE_CHECKING:
    from tree_sitter import Node

SUFFIXES = (".c", ".h")
LOOPS = ("while_statement", "do_statement", "for_statement")
# The parts of a statement that are statements themselves; all else of it is its head.
BODIES = ("body", "consequence", "alternative")


class Graph:
    def __init__(self, vertices: Collection[Line], edges: Iterable[tuple[Line, Line]]) -> None:
        self._vertices = frozenset(vertices)
        self._neighbours: dict[Line, set[Line]] = defaultdict(set)
        for one, other in edges:
            self._neighbours[one].add(other)
            self._neighbours[other].add(one)

    def unexamined(self, blamed: Iterable[Line], defects: Collection[Line]) -> float:
        """In percent: what need not be looked at by a search that starts from the blamed lines and takes in, again and
        again, all neighbours of what it has, until a line of the defect is among it (Renieris and Reiss 2003). The
        defect itself is not looked at in vain."""
        seen = border = set(self._vertices & set(blamed))
        while border and not seen & set(defects):
            border = {neighbour for line in border for neighbour in self._neighbours[line]} & self._vertices - seen
            seen |= border
        found = seen & set(defects)
        return 100.0 * (1 - len(seen - found) / len(self._vertices)) if found else 0.0


def make_graph(sources: Collection[Path], lines: Collection[Line]) -> Graph | None:
    """None where a source is not C, or tree-sitter is not installed."""
    if any(source.suffix not in SUFFIXES for source in sources):
        return None
    try:
        import tree_sitter
        import tree_sitter_c
    except ImportError:
        return None
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    units = [_Unit(str(source), parser.parse(source.read_bytes()).root_node, lines) for source in sources]
    calls = _Calls()
    edges: set[tuple[Line, Line]] = set()
    for unit in units:
        for head, body in _functions(unit.root):
            walk = _Walk(unit, calls)
            walk.function(head, body)
            edges |= walk.edges
    return Graph(lines, edges | set(calls.edges()))


@dataclass(slots=True)
class _Unit:
    file: str
    root: Node
    lines: Collection[Line]

    def vertices(self, first: int, last: int) -> list[Line]:
        """Those with code, by rows of the syntax tree."""
        rows = range(first + 1, last + 2)
        return [line for row in rows if (line := (self.file, row)) in self.lines]


@dataclass(slots=True)
class _Calls:
    """What connects functions: calls, and variables that no function declares."""

    callers: dict[str, set[Line]] = field(default_factory=lambda: defaultdict(set))
    ends: dict[str, set[Line]] = field(default_factory=lambda: defaultdict(set))
    defined: dict[str, set[Line]] = field(default_factory=lambda: defaultdict(set))
    used: dict[str, set[Line]] = field(default_factory=lambda: defaultdict(set))

    def edges(self) -> Iterator[tuple[Line, Line]]:
        for ends, starts in ((self.callers, self.ends), (self.defined, self.used)):
            for name, lines in ends.items():
                yield from ((one, other) for one in lines for other in starts.get(name, ()))


class _Walk:
    """Through one function, in the order of its execution as far as the syntax tells it."""

    def __init__(self, unit: _Unit, calls: _Calls) -> None:
        self._unit, self._calls = unit, calls
        self._reaching: dict[str, set[Line]] = {}
        self._local: set[str] = set()
        self._name = ""
        self.edges: set[tuple[Line, Line]] = set()

    def function(self, head: Node, body: Node) -> None:
        names = [_text(n) for n in _find(head, ("identifier",))]
        if not names:
            return
        self._name, parameters = names[0], set(names[1:])
        self._local = parameters | {_text(n) for d in _find(body, ("declaration",)) for n in _declared(d)}
        lines = self._unit.vertices(head.start_point[0], body.end_point[0])
        entry = lines[:1]
        self._reaching = {name: set(entry) for name in parameters}
        self._calls.ends[self._name] |= set(entry)
        # The function's end has code, but no statement.
        self.edges |= {(line, other) for line in entry for other in self._unit.vertices(*[body.end_point[0]] * 2)}
        self._statement(body, entry)

    def _statement(self, node: Node, controlled_by: list[Line]) -> None:
        kind = node.type
        bodies = [child for name in BODIES for child in node.children_by_field_name(name)]
        if kind in ("compound_statement", "else_clause", "labeled_statement", "case_statement"):
            bodies = [child for child in node.named_children if child not in bodies] + bodies
            for child in bodies:
                self._statement(child, controlled_by)
        elif kind in LOOPS or kind in ("if_statement", "switch_statement"):
            head = self._head(node, bodies, controlled_by)
            self._branches(bodies, head, is_loop=kind in LOOPS)
            if kind in LOOPS:
                self._head(node, bodies, controlled_by)
        else:
            self._head(node, [], controlled_by)

    def _branches(self, bodies: list[Node], head: list[Line], is_loop: bool) -> None:
        before = self._reaching
        after: dict[str, set[Line]] = {name: set(lines) for name, lines in before.items()}
        for body in bodies:
            # What a loop defines reaches its beginning, too.
            for _ in range(2 if is_loop else 1):
                self._reaching = {name: set(lines) for name, lines in (after if is_loop else before).items()}
                self._statement(body, head)
                for name, lines in self._reaching.items():
                    after.setdefault(name, set()).update(lines)
        self._reaching = after

    def _head(self, node: Node, bodies: list[Node], controlled_by: list[Line]) -> list[Line]:
        """The statement without those inside it: its lines, what it uses, then what it defines."""
        last = node.end_point[0]
        if bodies:
            before = [part for part in node.children if part.end_byte <= bodies[0].start_byte]
            last = max((part.end_point[0] for part in before), default=node.start_point[0])
        lines = self._unit.vertices(node.start_point[0], last)
        if not lines:
            return controlled_by
        first = lines[0]
        self.edges |= {(first, other) for other in lines[1:]} | {(decider, first) for decider in controlled_by}
        parts = [child for child in node.children if child not in bodies] if bodies else [node]
        defined, used, called = _effects(parts)
        for name in used:
            self.edges |= {(definer, first) for definer in self._reaching.get(name, ())}
            if name not in self._local:
                self._calls.used[name].add(first)
        for name, is_whole in defined.items():
            self._reaching[name] = {first} if is_whole else self._reaching.get(name, set()) | {first}
            if name not in self._local:
                self._calls.defined[name].add(first)
        for name in called:
            self._calls.callers[name].add(first)
        if node.type == "return_statement":
            self._calls.ends[self._name].add(first)
        return lines


def _effects(parts: Iterable[Node]) -> tuple[Mapping[str, bool], set[str], set[str]]:
    """Variables defined, with whether wholly; variables used; functions called."""
    defined: dict[str, bool] = {}
    used: set[str] = set()
    called: set[str] = set()

    def define(target: Node | None) -> None:
        if target is None:
            return
        whole = target.type == "identifier"
        base = _text(target) if whole else next((_text(n) for n in _find(target, ("identifier",))), None)
        if base is not None:
            defined[base] = defined.get(base, True) and whole

    def visit(node: Node) -> None:
        match node.type:
            case "assignment_expression":
                left, operator = node.child_by_field_name("left"), node.child_by_field_name("operator")
                define(left)
                is_plain = operator is not None and operator.type == "="
                parts = [node.child_by_field_name("right")]
                if left is not None and not (is_plain and left.type == "identifier"):
                    parts.append(left)
                for part in parts:
                    if part is not None:
                        visit(part)
                return
            case "update_expression":
                define(node.child_by_field_name("argument"))
            case "init_declarator":
                for name in _declared(node):
                    defined[_text(name)] = True
            case "pointer_expression" if node.children[0].type == "&":
                # Whoever gets the address may write there.
                target = node.child_by_field_name("argument")
                base = next((_text(n) for n in _find(target, ("identifier",))), None) if target is not None else None
                if base is not None:
                    defined[base] = False
            case "call_expression":
                function = node.child_by_field_name("function")
                if function is not None and function.type == "identifier":
                    called.add(_text(function))
            case "identifier":
                used.add(_text(node))
        for child in node.named_children:
            visit(child)

    for part in parts:
        visit(part)
    return defined, used - called, called


def _functions(root: Node) -> Iterator[tuple[Node, Node]]:
    """The part with the names of function and parameters, and the body."""
    head: Node | None = None
    for node in root.named_children:
        if node.type == "function_definition":
            declarator, body = node.child_by_field_name("declarator"), node.child_by_field_name("body")
            if declarator is not None and body is not None:
                yield declarator, body
        elif node.type == "expression_statement":
            head = node  # of a function without a type, which the grammar takes for a call
        elif node.type == "compound_statement" and head is not None:
            yield head, node
        elif node.type != "declaration":
            head = None


def _declared(declaration: Node) -> Iterator[Node]:
    """The names in a declaration, without those in the values they begin with."""
    for declarator in declaration.children_by_field_name("declarator"):
        inner = declarator
        while (deeper := inner.child_by_field_name("declarator")) is not None:
            inner = deeper
        if inner.type == "identifier":
            yield inner


def _find(node: Node, kinds: Collection[str]) -> Iterator[Node]:
    """In the order of the source; not inside another one of them."""
    if node.type in kinds:
        yield node
        return
    for child in node.named_children:
        yield from _find(child, kinds)


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
