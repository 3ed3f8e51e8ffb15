"""Options that say what a run's sandboxes are given, tried with real programs on each backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Commands

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
    """A folder whose file all may write, with links that lead out of it."""
    (folder := open_folder / "shared").mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "words.txt").write_text("seven words")
    (folder / "words.txt").chmod(0o666)
    (open_folder / "secret.txt").write_text("secret")
    (folder / "out").symlink_to(open_folder / "secret.txt")
    (folder / "above").symlink_to("../secret.txt")
    return folder


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_read_what_they_are_shown_and_no_more(agent: Commands, shared: Path, backend: str) -> None:
    mounts = ("--mount-ro", f"{shared}:/data", "--mount-ro", f"{shared}/words.txt:/single.txt")
    ended = agent("exec", agent.write("t.py", READS), "--sandbox", backend, *mounts, "--json")
    assert ended.code == 0, (ended.out, ended.err)
    assert (shared / "words.txt").read_text() == "seven words"


def test_a_mount_that_is_refused_ends_the_command(agent: Commands) -> None:
    ended = agent("exec", agent.write("t.py", READS), "--sandbox", "bwrap", "--mount-ro", "/:/data")
    assert (ended.code, ended.out) == (2, "")
    assert "would show all of the host" in ended.err


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_is_what_was_asked_for(agent: Commands, backend: str) -> None:
    program = agent.write("t.py", "def test_it():\n    assert len(bytearray(200 << 20))\n")
    assert agent("exec", program, "--sandbox", backend, "--memory", "100").code == 1
    assert agent("exec", program, "--sandbox", backend, "--memory", "400").code == 0
