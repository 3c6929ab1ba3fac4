"""The ranking of lines, from findings made by hand."""

from __future__ import annotations

from dataclasses import replace

from pytest_causechain.model.alteration import Intervention, Patch, Spot
from pytest_causechain.model.chain import Repair, Suspect
from pytest_causechain.repairs.findings import Attempt, Findings, Found, Ranking, Spectrum


def make_found(
    line: int,
    when: int = 0,
    *,
    is_full: bool = True,
    is_whole: bool = True,
    harmed: int | None = None,
    origin: int | None = None,
) -> Found:
    repair = Repair("value", "a.c", line, "f", 1, f"x{line}", "3", "2")
    attempt = Attempt(Intervention(Spot("value", ())), repair, when, is_whole)
    return Found(attempt, is_full, harmed, ("a.c", origin) if origin is not None else None)


def make_findings(*found: Found, passing: list[list[int]] | None = None, failing: list[int] | None = None) -> Findings:
    lines = failing or sorted({f.attempt.repair.line for f in found})
    spectrum = Spectrum([{("a.c", n) for n in run} for run in passing or []], [{("a.c", n) for n in lines}])
    return Findings(list(found), {("a.c", n): "f" for n in lines}, spectrum)


def rank(*findings: Findings, transitions: tuple[Suspect, ...] = ()) -> list[int]:
    return [suspect.line for suspect in Ranking(findings, transitions).suspects()]


def test_of_lines_that_are_equal_the_earlier_comes_first():
    assert rank(make_findings(make_found(10, when=7), make_found(20, when=3))) == [20, 10]


def test_line_that_fewer_passing_tests_execute_comes_first():
    findings = make_findings(make_found(10, when=1), make_found(20, when=2), passing=[[10], [10, 20]])
    assert rank(findings) == [20, 10]


def test_copy_comes_behind_its_origin_whatever_executes_it():
    copies = make_found(20, when=2, origin=10), make_found(30, when=3, origin=20)
    findings = make_findings(make_found(10, when=1), *copies, passing=[[10], [10, 20]])
    assert rank(findings) == [10, 20, 30]


def test_line_that_also_changes_more_than_a_copy_stands_for_itself():
    both = make_found(20, when=2, origin=10), make_found(20, when=2)
    assert rank(make_findings(make_found(10, when=1), *both, passing=[[10], [10]])) == [20, 10]


def test_votes_of_other_failing_tests_come_before_coverage():
    own = make_findings(make_found(10), make_found(20), passing=[[10]])
    assert rank(own, make_findings(make_found(10))) == [10, 20]


def test_change_that_harms_fewer_passing_tests_comes_before_coverage():
    some = make_found(10, harmed=3), make_found(10, harmed=1)
    findings = make_findings(*some, make_found(20, harmed=2), make_found(30), passing=[[10], [10, 20]])
    assert rank(findings) == [10, 20, 30]


def test_harmless_change_of_the_code_comes_before_one_of_a_value():
    value, code = make_found(10, harmed=0), make_found(20, harmed=0)
    code = replace(code, attempt=replace(code.attempt, alteration=Patch(0, b"", b"")))
    assert rank(make_findings(value, code, passing=[[20]])) == [20, 10]


def test_line_where_only_what_is_wrong_can_be_changed_comes_before_its_equals():
    findings = make_findings(make_found(10), passing=[[10, 20], [10]], failing=[10, 20, 30, 40])
    findings.touched |= {("a.c", 20), ("a.c", 40)}
    assert rank(findings) == [10, 40, 30, 20]


def test_change_of_all_executions_comes_before_one_of_many():
    findings = make_findings(make_found(10, when=1, is_whole=False), make_found(20, when=2))
    assert rank(findings) == [20, 10]


def test_nearly_repaired_comes_behind_repaired_and_before_covered():
    near = make_found(10, when=1, is_full=False)
    findings = make_findings(near, make_found(20, when=2), passing=[[10]], failing=[10, 20, 30])
    assert rank(findings) == [20, 10, 30]


def test_lines_that_all_tests_execute_are_no_suspects():
    assert rank(make_findings(make_found(10), passing=[[10, 20]], failing=[10, 20])) == [10]


def test_several_repairs_of_a_line_are_one_suspect():
    ranking = Ranking([make_findings(make_found(10, 4), make_found(10, 2, is_whole=False), make_found(10, 1))])
    assert [s.line for s in ranking.suspects()] == [10]
    assert ranking.twins() == [make_found(10, 1)]
    assert [found.attempt.when for found in ranking.repairs()] == [1, 4, 2]


def test_twins_are_as_different_as_can_be():
    code = make_found(10, harmed=0)
    code = replace(code, attempt=replace(code.attempt, alteration=Patch(0, b"", b"")))
    value, worse, other = make_found(10, harmed=1), make_found(10, harmed=2), make_found(20, harmed=2)
    assert Ranking([make_findings(worse, value, code, other)]).twins() == [code, value, other]


def test_transitions_are_suspects_too():
    transition = Suspect(1, "a.c", 40, "g", "here the cause moves from x to y")
    suspects = Ranking([make_findings(make_found(10))], [transition]).suspects()
    assert [(s.rank, s.line, s.function, s.why) for s in suspects] == [
        (1, 10, "f", "with x10 = 2 instead of 3 here the test passes"),
        (2, 40, "g", "here the cause moves from x to y"),
    ]


def test_reasons():
    own = make_findings(make_found(10), make_found(20, is_full=False), passing=[[10, 20], []], failing=[10, 20, 30])
    told = {s.line: s.why for s in Ranking([own, make_findings(make_found(10), make_found(50))]).suspects()}
    assert told == {
        10: "with x10 = 2 instead of 3 here the test passes, as does 1 other failing test of the program",
        20: "with x20 = 2 instead of 3 here the test comes nearer to passing",
        30: "1 of 1 failing and 0 of 2 passing tests of the program execute this line",
        50: "a change here makes another failing test of the program pass",
    }


def test_nothing_found():
    ranking = Ranking([Findings()])
    assert (ranking.twins(), ranking.suspects()) == ([], ())
