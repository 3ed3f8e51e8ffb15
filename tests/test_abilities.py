"""A test session fails if a required test is skipped, and Ctrl-C interrupts it even in the background."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import pytest

{marks}
def test_skipped():
    pytest.skip("for another reason")
"""

SIGINT_TEST = """
import signal, subprocess, sys

def test_handlers():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"True\\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def session(folder: Path, *before: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with this session's configuration."""
    plugins = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin")
    command = [sys.executable, "-m", "pytest", *plugins, "-n", "1", str(folder)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1]), **changes}
    return subprocess.run([*before, *command], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.bwrap
def test_skipping_a_test_fails_the_session_when_its_marker_is_required(tmp_path: Path) -> None:
    excused = {"bwrap": ["chromium"], "both": ["bwrap", "real_data"]}
    for more, status in (({}, 0), ({"anywhere": ["bwrap"]}, 1)):
        for name, marks in {**excused, **more}.items():
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "__init__.py").touch()
            (tmp_path / name / "test_it.py").write_text(
                SKIPPED.format(marks="\n".join(f"@pytest.mark.{mark}" for mark in marks))
            )
        done = session(tmp_path, AGENT_TEST_REQUIRE="bwrap")
        assert done.returncode == status, done.stdout + done.stderr
        reported = {line.split()[-1].partition("/")[0] for line in done.stdout.splitlines() if "not allow" in line}
        assert reported == set(more)


@pytest.mark.slow
def test_sigint_interrupts_a_session_in_the_background_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SIGINT_TEST)
    done = session(tmp_path, "/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
