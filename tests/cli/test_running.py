"""Work that a signal ends, whichever thread is handed it and whatever is being imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WAITS = """
import asyncio, signal, threading, time
from agent.cli.running import run_interruptible

def interrupted_here():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait()

async def waits():
    await asyncio.Event().wait()

threading.Thread(target=interrupted_here, daemon=True).start()
try:
    run_interruptible(waits())
except KeyboardInterrupt:
    print("ended")
"""


def test_a_signal_that_another_thread_is_given_ends_work_that_waits() -> None:
    ended = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")


# what has no name any more when a weak reference calls back is where an interrupt is printed and forgotten
IMPORTED = """
import os, signal, weakref

class Gone: pass

gone = Gone()
reference = weakref.ref(gone, lambda _: os.kill(os.getpid(), signal.SIGINT))
del gone
whole = True
"""
IMPORTS = """
import time
from agent.cli import main
from agent.cli.app import app

@app.command()
def waits() -> None:
    import imported
    print("whole:", imported.whole, flush=True)
    time.sleep(30)

main()
"""


def test_a_signal_during_an_import_ends_the_command_after_it(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED)
    command = [sys.executable, "-c", IMPORTS, "waits"]
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "whole: True\n", "Interrupted.\n")
