"""Every backend implements the interface and contains hostile programs."""

from __future__ import annotations

import asyncio
import signal

import pytest

from agent.errors import SandboxError
from agent.sandbox.base import Sandbox, SandboxBackend
from tests.sandbox.conftest import LIMITS, make_job, make_test_job, passes, read_outcomes


async def test_each_case_is_reported(sandbox: Sandbox) -> None:
    program = """
def test_good(): assert 1 + 1 == 2
def test_wrong(): assert 1 + 1 == 3, "arithmetic"
def test_broken(): raise KeyError("x")
async def test_async(): assert True
"""
    result = await sandbox.run(make_job(program, ["test_good", "test_wrong", "test_broken", "test_async"]))
    assert read_outcomes(result) == {
        "test_good": "passed", "test_wrong": "failed", "test_broken": "error", "test_async": "passed"
    }  # fmt: skip
    wrong = next(record for record in result.records if record.outcome == "failed")
    assert (wrong.error_type, wrong.message) == ("AssertionError", "arithmetic")
    assert (wrong.frames[-1].file, wrong.frames[-1].line) == ("program.py", 3)
    assert result.clean


async def test_output_is_captured_and_decoded(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        make_test_job(
            r"import sys, os; print('caf\u00e9'); sys.stderr.write('bad'); sys.stdout.flush(); os.write(1, b'\xff\0')"
        )
    )
    assert result.stdout == "caf\u00e9\n\ufffd\0"
    assert result.stderr == "bad"
    assert not result.truncated


async def test_output_beyond_its_cap_is_truncated(sandbox: Sandbox) -> None:
    result = await sandbox.run(make_test_job("print('x' * (1 << 20))"))
    assert passes(result, "test_a")
    assert (len(result.stdout), result.truncated) == (LIMITS.output, True)


@pytest.mark.parametrize("body", ["while True: print('x' * 1000)", "import os\nwhile True: os.write(2, b'x' * 60000)"])
async def test_a_flood_of_output_is_stopped(sandbox: Sandbox, body: str) -> None:
    result = await sandbox.run(make_test_job(body, timeout=30.0))
    assert (result.limit, result.signal, result.timed_out) == ("output", signal.SIGKILL, False)
    assert max(len(result.stdout), len(result.stderr)) == LIMITS.output
    assert not result.clean


async def test_memory_is_limited(sandbox: Sandbox) -> None:
    result = await sandbox.run(make_test_job("x = []\nwhile True: x.append(bytearray(1 << 20))"))
    assert not passes(result, "test_a")
    assert result.limit == "memory" or read_outcomes(result) == {"test_a": "error"}
    assert passes(await sandbox.run(make_test_job("pass")), "test_a")


async def test_files_persist_between_runs_of_one_sandbox_only(backend: SandboxBackend) -> None:
    first, other = await backend.acquire(), await backend.acquire()
    try:
        await first.run(make_test_job("open('/work/note', 'w').write('x'); open('/tmp/note', 'w').write('x')"))
        check = "import os\nassert os.path.exists('/work/note') and os.path.exists('/tmp/note')"
        assert passes(await first.run(make_test_job(check)), "test_a")
        assert not passes(await other.run(make_test_job(check)), "test_a")
    finally:
        await first.release()
        await other.release()


@pytest.mark.parametrize("program", ["x = '\ud800'\ndef test_a(): pass", "x = '\0'\ndef test_a(): pass", "(" * 5000])
async def test_a_program_that_does_not_compile_is_a_load_error(sandbox: Sandbox, program: str) -> None:
    result = await sandbox.run(make_job(program))
    assert [record.kind for record in result.records] == ["load", "end"]


async def test_a_command_runs_without_shell(sandbox: Sandbox) -> None:
    result = await sandbox.run_command(["echo", "$HOME", ";", "id"], 5)
    assert (result.exit_code, result.output) == (0, "$HOME ; id\n")


async def test_a_hanging_command_times_out(sandbox: Sandbox) -> None:
    assert (await sandbox.run_command(["sleep", "60"], 0.3)).timed_out


async def test_a_released_sandbox_refuses_requests(backend: SandboxBackend) -> None:
    sandbox = await backend.acquire()
    await sandbox.release()
    with pytest.raises(SandboxError):
        await sandbox.run(make_test_job("pass"))
    await sandbox.release()


async def test_cancelling_a_run_leaves_the_sandbox_releasable(backend: SandboxBackend) -> None:
    sandbox = await backend.acquire()
    running = asyncio.ensure_future(sandbox.run(make_test_job("while True: pass", timeout=60)))
    await asyncio.sleep(0.3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await sandbox.release()


async def test_a_tamper_record_names_the_changed_value(sandbox: Sandbox) -> None:
    program = """
def helper(value): return value
helper = bool
len = 3
import builtins
builtins.len = 4
def test_a(): pass
"""
    result = await sandbox.run(make_job(program, first_line="3", last_line="6"))
    messages = [record.message for record in result.records if record.kind == "tamper"]
    assert [message.split()[-1] for message in messages] == ["builtins.len", "helper"]
