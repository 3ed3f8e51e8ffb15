"""Run the real harness in a separate process without a sandbox, only for programs of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from agent.languages.base import Program
from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import Frame, ReportLine, RunResult

_DRIVER = """
import json, os, sys
request = json.loads(sys.stdin.read())
class Job: pass
job = Job()
job.__dict__.update(request)
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def emit(kind, name="", outcome="", error_type="", message="", frames=()):
    out.write(json.dumps([kind, name, outcome, error_type, message, list(frames)]) + "\\n")
    out.flush()
space = {"__name__": "harness"}
exec(compile(request["harness"], "harness.py", "exec"), space)
space["FOLDER"] = job.work
space["main"](job, emit)
emit("end")
os._exit(0)
"""


def run(program: Program, folder: Path) -> RunResult:
    """Run a program's cases, and return the records that a sandbox would forward."""
    job = PythonLanguage().job(program, environment=None, timeout=10)
    request = {"harness": job.harness, "program": job.program, "cases": job.cases, "options": dict(job.options)}
    request["work"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
    )
    records = [_record(line) for line in done.stdout.splitlines()]
    code = done.returncode
    return RunResult(
        records=tuple(records),
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stderr=done.stderr,
    )


def _record(line: str) -> ReportLine:
    kind, name, outcome, error_type, message, frames = json.loads(line)
    return ReportLine(kind, name, outcome, error_type, message, tuple(Frame(*frame) for frame in frames))
