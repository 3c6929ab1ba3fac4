"""What all tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import execnet
import hypothesis
import pytest

pytest_plugins = ["pytester"]

# How long one example takes says nothing on a busy machine; speed is measured in benchmarks/speed.
hypothesis.settings.register_profile("causechain", deadline=None)
hypothesis.settings.load_profile("causechain")
# For what reads what others said: FUZZ is the number of examples of each.
hypothesis.settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("FUZZ", "15")),
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)

# A shell ignores them for what it starts in the background, and tests are about them.
for sign, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(sign) is signal.SIG_IGN:
        signal.signal(sign, handler)


@pytest.fixture
def socket_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The spec of a gateway to another process that listens, as execnet's script does on another machine."""
    script = Path(execnet.__file__).parent / "script" / "socketserver.py"
    server = subprocess.Popen(
        [sys.executable, "-u", script, "127.0.0.1:0"],
        cwd=tmp_path_factory.mktemp("server"),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with server:
        assert server.stdout is not None
        line = next(line for line in server.stdout if "Accept" in line)
        port = line.strip().rstrip(")").rpartition(" ")[2]
        yield f"socket=127.0.0.1:{port}"
        os.killpg(server.pid, signal.SIGKILL)
