from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import chains
import pytest
from test_gold import REPORTERS

from pytest_causechain.model.chain import Cause, Chain, Script
from pytest_causechain.report.artefacts import encode_story, write_artefacts
from pytest_causechain.report.secrets import MASK, OBSTACLE, conceal_secrets
from pytest_causechain.report.story import make_story

SECRET = "hunter2-hunter2"
NOTHING: dict[str, str] = {}


def find_obstacle(chain: Chain) -> str | None:
    return make_story(chain).steps[0].replay.obstacle


def with_environment(*changes: tuple[str, str | None]) -> Chain:
    passing, failing = chains.wrong_output.passing, chains.wrong_output.failing
    assert passing is not None and failing is not None
    return replace(
        chains.wrong_output,
        passing=replace(passing, environment=changes),
        failing=replace(failing, environment=changes),
    )


def with_cause(cause: Cause, script: Script | None = None) -> Chain:
    link = replace(chains.wrong_output.chain[1], causes=(cause,), replay=script)
    return replace(chains.wrong_output, chain=(link,), transitions=())


@pytest.mark.parametrize("name", ["API_KEY", "github_token", "CLIENT_SECRET_2", "DB_PASSWORD"])
@pytest.mark.parametrize("reporter", REPORTERS)
def test_no_report_has_what_the_program_printed_of_them(name: str, reporter: str) -> None:
    failing = replace(chains.wrong_output.failing, outcome=f'printed "{SECRET}"', stdin=f"{SECRET}\n")
    causes = (replace(chains.wrong_output.chain[1].causes[0], failing=f'"{SECRET}"', assignment=f'x = "{SECRET}"'),)
    links = (replace(chains.wrong_output.chain[1], causes=causes),)
    chain = replace(chains.wrong_output, failing=failing, chain=links, transitions=(), reason=f"of {SECRET}")
    assert SECRET in "".join(render(chain) for render, _ in REPORTERS.values())
    assert SECRET not in REPORTERS[reporter][0](conceal_secrets(chain, {name: SECRET}))


def test_what_the_test_set_is_masked_too() -> None:
    chain = with_environment(("MY_TOKEN", SECRET), ("MODE", "fast"), ("OTHER_TOKEN", None))
    concealed = conceal_secrets(replace(chain, reason=SECRET), NOTHING)
    assert concealed.reason == MASK
    assert concealed.passing is not None
    assert concealed.passing.environment == (("MY_TOKEN", MASK), ("MODE", "fast"), ("OTHER_TOKEN", None))


def test_script_leaves_it_to_the_user(tmp_path: Path) -> None:
    chain = conceal_secrets(with_environment(("MY_TOKEN", SECRET), ("MODE", "fast")), NOTHING)
    script = (write_artefacts(chain, tmp_path) / "1.gdb").read_text()
    assert "\nset environment MODE = fast\n" in script
    assert "# The test sets MY_TOKEN, whose value is not written down: set environment MY_TOKEN = ..." in script
    assert "\nset environment MY_TOKEN" not in script


def test_environment_is_in_no_report() -> None:
    chain = with_environment(("MODE", "fast and private"))
    for reporter, (render, _) in REPORTERS.items():
        assert ("fast and private" in render(chain)) == (reporter == "scripts"), reporter


def test_cause_is_told_without_its_value() -> None:
    cause = Cause("environment API_KEY", "", '"a"', '"b"', "environment")
    text = ('causechain-text $causechain_name "API_KEY"', 'causechain-text $causechain_value "b"')
    script = Script(("frame 0", *text, "causechain-call setenv $causechain_name $causechain_value 1"))
    chain = conceal_secrets(with_cause(cause, script), NOTHING)
    assert (chain.chain[0].causes[0].passing, chain.chain[0].causes[0].failing) == (MASK, MASK)
    assert find_obstacle(chain) == OBSTACLE
    assert "setenv" not in str(encode_story(make_story(chain)))


def test_cause_without_a_telling_name_is_told() -> None:
    chain = with_cause(Cause("environment WIDTH", "", '"a"', '"b"', "environment"))
    assert conceal_secrets(chain, NOTHING) == chain


def test_script_that_writes_one_byte_by_byte_is_dropped() -> None:
    words = [SECRET.encode()[at : at + 8] for at in (0, 8)]
    stores = [f"set {{unsigned long}} ($sp + 8) = {int.from_bytes(word, 'little'):#x}" for word in words]
    chain = with_cause(Cause("text", "char *", '"a"', '"b"', "value"), Script(("frame 0", *stores)))
    assert find_obstacle(chain) is None
    assert find_obstacle(conceal_secrets(chain, {"X_TOKEN": SECRET})) == OBSTACLE


def test_short_values_stay_as_they_are_no_secrets() -> None:
    assert conceal_secrets(chains.wrong_output, {"MONKEY": "11"}) == chains.wrong_output


def test_chain_without_secrets_stays_as_it_is() -> None:
    for chain in chains.ALL.values():
        assert conceal_secrets(chain, {"HOME": "/home/me"}) == chain
