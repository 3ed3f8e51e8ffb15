"""A test that a required ability marks may not be skipped; others may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import pytest

@pytest.mark.{marker}
def test_skipped():
    pytest.skip("for another reason")
"""


@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("folder", "marker", "status"),
    [("anywhere", "bwrap", 1), ("anywhere", "network", 0), ("bwrap", "network", 0), ("bwrap", "bwrap", 1)],
)
def test_skipping_a_test_fails_the_session_when_its_marker_is_required(
    tmp_path: Path, folder: str, marker: str, status: int
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").touch()
    (tmp_path / folder / "test_it.py").write_text(SKIPPED.format(marker=marker))
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
