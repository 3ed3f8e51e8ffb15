"""The first signal stops a command in any thread and during imports. The second one exits at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

BOTH = pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
PROGRAM = """
import asyncio, signal, sys, threading, time
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
        print("cleaned")

@app.command()
def waits():
    def interrupt_this_thread():
        time.sleep(0.5)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        threading.Event().wait()
    print("begun", flush=True)
    threading.Thread(target=interrupt_this_thread, daemon=True).start()
    run_interruptible(asyncio.Event().wait())

@app.command()
def starts():
    create = asyncio.SelectorEventLoop.__init__
    def interrupt_and_create(*args):
        signal.raise_signal(signal.SIGINT)
        create(*args)
    asyncio.SelectorEventLoop.__init__ = interrupt_and_create
    print("begun", flush=True)
    run_interruptible(asyncio.Event().wait())

class Interrupting:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

@app.command()
def finalizes():
    print("begun", flush=True)
    Interrupting()
    time.sleep(60)

@app.command()
def imports():
    print("begun", flush=True)
    try:
        import imported
        time.sleep(60)
    finally:
        print("whole:", sys.modules["imported"].whole)

main()
"""
# Python prints and drops an exception in the callback of a weak reference
IMPORTED = """
import os, signal, weakref
class Gone: pass
gone = Gone()
reference = weakref.ref(gone, lambda _: os.kill(os.getpid(), signal.SIGINT))
del gone
whole = True
"""


def start(command: str, folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, command], env={"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@BOTH
def test_first_signal_outside_a_loop_raises_and_cleans_up(tmp_path: Path, stop_signal: signal.Signals) -> None:
    process = start("cleans", tmp_path)
    process.send_signal(stop_signal)
    assert (*process.communicate(timeout=30), process.returncode) == ("cleaned\n", "Interrupted.\n", 3)


@BOTH
def test_second_signal_exits_while_the_loop_is_blocked(tmp_path: Path, stop_signal: signal.Signals) -> None:
    process = start("blocks", tmp_path)
    process.send_signal(stop_signal)
    assert process.stderr is not None
    assert "Ctrl-C" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(stop_signal)
    assert process.wait(timeout=30) == 3


@pytest.mark.parametrize(
    ("command", "out"), [("waits", ""), ("starts", ""), ("finalizes", ""), ("imports", "whole: True\n")]
)
def test_signal_in_a_thread_new_loop_finalizer_or_import_ends_the_command(
    tmp_path: Path, command: str, out: str
) -> None:
    (tmp_path / "imported.py").write_text(IMPORTED)
    process = start(command, tmp_path)
    shown, err = process.communicate(timeout=30)
    assert (shown, err.splitlines()[-1], process.returncode) == (out, "Interrupted.", 3)
    assert err.count("\n") == (2 if command in ("waits", "starts") else 1)  # a loop announces that it stops
