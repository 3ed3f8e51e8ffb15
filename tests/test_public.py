"""The package exports its public names and imports nothing until they are used."""

from __future__ import annotations

import subprocess
import sys

import agent


def test_importing_the_package_imports_no_third_party_library() -> None:
    code = "import sys, agent; print([m for m in ('pydantic', 'langgraph', 'docker', 'openai') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_dir_shows_the_public_names_and_no_others() -> None:
    assert [name for name in dir(agent) if not name.startswith("__")] == sorted(agent.__all__)
