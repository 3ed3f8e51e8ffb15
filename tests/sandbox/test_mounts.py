"""Mounts never expose sockets or the whole host, and never hide folders of the sandbox."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.mounts import Mount, check_hidden_folders, read_mounts
from agent.sandbox.select import choose
from tests.sandbox.conftest import require_backend


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """A folder with a file, readable by everybody."""
    (folder := open_folder / "shared").mkdir()
    (folder / "words.txt").write_text("seven words")
    return folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/srv", "HOST:BOX"),
        (":/data", "HOST:BOX"),
        ("relative:/data", "absolute"),
        ("/no/such/place:/data", "No such file"),
        ("/:/data", "whole host"),
        ("/dev/null:/data", "whole host"),
        ("{}:data", r"'\.\.'"),
        ("{}:/data/../tmp", r"'\.\.'"),
        ("{}:/", "/ is reserved"),
        ("{}:/tmp", "/tmp is reserved"),
        ("{}:/usr/local/lib/x", "/x is reserved"),
        ("{}:/envs/abc", "/abc is reserved"),
    ],
)
def test_a_harmful_mount_is_refused(shared: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_mounts([text.format(shared)])


def test_sockets_and_pipes_are_never_mounted(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "deep").mkdir()
    monkeypatch.chdir(shared / "deep")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("server")
        for text in (f"{shared}:/data", f"{shared}/deep/server:/data"):
            with pytest.raises(UsageError, match="socket"):
                read_mounts([text])
    Path("server").unlink()
    assert read_mounts([f"{shared}:/data"])
    os.mkfifo("fifo")
    with pytest.raises(UsageError, match="pipe"):
        read_mounts([f"{shared}:/data"])


def test_links_are_resolved_before_the_check(shared: Path) -> None:
    (shared.parent / "alias").symlink_to("/")
    with pytest.raises(UsageError, match="whole host"):
        read_mounts([f"{shared.parent}/alias:/data"])


def test_mounts_must_not_overlap(shared: Path) -> None:
    for other in ("/data", "/data/below", "/data/"):
        with pytest.raises(UsageError, match="overlaps"):
            read_mounts([f"{shared}:/data", f"{shared}:{other}"])
    assert len(read_mounts([f"{shared}:/data", f"{shared}:/database"])) == 2


def test_a_mount_does_not_hide_the_interpreter(shared: Path) -> None:
    for target in ("/opt", "/opt/python", "/opt/python/lib"):
        with pytest.raises(UsageError, match="/opt/python"):
            check_hidden_folders([Mount(shared, target)], ["/opt/python"])
    check_hidden_folders([Mount(shared, "/opt/data")], ["/opt/python"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes run as another user")
def test_a_path_that_programs_cannot_read_is_refused(shared: Path) -> None:
    (shared / "words.txt").chmod(0o600)
    with pytest.raises(UsageError, match="nobody"):
        read_mounts([f"{shared}/words.txt:/words.txt"])


async def test_bubblewrap_refuses_images() -> None:
    with pytest.raises(UsageError, match=r"sandbox\.image=python:3: bwrap"):
        await choose(SandboxConfig(backend="bwrap", image="python:3"), print)


@pytest.mark.docker
async def test_a_remote_engine_gets_no_mounts(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_backend("docker")
    monkeypatch.setattr(DockerEngine, "is_local", False)
    with pytest.raises(SandboxUnavailable, match="mount_ro"):
        await DockerBackend(mounts=[Mount(shared, "/data")]).start(print)
