"""Takes secrets out of a chain before anybody reads it: what variables of the environment with telling names hold."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_causechain.model.chain import Cause, Chain, Link, Party, Script

MASK = "***"
TELLING = re.compile("KEY|TOKEN|SECRET|PASSWORD|PASSWD", re.IGNORECASE)
# A shorter value, such as "1", stands in many texts that have nothing to do with it.
SHORTEST = 6
OBSTACLE = "a secret belongs to it, which is not written down"
VARIABLE = "environment "
# A command that stores bytes: their number by the unit, and their value.
STORE = re.compile(r"set \{unsigned (long|int|short|char)\} .* = 0x([0-9a-f]+)$")
SIZES = {"long": 8, "int": 4, "short": 2, "char": 1}


def is_secret(name: str) -> bool:
    return TELLING.search(name) is not None


def conceal_secrets(chain: Chain, environment: Mapping[str, str]) -> Chain:
    """The chain with a mask wherever such a value stands, be it of the session's own `environment` or of what a test
    set; scripts that would need one are dropped."""
    named = [*environment.items(), *_changes(chain)]
    values = {value for name, value in named if value is not None and is_secret(name)}
    found = sorted((value for value in values if len(value) >= SHORTEST), key=len, reverse=True)
    masked = _mask(chain, re.compile("|".join(map(re.escape, found))) if found else None)
    assert isinstance(masked, Chain)
    is_changed = _inputs(masked.passing) != _inputs(chain.passing) or _inputs(masked.failing) != _inputs(chain.failing)
    links = tuple(
        _drop_scripts(link) if is_changed or link.causes != original.causes or _holds(original, found) else link
        for link, original in zip(masked.chain, chain.chain, strict=True)
    )
    return dataclasses.replace(masked, test=chain.test, chain=links)


def _inputs(party: Party | None) -> tuple[str, ...]:
    return () if party is None else (*party.argv, party.stdin)


def _drop_scripts(link: Link) -> Link:
    """One with a mask in it would do something else."""
    return dataclasses.replace(link, replay=Script(obstacle=OBSTACLE), undo=Script(obstacle=OBSTACLE))


def _changes(chain: Chain) -> Iterable[tuple[str, str | None]]:
    parties = (chain.failing, chain.passing, *(other.passing for other in chain.alternatives))
    return [change for party in parties if party is not None for change in party.environment]


def _conceal_cause(cause: Cause) -> Cause:
    if cause.kind != "environment" or not is_secret(cause.variable.removeprefix(VARIABLE)):
        return cause
    passing, failing = (MASK if text else "" for text in (cause.passing, cause.failing))
    return dataclasses.replace(cause, passing=passing, failing=failing)


def _holds(link: Link, values: Sequence[str]) -> bool:
    """Whether a script of the link has one among what it writes."""
    scripts = [script for script in (link.replay, link.undo) if script is not None]
    return any(value in text for script in scripts for text in _texts(script) for value in values)


def _texts(script: Script) -> tuple[str, ...]:
    stores = [found for command in script.commands if (found := STORE.fullmatch(command))]
    written = b"".join(int(found[2], 16).to_bytes(SIZES[found[1]], "little") for found in stores)
    return (*script.commands, script.stdin or "", written.decode("utf-8", "surrogateescape"))


def _mask(value: object, secrets: re.Pattern[str] | None) -> object:
    if isinstance(value, Cause):
        value = _conceal_cause(value)
    elif isinstance(value, Party):
        changes = ((name, MASK if text is not None and is_secret(name) else text) for name, text in value.environment)
        value = dataclasses.replace(value, environment=tuple(changes))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _mask(getattr(value, field.name), secrets) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if isinstance(value, tuple):
        return tuple(_mask(item, secrets) for item in value)
    return secrets.sub(MASK, value) if secrets is not None and isinstance(value, str) else value
