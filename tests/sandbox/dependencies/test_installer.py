"""The installer believes no wheel: not its name, not its size, and it keeps its own files from them."""

from __future__ import annotations

import gc
import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies import builder_words
from agent.sandbox.dependencies.environments import Installer
from agent.sandbox.dependencies.wheel_archive import ROOM, Room
from agent.sandbox.inside import installer
from tests.sandbox.wheelhouse import make_wheel


class Place:
    """A store with wheels waiting to be installed."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.staging = folder / "staging" / "one"
        self.wheels = self.staging / "wheels"
        self.store.mkdir()
        self.wheels.mkdir(parents=True)

    def install(self, room: Room = ROOM) -> dict[str, Any]:
        job = json.loads(builder_words.installer_job(sorted(self.wheels.iterdir()), ROOM))
        return installer.main(self.store, self.staging, "key", {**job, **asdict(room)})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


ODD = {
    "nameless.egg-info/PKG-INFO": "Metadata-Version: 1.0\nVersion: 1\n",
    "forged.egg-info/PKG-INFO": "Metadata-Version: 1.0\nName: numpy\x1b]0;pwn\x07\nVersion: 9\n",
    ".lock.json/file": "",
    ".size": "0",
}


def test_the_lock_is_made_of_the_files_names_whatever_is_in_the_wheels(place: Place) -> None:
    make_wheel(place.wheels, "Odd.Name", "01.0", files=ODD)
    assert place.install() == {"installed": ["odd-name==1.0"]}
    assert json.loads((place.store / "key" / ".lock.json").read_text()) == ["odd-name==1.0"]
    assert int((place.store / "key" / ".size").read_text()) > 0


def test_a_wheel_that_cannot_be_compiled_is_installed_all_the_same(place: Place) -> None:
    make_wheel(place.wheels, "odd", files={"odd.py": "(" * 5000, "two.py": "x = 1"})
    assert place.install() == {"installed": ["odd==1.0"]}
    assert list((place.store / "key").rglob("two.*.pyc"))


@pytest.mark.parametrize("room", [Room(size=1 << 20), Room(files=50)])
def test_wheels_that_take_more_than_there_is_room_for_are_refused(place: Place, room: Room) -> None:
    make_wheel(place.wheels, "big", files={f"{number}.py": "#" * 20_000 for number in range(60)})
    refused = place.install(room)["refused"]
    assert "unpack to more than they say" in refused
    assert f"{room.size} bytes and {room.files} files are allowed" in refused
    assert not (place.store / "key").exists()


def test_no_file_is_longer_than_all_may_be_together(place: Place) -> None:
    make_wheel(place.wheels, "big", files={"big.py": "#" * 200_000})
    assert "File too large" in place.install(Room(size=100_000))["refused"]


@pytest.mark.parametrize(
    "output",
    [b"", b"\n\n", b"[]", b"7", b"[" * 30_000, b'{"installed": ', b"\xff", b"9" * 5000],
)
def test_an_answer_that_is_no_object_is_an_error_and_no_other(output: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        builder_words.last_object(b"noise\n" + output)


@pytest.mark.parametrize(
    "payload", [b'{"exit_code": 1e400}', b'{"exit_code": true}', b'{"exit_code": "0"}', b'{"exit_code": 999999}', b"{}"]
)
def test_an_exit_code_that_is_none_is_an_error_and_no_other(payload: bytes) -> None:
    with pytest.raises(ValueError, match="exit code"):
        builder_words.exit_code(payload)


@pytest.mark.parametrize("said", [{}, {"installed": 7}, {"installed": [7]}, {"refused": {}}])
def test_an_installer_that_says_neither_lock_nor_reason_is_an_error(said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no list of texts"):
        builder_words.installed(said, no_pip="none")


async def test_a_backend_says_which_wheel_there_is_no_room_for(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Installer = backend.installer  # type: ignore[attr-defined]
    monkeypatch.setattr(found, "_room", Room(size=10_000))
    wheel = make_wheel(tmp_path, "big", files={"big.py": "#" * 20_000})
    with pytest.raises(DependencyUnavailable, match=r"big-1\.0.*and 10000 are allowed"):
        await found.install([wheel], os.urandom(20).hex())


async def test_a_backend_installs_no_more_than_there_is_room_for_when_a_wheel_lies(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Installer = backend.installer  # type: ignore[attr-defined]
    monkeypatch.setattr(found, "_room", Room(size=1 << 20))
    monkeypatch.setattr(builder_words, "check_room", lambda *_: None)
    wheel = make_wheel(tmp_path, "big", files={f"{number}.py": "#" * 20_000 for number in range(60)})
    with pytest.raises(DependencyUnavailable, match="unpack to more than they say"):
        await found.install([wheel], os.urandom(20).hex())


async def test_a_backend_takes_a_wheel_of_odd_files(backend: SandboxBackend, tmp_path: Path) -> None:
    found: Installer = backend.installer  # type: ignore[attr-defined]
    key = os.urandom(20).hex()
    assert await found.install([make_wheel(tmp_path, "odd", files=ODD)], key) == ("odd==1.0",)
    found.forget(key)
    assert await found.installed(key) == ("odd==1.0",)
    await found.remove([key])


async def test_a_damaged_wheel_is_no_broken_sandbox(backend: SandboxBackend, tmp_path: Path) -> None:
    wheel = tmp_path / "bad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bad-1.0.dist-info/METADATA", "x")
    found: Installer = backend.installer  # type: ignore[attr-defined]
    with pytest.raises(DependencyUnavailable, match="could not be installed"):
        await found.install([wheel], os.urandom(20).hex())


async def test_a_builder_that_talks_nonsense_is_a_broken_sandbox(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"agent.sandbox.{backend.name}.environments.source"
    monkeypatch.setattr(module, lambda _name: "print('[' * 30000)")
    found: Installer = backend.installer  # type: ignore[attr-defined]
    gc.collect()  # what earlier tests left is not to be finalised at the bottom of this one's recursion
    with pytest.raises(SandboxError):
        await found.install([make_wheel(tmp_path, "fine")], os.urandom(20).hex())


def test_what_installs_has_so_much_memory_and_no_more(place: Place) -> None:
    source = "x = [" + "1," * 3_000_000 + "]"
    make_wheel(place.wheels, "greedy", files={"greedy.py": source, "modest.py": "x = 1"})
    done = place.install(Room(memory=200 << 20))
    assert done.get("installed") == ["greedy==1.0"], done
    compiled = {path.name.partition(".")[0] for path in (place.store / "key").glob("__pycache__/*.pyc")}
    assert compiled <= {"modest"}, "the compiler ran out of memory, as it should"
