"""Whatever is killed whenever: the session ends as it would, and nothing is left of it.

Not for `make test`, which kills at moments that are chosen; `make soak` does this. SOAK is the number of kills."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from injection import RESULTS, Suite, assert_nothing_left

KILLS = int(os.environ.get("SOAK", "6"))
# The whole diagnosis is not of interest here: enough for all kinds of processes to be there.
SECONDS = "--cause-chain-timeout=8"


def test_kills_at_random_moments(tmp_path: Path) -> None:
    suite, chance = Suite.make(tmp_path), random.Random(KILLS)
    while suite.tally.faults < KILLS:
        with suite.session(SECONDS) as session:
            for _ in range(3):
                time.sleep(chance.expovariate(1.0))
                session.kill_any(chance)
        assert session.output.count(RESULTS) == 1, session.output
    print(f"\n{suite.tally}")
    assert suite.tally.proper == suite.tally.sessions
    assert_nothing_left(suite)
