"""Repairs of small programs, each with one defect; the test's body is a comparison of the output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_causechain.lab import remote_lab
from pytest_causechain.lab.remote_lab import LabSetup
from pytest_causechain.model.alteration import Patch
from pytest_causechain.model.budget import Budget
from pytest_causechain.model.refusal import Refusal
from pytest_causechain.model.runs import Command, Observation, Program
from pytest_causechain.model.verdict import Verdict
from pytest_causechain.repairs import search
from pytest_causechain.repairs.findings import Findings
from pytest_causechain.repairs.search import MOST_COVERED, find_repairs
from pytest_causechain.report.wording import tell_sides

# No test here comes near it on a machine that is not broken.
PLENTY_SECONDS = 200.0

FIND = Callable[..., Findings]


@pytest.fixture
def find(build: Callable[..., Program], tmp_path: Path) -> FIND:
    """find(source, arguments, expected output, *arguments of passing runs)"""

    def find_one(source: str, failing: str, expected: str, *passing: str, seconds: float = PLENTY_SECONDS) -> Findings:
        program = build(source)
        commands = [Command(program, ("program", *words.split()), str(tmp_path)) for words in (failing, *passing)]

        def ask(observation: Observation) -> Verdict:
            passes = observation.ending == "exit" and observation.stdout.decode(errors="replace").strip() == expected
            return Verdict("passed" if passes else "failed")

        findings = Findings()
        known = {"passing": commands[1:], "also_failing": [], "setup": LabSetup()}
        find_repairs(commands[0], ask=ask, budget=Budget(seconds), findings=findings, **known)  # type: ignore[arg-type]
        return findings

    return find_one


def find_line(source: str, text: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def list_repairs(findings: Findings, line: int) -> set[tuple[str, int, str | None, str, str]]:
    repairs = [found.attempt.repair for found in findings.found if found.is_full]
    return {(r.kind, r.visit, r.variable, *tell_sides(r)) for r in repairs if r.line == line}


HEADER = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"


def test_wrong_value_passed(find):
    source = HEADER + (
        "static int area(int width, int height) { return width * height; }\n"
        "int main(int argc, char **argv)\n{\n"
        "    int width = atoi(argv[1]), height = atoi(argv[2]);\n"
        '    printf("%d\\n", area(width, width + 1));\n'
        "    return argc > 9 + height;\n}\n"
    )
    findings = find(source, "10 2", "20", "3 4", "1 2")
    assert ("argument", 1, "height", "11", "2") in list_repairs(findings, find_line(source, "area(width, width"))


def test_wrong_condition_at_one_visit_and_throughout(find):
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int count = 0, least = 10;\n"
        "    for (int i = 1; i < argc; i++)\n"
        "        if (atoi(argv[i]) > least)\n"
        "            count++;\n"
        '    printf("%d\\n", count);\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "10 11 3 12", "3", "1 20", "9 9")
    line = find_line(source, "> least")
    assert ("branch", 1, None, "this way", "the other way") in list_repairs(findings, line)
    assert ("branch", 0, None, "equal values this way", "equal values the other way") in list_repairs(findings, line)
    (variant,) = [f for f in findings.found if f.attempt.line[1] == line and isinstance(f.attempt.alteration, Patch)]
    assert variant.harmed == 0
    # A limit of 9 would do as well; to count more harms the passing runs.
    harmless = {f.attempt.line[1] for f in findings.found if f.harmed == 0}
    assert find_line(source, "least = 10") in harmless
    assert find_line(source, "count++") not in harmless


def test_limit_far_from_right(find):
    source = HEADER + (
        "static int limit;\n"
        "int main(int argc, char **argv)\n{\n"
        "    limit = 700;\n"
        "    int is_long = atoi(argv[argc - 1]) >= limit;\n"
        '    printf("%d\\n", is_long);\n'
        "    return 0;\n}\n"
    )
    # Meant is 740.
    findings = find(source, "739", "0", "800", "745", "20", "600")
    repairs = list_repairs(findings, find_line(source, "limit = 700"))
    assert ("value", 0, None, "700", "740") in repairs
    assert ("value", 1, "limit", "700", "740") in repairs
    harms = {f.attempt.repair.new: f.harmed for f in findings.found if f.attempt.repair.old == "700"}
    assert harms["740"] == 0


def test_slip_is_found_in_a_large_program_before_thresholds_are_turned(find, monkeypatch):
    lines = [f"    seen += number > {limit};\n" for limit in range(1000, 2600, 200)]
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int seen = 0, number = atoi(argv[argc - 1]);\n"
        f"{''.join(lines)}"
        "    seen += number > 70;\n"
        '    printf("%d\\n", seen);\n'
        "    return 0;\n}\n"
    )
    # Enough for all slips, but not for all that is tried first.
    monkeypatch.setattr(search, "MOST_EXPERIMENTS", 160)
    findings = find(source, "70", "1", "20", "71", "400")
    assert ("branch", 0, None, "equal values this way", "equal values the other way") in list_repairs(
        findings, find_line(source, "> 70")
    )


def test_wrong_comparison_whose_result_is_stored(find):
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int is_more = atoi(argv[1]) >= atoi(argv[argc - 1]);\n"
        '    printf("%d\\n", is_more);\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "4 4", "0", "3 4", "5 4")
    (line,) = {f.attempt.line[1] for f in findings.found if f.harmed == 0 and isinstance(f.attempt.alteration, Patch)}
    assert line == find_line(source, "is_more = ")
    assert ("branch", 0, None, "equal values this way", "equal values the other way") in list_repairs(findings, line)


def test_defect_that_must_be_undone_several_times(find):
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int sum = 0;\n"
        "    for (int i = 1; i < argc; i++)\n"
        "        sum += atoi(argv[i]) % 8 == 7 ? 1 : 0;\n"
        '    printf("%d\\n", sum);\n'
        "    return 0;\n}\n"
    )
    # Meant is the remainder 6.
    findings = find(source, "6 14 7 22 7", "3", "1 2")
    assert ("value", 0, None, "7", "6") in list_repairs(findings, find_line(source, "% 8 == 7"))


def test_wrong_return(find):
    source = HEADER + (
        "enum state { GOOD, BAD, UGLY };\n"
        "static enum state judge(int n)\n{\n"
        "    if (n > 100)\n"
        "        return BAD;\n"
        "    return GOOD;\n}\n"
        "int main(int argc, char **argv)\n{\n"
        "    enum state state = judge(atoi(argv[1]) * argc);\n"
        '    printf("%d\\n", state);\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "200", "2", "5")
    assert ("return", 1, None, "BAD", "UGLY") in list_repairs(findings, find_line(source, "return BAD"))
    assert ("value", 1, "state", "BAD", "UGLY") in list_repairs(findings, find_line(source, "state = judge"))


def test_pointer_to_another_object_in_scope(find):
    source = HEADER + (
        "struct list { const char *name; struct list *next; };\n"
        "int main(int argc, char **argv)\n{\n"
        '    struct list third = {"c", NULL}, second = {"b", &third}, first = {"a", &second};\n'
        "    struct list *current = &first;\n"
        "    if (argc > 1)\n"
        "        current = first.next->next->next;\n"
        '    printf("%s%s\\n", current ? current->name : "none", argv[argc]  ? "?" : "");\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "x", "c", "")
    line = find_line(source, "next->next->next")
    assert ("value", 1, "current", "NULL", "second.next") in list_repairs(findings, line)


def test_copies_know_where_their_value_is_from(find):
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int meant = 40, other = 0;\n"
        "    int size = atoi(argv[1]);\n"
        "    int copy = size;\n"
        "    if (size == 41)\n"
        "        other = copy;\n"
        '    printf("%d\\n", (argc && other ? other : 40) + meant - 40);\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "41", "40", "1", "2")
    told = [(f.attempt.line[1], f.origin and f.origin[1]) for f in findings.found if f.attempt.repair.new == "40"]
    first, copy = find_line(source, "size = atoi"), find_line(source, "copy = size")
    assert {(first, None), (copy, first)} <= set(told)
    # With 40 from the beginning it is not reached at all.
    assert (find_line(source, "other = copy"), copy) in told


def test_crash(find):
    source = HEADER + (
        "int main(int argc, char **argv)\n{\n"
        "    int *p = NULL, n = 5;\n"
        "    if (argc > 5 && argv)\n"
        "        p = &n;\n"
        '    printf("%d\\n", *p);\n'
        "    return 0;\n}\n"
    )
    findings = find(source, "x", "5")
    assert ("branch", 1, None, "this way", "the other way") in list_repairs(findings, find_line(source, "argc > 5"))


def test_without_any_passing_run(find):
    source = HEADER + 'int main(int argc, char **argv)\n{\n    int n = argc;\n    puts(n == 7 ? argv[0] : "a");\n}\n'
    findings = find(source, "", "program")
    assert findings.spectrum.passing == []
    assert any(found.is_full for found in findings.found)


@pytest.mark.parametrize(("expected", "covered"), [("1", MOST_COVERED), ("none of its outputs", MOST_COVERED + 9)])
def test_more_passing_runs_are_covered_where_nothing_repairs(find, expected, covered):
    source = HEADER + 'int main(int argc, char **argv)\n{\n    puts(argc == 7 ? "1" : "2");\n    return 0;\n}\n'
    findings = find(source, "failing", expected, *map(str, range(MOST_COVERED + 9)))
    assert any(found.is_full for found in findings.found) == (expected == "1")
    assert len(findings.spectrum.passing) == covered


def test_chance_is_refused(find):
    source = HEADER + (
        "#include <time.h>\n"
        "int main(void)\n{\n"
        "    struct timespec now;\n"
        "    clock_gettime(CLOCK_MONOTONIC, &now);\n"
        '    printf("%ld\\n", now.tv_nsec);\n'
        "    return 0;\n}\n"
    )
    with pytest.raises(Refusal, match="something else each time"):
        find(source, "", "3")


def test_end_of_the_time_leaves_what_is_known(find, monkeypatch):
    # To start an engine may take longer than that.
    monkeypatch.setattr(remote_lab, "GRACE_SECONDS", PLENTY_SECONDS)
    source = (
        HEADER + "int main(void)\n{\n    for (volatile int i = 0; i < 100000000; i++)\n        ;\n    return 1;\n}\n"
    )
    findings = find(source, "", "1", seconds=1.5)
    assert findings.found == []
