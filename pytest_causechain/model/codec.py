"""Turns the model's data into plain JSON and back, into what engines are sent, and into files that are whole.

Dataclasses become objects, in which a trailing underscore of a field name (`from_`) is dropped, named tuples lists;
bytes travel as base64.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import os
import tempfile
import types
import typing
from pathlib import Path
from typing import Any


def encode(value: object) -> Any:
    if value is None or (isinstance(value, (str, int, float)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    return encode(_encode_outermost(value))


def write_json(value: object) -> str:
    """The same as text, some times faster: most of it is not done in Python."""
    return _ENCODER.encode(value)


def _encode_outermost(value: object) -> object:
    """What JSON does not know, in terms of what it may contain."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: getattr(value, name) for key, name in _list_keys(type(value))}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no place in JSON")


_ENCODER = json.JSONEncoder(default=_encode_outermost)


@functools.cache
def _list_keys(cls: type) -> tuple[tuple[str, str], ...]:
    return tuple((f.name.rstrip("_"), f.name) for f in dataclasses.fields(cls))


@functools.cache
def _field_types(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `encode` made `data` from; ValueError or TypeError for anything else."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(data, dict):
            raise TypeError(f"expected an object for {kind.__name__}, not {type(data).__name__}")
        types_of = _field_types(kind)
        known = {name: data[name.rstrip("_")] for name in types_of if name.rstrip("_") in data}
        return kind(**{name: decode(types_of[name], item) for name, item in known.items()})
    if isinstance(kind, type) and issubclass(kind, tuple):
        types_of = _field_types(kind)
        if not isinstance(data, list) or len(data) > len(types_of):
            raise TypeError(f"expected a list of at most {len(types_of)} items for {kind.__name__}")
        return kind(*(decode(type_of, item) for type_of, item in zip(types_of.values(), data, strict=False)))
    if origin is tuple:
        arguments = typing.get_args(kind)
        if not isinstance(data, list):
            raise TypeError(f"expected a list, not {type(data).__name__}")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(decode(arguments[0], item) for item in data)
        if len(arguments) != len(data):
            raise ValueError(f"expected {len(arguments)} items, not {len(data)}")
        return tuple(decode(argument, item) for argument, item in zip(arguments, data, strict=True))
    if origin is dict:
        if not isinstance(data, dict):
            raise TypeError(f"expected an object, not {type(data).__name__}")
        return {key: decode(typing.get_args(kind)[1], item) for key, item in data.items()}
    if origin in (typing.Union, types.UnionType):
        if data is None:
            return None
        return decode(next(a for a in typing.get_args(kind) if a is not type(None)), data)
    if origin is typing.Literal:
        if data not in typing.get_args(kind):
            raise ValueError(f"{data!r} is none of {typing.get_args(kind)}")
        return data
    if kind is bytes:
        return base64.b64decode(data)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if kind is float and isinstance(data, int):
        return float(data)
    if kind is not Any and not isinstance(data, kind):
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
