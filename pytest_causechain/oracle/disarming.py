"""Keeps options of the user's command line from taking effect a second time.

They are changed after parsing: leaving them out would need to know how each plugin spells them, and blocking a
plugin instead (-p no:...) would make its other options unknown.
"""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

import pytest

DISARMED: dict[str, object] = {
    # Files written at the end of a session, or emptied at its start.
    "xmlpath": None,
    "htmlpath": None,
    "report_log": None,
    "json_report": False,
    "allure_report_dir": None,
    "debug": None,
    "pastebin": None,
    # An option that is not set gives way to the ini file's.
    "log_file": os.devnull,
    "cov_source": [],
    "no_cov": True,
    "cacheclear": False,
    # Other processes.
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "distload": False,
    "tx": [],
    "looponfail": False,
    "forked": False,
    # Which tests are run, in which order, how often, and when to stop.
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "stepwise_skip": False,
    "stepwise_reset": False,
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "pyargs": False,
    "reruns": None,
    "maxfail": 0,
    "collectonly": False,
    "setuponly": False,
    "setupplan": False,
    "setupshow": False,
    # Questions to a user who is not there.
    "usepdb": False,
    "trace": False,
    # A diagnosis within the diagnosis.
    "cause_chain": False,
    # How failures are shown; the more there is to show, the longer each verdict takes.
    "verbose": 0,
    "tbstyle": "short",
    "color": "no",
    "durations": None,
}


def disarm_options(options: Namespace, basetemp: str) -> None:
    for name, value in DISARMED.items():
        if hasattr(options, name):
            setattr(options, name, value)
    # A session empties its base directory, and one that chooses it itself removes those of earlier sessions.
    options.basetemp = basetemp


def disarm_cache() -> None:
    """Lets the session read what pytest keeps between sessions, while what it writes is forgotten with it.

    On the class: plugins write to it as soon as there is one."""
    written: dict[str, Any] = {}
    read = pytest.Cache.get

    def get(cache: pytest.Cache, key: str, default: Any) -> Any:
        return written[key] if key in written else read(cache, key, default)

    def set_(cache: pytest.Cache, key: str, value: object) -> None:
        written[key] = value

    pytest.Cache.get, pytest.Cache.set = get, set_  # type: ignore[method-assign, assignment]
