"""Turns a chain into a page: one file without scripts, for the screen, by day and by night, and for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_causechain.model.chain import Chain, Link, Party, Repair, Suspect, Trial
from pytest_causechain.model.moment import Place
from pytest_causechain.report.gdb_script import find_obstacle, name_script
from pytest_causechain.report.highlighting import split_words
from pytest_causechain.report.markup import escape, escape_block
from pytest_causechain.report.places import (
    Pointer,
    find_transition,
    locate_failure,
    locate_link,
    locate_suspect,
    name_files,
)
from pytest_causechain.report.sentences import (
    as_chain,
    name_peer,
    tell_failure,
    tell_gap,
    tell_link,
    tell_proof,
)
from pytest_causechain.report.sources import (
    ReadSource,
    choose_suspect,
    locate_file,
    read_excerpt,
    read_lines,
    show_path,
)
from pytest_causechain.report.svg import describe_scene, render_scene
from pytest_causechain.report.wording import (
    count_of,
    describe_command,
    describe_repair,
    name_run,
    name_test,
    name_variable,
    quote_argument,
    shorten,
    told_causes,
    twin_repair,
)

AROUND = 3
VALUE_LIMIT, INPUT_LIMIT, OUTCOME_LIMIT = 300, 2000, 1200
SUSPECTS_LISTED = 10
OUTCOMES = {"pass": "passed", "fail": "failed", "unresolved": "unresolved"}
STATUS = {"complete": "chain complete", "partial": "chain incomplete", "none": "no chain"}
# Nothing is fetched, whatever a program under test has put into its output.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class _View:
    """A chain and what its page depends on; `prefix` keeps the anchors of several chains on one page apart."""

    chain: Chain
    names: Mapping[str, str]
    read: ReadSource
    root: Path | None
    suspect: Suspect | None
    pointer: Pointer | None
    artefacts: Path | None = None
    prefix: str = ""


def render_page(
    chain: Chain,
    *,
    read_source: ReadSource = read_lines,
    root: Path | None = None,
    artefacts: Path | None = None,
) -> str:
    """The whole page; paths are shown relative to `root`, `artefacts` is the directory with the gdb scripts."""

    suspect = choose_suspect(chain, read_source, root)
    pointer = locate_suspect(chain, suspect) if suspect is not None else None
    view = _View(chain, name_files(chain), read_source, root, suspect, pointer, artefacts)
    body = [*_render_head(chain), "<main>", *_render_lead(view)]
    if chain.status != "none":
        body += _render_runs(view, "The two runs")
        body += _render_chain(view, "Cause-effect chain")
        body += _render_alternatives(view)
        body += _render_suspects(view)
    body += ["</main>", *_render_figures(chain)]
    return wrap_page(f"{name_test(chain.test, beside='')} - cause-effect chain", body)


def wrap_page(title: str, body: Iterable[str]) -> str:
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def _render_head(chain: Chain) -> Iterator[str]:
    yield '<a class="skip" href="#chain">Skip to the chain</a>' if chain.chain else ""
    file, _, name = chain.test.partition("::")
    yield '<header><p class="kicker"><a href="../index.html">All chains</a> / '
    yield f"{escape(file)}</p><h1>{escape(name or file)}</h1>"
    yield f'<p><span class="badge {chain.status}">{STATUS[chain.status]}</span></p></header>'


# What to know first


def _render_lead(view: _View) -> Iterator[str]:
    chain = view.chain
    if chain.status == "none":
        yield '<section class="lead" aria-labelledby="lead"><h2 id="lead">No cause-effect chain</h2>'
        yield f"<p>{escape(chain.reason or 'The reason is not known.')}</p></section>"
        return
    yield '<section class="lead" aria-labelledby="lead">'
    if chain.repairs:
        best = chain.repairs[0]
        told = describe_repair(best)
        yield f'<h2 id="lead">W{escape(told[1:])} at {_line(best, view)} the test passes.</h2>'
        yield "<p>Found by experiment: one change in the failing run, everything else as it was. "
        yield "It tells where a single change makes the difference, not which change is right.</p>"
    elif view.suspect is not None:
        yield f'<h2 id="lead">Look first at {_line(view.suspect, view)}</h2><p>{escape(view.suspect.why)}.</p>'
    else:
        yield '<h2 id="lead">Why this test fails</h2>'
    if chain.status == "partial":
        yield f"<p><strong>Incomplete:</strong> {escape(chain.reason or 'the reason is not known')}</p>"
    if view.suspect is not None:
        yield from _render_source(view, view.suspect.file, view.suspect.line)
    yield "</section>"


def _line(place: Suspect | Place | Repair, view: _View) -> str:
    return f"<code>{escape(view.names[place.file])}:{place.line}</code>"


def _render_source(view: _View, file: str, line: int, around: int = AROUND) -> Iterator[str]:
    """The lines around one, highlighted; nothing when they cannot be read."""
    path = locate_file(file, view.root)
    excerpt = read_excerpt(path, line, view.read, around)
    if excerpt is None:
        return
    # Of the whole file, so that a comment that began before is known as one.
    words = split_words(list(view.read(path)))
    label = escape(f"{show_path(path, view.root)}, line {line}")
    rows = "".join(_render_row(number, words[number - 1], number == line) for number, _ in excerpt.lines)
    yield f'<pre class="source" tabindex="0" role="region" aria-label="{label}"><code>{rows}</code></pre>'


def _render_row(number: int, words: Sequence[tuple[str, str]], is_focus: bool) -> str:
    code = "".join(_render_word(kind, text) for kind, text in words)
    focus = " focus" if is_focus else ""
    return f'<span class="row{focus}"><span class="number">{number}</span>{code}\n</span>'


def _render_word(kind: str, text: str) -> str:
    shown = "\t".join(escape(part) for part in text.split("\t"))
    name = "number-literal" if kind == "number" else kind
    return f'<span class="{name}">{shown}</span>' if kind else shown


# The two runs


def _render_runs(view: _View, title: str) -> Iterator[str]:
    chain = view.chain
    yield f'<section aria-labelledby="{view.prefix}runs"><h2 id="{view.prefix}runs">{title}</h2><div class="runs">'
    if chain.failing is not None:
        yield from _render_run("failing", "fails", chain.failing, escape(name_test(chain.failing.test, beside="")))
    if chain.passing is not None:
        yield from _render_run("passing", "passes", chain.passing, _tell_peer(view, chain.passing))
    yield "</div>"
    if chain.oracle is not None:
        yield f"<p>A run fails when {escape(chain.oracle.fails_when.rstrip('.'))}.</p>"
    if chain.passing is not None:
        yield from _render_rivals(chain.passing, chain.test)
    yield "</section>"


def _render_rivals(passing: Party, beside: str) -> Iterator[str]:
    """The other passing tests, and what speaks against each."""
    if not passing.rivals:
        return
    yield f"<details><summary>{count_of(len(passing.rivals), 'other passing test')} looked at</summary><ul>"
    for rival in passing.rivals:
        refused = f": {rival.refused}" if rival.refused is not None else ""
        yield f"<li>{escape(f'{name_test(rival.test, beside)} ({rival.why}){refused}')}</li>"
    yield "</ul></details>"


def _tell_peer(view: _View, passing: Party) -> str:
    repair = twin_repair(view.chain)
    if repair is not None:
        return f"its twin: the same run {escape(describe_repair(repair))} at {_line(repair, view)}"
    why = f" ({passing.why})" if passing.why else ""
    return escape(f"{name_run(passing, beside=view.chain.test)}{why}")


def _render_run(side: str, verb: str, party: Party, told: str) -> Iterator[str]:
    command = describe_command(Party(party.test, party.argv, party.cwd, "", ""))
    yield f'<article class="run {side}"><h3>{verb}</h3><p class="kicker">{told}</p>'
    yield f"<pre>{escape(command)}</pre>"
    if party.stdin:
        yield f'<p class="kicker">with the input</p><pre>{escape_block(shorten(party.stdin, INPUT_LIMIT))}</pre>'
    outcome = shorten(party.outcome, OUTCOME_LIMIT)
    yield f'<pre class="outcome">{escape_block(outcome)}</pre></article>'


# The links


def _render_chain(view: _View, title: str) -> Iterator[str]:
    chain = view.chain
    if not chain.chain:
        return
    yield f'<section aria-labelledby="{view.prefix}chain"><h2 id="{view.prefix}chain">{title}</h2><ol class="chain">'
    for index, link in enumerate(chain.chain):
        yield from _render_link(view, index, link)
    yield from _render_failure(view)
    yield "</ol></section>"


def _render_link(view: _View, index: int, link: Link) -> Iterator[str]:
    is_first = view.pointer is not None and view.pointer.index == index
    place = locate_link(view.chain, index)
    order = "first" if is_first else "later"
    yield f'<li class="{order}" id="{view.prefix}link-{index + 1}">'
    yield from _render_arrow(view, index)
    yield f'<div class="body"><article class="card"><h3>{escape(_sentence(view, index))}</h3>'
    function = f" in <code>{escape(place.function)}</code>" if place.function else ""
    look = _look(view) if is_first else ""
    yield f'<p class="where">{_line(place, view)}{function}{look}</p>'
    yield from _render_source(view, place.file, place.line)
    yield from _render_values(view, link)
    yield f"<p>Proof: {escape(tell_proof(view.chain, index, view.names).replace(chr(0xA0), ' '))}</p>"
    yield from _render_picture(view, link)
    yield from _render_trials(view, link)
    yield from _render_replay(view, index)
    yield f'</article><span class="step" aria-hidden="true">{index + 1}</span></div></li>'


def _sentence(view: _View, index: int) -> str:
    before = told_causes(view.chain.chain[index - 1]) if index else ()
    return begin_sentence(f"{tell_link(view.chain, index, before)}.")


def begin_sentence(text: str) -> str:
    """With a capital, unless it begins with the name of a variable."""
    is_word = text.startswith(("so ", "so,", "then ", "then,", "at the call ", "line ", "lines ", "the "))
    return text[0].upper() + text[1:] if is_word else text


def _look(view: _View) -> str:
    assert view.pointer is not None and view.suspect is not None
    where = "here" if view.pointer.exact else f"at {_line(view.suspect, view)}"
    return f' <span class="look">&larr; look {where} first</span>'


def _render_arrow(view: _View, index: int) -> Iterator[str]:
    """The transition that leads to a link."""
    transition = find_transition(view.chain, index)
    if index == 0:
        return
    if transition is None:
        yield '<p class="arrow">leads to</p>' if view.chain.chain[index].follows else '<p class="arrow">then</p>'
        return
    moved = f"the cause moves from {', '.join(transition.from_)} to {', '.join(transition.to)}"
    gap = "".join(f"; {note}" for note in tell_gap(view.chain.chain[index], transition, view.names))
    where = _line(Place(transition.file, transition.line), view)
    yield f'<p class="arrow">{where}: {escape(shorten(moved, VALUE_LIMIT) + gap)}</p>'


def _render_values(view: _View, link: Link) -> Iterator[str]:
    peer = name_peer(view.chain)
    yield '<div class="scroll"><table><thead><tr><th scope="col">variable</th><th scope="col">type</th>'
    yield f'<th scope="col">failing run</th><th scope="col">{peer}</th></tr></thead><tbody>'
    for cause in told_causes(link):
        failing, passing = (escape(shorten(text or "none", VALUE_LIMIT)) for text in (cause.failing, cause.passing))
        yield f'<tr><th scope="row"><code>{escape(name_variable(cause, VALUE_LIMIT))}</code></th>'
        yield f'<td><code>{escape(cause.type)}</code></td><td class="fails">{failing}</td>'
        yield f'<td class="passes">{passing}</td></tr>'
    yield "</tbody></table></div>"


def _render_picture(view: _View, link: Link) -> Iterator[str]:
    if link.picture is None:
        return
    yield '<details><summary>Memory around it in both states</summary><div class="scenes">'
    failing, passing = link.picture.failing, link.picture.passing
    for side, name, scene in (("failing", "failing run", failing), ("passing", name_peer(view.chain), passing)):
        label = f"Memory graph of the {name}: {describe_scene(scene)}"
        yield f'<figure><figcaption>{name}</figcaption><div class="scroll">'
        yield f"{render_scene(scene, side, label)}</div></figure>"
    yield '</div><p class="kicker">Cut corners and a thick border: the two runs differ here.</p></details>'


def _render_trials(view: _View, link: Link) -> Iterator[str]:
    if not link.trials:
        return
    yield f"<details><summary>{count_of(len(link.trials), 'experiment')} at this moment, "
    yield f"{count_of(link.differences, 'difference')} between the states</summary>"
    yield f"<p>Each is the {name_peer(view.chain)}, stopped here, given these values of the failing run, and "
    yield "resumed.</p>"
    yield '<ul class="trials">'
    yield from (_render_trial(trial) for trial in link.trials)
    yield "</ul></details>"


def _render_trial(trial: Trial) -> str:
    named = ", ".join(f"<code>{escape(shorten(name, 60))}</code>" for name in trial.variables)
    more = trial.count - len(trial.variables)
    what = (named + (f" and {more} more" if more else "")) or "nothing changed"
    return f'<li><span class="outcome {trial.outcome}">{OUTCOMES[trial.outcome]}</span> {what}</li>'


def _render_replay(view: _View, index: int) -> Iterator[str]:
    if view.artefacts is None:
        return
    name, undo = name_script(view.chain, index), name_script(view.chain, index, "passing")
    if name is None:
        yield f'<p class="kicker">No replay in gdb: {escape(find_obstacle(view.chain, index) or "")}.</p>'
        return
    yield "<details><summary>Replay it in gdb</summary><p>Starts the "
    yield f"{name_peer(view.chain)}, stops at this moment, makes the change and lets the failure happen:</p>"
    yield _render_command(view, view.artefacts / name)
    if undo is not None:
        yield "<p>And the other way round, the failing run with the passing run's values:</p>"
        yield _render_command(view, view.artefacts / undo)
    yield "</details>"


def _render_command(view: _View, script: Path) -> str:
    return f'<pre class="command">gdb -x {escape(quote_argument(show_path(script, view.root)))}</pre>'


def _render_failure(view: _View) -> Iterator[str]:
    told = tell_failure(view.chain, view.read, view.root)
    yield '<li class="end"><p class="arrow">leads to the failure</p><div class="body">'
    yield f'<article class="card"><h3>{escape(begin_sentence(told))}</h3>'
    place = locate_failure(view.chain)
    if place is not None:
        yield f'<p class="where">{_line(place, view)} in <code>{escape(place.function or "")}</code></p>'
        yield from _render_source(view, place.file, place.line)
    number = len(view.chain.chain) + 1
    yield f'</article><span class="step" aria-hidden="true">{number}</span></div></li>'


# The rest


def _render_alternatives(view: _View) -> Iterator[str]:
    others = [(n, other) for n, other in enumerate(view.chain.alternatives, start=2) if other.passing and other.chain]
    absence = view.chain.without_neighbour
    if absence is not None:
        yield f"<p>{escape(absence[:1].upper() + absence[1:])}</p>"
    if not others:
        return
    yield '<section aria-labelledby="others"><h2 id="others">Compared with other runs</h2>'
    for number, other in others:
        chain = as_chain(view.chain, other)
        inner = _View(chain, name_files(chain), view.read, view.root, None, None, prefix=f"c{number}-")
        assert other.passing is not None
        beside = name_run(other.passing, beside=view.chain.test)
        links = count_of(len(other.chain), "link")
        yield f'<details class="alternative"><summary>Beside {escape(beside)}: {links}</summary>'
        yield from _render_runs(inner, "These two runs")
        yield from _render_chain(inner, "Its chain")
        yield "</details>"
    yield "</section>"


def _render_suspects(view: _View) -> Iterator[str]:
    ranked = sorted(view.chain.suspects, key=lambda one: one.rank)[:SUSPECTS_LISTED]
    if not ranked:
        return
    yield '<section aria-labelledby="suspects"><h2 id="suspects">Where to look</h2><div class="scroll"><table>'
    yield "<caption>Ranked by repairs, then by coverage and transitions</caption><thead><tr>"
    yield '<th scope="col">line</th><th scope="col">function</th><th scope="col">why</th></tr></thead><tbody>'
    for one in ranked:
        yield f'<tr><th scope="row">{_line(one, view)}</th><td><code>{escape(one.function)}</code></td>'
        yield f"<td>{escape(shorten(one.why, VALUE_LIMIT))}</td></tr>"
    yield "</tbody></table></div></section>"


def _render_figures(chain: Chain) -> Iterator[str]:
    statistics = chain.statistics
    experiments = statistics.experiments
    figures = [
        ("interventions", f"{statistics.interventions:,}"),
        ("experiments", f"{experiments.total:,}"),
        ("passed / failed / unresolved", f"{experiments.pass_} / {experiments.fail} / {experiments.unresolved}"),
        ("moments tried, usable", f"{statistics.moments.tried} / {statistics.moments.transferable}"),
        ("values in a state", f"{statistics.vertices:,}"),
        ("seconds", f"{statistics.seconds.total:.1f}"),
    ]
    yield '<footer><dl class="figures">'
    yield from (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    yield "</dl><p>Every statement above was established by running the real program with its state altered, "
    yield 'and judging how it ended. All data: <a href="chain.json">chain.json</a>. '
    yield "Made by pytest-causechain.</p></footer>"
