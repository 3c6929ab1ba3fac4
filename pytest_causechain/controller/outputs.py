"""Hands the chains of a session to all who read them: the terminal, files, the CI system, and other plugins.

Some of these write a test's results before its chain is known. They get a promise, the name of a file that is written
later, or keep the element to which the chain can still be added."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.model.chain import Chain

TITLE = "cause-effect chain"
# Of `--tb`: with these pytest prints no section under a failure.
BARE_STYLES = ("no", "line")
UNKNOWN = "this test was not diagnosed."


class Publisher:
    """`notes` are the sentences about what could not be done."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._root: Path = config.invocation_params.dir
        # Of pytest's JUnit report, by test.
        self._reporters: dict[str, Any] = {}
        self._promised: set[str] = set()
        self._texts: list[tuple[str, str]] = []
        self._chains: list[Chain] = []
        self.notes: list[str] = []

    # While tests run

    def expect(self, report: pytest.TestReport) -> None:
        """Called with the last report of a test that started a program and failed, before others see it."""
        junit = self._find_junit()
        if junit is not None:
            # pytest's own handler, which comes later, lets its parts go; the element it makes stays the one written.
            self._reporters[report.nodeid] = junit.node_reporter(report)
        html = self._config.getoption("htmlpath", None)
        if html:
            self._promised.add(report.nodeid)
            page = os.path.relpath(self._locate(report.nodeid) / "chain.html", Path(html).absolute().parent)
            link = {"name": TITLE, "format_type": "url", "content": page, "mime_type": None, "extension": None}
            report.extras = [*getattr(report, "extras", []), link]  # type: ignore[attr-defined]
        if promised_attachment(self._config, report.nodeid):
            self._promised.add(report.nodeid)

    def write_results(self) -> None:
        """The JUnit report without chains: should a CI system end a long diagnosis, the results are there."""
        junit = self._find_junit()
        if junit is not None and self._reporters:
            self._try(junit.pytest_sessionfinish, "the JUnit report")

    def _find_junit(self) -> Any:
        try:
            from _pytest.junitxml import xml_key  # pytest has no public way to it
        except ImportError:
            return None
        return self._config.stash.get(xml_key, None)

    def _locate(self, test: str) -> Path:
        from pytest_causechain.report.artefacts import slug

        return self._settings.directory / slug(test)

    # One chain

    def publish(self, report: pytest.TestReport, chain: Chain) -> None:
        from pytest_causechain.report.artefacts import write_artefacts
        from pytest_causechain.report.secrets import conceal_secrets

        chain = conceal_secrets(chain, os.environ)
        self._chains.append(chain)
        artefacts: Path | None = None
        try:
            artefacts = write_artefacts(chain, self._settings.directory, root=self._root)
        except Refusal as refusal:
            self.notes.append(str(refusal))
        report.cause_chain = chain  # type: ignore[attr-defined]
        self._show(report, chain, artefacts)
        self._try(lambda: self._add_to_junit(report, chain, artefacts), "the JUnit report")
        self._try(lambda: self._keep_promise(chain, artefacts), "the attachment of allure")
        self._try(
            lambda: self._config.hook.pytest_causechain_report(config=self._config, report=report, chain=chain),
            "pytest_causechain_report",
        )

    def _show(self, report: pytest.TestReport, chain: Chain, artefacts: Path | None) -> None:
        from pytest_causechain.report.text import BRIEF, WHOLE, render_text

        limits = WHOLE if self._config.get_verbosity() > 0 else BRIEF
        text = self._paint(render_text(chain, root=self._root, artefacts=artefacts, limits=limits))
        longrepr: Any = report.longrepr
        if self._config.getoption("tbstyle", "auto") in BARE_STYLES or not hasattr(longrepr, "addsection"):
            self._texts.append((report.nodeid, text))
        else:
            longrepr.addsection(TITLE, text, "-")

    def _paint(self, text: str) -> str:
        """In colour where pytest itself writes in colour, which knows about --color, NO_COLOR and terminals."""
        reporter: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or not reporter.hasmarkup:
            return text
        from pytest_causechain.report.highlighting import paint_text

        return paint_text(text)

    def _add_to_junit(self, report: pytest.TestReport, chain: Chain, artefacts: Path | None) -> None:
        from pytest_causechain.report.junit import describe_testcase, list_properties
        from pytest_causechain.report.sources import show_path
        from pytest_causechain.report.text import WHOLE, render_text

        reporter = self._reporters.get(report.nodeid)
        if reporter is None:
            return
        text = render_text(chain, root=self._root, artefacts=artefacts, limits=WHOLE)
        names = [] if artefacts is None else ["chain.html", "chain.json"]
        # GitLab takes paths from its checkout, Jenkins whole ones.
        checkout = os.environ.get("CI_PROJECT_DIR")
        files = [show_path(artefacts / name, Path(checkout) if checkout else None) for name in names if artefacts]
        describe_testcase(reporter.to_xml(), list_properties(chain, root=self._root), text, files)

    def _keep_promise(self, chain: Chain, artefacts: Path | None) -> None:
        attachment = promised_attachment(self._config, chain.test)
        if attachment is not None and artefacts is not None:
            attachment.write_bytes((artefacts / "chain.html").read_bytes())

    # All of them

    def finish(self) -> None:
        """After the last chain: what tells of all of them, and what was promised of others."""
        if not self._chains and not self._promised:
            return
        from pytest_causechain.model.chain import Chain
        from pytest_causechain.report.artefacts import write_artefacts, write_index

        for test in sorted(self._promised - {chain.test for chain in self._chains}):
            unknown = Chain(test, "none", UNKNOWN)
            self._try(lambda chain=unknown: write_artefacts(chain, self._settings.directory), "a page")  # type: ignore[misc]
        if not self._chains:
            return
        try:
            write_index(self._chains, self._settings.directory, root=self._root)
        except Refusal as refusal:
            self.notes.append(str(refusal))
        self._try(self._write_exports, "a report")
        if os.environ.get("GITHUB_ACTIONS") == "true":
            self._try(self._write_summary, "the step summary")

    def _write_exports(self) -> None:
        from pytest_causechain.report.gitlab import list_issues
        from pytest_causechain.report.sarif import make_log

        for path, make in ((self._settings.sarif, make_log), (self._settings.gitlab, list_issues)):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(
                    json.dumps(make(self._chains, self._find_checkout()), indent=2) + "\n", encoding="ascii"
                )

    def _write_summary(self) -> None:
        from pytest_causechain.report.github import render_summary

        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(render_summary(self._chains, self._root))

    def summarise(self, reporter: TerminalReporter) -> None:
        """What stands behind pytest's own failures."""
        for test, text in self._texts:
            reporter.section(f"{TITLE}: {test}", "-")
            reporter.write_line(text)
        for note in dict.fromkeys(self.notes):
            reporter.write_line(f"cause-chain: {note}")
        if os.environ.get("GITHUB_ACTIONS") == "true" and self._chains:
            self._try(lambda: self._annotate(reporter), "annotations")

    def _annotate(self, reporter: TerminalReporter) -> None:
        from pytest_causechain.report.github import annotate

        reporter.ensure_newline()
        for line in annotate(self._chains, self._find_checkout()):
            reporter.write_line(line)

    def _find_checkout(self) -> Path:
        """Where the paths of CI systems begin, wherever in it pytest was started."""
        return Path(os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or self._root)

    def _try(self, action: Callable[[], object], what: str) -> None:
        """Nothing that others do wrong, or that cannot be written, may spoil the session."""
        try:
            action()
        except Exception as error:
            self.notes.append(f"{what} has no chain in it: {error!a}")


def promise_attachment(config: pytest.Config, test: str) -> None:
    """Have allure, where it is active, refer to a page that will be there when the chain is found.

    Called where the test runs, while allure's result for it is still open."""
    listener = config.pluginmanager.get_plugin("allure_listener")
    if listener is None:
        return
    body = f"<!DOCTYPE html><title>{TITLE}</title><p>{UNKNOWN.capitalize()}</p>"
    listener.allure_logger.attach_data(name_attachment(test), body, TITLE, "text/html", "html")


def promised_attachment(config: pytest.Config, test: str) -> Path | None:
    directory = config.getoption("allure_report_dir", None)
    if not directory:
        return None
    return Path(directory).absolute() / f"{name_attachment(test)}-attachment.html"


def name_attachment(test: str) -> str:
    """The same in the worker that runs the test and in the controller that finds its chain."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"causechain:{test}"))
