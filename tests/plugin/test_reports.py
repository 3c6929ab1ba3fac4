"""Chains where people look: in real sessions, with the reporters of pytest and of others."""

from __future__ import annotations

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from building import compile_program
from suites import (
    COUNT,
    FAILING,
    SUITE_INI,
    TEST_COUNT,
    Session,
    ShareSession,
    read_chain,
    read_section,
    run_session,
)
from test_options import check_section

REPORT_TESTS = Path(__file__).parents[1] / "report"
# So that a refusal, which is all that many tests need, comes at once.
AT_ONCE = "--cause-chain-timeout=0.001"
# What others write, beside what we write.
REPORTS = (
    *("--junitxml=report.xml", "--html=html/report.html", "--alluredir=allure"),
    *("--cause-chain-sarif=out/chains.sarif", "--cause-chain-gitlab=quality.json"),
)
# Its own hook sees what is there by the time a chain is known.
CONFTEST = """
import json
import shutil

def pytest_causechain_report(config, report, chain):
    assert report.cause_chain is chain
    shutil.copy(config.option.xmlpath, "provisional.xml")
    with open("heard.json", "w") as file:
        json.dump([report.nodeid, report.when, chain.test, chain.status], file)
"""


def run_reporters(directory: Path, *options: str) -> Session:
    # Compiled here: its source lies in the project.
    compile_program(directory / "count", COUNT)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -p no:hypothesispytest\n")
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_count.py").write_text(TEST_COUNT)
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(directory / "summary.md")}
    return run_session(directory, *REPORTS, *options, **github, GITHUB_WORKSPACE=str(directory))


@pytest.fixture(params=["0", "2"], ids=["alone", "workers"])
def reported(request: pytest.FixtureRequest, share_session: ShareSession) -> Session:
    options = ("-n", request.param, "-o", f"junit_family=xunit{1 if request.param == '0' else 2}")
    return share_session(f"reported-{request.param}", lambda directory: run_reporters(directory, *options))


@pytest.mark.parametrize(("family", "workers"), [("xunit1", "2"), ("xunit2", "0")])
def test_junit_of_the_other_families_is_valid(
    family: str, workers: str, count_suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GitLab finds attachments from its checkout on.
    monkeypatch.setenv("CI_PROJECT_DIR", str(count_suite.path))
    options = ("--junitxml=report.xml", "-o", f"junit_family={family}", "-n", workers)
    count_suite.runpytest_subprocess("--cause-chain", AT_ONCE, *options)
    xmlschema.XMLSchema(REPORT_TESTS / "junit.xsd").validate(count_suite.path / "report.xml")
    case = find_testcase(count_suite.path / "report.xml")
    assert "\n[[ATTACHMENT|.causechain/" in (case.findtext("system-out") or "")
    properties = case.iter("property")
    assert ("causechain.status", "none") in [(one.get("name"), one.get("value")) for one in properties]


def find_testcase(file: Path) -> ElementTree.Element:
    (case,) = [case for case in ElementTree.parse(file).iter("testcase") if case.get("name") == "test_count[2]"]
    return case


def locate_page(session: Session) -> Path:
    (page,) = session.directory.glob(".causechain/*/chain.html")
    return page


class TestAllReporters:
    def test_session_is_as_ever(self, reported: Session) -> None:
        assert reported.returncode == 1
        assert "1 failed, 2 passed" in reported.output
        assert "cause-chain: " not in reported.output.partition("FAILURES")[2]

    def test_junit_is_valid(self, reported: Session) -> None:
        schema = xmlschema.XMLSchema(REPORT_TESTS / "junit.xsd")
        for name in ("report.xml", "provisional.xml"):
            schema.validate(reported.directory / name)

    def test_junit_has_the_chain_on_its_test_alone(self, reported: Session) -> None:
        case = find_testcase(reported.directory / "report.xml")
        properties = {one.get("name"): one.get("value") for one in case.iter("property")}
        assert properties["causechain.status"] == "complete"
        assert properties["causechain.suspect"] == "count.c:5"
        assert "the constant in count.c:5 was 2 (3 in the twin)" in properties["causechain.cause.1"]
        assert case[0].tag == "properties"
        cases = ElementTree.parse(reported.directory / "report.xml").iter("testcase")
        assert [len(list(one)) for one in cases].count(0) == 2

    def test_junit_has_text_and_attachments(self, reported: Session) -> None:
        output = find_testcase(reported.directory / "report.xml").findtext("system-out") or ""
        assert re.search(r"^fails    count x x +exited with status 1$", output, re.M)
        assert "\x1b" not in output
        attached = re.findall(r"^\[\[ATTACHMENT\|(.+)\]\]$", output, re.M)
        assert [Path(path).name for path in attached] == ["chain.html", "chain.json"]
        assert all(Path(path).is_file() for path in attached)

    def test_junit_was_there_before_the_diagnosis(self, reported: Session) -> None:
        # At the time of the hook the file had all results, and no chain.
        case = find_testcase(reported.directory / "provisional.xml")
        assert case.find("failure") is not None
        assert case.find("properties") is None

    def test_hook_is_called_with_report_and_chain(self, reported: Session) -> None:
        heard = json.loads((reported.directory / "heard.json").read_text())
        assert heard == [FAILING, "call", FAILING, "complete"]

    def test_pytest_html_links_to_the_page(self, reported: Session) -> None:
        report = unescape((reported.directory / "html" / "report.html").read_text())
        links = set(re.findall(r"[\w./\[\]-]+/chain\.html", report))
        assert {(reported.directory / "html" / link).resolve() for link in links} == {locate_page(reported).resolve()}

    def test_allure_has_the_page_attached(self, reported: Session) -> None:
        results = [json.loads(path.read_text()) for path in reported.directory.glob("allure/*-result.json")]
        (failed,) = [result for result in results if result["status"] == "failed"]
        (attachment,) = [a for a in failed["attachments"] if a["name"] == "cause-effect chain"]
        assert attachment["type"] == "text/html"
        assert (reported.directory / "allure" / attachment["source"]).read_text() == locate_page(reported).read_text()

    def test_github_gets_annotations_and_a_summary(self, reported: Session) -> None:
        lines = [line for line in reported.lines if line.startswith("::")]
        assert lines[0].startswith("::error file=count.c,line=5,title=cause-effect chain::")
        assert "the test passes" in lines[0]
        summary = (reported.directory / "summary.md").read_text()
        assert f"### `{FAILING}`" in summary
        assert "| 1 | `count.c:" in summary

    def test_sarif_and_gitlab(self, reported: Session) -> None:
        log = json.loads((reported.directory / "out" / "chains.sarif").read_text())
        (result,) = log["runs"][0]["results"]
        location = result["locations"][0]["physicalLocation"]
        assert location["artifactLocation"]["uri"] == "count.c"
        (issue,) = json.loads((reported.directory / "quality.json").read_text())
        assert issue["location"] == {"path": "count.c", "lines": {"begin": 5}}

    def test_index_leads_to_the_page(self, reported: Session) -> None:
        index = (reported.directory / ".causechain" / "index.html").read_text()
        (link,) = re.findall(r'href="([^"#]+)"', index)
        assert (reported.directory / ".causechain" / link).resolve() == locate_page(reported).resolve()


class TestTerminal:
    def test_colours_where_pytest_has_them(self, count_suite: pytest.Pytester) -> None:
        """Elsewhere it has none: see test_options."""
        output = count_suite.runpytest_subprocess("--cause-chain", "--color=yes").stdout.str()
        assert "\x1b[" in output.partition("With ")[2].partition("Replay")[0]
        check_section(re.sub(r"\x1b\[[\d;]*m", "", output))

    def test_no_color_is_obeyed(self, count_suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        # Else there would be none, without a terminal and by pytester.
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.delenv("PY_COLORS")
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in count_suite.runpytest_subprocess("--cause-chain", AT_ONCE).stdout.str()

    def test_all_of_it_with_v(self, count_suite: pytest.Pytester) -> None:
        section = "\n".join(read_section(count_suite.runpytest_subprocess("--cause-chain", "-v").stdout.str()))
        # The neighbour's chain as a table of its own.
        assert "\npasses   count x     exited with status 0\n         test_count[1]" in section
        assert re.search(r"^  1  count\.c:\d+  main   argc was 3 \(2 in the passing run\)$", section, re.M)


class TestPromises:
    def test_page_of_a_test_that_is_not_diagnosed_says_so(self, count_suite: pytest.Pytester) -> None:
        count_suite.makeini("[pytest]\naddopts = -p no:hypothesispytest\n")
        count_suite.makepyfile(test_count=TEST_COUNT.replace("[0, 1, 2]", "[0, 2, 3]"))
        options = ("--cause-chain", AT_ONCE, "--cause-chain-max=1", "--html=report.html", "--alluredir=allure")
        count_suite.runpytest_subprocess(*options)
        pages = [page.read_text() for page in count_suite.path.glob(".causechain/*/chain.html")]
        assert [("this test was not diagnosed." in page) for page in pages].count(True) == 1
        assert len(pages) == len(list(count_suite.path.glob("allure/*-attachment.html"))) == 2

    def test_what_cannot_be_reported_is_a_note(self, count_suite: pytest.Pytester) -> None:
        count_suite.makeconftest("def pytest_causechain_report(chain):\n    raise ValueError('mine')\n")
        (count_suite.path / "taken").write_text("")
        result = count_suite.runpytest_subprocess("--cause-chain", AT_ONCE, "--cause-chain-sarif=taken/x.sarif")
        assert result.ret == 1
        assert "cause-chain: pytest_causechain_report has no chain in it: ValueError('mine')" in result.outlines
        assert [line for line in result.outlines if line.startswith("cause-chain: a report has no chain in it: ")]

    def test_without_chains_nothing_is_said_to_github(
        self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
        pytester.makeini(SUITE_INI)
        pytester.makepyfile("def test_sum():\n    assert 1 + 1 == 3\n")
        result = pytester.runpytest_subprocess("--cause-chain")
        assert [line for line in result.outlines if line.startswith("::")] == []
        assert not (pytester.path / "summary.md").exists()


def test_report_log_is_untouched(count_suite: pytest.Pytester) -> None:
    count_suite.makeini("[pytest]\naddopts = -p no:hypothesispytest\n")
    count_suite.runpytest_subprocess("--cause-chain", AT_ONCE, "--report-log=log.jsonl", "-n", "2")
    log = (count_suite.path / "log.jsonl").read_text()
    assert FAILING in log
    assert "cause" not in log.replace(str(count_suite.path), "")


def test_junit_without_programs_is_as_without_us(pytester: pytest.Pytester) -> None:
    pytester.makeini(SUITE_INI)
    pytester.makepyfile("def test_sum():\n    assert 1 + 1 == 3\n")
    reports = []
    for options in ([], ["--cause-chain"]):
        pytester.runpytest_subprocess("--junitxml=report.xml", *options)
        tree = ElementTree.parse(pytester.path / "report.xml")
        reports.append([[(child.tag, child.text) for child in case] for case in tree.iter("testcase")])
    assert reports[0] == reports[1] != [[]]


def test_conftest_with_our_hook_works_without_the_option(pytester: pytest.Pytester) -> None:
    pytester.makeini(SUITE_INI)
    pytester.makeconftest("def pytest_causechain_report(chain):\n    raise ValueError\n")
    pytester.makepyfile("def test_sum(): pass\n")
    assert pytester.runpytest_subprocess().ret == 0


# Fails, and prints what is obeyed by whoever shows or reads the reports.
SHOUT = r"""
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const char text[] = "\x1b[2J\x00\xff\n::error file=x::owned\n]]><script>alert(1)</script>\n"
                               "[[ATTACHMENT|/etc/passwd]]\n";
    (void)argv;
    fwrite(text, 1, sizeof text - 1, stdout);
    puts(getenv("THE_TOKEN"));
    puts(argc > 2 ? "bad" : "good");
    return 0;
}
"""
TEST_SHOUT = """
import subprocess

import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_shout(number):
    run = subprocess.run(["./shout", *"x" * number], capture_output=True)
    assert run.stdout.endswith(b"good\\n"), "bad"
"""


def test_what_a_program_prints_is_text_in_all_reports(pytester: pytest.Pytester) -> None:
    """Of what we write; what pytest itself shows of the failure is its own."""
    compile_program(pytester.path / "shout", SHOUT)
    pytester.makepyfile(test_shout=TEST_SHOUT)
    pytester.makeini("[pytest]\naddopts = -p no:hypothesispytest\n")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(pytester.path / "summary.md")}
    session = run_session(pytester.path, *REPORTS, "--tb=no", **github, THE_TOKEN="open sesame")
    assert "\x1b[2J" not in session.output
    assert [line for line in session.lines if line.startswith("::") and "cause-effect chain" not in line] == []
    output = ElementTree.parse(pytester.path / "report.xml").findtext(".//system-out") or ""
    assert "script>" in output
    assert len(re.findall(r"\[\[ATTACHMENT", output)) == 2
    (chain,) = pytester.path.glob(".causechain/*/chain.json")
    for path in (*chain.parent.iterdir(), pytester.path / "summary.md", pytester.path / "out" / "chains.sarif"):
        text = path.read_text(encoding="utf-8")
        assert "\x1b" not in text
        assert path.suffix not in (".html", ".md") or re.search(r"(?<!\\)<script", text) is None
        assert "open sesame" not in text


def test_gdb_script_has_the_environment_of_the_test(count_suite: pytest.Pytester) -> None:
    """Its variables are set and removed as the test did."""
    test = TEST_COUNT.replace("import subprocess\n", "import os\nimport subprocess\n").replace(
        '*"x" * number])', '*"x" * number], env={**os.environ, "COUNTED": "a b\'c"})'
    )
    count_suite.makepyfile(test_count=test)
    count_suite.runpytest_subprocess("--cause-chain")
    chain = read_chain(count_suite.path)
    assert "COUNTED" not in json.dumps(chain)
    (script,) = count_suite.path.glob(".causechain/*/1.gdb")
    command = ["gdb", "-nx", "-batch", "-x", str(script), "-ex", "show environment COUNTED"]
    shown = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), stdin=subprocess.DEVNULL)
    assert "COUNTED = a b'c" in shown.stdout
