"""A pytest session that answers questions instead of running through its tests.

It lives in a process of its own (see replay.py) and runs the whole protocol of one test for each question: fresh
function fixtures, wider scopes kept, everything real but the run that is asked about. Options of the user's command
line do not take effect a second time in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest
from argparse import Namespace
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess
from traceback import walk_tb
from types import CodeType, FrameType
from typing import NoReturn, TypeAlias

import pytest

# Private, but what every plugin that runs a test again uses.
from _pytest.nodes import Node
from _pytest.runner import runtestprotocol

import pytest_causechain
from pytest_causechain.model.isolation import Wish
from pytest_causechain.model.refusal import Refusal, Unreplayable
from pytest_causechain.model.runs import ATTRIBUTE, Command, Observation, Outcome, Recording, Run
from pytest_causechain.model.verdict import Comparison, Verdict
from pytest_causechain.oracle.facts import describe_comparison, describe_message, digest_message, locate_crash
from pytest_causechain.oracle.starts import FixtureSetup, ReplayPlan, Substitution, WrittenFiles, find_start
from pytest_causechain.recording.programs import Recognised, Start, recognise_start
from pytest_causechain.recording.recorder import Recorder, RecordingPlugin
from pytest_causechain.recording.seam import Seam, Watch
from pytest_causechain.sandbox.isolation import isolate_tests

# As pytest itself cuts the test's name for the directory of tmp_path.
TMP_PATH_NAME_CHARACTERS = 30

# None of pytest's own, which have plugins sum up the tests for nobody: hypothesis then takes a second to be imported.
STATUS_WITHOUT_SUMMARY = 100

# Where a comparison was made or an exception passed through.
_Spot = tuple[CodeType, int]


# What a Replay and its session tell each other


@dataclass(frozen=True, slots=True)
class SessionTask:
    """What the session is started with."""

    arguments: tuple[str, ...]
    basetemp: str
    rootdir: str
    isolation: Wish = "auto"


@dataclass(frozen=True, slots=True)
class Question:
    """What does the test say when this run of it shows this observation? Without one: of the real programs.

    `origins` are the commands of which it may be an observation: they tell where it wrote its files."""

    test: str
    run: Run | None = None
    observation: Observation | None = None
    origins: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordQuestion:
    """What does this test start now? The answer is its Recording, or None when it is gone or starts nothing."""

    test: str


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """`shown` is what the real programs showed, as far as the test has seen it."""

    verdict: Verdict
    shown: tuple[Observation, ...] = ()


# What the session sends, None once collection is over; and what it receives, None at the end.
SessionConnection: TypeAlias = (
    "Connection[ReplayAnswer | Refusal | Recording | None, Question | RecordQuestion | SessionTask | None]"
)


# The session


def serve(connection: SessionConnection) -> int:
    """Runs the session in a companion process."""
    # pytest warns of a plugin's package that was imported before, which with -W error is its end.
    pytest_causechain.__doc__ = f"{pytest_causechain.__doc__} PYTEST_DONT_REWRITE"
    task = connection.recv()
    assert isinstance(task, SessionTask)
    isolate_tests(task.isolation, [str(Path.cwd()), task.rootdir], tempfile.gettempdir())
    sys.argv = ["pytest", *task.arguments]
    disarm_cache()
    return pytest.main(list(task.arguments), plugins=[ReplaySession(connection, task)])


class ReplaySession:
    """The plugin that turns pytest into a server of verdicts and recordings."""

    def __init__(self, connection: SessionConnection, task: SessionTask) -> None:
        self.connection = connection
        self.task = task
        self.collected: list[pytest.Item] = []
        self.collection_problems: dict[str, str] = {}
        self.verdicts: dict[str, Verdict] = {}
        # What each test started itself, and each fixture of a wider scope when it was last set up with real programs.
        self.own: dict[str, list[Recognised]] = {}
        self.shared: dict[str, tuple[FixtureSetup, list[Recognised]]] = {}
        # Fixtures of a wider scope that are being set up, the innermost last.
        self.setups: list[FixtureSetup] = []
        # Of the run under way.
        self.reports: list[pytest.TestReport] = []
        self.error: pytest.ExceptionInfo[BaseException] | None = None
        self.comparison: tuple[Comparison, _Spot] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> Generator[None]:
        # Some plugins act before the command line is parsed for good.
        disarm_options(early_config.known_args_namespace, self.task.basetemp)
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        config = yield
        disarm_options(config.option, self.task.basetemp)
        return config

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        # Changes of the environment count from here on. Tests are recorded only when somebody asks for it.
        self.recording = RecordingPlugin(Recorder())

    @pytest.fixture
    def tmp_path(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Gives a test the same directory each time: it may be part of a command line or of what is printed, and
        pytest's counts up."""
        name = re.sub(r"\W", "_", request.node.name)[:TMP_PATH_NAME_CHARACTERS]
        path = tmp_path_factory.getbasetemp() / f"{name}0"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700)
        return path

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            lines = [line for line in report.longreprtext.splitlines() if line.strip()]
            self.collection_problems[report.nodeid] = lines[-1].removeprefix("E ").strip() if lines else ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        # Whatever other plugins sort out of this small session, they let pass in the user's.
        self.collected = list(items)
        yield
        items[:] = self.collected

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        self.setups.append(FixtureSetup(fixturedef, request))
        try:
            return (yield)
        finally:
            self.setups.pop()

    @pytest.hookimpl(tryfirst=True)
    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> None:
        spot = _find_caller()
        if spot is not None:
            self.comparison = describe_comparison(op, left, right), spot

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        self.error = self.error or call.excinfo

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Runs in place of pytest's own, but inside all its wrappers: one of them has pytest_assertrepr_compare
        called."""
        self.reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> NoReturn:
        self.connection.send(None)
        with contextlib.suppress(EOFError):
            while (question := self.connection.recv()) is not None:
                assert not isinstance(question, SessionTask)
                if isinstance(question, RecordQuestion):
                    self.connection.send(self.record(question.test))
                else:
                    self.connection.send(self.judge(question))
        pytest.exit("no more questions", STATUS_WITHOUT_SUMMARY)

    def judge(self, question: Question) -> ReplayAnswer | Refusal:
        try:
            item = self.find_item(question.test)
            if item.nodeid not in self.verdicts:
                self.run_real(item)
            if question.run is not None and question.observation is not None:
                return ReplayAnswer(self.run_replay(item, question.run, question.observation, question.origins))
            return ReplayAnswer(self.verdicts[item.nodeid], self.list_shown(item))
        except Refusal as refusal:
            return refusal

    def find_item(self, test: str) -> pytest.Function:
        item = next((item for item in self.collected if item.nodeid == test), None)
        if item is None:
            problem = self.collection_problems.get(test.partition("::")[0])
            because = f" ({problem})" if problem else ""
            raise Unreplayable(f"{test} is not collected when run alone{because}: make it independent of other tests.")
        if not isinstance(item, pytest.Function):
            raise Unreplayable(f"{test} is no test function, so it cannot be replayed: write it as one.")
        if item.cls is not None and issubclass(item.cls, unittest.TestCase):
            raise Unreplayable(f"{test} is a unittest.TestCase method, which cannot be replayed: write a function.")
        if getattr(item.obj, "is_hypothesis_test", False):
            raise Unreplayable(f"{test} is a hypothesis test, which cannot be replayed: write the example as a test.")
        if "subtests" in item.fixturenames:
            raise Unreplayable(f"{test} uses subtests, which cannot be replayed: use pytest.mark.parametrize.")
        return item

    def run_real(self, item: pytest.Function) -> None:
        """Runs the test with its real programs, which shows what there is to replace."""
        own: list[Recognised] = []
        shared: dict[str, tuple[FixtureSetup, list[Recognised]]] = {}

        def watch(start: Start) -> None:
            with contextlib.suppress(Refusal):
                recognised = recognise_start(start)
                setup = self.setups[-1] if self.setups else None
                seen = own if setup is None else shared.setdefault(setup.name, (setup, []))[1]
                seen.append(recognised)

        verdict = self.run(item, watch)
        self.shared.update(shared)
        self.own[item.nodeid] = own
        self.verdicts[item.nodeid] = replace(verdict, starts=len(own))

    def list_shown(self, item: pytest.Function) -> tuple[Observation, ...]:
        seen = [*self.own[item.nodeid], *(one for _, shared in self.shared.values() for one in shared)]
        return tuple(dict.fromkeys(shown for one in seen if (shown := one.start.shown) is not None))

    def find_plan(self, item: pytest.Function, run: Run) -> ReplayPlan:
        setup: FixtureSetup | None = None
        seen: Sequence[Recognised] = self.own[item.nodeid]
        if run.fixture is not None:
            setup, seen = self.shared.get(run.fixture, (None, ()))
        index = find_start(run, seen)
        if index is None:
            name = Path(run.command.program.path).name
            raise Unreplayable(f"{item.nodeid} did not start {name} as before: make it start the same each time.")
        return ReplayPlan(tuple(one.inner.argv for one in seen[: index + 1]), setup)

    def run_replay(
        self, item: pytest.Function, run: Run, observation: Observation, origins: tuple[Command, ...]
    ) -> Verdict:
        plan = self.find_plan(item, run)
        if plan.setup is not None:
            plan.setup.undo()
        with WrittenFiles() as files:
            substitution = Substitution(plan, observation, origins, self.task.basetemp, self.setups, files)
            verdict = self.run(item, substitution.watch)
        if plan.setup is not None:
            plan.setup.undo()  # no other test may get what was put in its place
        if not substitution.is_done:
            verdict = Verdict("diverged", message="the test did not start the program as before")
        process = complete_process(plan.argvs[-1], observation)
        said, judged = ask_marker(item, process), ask_judge(item, process)
        return replace(verdict, starts=substitution.count, fails_when=said, judged=judged)

    def run(self, item: pytest.Function, watch: Watch) -> Verdict:
        self.reports, self.error, self.comparison = [], None, None
        renew_item(item)
        tear_down(item.session, item)
        with Seam(watch) as seam:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=Sibling(item))
        if seam.error is not None:
            raise Refusal(f"{item.nodeid} could not be replayed ({seam.error!r}): please report this as a defect.")
        if not self.reports:
            raise Unreplayable(f"{item.nodeid} is run by another plugin, which replay cannot do: disable that plugin.")
        # An exception keeps all frames of the test alive, and with them its processes and files.
        error, self.error = self.error, None
        if any(report.failed for report in self.reports):
            return self.describe_failure(item, error)
        return Verdict("passed" if all(report.passed for report in self.reports) else "skipped")

    def describe_failure(self, item: pytest.Function, error: pytest.ExceptionInfo[BaseException] | None) -> Verdict:
        if error is None:  # a test that is marked xfail(strict=True) and passes
            return Verdict("failed")
        spots = [(frame.f_code, line) for frame, line in walk_tb(error.tb)]
        trail = [f"{Path(code.co_filename).name}:{line}" for code, line in spots if is_own(code, item)]
        comparison = None
        # The last failed comparison may be that of an assertion which was expected to fail.
        if self.comparison is not None and self.comparison[1] in spots:
            comparison = self.comparison[0]
        failed = next(report for report in self.reports if report.failed)
        return Verdict(
            "failed",
            exception=error.type.__name__,
            message=describe_message(error.value),
            digest=digest_message(error.value),
            trail=tuple(trail),
            comparison=comparison,
            crash=locate_crash(failed),
        )

    def record(self, test: str) -> Recording | None:
        """Runs a test as any session does, and records what it starts."""
        item = next((item for item in self.collected if item.nodeid == test), None)
        if item is None:
            return None
        if not item.config.pluginmanager.is_registered(self.recording):
            item.config.pluginmanager.register(self.recording)
        self.reports = []
        item.ihook.pytest_runtest_protocol(item=item, nextitem=Sibling(item))
        return next((getattr(report, ATTRIBUTE) for report in self.reports if hasattr(report, ATTRIBUTE)), None)


def is_own(code: CodeType, item: pytest.Item) -> bool:
    """Tells whether it is the user's: the test's file, or another below the root of the tests that is not installed."""
    path = Path(code.co_filename)
    if path == item.path:
        return True
    return path.is_relative_to(item.config.rootpath) and not any(part.endswith("-packages") for part in path.parts)


class Sibling:
    """Stands for a next test in the same place: teardown then keeps what that one would share."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item

    def listchain(self) -> list[Node]:
        return self.item.listchain()[:-1]

    def __getattr__(self, name: str) -> object:
        return getattr(self.item, name)


def tear_down(session: pytest.Session, following: pytest.Item | None) -> None:
    """Tears down what the following test does not need."""
    # What a teardown of the tests before has to complain about is not about this one.
    with contextlib.suppress(Exception, pytest.fail.Exception, pytest.skip.Exception):
        session._setupstate.teardown_exact(following)


def renew_item(item: pytest.Function) -> None:
    """Has the item forget its last run; pytest makes items for one run only."""
    item._report_sections.clear()
    item.user_properties.clear()
    if getattr(item, "_instance", None) is not None:  # a test method gets a new instance, as for a new test
        del item._instance
        item._obj = None


def complete_process(argv: tuple[str, ...], observation: Observation) -> CompletedProcess[str]:
    """Returns a run as subprocess.run would; one that does not end counts as killed."""
    returncode = -signal.SIGKILL if observation.ending == "timeout" else observation.returncode
    stdout, stderr = (stream.decode(errors="replace") for stream in (observation.stdout, observation.stderr))
    return CompletedProcess(list(argv), returncode, stdout, stderr)


def ask_marker(item: pytest.Function, run: CompletedProcess[str]) -> bool | None:
    """Asks the marker's fails_when about a run; None where there is no such function."""
    marker = item.get_closest_marker("cause_chain")
    fails_when = marker.kwargs.get("fails_when") if marker is not None else None
    if fails_when is None:
        return None
    name = getattr(fails_when, "__qualname__", repr(fails_when))
    return bool(ask_user(f"fails_when of {item.nodeid}, {name},", partial(fails_when, run)))


def ask_judge(item: pytest.Function, run: CompletedProcess[str]) -> Outcome | None:
    """Asks the project's own judge about a run; None where it has none, or none for this test."""
    judge = partial(item.ihook.pytest_causechain_judge, item=item, run=run)
    said = ask_user(f"pytest_causechain_judge, asked about {item.nodeid},", judge)
    try:
        return None if said is None else Outcome(said)
    except ValueError:
        raise Refusal(
            f'pytest_causechain_judge returned {said!r} for {item.nodeid}: return "pass", "fail", "unresolved" or None.'
        ) from None


def ask_user(who: str, answer: Callable[[], object]) -> object:
    try:
        return answer()
    except Exception as error:
        problem = f"{type(error).__name__}: {describe_message(error)}"
        raise Refusal(f"{who} raised {problem}: make it cope with any output.") from None


def _find_caller() -> _Spot | None:
    """Finds the assertion whose comparison pytest reports: the first frame that is not pytest's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("_pytest", "pluggy"):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None


# Options that would take effect a second time

# They are changed after parsing: leaving them out would need to know how each plugin spells them, and blocking a
# plugin instead (-p no:...) would make its other options unknown.
DISARMED: dict[str, object] = {
    # Files written at the end of a session, or emptied at its start.
    "xmlpath": None,
    "htmlpath": None,
    "report_log": None,
    "json_report": False,
    "allure_report_dir": None,
    "debug": None,
    "pastebin": None,
    # An option that is not set gives way to the ini file's.
    "log_file": os.devnull,
    "cov_source": [],
    "no_cov": True,
    "cacheclear": False,
    # Other processes.
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "forked": False,
    # Which tests are run, in which order, how often, and when to stop.
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "stepwise_reset": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "pyargs": False,
    "reruns": None,
    "maxfail": 0,
    "collectonly": False,
    "setuponly": False,
    "setupplan": False,
    "setupshow": False,
    # Questions to a user who is not there.
    "usepdb": False,
    "trace": False,
    # A diagnosis within the diagnosis.
    "cause_chain": False,
    # How failures are shown; the more there is to show, the longer each verdict takes.
    "verbose": 0,
    "tbstyle": "short",
    "color": "no",
    "durations": None,
}


def disarm_options(options: Namespace, basetemp: str) -> None:
    for name, value in DISARMED.items():
        if hasattr(options, name):
            setattr(options, name, value)
    # A session empties its base directory, and one that chooses it itself removes those of earlier sessions.
    options.basetemp = basetemp


def disarm_cache() -> None:
    """Lets the session read what pytest keeps between sessions, while what it writes is forgotten with it.

    On the class: plugins write to it as soon as there is one."""
    written: dict[str, object] = {}
    read = pytest.Cache.get

    def get(cache: pytest.Cache, key: str, default: object) -> object:
        return written[key] if key in written else read(cache, key, default)

    def set_(cache: pytest.Cache, key: str, value: object) -> None:
        written[key] = value

    pytest.Cache.get, pytest.Cache.set = get, set_  # type: ignore[method-assign, assignment]
