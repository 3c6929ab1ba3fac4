"""All reporters over the same chains, each against its gold file.

After a wanted change write the gold files anew and read them through:

    CAUSECHAIN_GOLD=write python -m pytest tests/report
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import chains
import pytest

from pytest_causechain.model.chain import Chain
from pytest_causechain.report.artefacts import encode_story, write_artefacts
from pytest_causechain.report.github import annotate
from pytest_causechain.report.gitlab import list_issues
from pytest_causechain.report.html import render_index, render_page
from pytest_causechain.report.junit import describe_testcase, list_properties
from pytest_causechain.report.markdown import render_summary
from pytest_causechain.report.sarif import list_results
from pytest_causechain.report.story import Story
from pytest_causechain.report.text import WHOLE, render_text
from pytest_causechain.report.wording import slug

GOLD = Path(__file__).parent / "gold"
ROOT = Path("/home/me/project")


def place(chain: Chain) -> Path:
    return ROOT / ".causechain" / slug(chain.test)


def tell(chain: Chain) -> Story:
    return chains.tell(chain, root=ROOT, artefacts=place(chain))


def brief_text(chain: Chain) -> str:
    return render_text(tell(chain))


def whole_text(chain: Chain) -> str:
    return render_text(tell(chain), details=WHOLE)


def painted_text(chain: Chain) -> str:
    """With the escape characters written out."""
    return render_text(tell(chain), is_painted=True).replace("\x1b", "\\e")


def page(chain: Chain) -> str:
    return without_style(render_page(tell(chain)))


def index(chain: Chain) -> str:
    return without_style(render_index([tell(chain)]))


def without_style(text: str) -> str:
    return re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.S)


def junit(chain: Chain) -> str:
    testcase = ElementTree.Element("testcase", name="test")
    files = [f"{place(chain)}/chain.html", f"{place(chain)}/chain.json"]
    describe_testcase(testcase, list_properties(tell(chain)), "THE TEXT", files)
    ElementTree.indent(testcase)
    return ElementTree.tostring(testcase, encoding="unicode")


def github(chain: Chain) -> str:
    return "\n".join([*annotate([tell(chain)], ROOT), render_summary([tell(chain)])])


def gitlab(chain: Chain) -> str:
    return json.dumps(list_issues([tell(chain)], ROOT), indent=1)


def sarif(chain: Chain) -> str:
    return json.dumps(list_results([tell(chain)], ROOT), indent=1)


def data(chain: Chain) -> str:
    return json.dumps(encode_story(tell(chain)), indent=1)


def scripts(chain: Chain) -> str:
    """All of them, with what they read."""
    with tempfile.TemporaryDirectory() as directory:
        written = write_artefacts(chain, Path(directory) / "out")
        texts = [f"=== {path.name}\n{path.read_text(encoding='utf-8')}" for path in sorted(written.glob("*.gdb"))]
        texts += [f"=== {path.name}\n{path.read_bytes()!a}" for path in sorted(written.glob("*.stdin"))]
        return "\n".join(texts).replace(str(written), str(place(chain)))


REPORTERS: dict[str, tuple[Callable[[Chain], str], str]] = {
    "brief": (brief_text, "txt"),
    "whole": (whole_text, "txt"),
    "painted": (painted_text, "txt"),
    "page": (page, "html"),
    "index": (index, "html"),
    "junit": (junit, "xml"),
    "github": (github, "md"),
    "gitlab": (gitlab, "json"),
    "sarif": (sarif, "json"),
    "data": (data, "json"),
    "scripts": (scripts, "txt"),
}


@pytest.mark.parametrize("reporter", REPORTERS)
@pytest.mark.parametrize("name", chains.ALL)
def test_says_what_the_gold_file_says(name: str, reporter: str) -> None:
    render, suffix = REPORTERS[reporter]
    gold = GOLD / reporter / f"{name}.{suffix}"
    text = render(chains.ALL[name]).rstrip("\n") + "\n"
    if os.environ.get("CAUSECHAIN_GOLD") == "write":
        gold.parent.mkdir(exist_ok=True)
        gold.write_text(text, encoding="utf-8")
    assert text == gold.read_text(encoding="utf-8")


@pytest.mark.parametrize("reporter", REPORTERS)
def test_every_gold_file_has_its_chain(reporter: str) -> None:
    assert {path.stem for path in (GOLD / reporter).iterdir()} == set(chains.ALL)
