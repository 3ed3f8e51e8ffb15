"""What the tests run as the command `agent` is heard, ended and killed as a process of its own is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.views.runs import make_pairs, make_run


def test_a_signal_is_handed_on_and_who_is_killed_leaves_nothing_behind(commands: Path, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_pairs(1))
    for how, code in ((signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen([commands / "agent", "review", run], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"http://")
            os.kill(process.pid, how)
            assert process.stdout.read() == b""  # so nobody holds it open
        assert process.returncode == code
