"""What all tests share."""

from __future__ import annotations

import signal

import hypothesis

pytest_plugins = ["pytester"]

# How long one example takes says nothing on a busy machine; speed is measured in tests/benchmarks.
hypothesis.settings.register_profile("causechain", deadline=None)
hypothesis.settings.load_profile("causechain")

# A shell ignores them for what it starts in the background, and tests are about them.
for sign, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(sign) is signal.SIG_IGN:
        signal.signal(sign, handler)
