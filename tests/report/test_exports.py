"""What CI systems read: valid whatever a program under test has put into its output, and within their limits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import chains
import jsonschema
import pytest
from test_gold import tell

from pytest_causechain.report.github import annotate
from pytest_causechain.report.gitlab import list_issues
from pytest_causechain.report.markdown import MOST_BYTES, render_summary
from pytest_causechain.report.sarif import list_results, make_log

ROOT = Path("/home/me/project")
SARIF = json.loads((Path(__file__).parent / "sarif-reduced.json").read_text())


class TestSarif:
    @pytest.mark.parametrize("name", chains.ALL)
    def test_is_valid(self, name: str) -> None:
        log = make_log([tell(chains.ALL[name])], ROOT)
        # As it is read back: a surrogate would not survive.
        jsonschema.validate(json.loads(json.dumps(log).encode("ascii")), SARIF)

    def test_schema_refuses_what_is_wrong(self) -> None:
        log = make_log([tell(chains.wrong_output)], ROOT)
        del log["runs"][0]["results"][0]["message"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(log, SARIF)

    def test_flow_is_the_chain_and_the_failure(self) -> None:
        (result,) = list_results([tell(chains.wrong_output)], ROOT)
        (flow,) = result["codeFlows"][0]["threadFlows"]
        lines = [step["location"]["physicalLocation"]["region"]["startLine"] for step in flow["locations"]]
        assert lines[:4] == [43, 48, 29, 33]
        assert flow["locations"][1]["state"] == {"a[2]": {"text": "0"}}
        assert flow["locations"][-1]["location"]["message"]["text"].endswith("The test fails.")

    def test_fingerprint_stays_when_lines_move(self) -> None:
        moved = replace(chains.wrong_output, suspects=(replace(chains.wrong_output.suspects[0], line=49),))
        one, other = list_results([tell(chain) for chain in (chains.wrong_output, moved)], ROOT)
        assert one["partialFingerprints"] == other["partialFingerprints"]


class TestGitLab:
    @pytest.mark.parametrize("name", chains.ALL)
    def test_issue_has_what_gitlab_asks_for(self, name: str) -> None:
        for issue in list_issues([tell(chains.ALL[name])], ROOT):
            assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
            assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
            assert set(issue["location"]) == {"path", "lines"}
            assert issue["location"]["lines"]["begin"] > 0

    def test_tests_have_issues_of_their_own(self) -> None:
        other = replace(chains.wrong_output, test="other")
        issues = list_issues([tell(chain) for chain in (chains.wrong_output, other, chains.none)], ROOT)
        assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 2
        assert {issue["location"]["path"] for issue in issues} == {"src/sample.c"}


class TestGitHub:
    @pytest.mark.parametrize("name", chains.ALL)
    def test_annotation_is_one_line_with_known_properties(self, name: str) -> None:
        for line in annotate([tell(chains.ALL[name])], ROOT):
            assert re.fullmatch(r"::(error|notice) file=[^,:\n\r]+,line=\d+,title=[^,:\n\r]+::[ -~]+", line)

    def test_percent_colon_and_comma_are_escaped(self) -> None:
        odd = replace(chains.wrong_output.suspects[0], file="/home/me/project/a,b:50%.c", why="100% of it")
        line = next(annotate([tell(replace(chains.wrong_output, suspects=(odd,)))], ROOT))
        assert line.startswith("::error file=a%2Cb%3A50%25.c,line=48,")
        assert line.endswith("100%25 of it")

    def test_no_more_annotations_than_github_shows(self) -> None:
        lines = list(annotate([tell(chains.wrong_output)] * 30, ROOT))
        kinds = [line.split()[0] for line in lines]
        assert (kinds.count("::error"), kinds.count("::notice")) == (10, 10)

    def test_summary_stays_within_its_limit(self) -> None:
        summary = render_summary([tell(chains.hostile), *[tell(chains.wrong_output)] * 5000])
        assert len(summary.encode()) < MOST_BYTES + 100
        assert re.search(r"\n\d+ more chains in the artefacts\.\n$", summary)

    def test_summary_has_no_markup_of_the_programs_making(self) -> None:
        suspects = chains.wrong_output.suspects
        chain = replace(chains.none, reason="<img src=x> [a](b) | `c` *d*", suspects=suspects)
        summary = render_summary([tell(chain)])
        assert r"\<img src=x\> \[a\](b) \| \`c\` \*d\*" in summary
