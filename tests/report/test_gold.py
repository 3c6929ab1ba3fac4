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
from pytest_causechain.report.artefacts import encode_chain, slug, write_artefacts
from pytest_causechain.report.github import annotate, render_summary
from pytest_causechain.report.gitlab import list_issues
from pytest_causechain.report.highlighting import paint_text
from pytest_causechain.report.index import render_index
from pytest_causechain.report.junit import describe_testcase, list_properties
from pytest_causechain.report.page import render_page
from pytest_causechain.report.sarif import make_log
from pytest_causechain.report.text import WHOLE, render_text

GOLD = Path(__file__).parent / "gold"
ROOT = Path("/home/me/project")


def place(chain: Chain) -> Path:
    return ROOT / ".causechain" / slug(chain.test)


def brief_text(chain: Chain) -> str:
    return render_text(chain, root=ROOT, artefacts=place(chain), read_source=chains.read_sources)


def whole_text(chain: Chain) -> str:
    return render_text(chain, root=ROOT, artefacts=place(chain), read_source=chains.read_sources, limits=WHOLE)


def painted_text(chain: Chain) -> str:
    """With the escape characters written out."""
    return paint_text(brief_text(chain)).replace("\x1b", "\\e")


def page(chain: Chain) -> str:
    return without_style(render_page(chain, root=ROOT, artefacts=place(chain), read_source=chains.read_sources))


def index(chain: Chain) -> str:
    return without_style(render_index([(slug(chain.test), chain)], root=ROOT, read_source=chains.read_sources))


def without_style(text: str) -> str:
    return re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.S)


def junit(chain: Chain) -> str:
    testcase = ElementTree.Element("testcase", name="test")
    properties = list_properties(chain, root=ROOT, read_source=chains.read_sources)
    describe_testcase(testcase, properties, "THE TEXT", [f"{place(chain)}/chain.html", f"{place(chain)}/chain.json"])
    ElementTree.indent(testcase)
    return ElementTree.tostring(testcase, encoding="unicode")


def github(chain: Chain) -> str:
    return "\n".join(
        [*annotate([chain], ROOT, chains.read_sources), render_summary([chain], ROOT, chains.read_sources)]
    )


def gitlab(chain: Chain) -> str:
    return json.dumps(list_issues([chain], ROOT, chains.read_sources), indent=1)


def sarif(chain: Chain) -> str:
    return json.dumps(make_log([chain], ROOT, chains.read_sources)["runs"][0]["results"], indent=1)


def data(chain: Chain) -> str:
    return json.dumps(encode_chain(chain), indent=1)


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
