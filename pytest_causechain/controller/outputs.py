"""Hands the stories of a session to all who read them: the terminal, files, the CI system, and other plugins.

Some of these write a test's results before its chain is known. They get a promise, the name of a file that is written
later, or keep the element to which the chain can still be added."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from xml.etree import ElementTree

import pytest

from pytest_causechain.model.refusal import Refusal
from pytest_causechain.settings import Settings

if TYPE_CHECKING:
    from _pytest.junitxml import LogXML, _NodeReporter
    from _pytest.terminal import TerminalReporter

    from pytest_causechain.model.chain import Chain
    from pytest_causechain.report.story import Reporter, Story

TITLE = "cause-effect chain"
# Of `--tb`: with these pytest prints no section under a failure.
BARE_STYLES = ("no", "line")
UNKNOWN = "this test was not diagnosed."


@runtime_checkable
class Sectioned(Protocol):
    """What pytest shows of a failure, where more can be added."""

    def addsection(self, name: str, content: str, sep: str = "-") -> None: ...


class Outputs:
    """`notes` are the sentences about what could not be done."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._root: Path = config.invocation_params.dir
        # Of tests that may be diagnosed: their elements of pytest's JUnit report, and all that was promised of them.
        self._junit_nodes: dict[str, _NodeReporter] = {}
        self._promised: set[str] = set()
        # The failed phase of each test that has been diagnosed.
        self._reports: dict[str, pytest.TestReport] = {}
        self._stories: list[Story] = []
        # What stands behind pytest's own failures, with titles, and behind these.
        self._sections: list[tuple[str, str]] = []
        self._lines: list[str] = []
        self.notes: list[str] = []

    # While tests run

    def expect(self, report: pytest.TestReport) -> None:
        """Called with the last report of a test that started a program and failed, before others see it."""
        junit = self._find_junit()
        if junit is not None:
            # pytest's own handler, which comes later, lets its parts go; the element it makes stays the one written.
            self._junit_nodes[report.nodeid] = junit.node_reporter(report)
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
        if junit is not None and self._junit_nodes:
            self._try(junit.pytest_sessionfinish, "the JUnit report")

    def _find_junit(self) -> LogXML | None:
        try:
            from _pytest.junitxml import xml_key  # pytest has no public way to it
        except ImportError:
            return None
        return self._config.stash.get(xml_key, None)

    def _locate(self, test: str) -> Path:
        from pytest_causechain.report.wording import slug

        return self._settings.directory / slug(test)

    # The reporters

    @cached_property
    def _reporters(self) -> Sequence[Reporter]:
        """In the order in which they hear of a chain: files come first, since others refer to them."""
        from pytest_causechain.report.artefacts import ArtefactsReporter
        from pytest_causechain.report.github import GitHubReporter
        from pytest_causechain.report.gitlab import GitLabReporter
        from pytest_causechain.report.junit import JunitReporter
        from pytest_causechain.report.markdown import MarkdownReporter
        from pytest_causechain.report.sarif import SarifReporter
        from pytest_causechain.report.text import TextReporter

        settings, environment = self._settings, os.environ
        gitlab = environment.get("CI_PROJECT_DIR")
        # Where the paths of CI systems begin, wherever in it pytest was started.
        checkout = Path(environment.get("GITHUB_WORKSPACE") or gitlab or self._root)
        # In colour where pytest itself writes in colour, which knows about --color, NO_COLOR and terminals.
        terminal: TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        is_painted = terminal is not None and terminal.hasmarkup
        reporters: list[Reporter] = [
            ArtefactsReporter(settings.directory),
            TextReporter(self._show, is_whole=self._config.get_verbosity() > 0, is_painted=is_painted),
            JunitReporter(self._find_testcase, Path(gitlab) if gitlab else None),
            AttachmentReporter(self._config),
            HookReporter(self._config, self._reports),
        ]
        if settings.sarif is not None:
            reporters.append(SarifReporter(settings.sarif, checkout))
        if settings.gitlab is not None:
            reporters.append(GitLabReporter(settings.gitlab, checkout))
        if environment.get("GITHUB_ACTIONS") == "true":
            summary = environment.get("GITHUB_STEP_SUMMARY")
            reporters += [MarkdownReporter(Path(summary))] if summary else []
            reporters.append(GitHubReporter(self._lines.append, checkout))
        return reporters

    def _show(self, test: str, text: str) -> None:
        """Under the failure, or behind all of them where pytest shows none."""
        longrepr = self._reports[test].longrepr
        if self._config.getoption("tbstyle", "auto") in BARE_STYLES or not isinstance(longrepr, Sectioned):
            self._sections.append((f"{TITLE}: {test}", text))
        else:
            longrepr.addsection(TITLE, text, "-")

    def _find_testcase(self, test: str) -> ElementTree.Element | None:
        node = self._junit_nodes.get(test)
        return node.to_xml() if node is not None else None

    # One chain, and all of them

    def publish(self, report: pytest.TestReport, chain: Chain) -> None:
        from pytest_causechain.report.secrets import conceal_secrets
        from pytest_causechain.report.story import make_story

        chain = conceal_secrets(chain, os.environ)
        report.cause_chain = chain  # type: ignore[attr-defined]
        self._reports[chain.test] = report
        story = make_story(chain, root=self._root, artefacts=self._locate(chain.test))
        for reporter in self._reporters:
            if not self._try(partial(reporter.write, story), reporter.title):
                story = replace(story, artefacts=None)
        self._stories.append(story)

    def finish(self) -> None:
        """After the last chain: what tells of all of them, and what was promised of others."""
        for test in sorted(self._promised - self._reports.keys()):
            self._try(partial(self._write_unknown, test), "a page")
        if self._stories:
            for reporter in self._reporters:
                self._try(partial(reporter.finish, self._stories), reporter.title)

    def _write_unknown(self, test: str) -> None:
        from pytest_causechain.model.chain import Chain
        from pytest_causechain.report.artefacts import write_artefacts

        write_artefacts(Chain(test, "none", UNKNOWN), self._settings.directory)

    def summarise(self, terminal: TerminalReporter) -> None:
        """What stands behind pytest's own failures."""
        for title, text in self._sections:
            terminal.section(title, "-")
            terminal.write_line(text)
        for note in dict.fromkeys(self.notes):
            terminal.write_line(f"cause-chain: {note}")
        if self._lines:
            terminal.ensure_newline()
        for line in self._lines:
            terminal.write_line(line)

    def _try(self, action: Callable[[], object], what: str) -> bool:
        """Nothing that others do wrong, or that cannot be written, may spoil the session. False where there are no
        files for others to refer to."""
        try:
            action()
        except Refusal as refusal:
            self.notes.append(str(refusal))
            return False
        except Exception as error:
            self.notes.append(f"{what} has no chain in it: {error!a}")
        return True


class AttachmentReporter:
    """Puts the page where allure expects its attachment."""

    title = "the attachment of allure"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def write(self, story: Story) -> None:
        attachment = promised_attachment(self._config, story.chain.test)
        if attachment is not None and story.artefacts is not None:
            attachment.write_bytes((story.artefacts / "chain.html").read_bytes())

    def finish(self, stories: Sequence[Story]) -> None:
        """Each has its own."""


class HookReporter:
    """Tells other plugins, which may want the failed phase of the test, too."""

    title = "pytest_causechain_report"

    def __init__(self, config: pytest.Config, reports: Mapping[str, pytest.TestReport]) -> None:
        self._config, self._reports = config, reports

    def write(self, story: Story) -> None:
        chain = story.chain
        report = self._reports[chain.test]
        self._config.hook.pytest_causechain_report(config=self._config, report=report, chain=chain)

    def finish(self, stories: Sequence[Story]) -> None:
        """Each has been told of."""


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
