"""`auto` takes the first backend that enforces every limit; a backend asked for by name is never replaced."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.base import Progress, SandboxLimits
from agent.sandbox.registry import suggest_remedy
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.select import BACKENDS, BackendFactory, build_limits, choose, read_moment


class Backend(ScriptedSandbox):
    """Works without being able to enforce `unenforced`; does not work when that is None."""

    started = closed = False

    def __init__(self, unenforced: str | None = "", why: str = "") -> None:
        super().__init__()
        self._unenforced = unenforced
        self._why = why

    async def start(self, progress: Progress) -> None:  # noqa: ARG002
        if self._unenforced is None:
            raise SandboxUnavailable(self._why)
        self.started = True

    def unenforced(self) -> Mapping[str, str]:
        return dict.fromkeys((self._unenforced or "").split(), "not here")

    async def close(self) -> None:
        self.closed = True


def makers(bwrap: ScriptedSandbox, docker: ScriptedSandbox) -> Mapping[str, BackendFactory]:
    bwrap.name, docker.name = "bwrap", "docker"
    return {"bwrap": lambda _config: bwrap, "docker": lambda _config: docker}


@pytest.mark.parametrize(
    ("bwrap", "docker", "chosen"),
    [
        ("inodes", "", "bwrap"),
        ("memory", "inodes", "docker"),
        ("cpu", "", "docker"),
        ("seccomp", "seccomp", "docker"),
        ("memory cpu", None, "bwrap"),
        (None, "seccomp", "docker"),
    ],
)
async def test_auto_prefers_bubblewrap_where_its_limits_hold(
    bwrap: str | None, docker: str | None, chosen: str
) -> None:
    both, said = [Backend(bwrap, "none"), Backend(docker, "no engine answers\nmore")], list[str]()
    backend = await choose(SandboxConfig(), said.append, backends=makers(*both))
    assert backend.name == chosen
    assert [each for each in both if each.started and not each.closed] == [backend]
    assert both[1].started == (bwrap != "inodes" and docker is not None)
    assert said[-1].startswith(f"The sandbox is {chosen}, chosen by auto")
    assert ("docker does not work: no engine answers" in said[-1]) == (docker is None)


async def test_auto_asks_docker_alone_for_an_image() -> None:
    bwrap, docker = Backend(), Backend()
    backends = makers(bwrap, docker)
    assert await choose(SandboxConfig(image="ours:1"), lambda _line: None, backends=backends) is docker
    assert not bwrap.started


async def test_an_explicit_choice_never_falls_back() -> None:
    bwrap = Backend()
    backends = makers(bwrap, Backend(None, "no engine answers"))
    with pytest.raises(SandboxUnavailable, match=r"^no engine answers$"):
        await choose(SandboxConfig(backend="docker"), print, backends=backends)
    assert not bwrap.started


async def test_a_name_that_no_backend_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no sandbox 'podman'; there are: auto, bwrap, docker"):
        await choose(SandboxConfig(backend="podman"), print)


async def test_without_any_backend_both_reasons_and_remedies_are_named() -> None:
    backends = makers(Backend(None, "bubblewrap is not installed"), Backend(None, "no engine answers"))
    with pytest.raises(SandboxUnavailable) as raised:
        await choose(SandboxConfig(), print, backends=backends)
    remedies = suggest_remedy("docker"), suggest_remedy("bwrap")
    assert all(words in str(raised.value) for words in ("no engine", "not installed", *remedies))


def test_a_configuration_becomes_limits() -> None:
    config = SandboxConfig(memory_mb=512, processes=10, cpus=0.5, files_mb=16, output_kb=8)
    assert build_limits(config) == SandboxLimits(
        memory=512 << 20, processes=10, cpus=0.5, files=16 << 20, output=8 << 10
    )
    assert build_limits(SandboxConfig()) == SandboxLimits()


def test_every_backend_of_the_configuration_can_be_made() -> None:
    assert [make(SandboxConfig()).name for make in BACKENDS.values()] == list(BACKENDS) == ["bwrap", "docker"]


@pytest.mark.parametrize(
    ("name", "system", "words"),
    [
        ("docker", "Darwin", "colima start"),
        ("bwrap", "Darwin", "use Docker"),
        ("bwrap", "Windows", "WSL2"),
        ("docker", "Linux", "docs.docker.com"),
        ("bwrap", "Linux", "sudo apt install bubblewrap"),
    ],
)
def test_remedies_fit_the_system(name: str, system: str, words: str) -> None:
    assert words in suggest_remedy(name, system=system)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2016-12-31", "2017-01-01T00:00:00+00:00"),
        (" 20161231 ", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T12:00:00Z", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31 12:00:00", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31T23:30:00-02:00", "2017-01-01T01:30:00+00:00"),
    ],
)
def test_a_date_is_read(text: str, moment: str) -> None:
    assert read_moment(text).isoformat() == moment


@pytest.mark.parametrize("text", ["", "2016", "31.12.2016", "2016-13-01", "yesterday", "0001-01-01T00:00:00+14:00"])
def test_anything_else_is_no_date(text: str) -> None:
    with pytest.raises(UsageError):
        read_moment(text)
