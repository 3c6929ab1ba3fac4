"""The pages in a real browser: what it makes of them, and screenshots for a human eye. Run by `make screenshots`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "report"))

import chains  # noqa: E402

from pytest_causechain.report.html import render_index, render_page  # noqa: E402
from pytest_causechain.report.story import make_story  # noqa: E402

PICTURES = ROOT / "build" / "screenshots"
PROJECT = Path("/home/me/project")
PAGES = ("twin", "wrong_output", "crash", "partial", "none", "hostile", "index")
# Width, height, and what the browser is told to prefer.
LOOKS = {
    "light": (1200, 3000, ()),
    "dark": (1200, 3000, ("--blink-settings=preferredColorScheme=0",)),
    "narrow": (500, 4000, ()),
}
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with everything unfolded."""
    name = request.param
    if name == "index":
        text = render_index([make_story(one, root=PROJECT) for one in chains.ALL.values()])
    else:
        chain = chains.ALL[name]
        text = render_page(chains.tell(chain, root=PROJECT, artefacts=PROJECT / "out"))
    path = tmp_path_factory.mktemp("pages") / f"{name}.html"
    path.write_bytes(text.replace("<details", "<details open").encode("utf-8", "backslashreplace"))
    return path


def browse(page: Path, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*BROWSER, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def test_browser_understands_it_without_complaint(page: Path, tmp_path: Path) -> None:
    run = browse(page, tmp_path, "--enable-logging=stderr", "--dump-dom")
    # Of the page's own: the browser itself complains about the machine it runs on.
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
    assert run.stdout.count("<main>") == run.stdout.count("<h1>") == 1
    wanted = page.read_text(encoding="utf-8")
    for element in ("article", "svg", "table", "details", "figure", "li"):
        assert len(re.findall(rf"<{element}\b", run.stdout)) == len(re.findall(rf"<{element}\b", wanted)), element


@pytest.mark.parametrize("look", LOOKS)
def test_screenshot(page: Path, look: str, tmp_path: Path) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{page.stem}-{look}.png"
    picture.unlink(missing_ok=True)
    width, height, options = LOOKS[look]
    browse(page, tmp_path, f"--window-size={width},{height}", f"--screenshot={picture}", *options)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [500, 1200])
def test_nothing_is_wider_than_the_window(page: Path, width: int, tmp_path: Path) -> None:
    """A script that only this test adds tells how wide the page has become."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    told = "document.documentElement.scrollWidth + ' of ' + document.documentElement.clientWidth"
    measured = tmp_path / "measured.html"
    measured.write_text(text.replace("</body>", f"<script>document.title = {told}</script></body>"), encoding="utf-8")
    run = browse(measured, tmp_path / "profile", f"--window-size={width},1000", "--dump-dom")
    found = re.search(r"<title>(\d+) of (\d+)</title>", run.stdout)
    assert found is not None
    assert int(found[1]) <= int(found[2])
