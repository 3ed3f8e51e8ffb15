"""A wheel may say what it likes: reading it on the host takes little, and what it installs is limited."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies import wheel_archive
from agent.sandbox.dependencies.closure import close_over
from agent.sandbox.dependencies.wheel_archive import ROOM, Room, check_room
from agent.sandbox.dependencies.wheels import InterpreterTag, read_wheels
from tests.sandbox.wheelhouse import make_wheel

MARKERS = InterpreterTag("3.11").markers
METADATA = "bad-1.0.dist-info/METADATA"


def close(wheel: Path) -> None:
    [read] = read_wheels([wheel])
    close_over([Requirement(read.name)], {read.name: wheel}, MARKERS)


def bad_wheel(folder: Path, fill: Callable[[zipfile.ZipFile], None]) -> Path:
    path = folder / "bad-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        fill(archive)
    return path


def say_small(wheel: Path, real: int) -> None:
    """Have a wheel's directory say that a file of so many bytes is small."""
    content = wheel.read_bytes()
    head, directory, rest = content.partition(b"PK\x01\x02")
    assert rest.count(real.to_bytes(4, "little")) == 1
    wheel.write_bytes(head + directory + rest.replace(real.to_bytes(4, "little"), (1000).to_bytes(4, "little")))


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED])
def test_metadata_that_unpacks_to_more_than_it_says_is_not_unpacked(tmp_path: Path, packing: int) -> None:
    real = 64 << 20
    wheel = bad_wheel(tmp_path, lambda archive: archive.writestr(METADATA, bytes(real), packing))
    say_small(wheel, real)
    tracemalloc.start()
    try:
        with pytest.raises(DependencyUnavailable, match=r"bad-1\.0"):
            close(wheel)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_a_directory_larger_than_any_wheels_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(archive: zipfile.ZipFile) -> None:
        for number in range(2000):
            archive.writestr(f"{number:0100}", "")

    wheel = bad_wheel(tmp_path, fill)
    monkeypatch.setattr(wheel_archive, "_DIRECTORY_LIMIT", 100_000)
    with pytest.raises(DependencyUnavailable, match="damaged"):
        check_room([wheel], ROOM)


@pytest.mark.parametrize(
    "requires",
    [
        "x; " + "(" * 900 + "os_name == 'a'" + ")" * 900,
        "x; python_version ~= 'a'",
        "x" * 3000,
        "\n".join(["Requires-Dist: x"] * 3000),
    ],
)
def test_requirements_made_to_break_their_reader_are_a_dependency_that_cannot_be_had(
    tmp_path: Path, requires: str
) -> None:
    with pytest.raises(DependencyUnavailable, match=r"bad-1\.0"):
        close(make_wheel(tmp_path, "bad", requires=[requires]))


def test_extras_without_end_are_not_followed(tmp_path: Path) -> None:
    lines = [
        "bad[" + ",".join(f"x{number}" for number in range(start, start + 200)) + "]" for start in range(0, 90_000, 200)
    ]
    with pytest.raises(DependencyUnavailable, match="have no end"):
        close(make_wheel(tmp_path, "bad", requires=lines))


def test_wheels_that_fit_together_are_let_through(tmp_path: Path) -> None:
    check_room([make_wheel(tmp_path, name) for name in ("a", "b")], ROOM)


def test_wheels_that_say_they_take_too_much_together_are_refused_by_name(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, name, files={"x": "0" * 600}) for name in ("a", "b")]
    check_room(wheels[:1], Room(size=1200))
    with pytest.raises(DependencyUnavailable, match=r"b-1\.0.*at least \d+ bytes, and 1200 are allowed"):
        check_room(wheels, Room(size=1200))


def test_wheels_of_too_many_files_are_refused_by_name(tmp_path: Path) -> None:
    wheels = [make_wheel(tmp_path, name) for name in ("a", "b")]
    with pytest.raises(DependencyUnavailable, match=r"b-1\.0.*at least 8 files, and 7 are allowed"):
        check_room(wheels, Room(files=7))
