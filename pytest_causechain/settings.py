"""What the user can set, on the command line or in the ini file."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import pytest

from pytest_causechain.model.isolation import USUAL, Bounds, Precautions, Wish


@dataclass(frozen=True, slots=True)
class Settings:
    """`timeout_seconds` is for each failing test, `most_tests` how many of them are diagnosed. `libraries` are
    patterns for shared libraries that count as the program's own code; `sarif` and `gitlab` are files for reports of
    these kinds. `jobs` is how many workers there are where pytest-xdist has none, None as many as processors."""

    timeout_seconds: float = 60.0
    most_tests: int = 10
    directory: Path = Path(".causechain")
    neighbour: str | None = None
    libraries: tuple[str, ...] = ()
    sarif: Path | None = None
    gitlab: Path | None = None
    precautions: Precautions = USUAL
    jobs: int | None = None


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    kind: type
    metavar: str
    help: str


DEFAULTS = Settings()
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OPTIONS = (
    _Option(
        "timeout",
        float,
        "SECONDS",
        f"time for the diagnosis of each failing test (default {DEFAULTS.timeout_seconds:g})",
    ),
    _Option("max", int, "N", f"failing tests to diagnose (default {DEFAULTS.most_tests})"),
    _Option("dir", str, "DIR", f"directory for chains and gdb scripts (default {DEFAULTS.directory} in rootdir)"),
    _Option("sarif", str, "FILE", "write the chains as SARIF 2.1.0, as code scanning reads it"),
    _Option("gitlab", str, "FILE", "write the chains as a code quality report of GitLab"),
    _Option("jobs", int, "N", "workers for experiments where pytest-xdist has none (default: number of processors)"),
    _Option("neighbour", str, "NODEID", "the passing test to compare with (default: the nearest one)"),
)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("cause-chain", "cause-effect chains of failing native programs")
    group.addoption(
        "--cause-chain",
        action="store_true",
        default=None,
        help="find out by experiments why a native program fails its test, and say so in the failure report",
    )
    parser.addini("cause_chain", "same as --cause-chain", type="bool", default=False)
    for option in OPTIONS:
        group.addoption(
            f"--cause-chain-{option.name}", type=option.kind, metavar=option.metavar, default=None, help=option.help
        )
        parser.addini(f"cause_chain_{option.name}", f"same as --cause-chain-{option.name}", default=None)
    parser.addini(
        "cause_chain_isolation",
        "keep experiments away from the user's files, the network and other processes: auto (as far as the system "
        "allows), require (or not at all), off",
        default=USUAL.isolation,
    )
    parser.addini(
        "cause_chain_limits",
        "what one experiment may use, such as memory=500M output=1M stack=16M processes=10 seconds=5 cpu=2 (default: a "
        "multiple of what the original runs use)",
        type="args",
        default=[],
    )
    parser.addini(
        "cause_chain_libraries",
        "shared libraries, built with -g, that --cause-chain looks into as into the program itself: file names such as "
        "libfoo.so, with wildcards, or paths from rootdir",
        type="args",
        default=[],
    )


def is_wanted(config: pytest.Config) -> bool:
    given = config.getoption("cause_chain")
    return bool(_read_ini(config, "cause_chain", "true or false") if given is None else given)


def read_settings(config: pytest.Config) -> Settings:
    """UsageError of pytest for what cannot be understood."""
    timeout, most, jobs = (_read_number(config, name) for name in ("timeout", "max", "jobs"))
    directory, neighbour, sarif, gitlab = (_read_text(config, name) for name in ("dir", "neighbour", "sarif", "gitlab"))
    return Settings(
        timeout_seconds=DEFAULTS.timeout_seconds if timeout is None else timeout,
        most_tests=DEFAULTS.most_tests if most is None else int(most),
        directory=config.rootpath / (directory or DEFAULTS.directory),
        neighbour=neighbour,
        libraries=_read_libraries(config),
        sarif=config.rootpath / sarif if sarif else None,
        gitlab=config.rootpath / gitlab if gitlab else None,
        precautions=_read_precautions(config),
        jobs=None if jobs is None else int(jobs),
    )


def find_cache(config: pytest.Config) -> Path | None:
    """Where what is to be known in later sessions is kept, if anywhere."""
    cache = getattr(config, "cache", None)
    try:
        return None if cache is None else Path(cache.mkdir("causechain"))
    except OSError:
        return None  # pytest itself warns of a cache directory that cannot be written


def _read_precautions(config: pytest.Config) -> Precautions:
    isolation = config.getini("cause_chain_isolation")
    if isolation not in get_args(Wish):
        raise pytest.UsageError(f"cause_chain_isolation must be auto, require or off, not {isolation!r}.")
    try:
        return Precautions(isolation, read_bounds(config.getini("cause_chain_limits")))
    except ValueError as error:
        raise pytest.UsageError(f"cause_chain_limits: {error}.") from None


def read_bounds(words: Sequence[str]) -> Bounds:
    """From words such as memory=500M; a ValueError says what is wrong with one."""
    kinds = {field.name: float if "float" in str(field.type) else int for field in fields(Bounds)}
    found: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        number = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", value.strip(), re.IGNORECASE)
        if name not in kinds or number is None or float(number[1]) == 0:
            raise ValueError(f"{word!r} is none of {', '.join(f'{name}=NUMBER' for name in kinds)}")
        found[name] = kinds[name](float(number[1]) * UNITS[number[2].upper()])
    return Bounds(**found)


def _read_libraries(config: pytest.Config) -> tuple[str, ...]:
    """A path holds wherever the engine runs; a file name stays one."""
    patterns = _read_ini(config, "cause_chain_libraries", "a list of file names")
    return tuple(str(config.rootpath / pattern) if "/" in pattern else pattern for pattern in patterns)


def _read_ini(config: pytest.Config, name: str, wanted: str) -> Any:
    try:
        return config.getini(name)
    except (ValueError, pytest.UsageError) as error:  # which one depends on pytest's version
        raise pytest.UsageError(f"{name} must be {wanted} ({error}).") from None


def _read_text(config: pytest.Config, name: str) -> str | None:
    """From the command line, else from the ini file."""
    value = config.getoption(f"cause_chain_{name}")
    if value is None:
        value = config.getini(f"cause_chain_{name}") or None
    return None if value is None else str(value)


def _read_number(config: pytest.Config, name: str) -> float | None:
    text, kind = _read_text(config, name), next(option.kind for option in OPTIONS if option.name == name)
    if text is None:
        return None
    try:
        number = int(text) if kind is int else float(text)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"cause_chain_{name} must be {noun}, not {text!r}.") from None
    if not 0 < number < math.inf:
        raise pytest.UsageError(f"cause_chain_{name} must be greater than 0 and finite, not {number}.")
    return number
