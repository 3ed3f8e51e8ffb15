"""Work that a signal ends, whichever thread the system hands the signal to."""

from __future__ import annotations

import subprocess
import sys

WAITS = """
import asyncio, signal, threading, time
from agent.cli.running import to_its_end

def interrupted_here():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait()

async def waits():
    await asyncio.Event().wait()

threading.Thread(target=interrupted_here, daemon=True).start()
try:
    to_its_end(waits())
except KeyboardInterrupt:
    print("ended")
"""


def test_a_signal_that_another_thread_is_given_ends_work_that_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")
