"""`auto` selects the first backend that enforces every limit; a backend selected by name is never replaced."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable, UsageError
from agent.sandbox.base import Notify, SandboxLimits
from agent.sandbox.registry import suggest_remedy
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.select import BACKENDS, BackendFactory, build_limits, choose, read_moment


class Backend(ScriptedSandbox):
    """A backend that cannot enforce `unenforced`, or does not work if that is None."""

    started = closed = False

    def __init__(self, unenforced: str | None = "", reason: str = "") -> None:
        super().__init__()
        self._unenforced = unenforced
        self._reason = reason

    async def start(self, progress: Notify) -> None:  # noqa: ARG002
        if self._unenforced is None:
            raise SandboxUnavailable(self._reason)
        self.started = True

    def unenforced(self) -> Mapping[str, str]:
        return dict.fromkeys((self._unenforced or "").split(), "not here")

    async def close(self) -> None:
        self.closed = True


def make_factories(bwrap: ScriptedSandbox, docker: ScriptedSandbox) -> Mapping[str, BackendFactory]:
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
async def test_auto_prefers_bubblewrap_if_it_enforces_the_limits(
    bwrap: str | None, docker: str | None, chosen: str
) -> None:
    candidates, lines = [Backend(bwrap, "none"), Backend(docker, "no engine answers\nmore")], list[str]()
    backend = await choose(SandboxConfig(), lines.append, backends=make_factories(*candidates))
    assert backend.name == chosen
    assert [candidate for candidate in candidates if candidate.started and not candidate.closed] == [backend]
    assert candidates[1].started == (bwrap != "inodes" and docker is not None)
    assert chosen in lines[-1].partition(";")[0]
    assert ("no engine answers" in lines[-1]) == (docker is None)


async def test_auto_tries_only_docker_for_an_image() -> None:
    bwrap, docker = Backend(), Backend()
    backends = make_factories(bwrap, docker)
    assert await choose(SandboxConfig(image="ours:1"), lambda _line: None, backends=backends) is docker
    assert not bwrap.started


async def test_an_explicit_choice_never_falls_back() -> None:
    bwrap = Backend()
    backends = make_factories(bwrap, Backend(None, "no engine answers"))
    with pytest.raises(SandboxUnavailable, match=r"^no engine answers$"):
        await choose(SandboxConfig(backend="docker"), print, backends=backends)
    assert not bwrap.started


async def test_an_unknown_backend_is_refused_with_the_valid_names() -> None:
    with pytest.raises(UsageError, match=r"'podman'.*auto, bwrap, docker"):
        await choose(SandboxConfig(backend="podman"), print)


async def test_without_any_backend_the_error_has_reasons_and_remedies() -> None:
    backends = make_factories(Backend(None, "bubblewrap is not installed"), Backend(None, "no engine answers"))
    with pytest.raises(SandboxUnavailable) as raised:
        await choose(SandboxConfig(), print, backends=backends)
    remedies = suggest_remedy("docker"), suggest_remedy("bwrap")
    assert all(words in str(raised.value) for words in ("no engine", "not installed", *remedies))


def test_settings_are_converted_to_limits() -> None:
    config = SandboxConfig(memory_mb=512, processes=10, cpus=0.5, files_mb=16, output_kb=8)
    assert build_limits(config) == SandboxLimits(
        memory=512 << 20, processes=10, cpus=0.5, files=16 << 20, output=8 << 10
    )
    assert build_limits(SandboxConfig()) == SandboxLimits()


def test_every_backend_can_be_built() -> None:
    assert [build(SandboxConfig()).name for build in BACKENDS.values()] == list(BACKENDS) == ["bwrap", "docker"]


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
def test_dates_are_parsed(text: str, moment: str) -> None:
    assert read_moment(text).isoformat() == moment


@pytest.mark.parametrize("text", ["", "2016", "31.12.2016", "2016-13-01", "yesterday", "0001-01-01T00:00:00+14:00"])
def test_malformed_dates_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_moment(text)
