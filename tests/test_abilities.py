"""A test that a required ability marks may not be skipped, unless it lacks another as well; others may."""

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


@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("folder", "marks", "status"),
    [
        ("anywhere", ["bwrap"], 1),
        ("anywhere", ["chromium"], 0),
        ("bwrap", ["chromium"], 0),
        ("bwrap", ["bwrap"], 1),
        ("anywhere", ["bwrap", "real_data"], 0),
    ],
)
def test_skipping_a_test_fails_the_session_when_its_marker_is_required(
    tmp_path: Path, folder: str, marks: list[str], status: int
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").touch()
    (tmp_path / folder / "test_it.py").write_text(
        SKIPPED.format(marks="\n".join(f"@pytest.mark.{mark}" for mark in marks))
    )
    project = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", str(tmp_path)],
        cwd=tmp_path,
        env={"AGENT_TEST_REQUIRE": "bwrap", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )
    assert "1 skipped" in done.stdout, done.stdout + done.stderr
    assert done.returncode == status, done.stdout
