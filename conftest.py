"""What all tests share."""

from __future__ import annotations

import hypothesis

pytest_plugins = ["pytester"]

# How long one example takes says nothing on a busy machine; speed is measured in tests/benchmarks.
hypothesis.settings.register_profile("causechain", deadline=None)
hypothesis.settings.load_profile("causechain")
