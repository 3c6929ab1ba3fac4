"""Case studies: why does a program do in one run what it does not do in another? Nothing has to be wrong with it.

    {"schema": "causechain-studies/1",
     "questions": [
       {"name": "why does diff print a difference",
        "program": "diffutils/src/diff",                           built with -g -O0
        "cwd": "texts",                                            default: beside this file
        "passing": {"name": "equal texts", "argv": ["a", "a2"]},   a test as in a manifest: also "stdin", "cwd"
        "failing": {"name": "other texts", "argv": ["a", "b"]},
        "fails_when": {"stdout": "."}}]}                           or "stderr": a regular expression; or "status": 1

Paths are relative to the file's directory. Programs run in the environment of this command. A run in which the sign of
`fails_when` is found fails, another one passes; one that ends with a status that neither of the two runs has, or not by
itself, is unresolved.

python -m benchmarks.evaluation.studies STUDIES"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.evaluation.driver import open_share
from benchmarks.evaluation.manifest import Example, ManifestError, Reader, read_json
from benchmarks.evaluation.suite import make_command
from benchmarks.evaluation.tables import make_table
from pytest_causechain.controller.method import Pair, find_chain
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.chain import Chain, Rule
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Observation, Outcome
from pytest_causechain.recording.programs import identify_program
from pytest_causechain.report.artefacts import write_artefacts
from pytest_causechain.report.story import make_story
from pytest_causechain.report.text import WHOLE, render_text

SCHEMA = "causechain-studies/1"


@dataclass(frozen=True, slots=True)
class Sign:
    """By which a run is known to do what is asked about: the status it ends with, or what is found in an output."""

    status: int | None = None
    output: str | None = None
    pattern: str = ""

    def is_shown(self, observation: Observation) -> bool:
        if self.output is None:
            return observation.returncode == self.status
        text = observation.stdout if self.output == "stdout" else observation.stderr
        return re.search(self.pattern.encode(), text, re.MULTILINE) is not None

    def __str__(self) -> str:
        if self.output is None:
            return f"it exits with status {self.status}"
        return f"{self.pattern!r} is found in what it writes to {self.output}"


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    program: Path
    passing: Example
    failing: Example
    sign: Sign


@dataclass(frozen=True, slots=True)
class SignOracle:
    sign: Sign
    passing: Observation
    failing: Observation

    @property
    def rule(self) -> Rule:
        return Rule("user", str(self.sign))

    def judge(self, observation: Observation) -> Outcome:
        known = {(run.ending, run.code) for run in (self.passing, self.failing)}
        if (observation.ending, observation.code) not in known:
            return Outcome.UNRESOLVED
        return Outcome.FAIL if self.sign.is_shown(observation) else Outcome.PASS


@dataclass(frozen=True, slots=True)
class SignJudge:
    sign: Sign

    def learn_oracle(self, passing: Observation, failing: Observation) -> SignOracle:
        return SignOracle(self.sign, passing, failing)


def read_studies(path: Path) -> list[Study]:
    return _Reader(path.resolve().parent).studies(read_json(path))


class _Reader(Reader):
    def studies(self, data: Any) -> list[Study]:
        where = "the manifest"
        self.require_schema(data, where, SCHEMA)
        studies = [self._study(item, at) for item, at in self.items(data, where, "questions")]
        self.require_different(where, "questions", [study.name for study in studies])
        return studies

    def _study(self, data: Any, where: str) -> Study:
        name = self.text(data, where, "name")
        cwd = self.cwd(data, where, self.directory)
        return Study(
            name,
            self.path(data, where, "program"),
            self.example(self.value(data, where, "passing"), f"passing of {where}", cwd),
            self.example(self.value(data, where, "failing"), f"failing of {where}", cwd),
            self._sign(self.value(data, where, "fails_when"), f"fails_when of {where}"),
        )

    def _sign(self, data: Any, where: str) -> Sign:
        if not isinstance(data, dict) or len(data) != 1 or not data.keys() <= {"stdout", "stderr", "status"}:
            self.fail(f"{where} is not one sign", 'give it one of "stdout", "stderr" and "status"')
        if "status" in data:
            if type(data["status"]) is not int:
                self.fail(f"status of {where} is no whole number", "write the exit status")
            return Sign(status=data["status"])
        (output,) = data
        pattern = self.text(data, where, output)
        try:
            re.compile(pattern)
        except re.error as error:
            self.fail(f"{output} of {where} is no regular expression ({error})", "mend it")
        return Sign(output=output, pattern=pattern)


def make_study(study: Study, budget: Budget, setup: LabSetup) -> Chain:
    try:
        program = identify_program(str(study.program))
    except Refusal as refusal:
        return Chain(study.name, "none", str(refusal))
    commands = (make_command(program, study.passing), make_command(program, study.failing))
    pair = Pair(*commands, study.passing.name, study.name)
    return find_chain(pair, SignJudge(study.sign), budget, setup)


def tell_study(chain: Chain, artefacts: Path) -> str:
    """All of the chain: it is what was asked for."""
    return f"## {chain.test}?\n\n```\n{render_text(make_story(chain, artefacts=artefacts), details=WHOLE)}\n```\n"


def table_studies(chains: Sequence[Chain]) -> str:
    """As table 4 of Zeller has it: the largest state, the most differences, and all experiments."""
    head = ["question", "vertices", "deltas", "moments", "experiments", "unresolved", "links", "seconds"]
    return make_table(head, map(row_of_study, chains))


def row_of_study(chain: Chain) -> list[object]:
    known = chain.statistics
    tally, moments = known.experiments, f"{known.moments.transferable} of {known.moments.tried}"
    counts = [tally.total, tally.unresolved, len(chain.chain)]
    return [chain.test, known.vertices, known.deltas, moments, *counts, f"{known.seconds.total:.1f}"]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evaluation.studies",
        description="Find out why a program does in one run what it does not do in another.",
    )
    parser.add_argument("studies", type=Path, help="programs, runs and questions (benchmarks/evaluation/studies.py)")
    parser.add_argument("--output", type=Path, default=Path("build/studies"), help="directory for the results")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for each question (60)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        studies = read_studies(options.studies)
    except ManifestError as error:
        print(error, file=sys.stderr)
        return 2
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    chains, texts = [], []
    for study in studies:
        with open_share() as share:
            chain = make_study(study, Budget(options.timeout), LabSetup(cache=output / "cache", share=share))
        chains.append(chain)
        texts.append(tell_study(chain, write_artefacts(chain, output)))
        print(texts[-1], flush=True)
    table = table_studies(chains)
    print(table)
    (output / "studies.md").write_text("\n".join([table, *texts]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
