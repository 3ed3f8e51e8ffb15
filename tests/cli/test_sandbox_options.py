"""Sandbox options with real programs on each backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.config import SandboxConfig
from agent.sandbox.dependencies.store import HasStore, discard
from agent.sandbox.select import choose
from tests.cli.commands import Commands
from tests.sandbox.wheelhouse import make_wheel

BACKENDS = [pytest.param("bwrap", marks=pytest.mark.bwrap), pytest.param("docker", marks=pytest.mark.docker)]

READS = """
import os


def refused(act):
    try:
        act()
    except OSError:
        return True
    return False


def test_it_can_be_read():
    assert open("/data/words.txt").read() == "seven words"
    assert open("/single.txt").read() == "seven words"


def test_it_cannot_be_written():
    assert refused(lambda: open("/data/words.txt", "a"))
    assert refused(lambda: open("/single.txt", "a"))
    assert refused(lambda: open("/data/new", "w"))
    assert refused(lambda: os.remove("/data/words.txt"))
    assert refused(lambda: os.chmod("/data/words.txt", 0o600))
    assert refused(lambda: os.rename("/data", "/other"))


def test_links_lead_nowhere():
    assert sorted(os.listdir("/data")) == ["above", "out", "words.txt"]
    assert refused(lambda: open("/data/out"))
    assert refused(lambda: open("/data/above"))


def test_the_mount_itself_is_read_only():
    [line] = [line.split() for line in open("/proc/self/mountinfo") if line.split()[4] == "/data"]
    assert "ro" in line[5].split(",")
"""


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """A folder with a world-writable file and links out of the folder."""
    (folder := open_folder / "shared").mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "words.txt").write_text("seven words")
    (folder / "words.txt").chmod(0o666)
    (open_folder / "secret.txt").write_text("secret")
    (folder / "out").symlink_to(open_folder / "secret.txt")
    (folder / "above").symlink_to("../secret.txt")
    return folder


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_read_mounts_only(agent: Commands, shared: Path, backend: str) -> None:
    mounts = ("-c", f"sandbox.mount_ro=[{shared}:/data, {shared}/words.txt:/single.txt]")
    result = agent("exec", agent.write("t.py", READS), "--sandbox", backend, *mounts, "--json")
    assert result.code == 0, (result.out, result.err)
    assert (shared / "words.txt").read_text() == "seven words"


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_limit_is_applied(agent: Commands, backend: str) -> None:
    program = agent.write("t.py", "def test_it():\n    assert len(bytearray(200 << 20))\n")
    assert agent("exec", program, "--sandbox", backend, "-c", "sandbox.memory_mb=100").code == 1
    assert agent("exec", program, "--sandbox", backend, "-c", "sandbox.memory_mb=400").code == 0


@pytest.fixture
def index(open_folder: Path, tmp_path: Path) -> dict[str, str]:
    """pip's settings for a folder with two versions of one distribution, and with two distributions in the map."""
    for version in ("1.0", "2.0"):
        make_wheel(open_folder, "ourowntool", version)
    make_wheel(open_folder, "attrs", files={"attr.py": ""})
    make_wheel(open_folder, "protobuf", files={"google/protobuf/message.py": ""})
    cache = str(tmp_path / "cache")
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(open_folder), "PIP_CONFIG_FILE": "/dev/null"}
    return {**settings, "PIP_EXTRA_INDEX_URL": "", "XDG_CACHE_HOME": cache}


@pytest.fixture(params=BACKENDS)
async def backend_name(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Each backend. Afterwards the test's distributions are removed from its store."""
    name: str = request.param
    yield name
    backend = await choose(SandboxConfig(backend=name, pool=0), lambda _line: None)
    assert isinstance(backend, HasStore)
    stored = await backend.store.list_environments()
    await discard(
        backend.store,
        [entry for entry in stored if {"ourowntool==1.0", "attrs==1.0", "protobuf==1.0"} & {*entry.installed}],
    )
    await backend.close()


def test_packages_of_the_requirements_file_are_installed(
    agent: Commands, index: dict[str, str], backend_name: str
) -> None:
    source = "import ourowntool\n\n\ndef test_it():\n    assert ourowntool.VERSION == '1.0'\n"
    names = agent.write("requirements.txt", "ourowntool<2  # in neither the import map nor an index\n")
    program = agent.write("t.py", source)
    result = agent("exec", program, "--sandbox", backend_name, "--requirements", names, "--json", **index)
    assert result.code == 0, (result.out, result.err)
    assert result.json["installed"] == ["ourowntool==1.0"]
    assert result.json["environment"]


@pytest.mark.parametrize(
    ("code", "status", "installed"),
    [
        ("from google.protobuf import message\n", "passed", ["protobuf==1.0"]),
        ("import attr\ndef load():\n    import MySQLdb\n", "passed", ["attrs==1.0"]),
        ("import attr, MySQLdb\n", "error", ["attrs==1.0"]),
    ],
)
def test_packages_of_missing_modules_are_installed_as_far_as_possible(
    agent: Commands, index: dict[str, str], backend_name: str, code: str, status: str, installed: list[str]
) -> None:
    program = agent.write("t.py", "# <candidate>\ndef test_a():\n    assert f() == 2\n")
    snippet = agent.write("code.py", f"{code}def f():\n    return 2\n")
    report = agent("exec", program, "--code", snippet, "--sandbox", backend_name, "--json", **index).json
    assert (report["status"], report["installed"]) == (status, installed)
    assert report["cause"] == (None if status == "passed" else "dependency")
    assert ("mysqlclient" in report["message"]) == (status == "error")


@pytest.mark.bwrap
def test_unavailable_requirements_end_the_command(agent: Commands, index: dict[str, str]) -> None:
    program = agent.write("t.py", "def test_it():\n    pass\n")
    names = agent.write("requirements.txt", "nosuchthing\n")
    agent.check_refused("nosuchthing", "exec", program, "--sandbox", "bwrap", "--requirements", names, **index)


@pytest.mark.bwrap
def test_a_folder_without_clones_ends_the_command_before_any_call(agent: Commands) -> None:
    pairs = agent.write("p.jsonl", [{"query": "add one", "code": "def f(x): return x + 1"}])
    run = ("annotate", pairs, "--model", "heuristic", "--sandbox", "bwrap", "-o", "run")
    agent.check_refused("git", *run, "--checkouts", agent.folder / "missing")
