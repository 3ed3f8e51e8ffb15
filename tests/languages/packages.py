"""Installs small packages with languages for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.commands import ROOT, make_environment

LUA = '''
from agent.errors import ExtraMissing, UnsupportedLanguage
from agent.languages.python.language import PythonLanguage

class Lua(PythonLanguage):
    """A language whose snippets and programs are Python."""

    name = fence = "lua"
    program_fence = "python"
    packages = None
    prompt_rules = "A case is a function named test_lua_..."

class Unusable(Lua):
    name = "unusable"

    def check_support(self):
        raise UnsupportedLanguage("install the interpreter")

class Lacking(Lua):
    name = "lacking"

    def check_support(self):
        raise ExtraMissing("languages", ImportError("no parser", name="tree_sitter"))

def make_lua():
    return Lua()
'''


def install(folder: Path, name: str, entry_points: Mapping[str, str], **modules: str) -> None:
    """Write a distribution of version 1.2 with entry points and modules to a folder."""
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = (f"{language} = {target}\n" for language, target in entry_points.items())
    (info / "entry_points.txt").write_text("[agent.languages]\n" + "".join(lines))
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)


@pytest.fixture
def lua(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the languages `lua`, `unusable` and `lacking`, and return the folder for the PYTHONPATH."""
    folder = tmp_path / "site"
    names = {"Lua": "lua_lang:make_lua", "unusable": "lua_lang:Unusable", "lacking": "lua_lang:Lacking"}
    install(folder, "lua-lang", names, lua_lang=LUA)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(__import__("sys").modules, "lua_lang", raising=False)
    return folder


def run_agent(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with the packages in `site`."""
    environment = make_environment(PYTHONPATH=f"{site}:{ROOT}", PIP_INDEX_URL="http://127.0.0.1:9/")
    command = [sys.executable, "-m", "agent", *arguments, "--json"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
