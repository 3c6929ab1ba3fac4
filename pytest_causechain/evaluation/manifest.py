"""Reads a manifest: programs with known defects, already built, and the tests to run them by.

    {"schema": "causechain-manifest/1",
     "name": "the suite's name",
     "programs": [
       {"name": "tcas",
        "correct": "tcas/correct/tcas",                the program without any of the defects
        "cwd": "tcas/inputs",                          where its tests run (default: beside the manifest)
        "tests": [{"name": "1", "argv": ["958", "1"],  without the program itself
                   "stdin": "tcas/inputs/1",           a file (default: nothing to read)
                   "cwd": "tcas/inputs"}],             default: that of all tests
        "versions": [
          {"name": "v1",
           "program": "tcas/v1/tcas",                  built with -g -O0
           "sources": ["tcas/v1/tcas.c"],
           "defects": ["tcas/v1/tcas.c:75"]}]}]}       lines with code

Paths are relative to the manifest's directory. A test fails on a version whose output on stdout or exit status is
another than that of the correct program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pytest_causechain.repairs.spectrum import Line

SCHEMA = "causechain-manifest/1"


class ManifestError(Exception):
    """One sentence: what is wrong where, and what to do."""


@dataclass(frozen=True, slots=True)
class Example:
    """A test: how the program is started."""

    name: str
    argv: tuple[str, ...]
    stdin: Path | None
    cwd: Path


@dataclass(frozen=True, slots=True)
class Version:
    """A program with a defect."""

    name: str
    program: Path
    sources: tuple[Path, ...]
    defects: frozenset[Line]


@dataclass(frozen=True, slots=True)
class Subject:
    """A program, its tests, and its faulty versions."""

    name: str
    correct: Path
    tests: tuple[Example, ...]
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    name: str
    subjects: tuple[Subject, ...]


def read_manifest(path: Path) -> Manifest:
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror}): give the path of a manifest.") from None
    except ValueError as error:
        raise ManifestError(f"{path} is no JSON ({error}): mend it there.") from None
    return _Reader(path.resolve().parent).manifest(data)


class _Reader:
    """Each method reads the object that `where` leads to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def manifest(self, data: Any) -> Manifest:
        where = "the manifest"
        if self._text(data, where, "schema") != SCHEMA:
            self._fail(f'{where} has the schema "{data["schema"]}"', f'make it one of "{SCHEMA}"')
        subjects = tuple(self._subject(item, at) for item, at in self._items(data, where, "programs"))
        self._require_different(where, "programs", [subject.name for subject in subjects])
        return Manifest(self._text(data, where, "name"), subjects)

    def _subject(self, data: Any, where: str) -> Subject:
        name = self._text(data, where, "name")
        cwd = self._path(data, where, "cwd") if "cwd" in data else self._directory
        tests = tuple(self._test(item, at, cwd) for item, at in self._items(data, where, "tests"))
        versions = tuple(self._version(item, at) for item, at in self._items(data, where, "versions"))
        self._require_different(where, "tests", [test.name for test in tests])
        self._require_different(where, "versions", [version.name for version in versions])
        return Subject(name, self._path(data, where, "correct"), tests, versions)

    def _test(self, data: Any, where: str, cwd: Path) -> Example:
        return Example(
            name=self._text(data, where, "name"),
            argv=tuple(self._texts(data, where, "argv")),
            stdin=self._path(data, where, "stdin") if "stdin" in data else None,
            cwd=self._path(data, where, "cwd") if "cwd" in data else cwd,
        )

    def _version(self, data: Any, where: str) -> Version:
        sources = [self._existing(text, where, "sources") for text in self._texts(data, where, "sources")]
        defects = frozenset(self._line(text, where) for text in self._texts(data, where, "defects"))
        if not defects:
            self._fail(f"{where} has no defects", "name at least one line")
        return Version(self._text(data, where, "name"), self._path(data, where, "program"), tuple(sources), defects)

    def _line(self, text: str, where: str) -> Line:
        file, _, number = text.rpartition(":")
        if not number.isdecimal():
            self._fail(f'"{text}" in defects of {where} is no line', "write FILE:LINE")
        return str(self._existing(file, where, "defects")), int(number)

    def _text(self, data: Any, where: str, key: str) -> str:
        value = self._value(data, where, key)
        if not isinstance(value, str) or not value:
            self._fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a text")
        return str(value)

    def _texts(self, data: Any, where: str, key: str) -> list[str]:
        value = self._value(data, where, key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a list of texts")
        return list(value)

    def _items(self, data: Any, where: str, key: str) -> Iterator[tuple[Any, str]]:
        value = self._value(data, where, key)
        if not isinstance(value, list) or not value:
            self._fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a list of objects")
        singular = key.removesuffix("s")
        for number, item in enumerate(value):
            name = item.get("name") if isinstance(item, dict) else None
            inside = "" if where == "the manifest" else f" of {where}"
            yield item, f"{singular} {name if isinstance(name, str) else f'number {number + 1}'}{inside}"

    def _path(self, data: Any, where: str, key: str) -> Path:
        return self._existing(self._text(data, where, key), where, key)

    def _existing(self, text: str, where: str, key: str) -> Path:
        # A symbolic link keeps its name, by which the debug information may know the source.
        path = self._directory / text
        if not path.exists():
            self._fail(f"{path}, the {key} of {where}, does not exist", "build it, or correct the path")
        return Path(path.parent.resolve(), path.name)

    def _value(self, data: Any, where: str, key: str) -> Any:
        if not isinstance(data, dict):
            self._fail(f"{where} is {json.dumps(data)[:40]}", "make it an object")
        if key not in data:
            self._fail(f"{where} has no {key}", "add it")
        return data[key]

    def _require_different(self, where: str, key: str, names: list[str]) -> None:
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        if twice:
            self._fail(f"{key} of {where} have the name {min(twice)} more than once", "give each another")

    def _fail(self, problem: str, remedy: str) -> NoReturn:
        raise ManifestError(f"{problem}: {remedy}.")
