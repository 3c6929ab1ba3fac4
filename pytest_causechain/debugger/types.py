"""The types of a program, made once from what gdb says of them.

They are numbered in the order in which they become known; a type refers to others, also to itself, by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_causechain.model.codec import Sendable

# As gdb's agent is asked and answers.
JsonObject = dict[str, Any]


class Member(NamedTuple):
    """A member of a struct or union, from a bit on; `width` is that of a bit-field, else 0. Base classes are members
    without a name."""

    name: str
    bit: int
    width: int
    type: int

    @property
    def offset(self) -> int:
        return self.bit // 8

    def holds(self, offset: int, size: int) -> bool:
        """Whether an offset of the record lies within this member, whose type has that size."""
        return 0 <= offset - self.bit // 8 < size


# Containers of the C++ library (libstdc++): the offsets of the members that make one, and the types of what it holds.


@dataclass(frozen=True, slots=True)
class StringType(Sendable):
    pointer: int
    length: int
    local: int
    element: int


@dataclass(frozen=True, slots=True)
class StringViewType(Sendable):
    pointer: int
    length: int
    element: int


@dataclass(frozen=True, slots=True)
class VectorType(Sendable):
    start: int
    finish: int
    end: int
    element: int


@dataclass(frozen=True, slots=True)
class BitVectorType(Sendable):
    """`std::vector<bool>`; `offset` is that of the number of the first free bit."""

    start: int
    finish: int
    offset: int


@dataclass(frozen=True, slots=True)
class DequeType(Sendable):
    map: int
    element: int
    start_cur: int
    start_first: int
    start_last: int
    start_node: int
    finish_cur: int
    finish_first: int
    finish_last: int
    finish_node: int


@dataclass(frozen=True, slots=True)
class TreeType(Sendable):
    """A map or set; `node` is the type of its nodes, in which the element lies at `value`."""

    is_map: bool
    header: int
    count: int
    parent: int
    left: int
    right: int
    node: int
    value: int
    element: int


@dataclass(frozen=True, slots=True)
class HashType(Sendable):
    is_map: bool
    first: int
    count: int
    buckets: int
    node: int
    next: int
    value: int
    element: int


@dataclass(frozen=True, slots=True)
class ListType(Sendable):
    """A list with links in one direction has no `count`."""

    first: int
    count: int | None
    node: int
    next: int
    value: int
    element: int


@dataclass(frozen=True, slots=True)
class OptionalType(Sendable):
    value: int
    flag: int
    element: int


@dataclass(frozen=True, slots=True)
class VariantType(Sendable):
    """`index` has `width` bytes, and says which of `elements` lies at `value`."""

    index: int
    width: int
    value: int
    elements: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharedPointerType(Sendable):
    pointer: int
    count: int


@dataclass(frozen=True, slots=True)
class FunctionObjectType(Sendable):
    manager: int
    functor: int


AssociativeType = TreeType | HashType
ContainerType = (
    StringType
    | StringViewType
    | VectorType
    | BitVectorType
    | DequeType
    | TreeType
    | HashType
    | ListType
    | OptionalType
    | VariantType
    | SharedPointerType
    | FunctionObjectType
)


@dataclass(frozen=True, slots=True)
class IntType(Sendable):
    name: str
    size: int
    signed: bool


@dataclass(frozen=True, slots=True)
class CharType(Sendable):
    """An integer of one byte, or what the language calls a character."""

    name: str
    size: int
    signed: bool


@dataclass(frozen=True, slots=True)
class BoolType(Sendable):
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class FloatType(Sendable):
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class ComplexType(Sendable):
    name: str
    size: int
    target: int


@dataclass(frozen=True, slots=True)
class EnumType(Sendable):
    name: str
    size: int
    values: tuple[tuple[str, int], ...]

    def name_of(self, value: int) -> str:
        """The first enumerator that has it, else the number."""
        return next((name for name, number in self.values if number == value), str(value))


@dataclass(frozen=True, slots=True)
class PointerType(Sendable):
    """Also a reference of C++."""

    name: str
    size: int
    target: int


@dataclass(frozen=True, slots=True)
class ArrayType(Sendable):
    name: str
    size: int
    target: int
    count: int


@dataclass(frozen=True, slots=True)
class StructType(Sendable):
    """Without static members; `container` says what it means, if it is one of the C++ library."""

    name: str
    size: int
    members: tuple[Member, ...]
    container: ContainerType | None = None


@dataclass(frozen=True, slots=True)
class UnionType(Sendable):
    name: str
    size: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class VoidType(Sendable):
    name: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class FunctionType(Sendable):
    name: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class OtherType(Sendable):
    """One that C and C++ programs seldom have."""

    name: str
    size: int


RecordType = StructType | UnionType
Type = (
    IntType
    | CharType
    | BoolType
    | FloatType
    | ComplexType
    | EnumType
    | PointerType
    | ArrayType
    | StructType
    | UnionType
    | VoidType
    | FunctionType
    | OtherType
)
# By number. More come with each visit of a function whose variables have new types.
TypeTable = list[Type]

TYPES: dict[str, Callable[..., Type]] = {
    "int": IntType,
    "char": CharType,
    "bool": BoolType,
    "float": FloatType,
    "complex": ComplexType,
    "enum": EnumType,
    "pointer": PointerType,
    "array": ArrayType,
    "struct": StructType,
    "union": UnionType,
    "void": VoidType,
    "function": FunctionType,
    "other": OtherType,
}
CONTAINERS: dict[str, Callable[..., ContainerType]] = {
    "string": StringType,
    "view": StringViewType,
    "vector": VectorType,
    "bits": BitVectorType,
    "deque": DequeType,
    "tree": TreeType,
    "hash": HashType,
    "list": ListType,
    "optional": OptionalType,
    "variant": VariantType,
    "shared": SharedPointerType,
    "function": FunctionObjectType,
}


def read_types(rows: Iterable[JsonObject]) -> TypeTable:
    """From what agent_symbols.py answers."""
    return [read_type(**row) for row in rows]


def read_type(
    kind: str,
    key: str,
    fields: Iterable[Sequence[Any]] | None = None,
    values: dict[str, int] | None = None,
    container: JsonObject | None = None,
    **others: Any,
) -> Type:
    if fields is not None:
        others["members"] = tuple(Member(*field) for field in fields)
    if values is not None:
        others["values"] = tuple(values.items())
    if container is not None:
        places = {name: tuple(at) if isinstance(at, list) else at for name, at in container.items() if name != "kind"}
        others["container"] = CONTAINERS[container["kind"]](**places)
    return TYPES[kind](**others)
