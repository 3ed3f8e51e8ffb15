"""A first signal stops a command, whichever thread receives it and whatever is imported; a second one exits at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])


def start(program: str, command: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program that adds a command to those of `agent`, and wait for its first line."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, command],
        env={"PYTHONPATH": f"{folder}:{ROOT}"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


ADDED = """
import asyncio, signal, threading, time
from agent.cli import main
from agent.cli.app import app
from agent.cli.interrupts import run_interruptible

@app.command()
def blocks():
    async def block():
        print("begun", flush=True)
        time.sleep(60)
    run_interruptible(block())

@app.command()
def cleans():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("cleaned", flush=True)
        time.sleep(1)

@app.command()
def waits():
    def interrupted_here():
        print("begun", flush=True)
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        threading.Event().wait()
    threading.Thread(target=interrupted_here, daemon=True).start()
    run_interruptible(asyncio.Event().wait())

@app.command()
def imports():
    print("begun", flush=True)
    import imported
    print("whole:", imported.whole, flush=True)
    time.sleep(60)

main()
"""


@BOTH
def test_the_first_raises_where_no_loop_runs_and_the_command_cleans_up(tmp_path: Path, how: signal.Signals) -> None:
    process = start(ADDED, "cleans", tmp_path)
    process.send_signal(how)
    assert process.communicate(timeout=30) == ("cleaned\n", "Interrupted.\n")
    assert process.returncode == 3


@BOTH
def test_the_second_exits_while_the_loop_is_blocked(tmp_path: Path, how: signal.Signals) -> None:
    process = start(ADDED, "blocks", tmp_path)
    process.send_signal(how)
    assert process.stderr is not None
    assert "Press Ctrl-C again" in process.stderr.readline()
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode == 3
    assert time.monotonic() - began < 10


def test_a_signal_that_another_thread_is_given_ends_work_that_waits(tmp_path: Path) -> None:
    process = start(ADDED, "waits", tmp_path)
    told = process.communicate(timeout=30)[1]
    assert (process.returncode, told.splitlines()[-1]) == (3, "Interrupted.")


# what has no name any more when a weak reference calls back is where an interrupt is printed and forgotten
IMPORTED = """
import os, signal, weakref

class Gone: pass

gone = Gone()
reference = weakref.ref(gone, lambda _: os.kill(os.getpid(), signal.SIGINT))
del gone
whole = True
"""


def test_a_signal_during_an_import_ends_the_command_after_it(tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED)
    process = start(ADDED, "imports", tmp_path)
    assert process.communicate(timeout=30) == ("whole: True\n", "Interrupted.\n")
    assert process.returncode == 3
