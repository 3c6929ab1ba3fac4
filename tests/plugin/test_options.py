"""--cause-chain beside pytest's own options, its own options and their ini twins, and pytest without it."""

from __future__ import annotations

import re

import pytest
from building import compile_program
from suites import (
    COUNT,
    FAILING,
    NEIGHBOURS_ONLY,
    SUITE_INI,
    TEST_COUNT,
    find_alternative,
    read_chain,
    read_index,
    read_section,
)

OWN_OPTIONS = ("--cause-chain", "-timeout", "-max", "-dir", "-neighbour", "-sarif", "-gitlab", "-jobs")


def read_outcome(result: pytest.RunResult) -> tuple[int, dict[str, int]]:
    return result.ret, result.parseoutcomes()


def check_section(output: str) -> None:
    """The chain of the counting program, as readers see it."""
    section = read_section(output)
    assert [line for line in section if len(line) > 80] == []
    text = "\n".join(section[1:])
    assert re.match(r"With the constant 3 instead of 2 at \S*count\.c:5 the test passes\.", " ".join(section[1:]))
    assert re.search(
        r"^fails    count x x +exited with status 1\npasses   its twin, .* exited with status 0$", text, re.M
    )
    assert re.search(
        r"^  1  count\.c:5  main   the constant in count\.c:5 was 2 \(3 in the twin\)\n +<- look here first$",
        text,
        re.M,
    )
    assert "Proof: with only the constant in count.c:5 = 2 at count.c:5 the twin fails too;" in text
    assert "\nBeside test_count[1] (count x): argc was 3 (2).\n" in text


class TestBesideOptionsOfPytest:
    @pytest.mark.parametrize(
        "options",
        [
            pytest.param(["--maxfail=1", "--tb=line", "-p", "no:xdist"], id="maxfail-line-no-xdist"),
            pytest.param(["-q", "--tb=no", "-p", "no:cacheprovider"], id="q-no-no-cache"),
            pytest.param(["-n", "2", "--tb=long"], id="workers-long"),
        ],
    )
    def test_section_is_there_and_outcomes_stay(self, count_suite, options):
        result = count_suite.runpytest_subprocess("--cause-chain", *options)
        check_section(result.stdout.str())
        assert "\x1b" not in result.stdout.str()
        assert read_outcome(result) == (1, {"passed": 2, "failed": 1})
        # Where pytest itself shows no failure, the title names the test.
        is_named = f" cause-effect chain: {FAILING} " in read_section(result.stdout.str())[0]
        assert is_named == any(option in options for option in ("--tb=no", "--tb=line"))
        if "-n" in options:
            # What announces the diagnosis has a line of its own.
            assert f"cause-chain: {FAILING}" in result.outlines
            assert any(re.fullmatch(r"[.F]{3} +\[100%\]", line) for line in result.outlines)

    def test_first_failure_of_workers(self, count_suite):
        """pytest-xdist has an exit status of its own for it."""
        options = ("-n", "2", "-x", "--dist=loadfile", "--tb=short")
        plain = count_suite.runpytest_subprocess(*options)
        result = count_suite.runpytest_subprocess("--cause-chain", *options)
        check_section(result.stdout.str())
        assert read_outcome(result) == read_outcome(plain)

    def test_without_terminal_the_chain_is_kept(self, count_suite):
        result = count_suite.runpytest_subprocess("--cause-chain", "-p", "no:terminal")
        assert (result.ret, result.stdout.str().strip()) == (1, "")
        assert read_chain(count_suite.path)["status"] == "complete"

    @pytest.mark.parametrize(
        ("module", "options", "status"),
        [
            pytest.param("def test_nothing(): pass", [], 0, id="pass"),
            pytest.param("", [], 5, id="no-tests"),
            pytest.param("import nowhere", [], 2, id="collection-error"),
            pytest.param("def test_nothing(): assert False", ["--collect-only"], 0, id="collect-only"),
            pytest.param("def test_nothing(): raise KeyboardInterrupt", [], 2, id="interrupted-test"),
        ],
    )
    def test_nothing_to_diagnose(self, pytester, module, options, status):
        pytester.makepyfile(module)
        result = pytester.runpytest_inprocess("--cause-chain", *options, no_reraise_ctrlc=True)
        assert result.ret == status
        assert [line for line in result.outlines if "cause-" in line] == [
            "cause-chain: on (at most 10 failing tests, 60 s each)"
        ]
        assert not (pytester.path / ".causechain").exists()

    def test_failing_test_without_program_adds_nothing(self, pytester):
        pytester.makepyfile("def test_sum():\n    assert 1 + 1 == 3\n")
        # Whose seed would be told, another one each time.
        calmly = ("-p", "no:randomly")
        plain = pytester.runpytest_inprocess(*calmly)
        result = pytester.runpytest_inprocess("--cause-chain", *calmly)
        assert read_outcome(result) == read_outcome(plain) == (1, {"failed": 1})
        added = [line for line in result.outlines if "cause-" in line]
        assert added == ["cause-chain: on (at most 10 failing tests, 60 s each)"]
        # But for the times in the last line.
        assert [line for line in result.outlines if line not in added][:-1] == plain.outlines[:-1]


class TestNeighboursOfEarlierSessions:
    def test_last_failed_and_single_test(self, count_suite):
        """The passing tests ran in an earlier session only, with the same build, and must still pass."""
        # Fails, with time for nothing else.
        count_suite.runpytest_subprocess("--cause-chain", "--cause-chain-timeout=0.001")
        for options in (["--lf", "-rA"], [FAILING]):
            result = count_suite.runpytest_subprocess("--cause-chain", *options)
            assert read_outcome(result) == (1, {"failed": 1})
            check_section(result.stdout.str())
        result = count_suite.runpytest_subprocess("--cause-chain", FAILING, "-p", "no:cacheprovider")
        # Without a neighbour there are the repairs and the twin.
        assert "With the constant 3 instead of 2 at" in "\n".join(read_section(result.stdout.str()))
        chain = read_chain(count_suite.path)
        assert (chain["status"], chain["peer"]["kind"], chain["alternatives"]) == ("complete", "twin", [])
        assert "since no other test runs count" in chain["without_neighbour"]

        count_suite.makeconftest(NEIGHBOURS_ONLY)
        for changed, sentence in (
            (TEST_COUNT.replace("[0, 1, 2]", "[2]"), "since no other test runs count"),
            (TEST_COUNT.replace("== 0", "== 7"), "since 2 other tests that run it fail too"),
        ):
            count_suite.makepyfile(test_count=changed)
            result = count_suite.runpytest_subprocess("--cause-chain", FAILING)
            assert read_outcome(result) == (1, {"failed": 1})
            chain = read_chain(count_suite.path)
            assert (chain["status"], sentence in chain["reason"]) == ("none", True)

    def test_neighbour_is_run_again_after_a_rebuild(self, count_suite):
        """Neither the build nor the directory that it ran in before is there any more."""
        directory = count_suite.path / "base"
        count_suite.makepyfile(
            test_count=TEST_COUNT.replace("number):", "number, tmp_path):").replace(
                '["./count", *"x" * number]',
                '[__file__.replace("test_count.py", "count"), *"x" * number], cwd=tmp_path',
            )
        )
        count_suite.runpytest_subprocess("--cause-chain", "--deselect", FAILING, f"--basetemp={directory}")
        compile_program(count_suite.path / "count", COUNT.replace("(void)argv;", "(void)argv;\n    argc += 0;"))
        result = count_suite.runpytest_subprocess("--cause-chain", FAILING, f"--basetemp={directory}")
        assert read_outcome(result) == (1, {"failed": 1})
        beside = find_alternative(read_chain(count_suite.path))
        assert (beside["reason"], beside["passing"]["test"]) == (None, "test_count.py::test_count[1]")
        assert [cause["variable"] for link in beside["chain"] for cause in link["causes"]] == ["argc"]

    def test_cache_that_cannot_be_written_is_done_without(self, count_suite):
        (count_suite.path / ".pytest_cache").write_text("not a directory")
        result = count_suite.runpytest_subprocess("--cause-chain", "--tb=native")
        check_section(result.stdout.str())


class TestOwnOptions:
    def test_help_lists_all_with_their_ini_twins(self, pytester):
        text = pytester.runpytest_inprocess("--help").stdout.str()
        for option in OWN_OPTIONS:
            name = option if option.startswith("--") else f"--cause-chain{option}"
            assert re.search(rf"^  {name}(=|$| )", text, re.M)
            assert re.search(rf"^  {name[2:].replace('-', '_')} \(\w+\):", text, re.M)

    def test_markers_lists_ours(self, pytester):
        result = pytester.runpytest_inprocess("--markers")
        result.stdout.fnmatch_lines("@pytest.mark.cause_chain(program=None, fails_when=None, *skip=False): *")

    def test_ini_twins(self, count_suite):
        count_suite.makeini(
            f"{SUITE_INI}cause_chain = true\ncause_chain_timeout = 50\ncause_chain_max = 3\n"
            "cause_chain_dir = chains/here\ncause_chain_neighbour = test_count.py::test_count[0]\n"
        )
        result = count_suite.runpytest_subprocess()
        assert "cause-chain: on (at most 3 failing tests, 50 s each)" in result.outlines
        chain = read_chain(count_suite.path, place="chains/here")
        (beside,) = chain["alternatives"]
        assert beside["passing"]["test"] == "test_count.py::test_count[0]"
        assert beside["passing"]["why"].startswith("asked for, ")
        assert not (count_suite.path / ".causechain").exists()

    def test_command_line_comes_before_the_ini_file(self, pytester):
        pytester.makeini("[pytest]\ncause_chain = true\ncause_chain_timeout = 50\ncause_chain_max = 3\n")
        result = pytester.runpytest_inprocess("--cause-chain-max=4", "-o", "cause_chain_timeout=2.5")
        assert "cause-chain: on (at most 4 failing tests, 2.5 s each)" in result.outlines
        off = pytester.runpytest_inprocess("-o", "cause_chain=false")
        assert "cause-chain: " not in off.stdout.str()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--cause-chain-timeout=soon"], "argument --cause-chain-timeout: invalid float value: 'soon'"),
            (["--cause-chain-timeout=0"], "cause_chain_timeout must be greater than 0 and finite, not 0.0."),
            (["--cause-chain-timeout=nan"], "cause_chain_timeout must be greater than 0 and finite, not nan."),
            (["--cause-chain-timeout=inf"], "cause_chain_timeout must be greater than 0 and finite, not inf."),
            (["--cause-chain-max=-1"], "cause_chain_max must be greater than 0 and finite, not -1."),
            (["-o", "cause_chain_timeout=soon"], "cause_chain_timeout must be a number, not 'soon'."),
            (["-o", "cause_chain_max=1.5"], "cause_chain_max must be a whole number, not '1.5'."),
            (["-o", "cause_chain_max=0"], "cause_chain_max must be greater than 0 and finite, not 0."),
        ],
        ids=lambda value: value[-1] if isinstance(value, list) else "",
    )
    def test_bad_value_is_a_usage_error(self, pytester, options, message):
        result = pytester.runpytest_inprocess("--cause-chain", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert message in result.stderr.str()

    def test_bad_switch_is_a_usage_error(self, pytester):
        result = pytester.runpytest_inprocess("-o", "cause_chain=perhaps")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "cause_chain must be true or false (" in result.stderr.str()

    def test_most_tests(self, count_suite):
        count_suite.makepyfile(test_count=TEST_COUNT.replace("[0, 1, 2]", "[0, 2, 3, 4]"))
        options = ("--cause-chain", "--cause-chain-timeout=0.001")
        result = count_suite.runpytest_subprocess(*options, "--cause-chain-max=1")
        assert [entry["test"] for entry in read_index(count_suite.path)] == [FAILING]
        assert "cause-chain: 2 more failing tests were not diagnosed: raise --cause-chain-max." in result.outlines
        result = count_suite.runpytest_subprocess(*options, "--cause-chain-max=2")
        assert len(read_index(count_suite.path)) == 2
        assert "cause-chain: 1 more failing test was not diagnosed: raise --cause-chain-max." in result.outlines

    def test_directory_that_cannot_be_written_is_told_once(self, count_suite):
        (count_suite.path / "taken").write_text("not a directory")
        result = count_suite.runpytest_subprocess(
            "--cause-chain", "--cause-chain-dir=taken", "--cause-chain-timeout=0.001"
        )
        assert result.ret == 1
        told = [line for line in result.outlines if "--cause-chain-dir" in line]
        assert len(told) == 1
        assert told[0].startswith(f"cause-chain: The chain could not be written to {count_suite.path / 'taken'} (")


class TestWithoutTheOption:
    def test_nothing_is_loaded_or_patched(self, pytester):
        pytester.makepyfile(
            """
            import subprocess
            import sys

            def test_untouched():
                ours = {name for name in sys.modules if name.startswith("pytest_causechain")}
                # What the settings are made of.
                model = {"pytest_causechain.model", "pytest_causechain.model.isolation"}
                assert ours - model == {
                    "pytest_causechain", *(f"pytest_causechain.{name}" for name in ("hookspecs", "plugin", "settings"))
                }
                assert not {"networkx", "pygdbmi"} & set(sys.modules)
                for name in ("_execute_child", "communicate", "wait", "poll"):
                    assert getattr(subprocess.Popen, name).__code__.co_filename == subprocess.__file__
            """
        )
        result = pytester.runpytest_subprocess()
        result.assert_outcomes(passed=1)
        assert "cause-" not in result.stdout.str()

    def test_nothing_is_kept(self, count_suite):
        count_suite.runpytest_subprocess()
        assert not (count_suite.path / ".causechain").exists()
        assert not (count_suite.path / ".pytest_cache" / "d" / "causechain").exists()

    def test_marker_is_known(self, pytester):
        pytester.makepyfile("import pytest\n\n@pytest.mark.cause_chain(skip=True)\ndef test_it(): pass\n")
        pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=1)
