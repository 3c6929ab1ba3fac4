"""Turns the model's data into plain JSON and back, into what engines are sent, and into files that are whole.

Dataclasses become objects, in which a trailing underscore of a field name (`from_`) is dropped, named tuples lists;
bytes travel as base64.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import tempfile
import types
import typing
from pathlib import Path
from typing import Any


def encode(value: object) -> Any:
    """The value as plain data."""
    return json.loads(write_json(value))


def write_json(value: object) -> str:
    return _ENCODER.encode(value)


def _encode_outermost(value: object) -> object:
    """What JSON does not know, in terms of what it may contain."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: getattr(value, name) for key, name in _list_keys(type(value))}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(f"{type(value).__name__} has no place in JSON")


_ENCODER = json.JSONEncoder(default=_encode_outermost)


@functools.cache
def _list_keys(cls: type) -> tuple[tuple[str, str], ...]:
    return tuple((f.name.rstrip("_"), f.name) for f in dataclasses.fields(cls))


_list_types = functools.cache(typing.get_type_hints)


def decode(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `encode` made `data` from; ValueError or TypeError for anything else."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else decode(next(a for a in arguments if a is not type(None)), data)
    if origin is typing.Literal:
        if data not in arguments:
            raise ValueError(f"{data!r} is none of {arguments}")
        return data
    if origin is tuple:
        items = _expect(list, data)
        kinds = arguments[:1] * len(items) if arguments[-1] is Ellipsis else arguments
        return tuple(decode(of_item, item) for of_item, item in zip(kinds, items, strict=True))
    if origin is dict:
        return {key: decode(arguments[1], item) for key, item in _expect(dict, data).items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        present, kinds_of = _expect(dict, data), _list_types(kind)
        return kind(**{name: decode(kinds_of[name], present[key]) for key, name in _list_keys(kind) if key in present})
    if issubclass(kind, tuple):
        items, kinds = _expect(list, data), tuple(_list_types(kind).values())
        # Fields at the end that are left out have their defaults.
        return kind(*(decode(of_item, item) for of_item, item in zip(kinds[: len(items)], items, strict=True)))
    if kind is bytes:
        return base64.b64decode(data)
    if kind is float and isinstance(data, int):
        return float(data)
    return _expect(kind, data)


def _expect(kind: type, data: Any) -> Any:
    if not isinstance(data, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(data).__name__}")
    return data


class Sendable:
    """Of a frozen dataclass with slots: pickled as a call with its fields. What it would do by itself, looking up its
    fields for each object, takes several times as long."""

    __slots__: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple([getattr(self, name) for name in type(self).__slots__])


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file; what is there until then can still be read. It belongs to its owner alone."""
    handle, name = tempfile.mkstemp(prefix=".causechain-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
