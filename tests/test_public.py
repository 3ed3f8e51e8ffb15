"""The package exports its public names and imports nothing until they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import agent

ROOT = Path(__file__).parents[1]


def test_importing_the_package_imports_no_third_party_library() -> None:
    code = "import sys, agent; print([m for m in ('pydantic', 'langgraph', 'docker', 'openai') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_dir_shows_the_public_names_and_no_others() -> None:
    assert [name for name in dir(agent) if not name.startswith("__")] == sorted(agent.__all__)


@pytest.mark.parametrize("example", ["embed.py", "embed_sql.py"])
def test_extensions_import_only_public_modules(example: str) -> None:
    source = (ROOT / "examples" / example).read_text()
    assert set(re.findall(r"^(?:from|import) (agent[\w.]*)", source, re.MULTILINE)) == {"agent", "agent.extend"}


SCRIPT = """
import agent

options = agent.read_settings()
agent.annotate([], model="heuristic", rounds=3, concurrency="auto", budget=1.0, temperature=None, **options)
agent.annotate([], model="heuristic", rounds="three")  # error
agent.stream([], modle="heuristic")  # error
agent.stream([], model="m", temperature="hot")  # error
agent.Annotator(model="heuristic", unsupported="ignore")  # error
agent.Anotator(model="heuristic")  # error
"""


@pytest.mark.slow
def test_mypy_reports_misspelt_names_and_wrong_options(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", script]
    output = subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout
    reported = {int(line) for line in re.findall(r"script\.py:(\d+): error", output)}
    expected = {number for number, line in enumerate(SCRIPT.split("\n"), 1) if line.endswith("# error")}
    assert reported == expected, output
