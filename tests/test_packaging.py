"""The package works as a wheel outside its repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.corpus.answers import ANSWER
from agent.pipeline.graph import collect_known_roles

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next(folder.glob("*.whl"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "site"), wheel]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def run(installed: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=installed.parent, env=environment, check=True, capture_output=True, text=True
    ).stdout


FIND = "from agent.config import find_data_folder; print(find_data_folder({!r}))"
REQUIREMENT = "from agent.sandbox.dependencies.imports import find_requirement; print(find_requirement('yaml'))"


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("import agent; print(agent.__file__)", "{}/agent/__init__.py"),
        *((FIND.format(name), f"{{}}/agent/_data/{name}") for name in ("prompts", "graphs", "sandbox_images")),
        (REQUIREMENT, "pyyaml"),
    ],
)
def test_modules_data_folders_and_import_map_come_from_the_wheel(installed: Path, code: str, printed: str) -> None:
    assert run(installed, "-c", code).strip() == printed.format(installed)


def test_graphs_and_prompts_of_the_wheel_work(installed: Path) -> None:
    assert run(installed, "-m", "agent", "graph", "full").startswith("flowchart LR")
    code = "from agent.pipeline.prompts import Prompts; print(*Prompts().hash_templates())"
    roles = {role.template for role in (*collect_known_roles(), ANSWER)}
    assert set(run(installed, "-c", code).split()) == {"reask", *roles}


def test_the_wheel_contains_the_files_for_sandboxes(installed: Path) -> None:
    names = {path.name for path in (installed / "agent/sandbox/inside").iterdir()}
    assert {"supervisor.py", "python_harness.py", "python_guard.py", "environment_store.py"} <= names
    assert (installed / "agent/py.typed").is_file()


def test_the_wheel_contains_the_pages_with_scripts_and_charting_library(installed: Path) -> None:
    code = (
        "from agent.views.pages import load_review_parts, render_head, render_tail; "
        "parts = [*render_head('', {}, iter(())), *render_tail(iter(())), *"
        "(part for _, part in load_review_parts().values())]; "
        "print(sum(map(len, parts)))"
    )
    assert int(run(installed, "-c", code)) > 1_000_000
    assert (installed / "agent/views/assets/plotly-LICENSE.txt").is_file()


def test_the_wheel_contains_the_rules_for_queries(installed: Path) -> None:
    program = "from agent.corpus.queries import load_rules; print(len(load_rules('cosqa')))"
    assert int(run(installed, "-c", program)) > 100
