"""The scripts, read and run: a real gdb replays links of chains made by hand for a real program."""

from __future__ import annotations

import functools
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import chains
import pytest
from building import compile_program

from pytest_causechain.model.chain import Cause, Chain, Failure, Link, Party, Rule, Script, Tally, When
from pytest_causechain.model.moment import Breakpoint
from pytest_causechain.model.runs import Program
from pytest_causechain.report.artefacts import write_artefacts
from pytest_causechain.report.gdb import render_script
from pytest_causechain.report.story import make_story

MAIN_C = """\
#include <stdio.h>

int level = 1;
int other(int number);

static int work(int number)
{
    int result = number * 2;
    return result;
}

int main(int argc, char *argv[])
{
    char line[80] = "";
    int sum = 0;
    int *where = &sum;
    for (int i = 1; i < argc; i++) {
        printf("<%s>", argv[i]);
        sum += work(i);
    }
    fgets(line, sizeof line, stdin);
    printf("[%s] sum %d other %d level %d\\n", line, sum, other(sum), level);
    return *where == 6 ? 0 : 3;
}
"""

OTHER_C = """\
static int work(int number)
{
    int result = number + 100;
    return result;
}

int other(int number)
{
    int kept = number;
    return work(kept) - kept;
}
"""

# What has gdb call a function: the command for that, or a name, or something in brackets, with arguments behind it.
CALL = re.compile(r"^call |(?<![$\w])(?!sizeof\()[A-Za-z_]\w*\(|\)\(")


@functools.cache
def find_line(program: Path, file: str, line: int) -> tuple[str, int]:
    """The function of a line and the line's offset in it."""
    said = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", f"info line {file}:{line}", str(program)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"starts at address \S+ <(\w+)\+(\d+)>", said)
    assert found is not None, said
    return found[1], int(found[2])


@dataclass(frozen=True)
class Built:
    path: Path

    def stop(self, file: str, line: int, visit: int = 1) -> Breakpoint:
        function, offset = find_line(self.path, file, line)
        return Breakpoint(function, file, offset, visit)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    place = tmp_path_factory.mktemp('it\'s a "program"')
    return Built(compile_program(place / "the program", {"main.c": MAIN_C, "other.c": OTHER_C}))


def make_chain(
    built: Built,
    stops: tuple[Breakpoint, ...],
    *causes: Cause,
    argv: tuple[str, ...] = ("a", "b"),
    stdin: str = "",
    change: Script | None = None,
) -> Chain:
    moment = When("work", "main.c", 8, 1, 1, ("work", "main"), False, stops=stops)
    party = Party("test_it.py::test_it", (str(built.path), *argv), str(built.path.parent), stdin, "exited with 0")
    return Chain(
        test="test_it.py::test_fails",
        status="complete",
        program=Program(str(built.path), "00"),
        failing=party,
        passing=party,
        oracle=Rule("exit", "it exits with status 3"),
        chain=(Link(moment, causes, 1, Tally(1, 1, 0), "passing", replay=change),),
        failure=Failure("exit", "the program exited with status 3"),
    )


def set_to(variable: str, new: str, frame: int | None = 0, assignment: str | None = "") -> Cause:
    if assignment == "":
        assignment = f"{variable} = {new}"
    return Cause(variable, "int", "?", new, "value", frame, assignment)


def render(chain: Chain, index: int) -> str:
    story = make_story(chain)
    return render_script(story, story.steps[index])


def replay(chain: Chain, tmp_path: Path, script: str = "1.gdb", **environment: str) -> str:
    return run_script(write_artefacts(chain, tmp_path / "out") / script, tmp_path, **environment)


def run_script(script: Path, tmp_path: Path, **environment: str) -> str:
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-ex", "unset environment LD_PRELOAD", "-x", str(script)],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        # Another shell than the user's: the script must not depend on bash.
        env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "HOME": str(tmp_path), **environment},
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestReplay:
    def test_alters_a_local_at_the_chosen_visit(self, built: Built, tmp_path: Path) -> None:
        stops = (built.stop("main.c", 9, visit=2),)
        said = replay(make_chain(built, stops, set_to("result", "40")), tmp_path)
        assert "<a><b>[] sum 42 other 100 level 1" in said
        assert "exited with code 03" in said
        assert "work (number=2) at main.c:9" in said
        assert "causechain: result: 40 instead of ?" in said

    def test_without_a_change_is_the_passing_run(self, built: Built, tmp_path: Path) -> None:
        said = replay(make_chain(built, (built.stop("main.c", 9, visit=2),)), tmp_path)
        assert "<a><b>[] sum 6 other 100 level 1" in said
        assert "exited normally" in said

    def test_alters_a_caller_and_a_global(self, built: Built, tmp_path: Path) -> None:
        stops = (built.stop("main.c", 9),)
        causes = (set_to("sum", "50", frame=1), set_to("level", "9;", frame=None))
        assert "sum 56 other 100 level 9" in replay(make_chain(built, stops, *causes), tmp_path)

    def test_makes_one_stop_after_the_other(self, built: Built, tmp_path: Path) -> None:
        # Both files have a static function work; visits are counted from the stop before.
        stops = (built.stop("main.c", 9), built.stop("main.c", 9), built.stop("other.c", 4))
        said = replay(make_chain(built, stops, set_to("result", "7"), set_to("kept", "3", frame=1)), tmp_path)
        assert "sum 6 other 4 level 1" in said

    def test_finds_a_function_by_the_whole_path_of_its_file(self, built: Built, tmp_path: Path) -> None:
        stop = built.stop("other.c", 4)
        chain = make_chain(built, (replace(stop, file=str(built.path.parent / "other.c")),), set_to("result", "7"))
        assert "sum 6 other 1 level 1" in replay(chain, tmp_path)

    @pytest.mark.parametrize(
        "argument", ["two words", "it's", '"', "$HOME `id`", "*", "", "-x", "a\nb", "caf\xe9\\n'\t%d", "\udcff", "#"]
    )
    def test_passes_arguments_unchanged(self, argument: str, built: Built, tmp_path: Path) -> None:
        chain = make_chain(built, (built.stop("main.c", 9),), set_to("result", "40"), argv=(argument, "b"))
        assert f"<{argument}><b>[] sum 44" in replay(chain, tmp_path)

    def test_gives_the_passing_run_its_input(self, built: Built, tmp_path: Path) -> None:
        chain = make_chain(built, (built.stop("main.c", 9),), set_to("result", "40"), argv=(), stdin="x")
        chain = replace(chain, passing=replace(chain.passing, argv=("p", "1"), stdin="some 'input'\nmore"))
        assert "<1>[some 'input'\n] sum 40" in replay(chain, tmp_path / "it's here")

    def test_shows_where_a_crash_happens(self, built: Built, tmp_path: Path) -> None:
        said = replay(make_chain(built, (built.stop("main.c", 9),), set_to("where", "0", frame=1)), tmp_path)
        assert "SIGSEGV" in said
        assert re.search(r"#0 .* in main .* at main.c:23", said)

    def test_runs_the_commands_of_a_change_that_is_no_statement(self, built: Built, tmp_path: Path) -> None:
        causes = (set_to("a \x1b[0m\nlist", "longer", assignment=None), set_to("sum", "50", frame=1))
        change = Script(("frame 1", "set $where = &sum", "set {int} $where = 50"))
        said = replay(make_chain(built, (built.stop("main.c", 9),), *causes, change=change), tmp_path)
        assert "causechain: a \\x1b[0m\\nlist: longer instead of ?" in said
        assert "causechain: sum: 50 instead of ?" in said
        assert "sum 56" in said

    def test_gives_the_run_another_input_at_the_moment(self, built: Built, tmp_path: Path, amx: dict[str, str]) -> None:
        cause = set_to("stdin line 1", "x", assignment=None)
        change = Script(("frame 0",), "read before\nother 'words'\n", len("read before\n"))
        chain = make_chain(built, (built.stop("main.c", 9),), cause, stdin="its own\n", change=change)
        assert "[other 'words'\n] sum 6" in replay(chain, tmp_path / 'it"s', **amx)


class TestUndo:
    def test_makes_the_failing_run_as_the_passing_one(self, built: Built, tmp_path: Path) -> None:
        stops = (built.stop("main.c", 9, visit=2),)
        cause = Cause("result", "int", "40", "4", "value", 0, "result = 4", "result = 40")
        chain = make_chain(built, stops, cause)
        link = replace(chain.chain[0], confirmed="both", moment=replace(chain.chain[0].moment, failing_stops=stops))
        said = replay(replace(chain, chain=(link,)), tmp_path, "1-undo.gdb")
        assert "causechain: result: 40 instead of 4" in said
        assert "<a><b>[] sum 42" in said

    def test_begins_where_the_twin_and_the_failing_run_part(self, built: Built, tmp_path: Path) -> None:
        # Counted from the stop of the repair, the second visit is the third of all.
        function, offset = find_line(built.path, "main.c", 9)
        repair = chains.Repair(
            "value", "main.c", 9, "work", 1, "x", "1", "2", None, (Breakpoint(function, "main.c", offset, 1),),
            ("set $causechain = 1", "stepi", "set $causechain = 2"),
        )  # fmt: skip
        stops = (built.stop("main.c", 9, visit=2),)
        cause = Cause("result", "int", "40", "6", "value", 0, "result = 6", "result = 40")
        chain = make_chain(built, (), cause, argv=("a", "b", "c"))
        link = replace(chain.chain[0], confirmed="both", moment=replace(chain.chain[0].moment, failing_stops=stops))
        twin = replace(chain, chain=(link,), peer=chains.Peer("twin", chain.test, repair))
        said = replay(twin, tmp_path, "1-undo.gdb")
        assert "<a><b><c>[] sum 46" in said
        assert "causechain: with" not in said

    def test_is_there_for_links_confirmed_both_ways_only(self, built: Built, tmp_path: Path) -> None:
        place = write_artefacts(make_chain(built, (built.stop("main.c", 9),)), tmp_path)
        assert not (place / "1-undo.gdb").exists()


class TestEnvironment:
    def test_is_that_of_the_test(self, built: Built, tmp_path: Path) -> None:
        chain = make_chain(built, (built.stop("main.c", 9),))
        environment = (("ADDED", 'it\'s = "here" $x'), ("HOME", None))
        chain = replace(chain, passing=replace(chain.passing, environment=environment))
        place = write_artefacts(chain, tmp_path / "out")
        with (place / "1.gdb").open("a") as script:
            script.write("show environment ADDED\nshow environment HOME\n")
        said = run_script(place / "1.gdb", tmp_path)
        assert 'ADDED = it\'s = "here" $x\n' in said
        assert 'Environment variable "HOME" not defined.' in said

    def test_with_a_line_break_gives_no_script(self) -> None:
        passing = replace(chains.wrong_output.passing, environment=(("A", "1\nshell true"),))
        chain = replace(chains.wrong_output, passing=passing)
        assert make_story(chain).steps[1].replay.obstacle == "a variable of the environment contains a line break"


class TestScript:
    def test_tells_what_it_does(self) -> None:
        script = render(chains.wrong_output, 1)
        comments = " ".join(line.removeprefix("# ") for line in script.splitlines() if line.startswith("#"))
        assert "Replays link 2 of the cause-effect chain of tests/test_sample.py::test_sorts[two]" in comments
        assert "the passing run, that of test_sorts[four]" in comments
        assert "a[2] was 0 (7 in the passing run)" in comments
        assert 'the passing run now fails as the failing one did: the program printed "0 11".' in comments

    def test_promises_nothing_for_a_cause_in_context(self) -> None:
        link = replace(chains.wrong_output.chain[1], confirmed="context")
        script = render(replace(chains.wrong_output, chain=(link,)), 0)
        assert "the run may still pass" in " ".join(script.replace("#", "").split())

    def test_of_hostile_content_has_no_line_of_its_making(self) -> None:
        moment = chains.wrong_output.chain[0].moment
        for link in chains.hostile.chain:
            # With the passing run and the moment of another chain there can be a script.
            whole = replace(link, moment=moment, replay=Script(("frame 0", "set $x = 1")))
            chain = replace(chains.hostile, chain=(whole,), transitions=(), program=chains.wrong_output.program)
            chain = replace(chain, passing=replace(chains.wrong_output.passing, argv=("x", chains.HOSTILE)))
            assert make_story(chain).steps[0].replay.obstacle is None
            script = render(chain, 0)
            assert "\nstarti\n" in script
            commands = {line.split()[0] for line in script.splitlines() if line.strip() and not line.startswith("#")}
            assert commands <= {
                *("set", "file", "starti", "tbreak", "continue", "echo", "frame", "if", "backtrace", "end")
            }
            assert script.replace("\n", "").isascii()
            assert script.replace("\n", "").isprintable()

    @pytest.mark.parametrize(
        "line", ["call (int) umask (1)", "set $a = (int) umask(1)", "set $a = (*(int (*)(int)) f)(1)"]
    )
    def test_call_is_recognized(self, line: str) -> None:
        assert CALL.search(line)

    def test_has_gdb_call_no_function_itself(self) -> None:
        """Not on all processors can gdb do that."""
        scripts = [file.read_text() for file in (Path(__file__).parent / "gold" / "scripts").iterdir()]
        assert any("\ncausechain-call " in script for script in scripts)
        lines = [line.strip() for script in scripts for line in script.splitlines()]
        lines = [
            line for line in lines if not line.startswith(("#", "echo ", "file ", "set args ", "set environment "))
        ]
        assert [line for line in lines if CALL.search(line)] == []

    @pytest.mark.parametrize(
        "spoiled", ["program", "cwd", "function", "argument", "statement", "change", "unknown", "stops"]
    )
    def test_is_none_when_a_line_cannot_be_written(self, spoiled: str, tmp_path: Path) -> None:
        chain, link, passing = chains.wrong_output, chains.wrong_output.chain[1], chains.wrong_output.passing
        assert passing is not None
        odd = replace(link.moment, stops=(Breakpoint("f\nshell true", "a.c", 0, 1),))
        cause = replace(link.causes[0], assignment="a[2] = 0\nshell true")
        spoil = {
            "program": replace(chain, program=Program("/a\nshell true", "00")),
            "cwd": replace(chain, passing=replace(passing, cwd="/a\nshell true")),
            "function": replace(chain, chain=(replace(link, moment=odd),)),
            "argument": replace(chain, passing=replace(passing, argv=("x", "a\n"))),
            "statement": replace(chain, chain=(replace(link, causes=(cause,)),)),
            "change": replace(chain, chain=(replace(link, replay=Script(obstacle="gdb cannot change stdin")),)),
            "unknown": replace(chain, passing=None),
            "stops": replace(chain, chain=(replace(link, moment=replace(link.moment, stops=())),)),
        }[spoiled]
        index = len(spoil.chain) // 2
        assert make_story(spoil).steps[index].replay.obstacle
        assert not (write_artefacts(spoil, tmp_path) / f"{index + 1}.gdb").exists()
