"""What of the host sandboxes are shown: never a door to it, and never over what is the sandbox's own."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.mounts import Mount, read_mounts, refuse_hiding
from agent.sandbox.select import choose
from tests.sandbox.conftest import need


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """A folder that everybody may enter, with a file."""
    (folder := open_folder / "shared").mkdir()
    (folder / "words.txt").write_text("seven words")
    return folder


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/srv", "expected HOST:BOX"),
        (":/data", "expected HOST:BOX"),
        ("relative:/data", "must be an absolute path"),
        ("/no/such/place:/data", "No such file"),
        ("/:/data", "all of the host"),
        ("/dev/null:/data", "all of the host"),
        ("{}:data", "absolute path without"),
        ("{}:/data/../tmp", "absolute path without"),
        ("{}:/", "the sandbox's own"),
        ("{}:/tmp", "the sandbox's own"),
        ("{}:/usr/local/lib/x", "the sandbox's own"),
        ("{}:/envs/abc", "the sandbox's own"),
    ],
)
def test_a_mount_that_would_do_harm_is_refused(shared: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_mounts([text.format(shared)])


def test_sockets_and_pipes_are_never_shown(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "deep").mkdir()
    monkeypatch.chdir(shared / "deep")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        for text in (f"{shared}:/data", f"{shared}/deep/door:/data"):
            with pytest.raises(UsageError, match=r"socket"):
                read_mounts([text])
    Path("door").unlink()
    assert read_mounts([f"{shared}:/data"])
    os.mkfifo("pipe")
    with pytest.raises(UsageError, match="pipe"):
        read_mounts([f"{shared}:/data"])


def test_a_link_is_followed_before_it_is_judged(shared: Path) -> None:
    (shared.parent / "alias").symlink_to("/")
    with pytest.raises(UsageError, match="all of the host"):
        read_mounts([f"{shared.parent}/alias:/data"])


def test_two_mounts_do_not_share_a_place(shared: Path) -> None:
    for other in ("/data", "/data/below", "/data/"):
        with pytest.raises(UsageError, match="two mounts"):
            read_mounts([f"{shared}:/data", f"{shared}:{other}"])
    assert len(read_mounts([f"{shared}:/data", f"{shared}:/database"])) == 2


def test_a_mount_does_not_hide_the_interpreter(shared: Path) -> None:
    for box in ("/opt", "/opt/python", "/opt/python/lib"):
        with pytest.raises(UsageError, match="would hide /opt/python"):
            refuse_hiding([Mount(shared, box)], ["/opt/python"])
    refuse_hiding([Mount(shared, "/opt/data")], ["/opt/python"])


@pytest.mark.skipif(os.geteuid() != 0, reason="for another user programs see what that user sees")
def test_what_programs_may_not_read_is_refused(shared: Path) -> None:
    (shared / "words.txt").chmod(0o600)
    with pytest.raises(UsageError, match="must be readable by all"):
        read_mounts([f"{shared}/words.txt:/words.txt"])


async def test_images_are_for_docker() -> None:
    with pytest.raises(UsageError, match="bwrap runs no images"):
        await choose(SandboxConfig(backend="bwrap", image="python:3"), print)


@pytest.mark.docker
async def test_an_engine_elsewhere_is_shown_nothing(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("docker")
    monkeypatch.setattr(DockerEngine, "is_local", False)
    with pytest.raises(SandboxUnavailable, match="the Docker engine is on another"):
        await DockerBackend(mounts=[Mount(shared, "/data")]).start(print)
