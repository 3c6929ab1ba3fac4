"""Turns the chains of a session into a page that lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_causechain.model.chain import Chain, Suspect
from pytest_causechain.report.markup import escape
from pytest_causechain.report.page import STATUS, wrap_page
from pytest_causechain.report.sources import ReadSource, choose_suspect, read_lines, show_path
from pytest_causechain.report.wording import count_of, describe_repair, shorten

TOLD_LIMIT, PATH_LIMIT = 200, 60


def render_index(
    chains: Sequence[tuple[str, Chain]], *, root: Path | None = None, read_source: ReadSource = read_lines
) -> str:
    """`chains` with the directory of each, as seen from the page's own."""
    body = [
        "<header><h1>Cause-effect chains</h1>",
        f'<p class="kicker">{count_of(len(chains), "failing test")} of the last session</p></header><main>',
        '<div class="scroll"><table class="index"><thead><tr><th scope="col">test</th><th scope="col">chain</th>',
        '<th scope="col">look first at</th><th scope="col">why</th></tr></thead><tbody>',
    ]
    for directory, chain in chains:
        body += _render_entry(directory, chain, root, read_source)
    return wrap_page("Cause-effect chains", [*body, "</tbody></table></div></main>"])


def _render_entry(directory: str, chain: Chain, root: Path | None, read_source: ReadSource) -> Iterator[str]:
    suspect = choose_suspect(chain, read_source, root)
    where = ""
    if suspect is not None:
        path = show_path(suspect.file, root)
        where = f"<code>{escape('...' * (len(path) > PATH_LIMIT) + path[-PATH_LIMIT:])}:{suspect.line}</code>"
    name = escape(shorten(chain.test, TOLD_LIMIT))
    yield f'<tr><th scope="row"><a href="{escape(directory)}/chain.html">{name}</a></th>'
    yield f'<td><span class="badge {chain.status}">{STATUS[chain.status]}</span></td><td>{where}</td>'
    yield f"<td>{escape(shorten(_tell(chain, suspect), TOLD_LIMIT))}</td></tr>"


def _tell(chain: Chain, suspect: Suspect | None) -> str:
    if chain.repairs:
        told = describe_repair(chain.repairs[0])
        return f"W{told[1:]} the test passes."
    return suspect.why if suspect is not None else chain.reason or ""
