"""The architecture matches pyproject.toml: import-linter checks the layers, ruff the imports of nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parent.parent
CONCRETE = (
    "from agent.sandbox.docker.backend import DockerBackend",
    "from agent.sandbox import docker",
    "from agent.llm.openai import OpenAIModel",
    "from agent.languages.python.language import PythonLanguage",
    "if TYPE_CHECKING:\n    from agent.runs.store.run_folder import RunFolder",
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
        ("runs/runner.py", "import langgraph", "Modules that may import third-party libraries"),
    ],
)
def test_an_import_that_violates_a_contract_is_reported(tmp_path: Path, file: str, line: str, broken: str) -> None:
    shutil.copytree(ROOT / "agent", tmp_path / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "agent" / file).open("a") as source:
        source.write(f"\n{line}\n")
    result = lint_imports(tmp_path)
    assert (result.returncode, f"{broken} BROKEN" in result.stdout) == (1, True), result.stdout


@pytest.mark.parametrize(
    ("file", "reported"), [("agent/pipeline/nodes/screen.py", len(CONCRETE)), ("agent/runs/runner.py", 0)]
)
def test_nodes_may_not_import_implementations(file: str, reported: int) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--output-format", "concise"]
    result = subprocess.run(
        [*ruff, "--stdin-filename", file, "-"], input="\n".join(CONCRETE), capture_output=True, text=True, cwd=ROOT
    )
    assert (result.stdout.count("TID251"), result.returncode) == (reported, int(reported > 0))


def build_import_graph(package: str) -> dict[str, set[str]]:
    """Map each module to the modules that an import of it runs, also later: those that it names, and their packages."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    executed = {}
    for module in graph.modules:
        paths = [name.split(".") for name in (module, *graph.find_modules_directly_imported_by(module))]
        executed[module] = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)} - {module}
    return executed


def test_no_module_imports_itself_through_others() -> None:
    TopologicalSorter(build_import_graph("agent")).prepare()


@pytest.mark.parametrize(
    ("package", "files"),
    [
        ("lazy", {"a.py": "import lazy.b", "b.py": "def f():\n    from lazy import a"}),
        ("exports", {"sub/__init__.py": "from exports.sub.c import X", "sub/c.py": ""}),
    ],
)
def test_import_circles_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, files: dict[str, str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in {"__init__.py": "", **files}.items():
        (tmp_path / package / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / package / name).write_text(text)
    with pytest.raises(CycleError):
        TopologicalSorter(build_import_graph(package)).prepare()
