"""A pytest session that answers Questions instead of running through its tests.

It lives in a process of its own (see replay.py) and runs the whole protocol of one test for each question: fresh
function fixtures, wider scopes kept, everything real but the run that is asked about.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import sys
import tempfile
import unittest
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import CompletedProcess
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NoReturn

import pytest

# Private, but what every plugin that runs a test again uses.
from _pytest.nodes import Node
from _pytest.runner import runtestprotocol

import pytest_causechain
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Observation, Outcome, Run
from pytest_causechain.model.verdict import Comparison, Verdict
from pytest_causechain.oracle.disarming import disarm_cache, disarm_options
from pytest_causechain.oracle.messages import Answer, Ready, Task
from pytest_causechain.oracle.starts import Plan, Scene, Sighting, Substitution, Survey, make_plan
from pytest_causechain.oracle.unreplayable import Unreplayable
from pytest_causechain.oracle.values import describe_comparison, describe_message, digest_message, locate_crash
from pytest_causechain.oracle.written import WrittenFiles
from pytest_causechain.recording.seam import Seam, Watch
from pytest_causechain.sandbox.isolation import isolate_tests

# As pytest itself cuts the test's name for the directory of tmp_path.
TMP_PATH_NAME_CHARACTERS = 30

# None of pytest's own, which have plugins sum up the tests for nobody: hypothesis then takes a second to be imported.
STATUS_WITHOUT_SUMMARY = 100

# Where a comparison was made or an exception passed through.
_Spot = tuple[CodeType, int]


def serve(connection: Connection[Any, Any], make_session: Callable[..., ReplaySession] | None = None) -> int:
    """Runs the session in a companion process."""
    # pytest warns of a plugin's package that was imported before, which with -W error is its end.
    pytest_causechain.__doc__ = f"{pytest_causechain.__doc__} PYTEST_DONT_REWRITE"
    task: Task = connection.recv()
    isolate_tests(task.isolation, [str(Path.cwd()), task.rootdir], tempfile.gettempdir())
    sys.argv = ["pytest", *task.arguments]
    disarm_cache()
    return pytest.main(list(task.arguments), plugins=[(make_session or ReplaySession)(connection, task)])


class ReplaySession:
    """The plugin that turns pytest into a server of verdicts."""

    def __init__(self, connection: Connection[Any, Any], task: Task) -> None:
        self.connection = connection
        self.task = task
        self.collected: list[pytest.Item] = []
        self.collection_problems: dict[str, str] = {}
        self.verdicts: dict[str, Verdict] = {}
        # What each test started itself, and each fixture of a wider scope when it was last set up with real programs.
        self.own: dict[str, list[Sighting]] = {}
        self.shared: dict[str, tuple[Scene, list[Sighting]]] = {}
        self.scenes: list[Scene] = []
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

    @pytest.fixture
    def tmp_path(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """Always the same: it may be part of a command line or of what is printed, and pytest's counts up."""
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
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        self.scenes.append(Scene(fixturedef, request))
        try:
            return (yield)
        finally:
            self.scenes.pop()

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
        """In place of pytest's own, but inside all its wrappers: one of them makes pytest_assertrepr_compare heard."""
        self.reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> NoReturn:
        self.connection.send(Ready())
        with contextlib.suppress(EOFError):
            while (question := self.connection.recv()) is not None:
                self.connection.send(self.answer(question))
        pytest.exit("no more questions", STATUS_WITHOUT_SUMMARY)

    def answer(self, question: Any) -> object:
        try:
            item = self.find_item(question.test)
            if item.nodeid not in self.verdicts:
                self.run_real(item)
            if question.run is not None and question.observation is not None:
                return Answer(self.run_replay(item, question.run, question.observation, question.origins))
            return Answer(self.verdicts[item.nodeid], shown=self.list_shown(item))
        except Refusal as refusal:
            return Answer(refusal=str(refusal), unreplayable=isinstance(refusal, Unreplayable))

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
        """The run with the real programs, which shows what there is to replace."""
        survey = Survey(self.current_scene)
        verdict = self.run(item, survey.watch)
        self.shared.update(survey.shared)
        self.own[item.nodeid] = survey.own
        self.verdicts[item.nodeid] = replace(verdict, starts=len(survey.own))

    def list_shown(self, item: pytest.Function) -> tuple[Observation, ...]:
        sightings = [*self.own[item.nodeid], *(seen for _, shared in self.shared.values() for seen in shared)]
        return tuple(dict.fromkeys(shown for seen in sightings if (shown := seen.shown) is not None))

    def find_plan(self, item: pytest.Function, run: Run) -> Plan:
        if run.fixture is None:
            plan = make_plan(run, self.own[item.nodeid], None)
        else:
            scene, sightings = self.shared.get(run.fixture, (None, []))
            plan = make_plan(run, sightings, scene)
        if plan is None:
            name = Path(run.command.program.path).name
            raise Unreplayable(f"{item.nodeid} did not start {name} as before: make it start the same each time.")
        return plan

    def run_replay(
        self, item: pytest.Function, run: Run, observation: Observation, origins: tuple[Command, ...]
    ) -> Verdict:
        plan = self.find_plan(item, run)
        if plan.scene is not None:
            plan.scene.undo()
        with WrittenFiles() as files:
            substitution = Substitution(plan, observation, origins, self.task.basetemp, self.current_scene, files)
            verdict = self.run(item, substitution.watch)
        if plan.scene is not None:
            plan.scene.undo()  # nobody else may get what was put in its place
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

    def current_scene(self) -> Scene | None:
        return self.scenes[-1] if self.scenes else None


def is_own(code: CodeType, item: pytest.Item) -> bool:
    """Whether it is the user's: the test's file, or another below the root of the tests that nobody installed."""
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.item, name)


def tear_down(session: pytest.Session, following: pytest.Item | None) -> None:
    """All that is set up and that the following test does not need."""
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
    """A run as subprocess.run would return it; one that does not end is killed in the end."""
    returncode = -signal.SIGKILL if observation.ending == "timeout" else observation.returncode
    stdout, stderr = (stream.decode(errors="replace") for stream in (observation.stdout, observation.stderr))
    return CompletedProcess(list(argv), returncode, stdout, stderr)


def ask_marker(item: pytest.Function, run: CompletedProcess[str]) -> bool | None:
    """What the marker's fails_when says of a run; None where there is no such function."""
    marker = item.get_closest_marker("cause_chain")
    fails_when = marker.kwargs.get("fails_when") if marker is not None else None
    if fails_when is None:
        return None
    name = getattr(fails_when, "__qualname__", repr(fails_when))
    return bool(ask_user(f"fails_when of {item.nodeid}, {name},", partial(fails_when, run)))


def ask_judge(item: pytest.Function, run: CompletedProcess[str]) -> Outcome | None:
    """What the project's own judge says of a run; None where it has none, or none for this test."""
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
    """Where the assertion is whose comparison pytest reports: the first frame that is not pytest's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("_pytest", "pluggy"):
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None
