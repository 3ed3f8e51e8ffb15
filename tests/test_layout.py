"""The architecture is what CONTRIBUTING.md says: imports point one way, one owner per third-party library."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "agent"
ORDER = (
    ("errors", "types", "wording", "streams"),
    ("history",),
    ("config", "events"),
    ("prompt_text",),
    ("prompts",),
    ("llm",),
    ("sandbox",),
    ("languages",),
    ("datasets",),
    ("store",),
    ("state",),
    ("nodes",),
    ("graph",),
    ("runner",),
    ("annotator",),
    ("evaluation", "sync"),
    ("views",),
    ("cli",),
    ("__main__",),
)
SANDBOX_ORDER = (
    ("base", "flights", "inside", "owner", "places", "pool", "registry", "seccomp"),
    ("channel",),
    ("interpreter",),
    ("dependencies",),
    ("commands",),
    ("mounts",),
    ("bwrap", "docker", "scripted", "session"),
    ("eras", "selfcheck"),
    ("select",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
OWNERS = {
    "langgraph": {"graph.py"},
    "langchain_openai": {"llm/openai.py"},
    "openai": {"llm/openai.py"},
    "tenacity": {"llm/openai.py"},
    "httpx2": {"llm/openai.py"},
    "langchain_core": {"llm/langchain.py", "llm/openai.py", "annotator.py"},
    "jinja2": {"prompts.py"},
    "docker": {"sandbox/docker/engine.py"},
    "uv": {"sandbox/dependencies/uv.py"},
    "numpy": {"evaluation/statistics.py"},
    "scipy": {"evaluation/statistics.py"},
    "starlette": {"views/server.py"},
    "uvicorn": {"views/server.py"},
    "typer": {"cli"},
    "rich": {"cli"},
    "rich.console": {"cli/text.py"},
}
NODES_KNOW = {
    "languages": {"base", "canonical"},
    "llm": {"parsing"},
    "sandbox": {"base", "commands"},
    **{part: set() for part in ("config", "datasets", "prompts", "store")},
}
"""What of the parts left of them nodes may import: protocols, and what reads text. Of other parts, all."""
FILES = sorted(PACKAGE.rglob("*.py"))


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that are imported when the code runs, `if TYPE_CHECKING` left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ([f"agent.{alias.name}" for alias in node.names] if node.module == "agent" else [node.module])
        yield from _imports(node)


@cache
def _imported(path: Path) -> frozenset[str]:
    return frozenset(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    part = _part(path)
    imported = {name.split(".")[1] for name in _imported(path) if name.startswith("agent.")}
    wrong = {name for name in imported if name in RANK and name != part and RANK[name] > RANK[part]}
    assert not wrong, f"{part} may not import {wrong}"


SANDBOX = PACKAGE / "sandbox"
SANDBOX_RANK = {name: rank for rank, names in enumerate(SANDBOX_ORDER) for name in names}


@pytest.mark.parametrize("path", sorted(SANDBOX.rglob("*.py")), ids=lambda path: str(path.relative_to(SANDBOX)))
def test_imports_point_one_way_within_the_sandbox_too(path: Path) -> None:
    part = path.relative_to(SANDBOX).parts[0].removesuffix(".py")
    imported = {name.split(".")[2] for name in _imported(path) if name.startswith("agent.sandbox.")} - {part}
    if part == "__init__":
        assert not imported
    wrong = {name for name in imported if SANDBOX_RANK[name] >= SANDBOX_RANK[part]}
    later = {name for name in wrong if SANDBOX_RANK[name] > SANDBOX_RANK[part] or {part, name} == {"bwrap", "docker"}}
    assert not later, f"{part} may not import {later}"


def _behind_protocols(source: str) -> set[str]:
    """Return those imports of a node that it may not have, not even for its types."""
    wrong = set()
    for node in ast.walk(ast.parse(source)):
        base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            part, *inner = f"{base}{alias.name}".removeprefix("agent.").split(".")
            if part in NODES_KNOW and not {*inner[:1]} & NODES_KNOW[part]:
                wrong.add(f"{base}{alias.name}")
    return wrong


@pytest.mark.parametrize("path", sorted((PACKAGE / "nodes").glob("*.py")), ids=lambda path: path.name)
def test_nodes_import_protocols_only(path: Path) -> None:
    assert not _behind_protocols(path.read_text(encoding="utf-8"))


CONCRETE = (
    "from agent.sandbox.docker.backend import DockerBackend",
    "import agent.sandbox.bwrap.backend",
    "from agent.sandbox import docker",
    "from agent.llm.openai import OpenAIModel",
    "from agent.languages.python import PythonLanguage",
    "if TYPE_CHECKING:\n    from agent.store import RunFolder",
)


@pytest.mark.parametrize("line", [*CONCRETE, "from agent import store", "from agent.llm.gateway import Gateway"])
def test_a_node_that_imports_an_implementation_is_found(line: str) -> None:
    assert _behind_protocols(line)


@pytest.mark.parametrize("line", [*CONCRETE, "import docker"])
@pytest.mark.parametrize(("file", "found"), [("agent/nodes/screen.py", True), ("agent/runner.py", False)])
def test_ruff_finds_such_an_import_in_nodes_alone(line: str, file: str, found: bool) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", file, "-"]
    ended = subprocess.run(ruff, input=line, capture_output=True, text=True, cwd=PACKAGE.parent)
    assert ("TID251" in ended.stdout, ended.returncode) == (found, int(found))


def test_every_part_has_a_place_in_the_order() -> None:
    assert {_part(path) for path in FILES} - {"__init__"} == set(RANK)
    inside = {path.relative_to(SANDBOX).parts[0].removesuffix(".py") for path in SANDBOX.rglob("*.py")}
    assert inside - {"__init__"} == set(SANDBOX_RANK)


@pytest.mark.parametrize("library", OWNERS)
def test_a_third_party_library_has_one_owner(library: str) -> None:
    users = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        if any(f"{name}.".startswith(f"{library}.") for name in _imported(path))
    }
    foreign = {user for user in users if user not in OWNERS[library] and user.split("/")[0] not in OWNERS[library]}
    assert not foreign, f"{library} belongs to {OWNERS[library]}, but {foreign} import it too"
