"""The backend finds bubblewrap and Python, and errors about missing parts name a remedy."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import SandboxUnavailable
from agent.sandbox import interpreter
from agent.sandbox.bwrap import process as bwrap_process
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.bwrap.folders import BwrapFolders
from agent.sandbox.bwrap.process import Bubblewrap, diagnose
from agent.sandbox.interpreter import find_interpreter


async def test_a_missing_bubblewrap_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        await BwrapBackend(store=tmp_path).start(lambda _line: None)


@pytest.fixture
def broken_bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a bubblewrap on the PATH that lacks permissions."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    for path in (tmp_path, folder, script):
        path.chmod(0o755)
    # pytest makes its folders private, and xdist adds another folder
    for path in tmp_path.parents:
        if path.is_relative_to(tempfile.gettempdir()) and path != Path(tempfile.gettempdir()):
            path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.usefixtures("broken_bwrap")
async def test_a_forbidden_bubblewrap_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace\n.*max_user_namespaces"):
        await BwrapBackend(store=tmp_path / "store").start(lambda _line: None)


@pytest.mark.parametrize(
    ("stderr", "restricted", "words"),
    [
        ("bwrap: Unknown option --size", False, "0.7"),
        ("bwrap: setting up uid map: Permission denied", True, "/etc/apparmor.d/bwrap"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", True, "/etc/apparmor.d/bwrap"),
        ("bwrap: Creating new namespace failed: No space left on device", False, "max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", False, "systempaths=unconfined"),
        ("bwrap: who knows", False, "bwrap --unshare-all"),
    ],
)
def test_each_problem_has_a_remedy(stderr: str, restricted: bool, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_process, "_is_restricted_by_apparmor", lambda: restricted)
    assert words in diagnose(stderr)


async def test_a_store_that_is_not_writable_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxUnavailable, match=str(tmp_path / "file")):
        await asyncio.to_thread(BwrapFolders, tmp_path / "file", await asyncio.to_thread(find_interpreter))


def test_the_sandboxs_user_can_run_the_interpreter() -> None:
    python = find_interpreter()
    process = subprocess.run(
        [python.path, "-I", "-c", "import json, sys; print(json.dumps(sys.version_info[:3]))"],
        capture_output=True, cwd="/", check=True, **interpreter.as_unprivileged(),
    )  # fmt: skip
    assert ".".join(map(str, json.loads(process.stdout))) == python.version
    assert python.version.startswith(f"{python.tag.version}.")


def test_a_missing_interpreter_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_list_candidates", lambda _python: [Path("/bin/false"), Path("/no/python3")])
    with pytest.raises(SandboxUnavailable, match="apt install python3"):
        find_interpreter()


def test_a_tmpfs_does_not_hide_an_interpreter_below_it(tmp_path: Path) -> None:
    python = replace(find_interpreter(), folders=("/tmp/python",))
    command = Bubblewrap("bwrap", (0, 8, 0), python, tmp_path).build_arguments(
        ["true"], read_only={}, tmpfs={"/tmp": 1000}, writable={}
    )
    assert command.index("/tmp/python") > command.index("/tmp")
    assert command[command.index("/tmp") - 3 : command.index("/tmp")] == ["--size", "1000", "--tmpfs"]


def test_the_interpreters_pip_settings_are_hidden(tmp_path: Path) -> None:
    prefix = tmp_path / "python"
    prefix.mkdir()
    (prefix / "pip.conf").write_text("[global]\nindex-url = https://me:secret@index.example/simple\n")
    python = replace(find_interpreter(), folders=(str(prefix),))
    words = Bubblewrap("bwrap", (0, 8, 0), python, tmp_path / "etc").build_arguments(
        [], read_only={}, tmpfs={}, writable={}
    )
    index = words.index(str(prefix / "pip.conf"))
    assert words[index - 2 : index] == ["--ro-bind", str(tmp_path / "etc" / "ld.so.cache")]


def test_nested_user_namespaces_are_disabled_if_bubblewrap_supports_it(tmp_path: Path) -> None:
    python = find_interpreter()
    commands = [
        Bubblewrap("bwrap", version, python, tmp_path).build_arguments([], read_only={}, tmpfs={}, writable={})
        for version in ((0, 7, 0), (0, 8, 0), (1, 0))
    ]
    assert ["--disable-userns" in command for command in commands] == [False, True, True]
