"""How chains reach their readers; tests/plugin/test_reports.py looks at what these get."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_causechain.controller.outputs import Outputs
from pytest_causechain.model.chain import Chain
from pytest_causechain.settings import Settings

CHAIN = Chain("test_it.py::test_it", "none", "there is no program")


class Terminal:
    """Notes what is written to it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str, sep: str) -> None:
        self.lines.append(f"{sep} {title}")

    def write_line(self, line: str) -> None:
        self.lines.append(line)

    def ensure_newline(self) -> None:
        pass


@pytest.fixture
def outputs(pytester: pytest.Pytester) -> Outputs:
    settings = Settings(directory=pytester.path / "out", sarif=pytester.path / "taken" / "x", gitlab=Path("quality"))
    return Outputs(pytester.parseconfig(), settings)


def publish(outputs: Outputs) -> pytest.TestReport:
    location = ("test_it.py", 1, "test_it")
    report = pytest.TestReport(CHAIN.test, location, {}, "failed", "it failed", "call")
    outputs.publish(report, CHAIN)
    outputs.finish()
    return report


def test_all_are_told_where_one_cannot_write(outputs: Outputs, pytester: pytest.Pytester) -> None:
    (pytester.path / "taken").write_text("")
    report = publish(outputs)
    assert report.cause_chain == CHAIN  # type: ignore[attr-defined]
    (note,) = outputs.notes
    assert note.startswith("a report has no chain in it: ")
    assert (pytester.path / "quality").read_text() == "[]\n"
    assert (pytester.path / "out" / "index.html").is_file()


def test_what_has_no_place_under_its_failure_stands_behind_all(outputs: Outputs) -> None:
    publish(outputs)
    terminal = Terminal()
    outputs.summarise(terminal)  # type: ignore[arg-type]
    assert terminal.lines == [
        f"- cause-effect chain: {CHAIN.test}",
        "No cause-effect chain: there is no program.",
    ]


def test_directory_that_cannot_be_written_is_refused_once(outputs: Outputs, pytester: pytest.Pytester) -> None:
    (pytester.path / "out").write_text("")
    publish(outputs)
    terminal = Terminal()
    outputs.summarise(terminal)  # type: ignore[arg-type]
    (note,) = [line for line in terminal.lines if line.startswith("cause-chain: ")]
    assert "name another place by --cause-chain-dir" in note
    assert "No cause-effect chain: there is no program." in terminal.lines
