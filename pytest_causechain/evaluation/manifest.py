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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_causechain.evaluation.reading import Example, Reader, read_json
from pytest_causechain.repairs.findings import Line

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
