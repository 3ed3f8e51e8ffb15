"""The architecture matches pyproject.toml: import-linter checks the layers, ruff the imports of nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONCRETE = (
    "from agent.sandbox.docker.backend import DockerBackend",
    "from agent.sandbox import docker",
    "from agent.llm.openai import OpenAIModel",
    "from agent.languages.python import PythonLanguage",
    "if TYPE_CHECKING:\n    from agent.runs.store import RunFolder",
    "import docker",
)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of a copy of the package, without the cache that other processes share."""
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    return subprocess.run([*linter, "--no-cache"], capture_output=True, text=True, cwd=folder)


def test_the_package_matches_the_import_contracts() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("types.py", "import agent.cli", "Layers of the package"),
        ("sandbox/base.py", "import agent.sandbox.select", "Layers of the sandbox"),
        ("runner.py", "import langgraph", "Modules that may import third-party libraries"),
    ],
)
def test_an_import_that_violates_a_contract_is_reported(tmp_path: Path, file: str, line: str, broken: str) -> None:
    shutil.copytree(ROOT / "agent", tmp_path / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "agent" / file).open("a") as source:
        source.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert (result.returncode, f"{broken} BROKEN" in result.stdout) == (1, True), result.stdout


@pytest.mark.parametrize("line", CONCRETE)
@pytest.mark.parametrize(
    ("file", "reported"), [("agent/pipeline/nodes/screen.py", True), ("agent/runs/runner.py", False)]
)
def test_nodes_may_not_import_implementations(line: str, file: str, reported: bool) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", file, "-"]
    result = subprocess.run(ruff, input=line, capture_output=True, text=True, cwd=ROOT)
    assert ("TID251" in result.stdout, result.returncode) == (reported, int(reported))
