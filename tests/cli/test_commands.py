"""The forked `agent` of the tests handles output, signals and kills like a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.views.runs import make_pairs, make_run


def test_signals_are_forwarded_and_a_kill_leaves_no_process(commands: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_pairs(1))
    for stop_signal, code in ((signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen([commands / "agent", "review", run], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"http://")
            os.kill(process.pid, stop_signal)
            assert process.stdout.read() == b""  # no process keeps it open
        assert process.returncode == code
