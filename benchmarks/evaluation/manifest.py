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
another than that of the correct program. What is wrong with a manifest is said in one sentence, with what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pytest_causechain.repairs.findings import Line


class ManifestError(Exception):
    """One sentence: what is wrong where, and what to do."""


@dataclass(frozen=True, slots=True)
class Example:
    """A test: how the program is started."""

    name: str
    argv: tuple[str, ...]
    stdin: Path | None
    cwd: Path


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ManifestError(f"{path} cannot be read ({error.strerror}): give the path of a manifest.") from None
    except ValueError as error:
        raise ManifestError(f"{path} is no JSON ({error}): mend it there.") from None


class Reader:
    """Each method reads the object that `where` leads to, or a part of it; paths are relative to `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def require_schema(self, data: Any, where: str, schema: str) -> None:
        if self.text(data, where, "schema") != schema:
            self.fail(f'{where} has the schema "{data["schema"]}"', f'make it one of "{schema}"')

    def example(self, data: Any, where: str, cwd: Path) -> Example:
        return Example(
            name=self.text(data, where, "name"),
            argv=tuple(self.texts(data, where, "argv")),
            stdin=self.path(data, where, "stdin") if "stdin" in data else None,
            cwd=self.cwd(data, where, cwd),
        )

    def cwd(self, data: Any, where: str, default: Path) -> Path:
        return self.path(data, where, "cwd") if "cwd" in data else default

    def text(self, data: Any, where: str, key: str) -> str:
        value = self.value(data, where, key)
        if not isinstance(value, str) or not value:
            self.fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a text")
        return str(value)

    def texts(self, data: Any, where: str, key: str) -> list[str]:
        value = self.value(data, where, key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a list of texts")
        return list(value)

    def items(self, data: Any, where: str, key: str) -> Iterator[tuple[Any, str]]:
        value = self.value(data, where, key)
        if not isinstance(value, list) or not value:
            self.fail(f"{key} of {where} is {json.dumps(value)[:40]}", "make it a list of objects")
        singular = key.removesuffix("s")
        for number, item in enumerate(value):
            name = item.get("name") if isinstance(item, dict) else None
            inside = "" if where == "the manifest" else f" of {where}"
            yield item, f"{singular} {name if isinstance(name, str) else f'number {number + 1}'}{inside}"

    def path(self, data: Any, where: str, key: str) -> Path:
        return self.existing(self.text(data, where, key), where, key)

    def existing(self, text: str, where: str, key: str) -> Path:
        # A symbolic link keeps its name, by which the debug information may know the source.
        path = self.directory / text
        if not path.exists():
            self.fail(f"{path}, the {key} of {where}, does not exist", "build it, or correct the path")
        return Path(path.parent.resolve(), path.name)

    def value(self, data: Any, where: str, key: str) -> Any:
        if not isinstance(data, dict):
            self.fail(f"{where} is {json.dumps(data)[:40]}", "make it an object")
        if key not in data:
            self.fail(f"{where} has no {key}", "add it")
        return data[key]

    def require_different(self, where: str, key: str, names: list[str]) -> None:
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        if twice:
            self.fail(f"{key} of {where} have the name {min(twice)} more than once", "give each another")

    def fail(self, problem: str, remedy: str) -> NoReturn:
        raise ManifestError(f"{problem}: {remedy}.")


SCHEMA = "causechain-manifest/1"


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
    return _Reader(path.resolve().parent).manifest(read_json(path))


class _Reader(Reader):
    def manifest(self, data: Any) -> Manifest:
        where = "the manifest"
        self.require_schema(data, where, SCHEMA)
        subjects = tuple(self._subject(item, at) for item, at in self.items(data, where, "programs"))
        self.require_different(where, "programs", [subject.name for subject in subjects])
        return Manifest(self.text(data, where, "name"), subjects)

    def _subject(self, data: Any, where: str) -> Subject:
        name = self.text(data, where, "name")
        cwd = self.cwd(data, where, self.directory)
        tests = tuple(self.example(item, at, cwd) for item, at in self.items(data, where, "tests"))
        versions = tuple(self._version(item, at) for item, at in self.items(data, where, "versions"))
        self.require_different(where, "tests", [test.name for test in tests])
        self.require_different(where, "versions", [version.name for version in versions])
        return Subject(name, self.path(data, where, "correct"), tests, versions)

    def _version(self, data: Any, where: str) -> Version:
        sources = [self.existing(text, where, "sources") for text in self.texts(data, where, "sources")]
        defects = frozenset(self._line(text, where) for text in self.texts(data, where, "defects"))
        if not defects:
            self.fail(f"{where} has no defects", "name at least one line")
        return Version(self.text(data, where, "name"), self.path(data, where, "program"), tuple(sources), defects)

    def _line(self, text: str, where: str) -> Line:
        file, _, number = text.rpartition(":")
        if not number.isdecimal():
            self.fail(f'"{text}" in defects of {where} is no line', "write FILE:LINE")
        return str(self.existing(file, where, "defects")), int(number)
