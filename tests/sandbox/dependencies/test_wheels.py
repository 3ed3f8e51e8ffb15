from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from pytest_httpserver import HTTPServer
from werkzeug import Response

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.closure import close_over
from agent.sandbox.dependencies.pip_process import PipOutput, Tail, clean, run_pip
from agent.sandbox.dependencies.pip_trouble import explain, readable
from agent.sandbox.dependencies.wheels import InterpreterTag, Wheel, WheelFetcher, read_wheels
from tests.sandbox.wheelhouse import make_sdist, make_wheel, plain_settings, use_folder, use_index

CP311 = InterpreterTag("3.11")


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only source."""
    folder = tmp_path / "links"
    folder.mkdir()
    use_folder(monkeypatch, folder)
    return folder


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty folder for what is fetched."""
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


async def fetch(into: Path, *requirements: str, interpreter: InterpreterTag = CP311, **limits: float) -> list[Wheel]:
    fetcher = WheelFetcher(**limits)  # type: ignore[arg-type]
    return await fetcher.fetch([Requirement(text) for text in requirements], interpreter, into)


async def failure(into: Path, *requirements: str, **limits: float) -> DependencyUnavailable:
    with pytest.raises(DependencyUnavailable) as caught:
        await fetch(into, *requirements, **limits)
    return caught.value


async def test_the_wheels_are_the_sandbox_interpreters_not_the_hosts(links: Path, into: Path) -> None:
    # The host's Python is 3.11 or newer, so pip reads these markers otherwise than an interpreter of 3.9 does.
    make_wheel(links, "top", requires=["backport; python_version < '3.10'", "modern; python_version >= '3.10'", "fast"])
    make_wheel(links, "backport")
    make_wheel(links, "modern")
    for tag in ("cp39-cp39-manylinux_2_17_aarch64", "cp311-cp311-manylinux_2_17_x86_64", "cp39-cp39-win_amd64"):
        make_wheel(links, "fast", tag=tag)
    wheels = await fetch(into, "top", interpreter=InterpreterTag("3.9", machine="aarch64", libc_version="2.31"))
    assert [wheel.locked for wheel in wheels] == ["backport==1.0", "fast==1.0", "top==1.0"]
    assert wheels[1].path.name == "fast-1.0-cp39-cp39-manylinux_2_17_aarch64.whl"


async def test_a_source_distribution_is_neither_taken_nor_run(links: Path, into: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    make_sdist(links, "sourceonly", canary=canary)
    error = await failure(into, "sourceonly")
    assert "only a source distribution" in str(error)
    assert not error.temporary
    assert not canary.exists()


async def test_what_a_wheel_asks_for_by_url_is_not_run(links: Path, into: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    sdist = make_sdist(tmp_path, "byurl", canary=canary)
    make_wheel(links, "asks", requires=[f"byurl @ {sdist.as_uri()}"])
    await failure(into, "asks")
    assert not canary.exists()


@pytest.mark.slow
async def test_a_wheel_for_other_interpreters_is_told_from_a_missing_distribution(links: Path, into: Path) -> None:
    make_wheel(links, "windowsonly", tag="cp311-cp311-win_amd64")
    assert "no wheel for this interpreter (cp311-glibc2.36-x86_64)" in str(await failure(into, "windowsonly"))


@pytest.mark.slow
async def test_contradicting_requirements_are_a_version_conflict(links: Path, into: Path) -> None:
    make_wheel(links, "lib", "1.0")
    make_wheel(links, "lib", "2.0")
    make_wheel(links, "needsold", requires=["lib<2"])
    error = await failure(into, "needsold", "lib>=2")
    assert str(error).startswith("version conflict")
    assert "needsold 1.0 depends on lib<2" in str(error)


async def test_an_index_without_the_distribution_says_so(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, into: Path
) -> None:
    use_index(monkeypatch, httpserver.url_for("/simple"))
    httpserver.expect_request("/simple/nothing/").respond_with_response(Response(status=404))
    error = await failure(into, "nothing")
    assert str(error) == "nothing: no such distribution on the package index"
    assert not error.temporary


@pytest.mark.slow
async def test_an_index_that_does_not_answer_is_no_missing_distribution(
    monkeypatch: pytest.MonkeyPatch, into: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: nobody answers, and nobody else takes the port
        use_index(monkeypatch, f"http://user:s3cret@127.0.0.1:{unused.getsockname()[1]}/simple")
        error = await failure(into, "six")
    assert error.temporary
    assert "no network, or the package index does not answer" in str(error)
    assert "s3cret" not in str(error)


async def test_a_silent_index_runs_into_the_time_limit_and_a_cancelled_fetch_ends_pip(
    httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, into: Path
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hang(_request: object) -> Response:
        asked.set()
        go_on.wait(30)
        return Response(status=404)

    httpserver.expect_request("/simple/silent-project/").respond_with_handler(hang)
    use_index(monkeypatch, httpserver.url_for("/simple"))
    try:
        fetching = asyncio.ensure_future(fetch(into, "silent-project"))
        assert await asyncio.to_thread(asked.wait, 30)
        assert running("silent-project")
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert not running("silent-project")
        (into / "0").rmdir()
        assert "more than 0.2 seconds" in str(await failure(into, "silent-project", seconds=0.2))
        assert not running("silent-project")
    finally:
        go_on.set()


async def test_a_download_beyond_the_size_limit_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_settings(monkeypatch)
    (tmp_path / "big").write_bytes(b"0" * 2048)
    with pytest.raises(DependencyUnavailable, match="larger than"):
        await run_pip(["hash", "/dev/zero"], tmp_path, size=1024)  # a pip that never ends by itself


async def test_all_rounds_of_a_request_share_one_limit_and_leave_only_the_last(into: Path) -> None:
    sizes: list[int] = []

    async def pip(arguments: Sequence[str], folder: Path, *, size: int) -> PipOutput:
        sizes.append(size)
        wanted = arguments[list(arguments).index("--") + 1 :]
        make_wheel(folder, "a", requires=["b"], files={"a": "0" * 10_000})
        if len(wanted) > 1:
            make_wheel(folder, "b", files={"b": "0" * 10_000})
        return PipOutput(0, "")

    wheels = await WheelFetcher(pip).fetch([Requirement("a")], CP311, into)
    assert [wheel.name for wheel in wheels] == ["a", "b"]
    assert sizes[0] - sizes[1] > 10_000
    assert {wheel.path.parent.name for wheel in wheels} == {"1"}
    assert not (into / "0").exists()
    shutil.rmtree(into / "1")
    with pytest.raises(DependencyUnavailable, match="larger than"):
        await WheelFetcher(pip, size=25_000).fetch([Requirement("a")], CP311, into)


@pytest.mark.network
async def test_a_real_index_gives_a_real_wheel(into: Path) -> None:
    [wheel] = await fetch(into, "six")
    assert wheel.name == "six"
    assert "six.py" in zipfile.ZipFile(wheel.path).namelist()


def test_platform_tags_are_those_the_libc_allows_best_first() -> None:
    tags = InterpreterTag("3.12", machine="aarch64", libc_version="2.17").platforms
    assert tags[:3] == ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_16_aarch64")
    assert tags[-1] == "linux_aarch64"
    assert InterpreterTag("3.12", libc="musl", libc_version="1.1").platforms == (
        "musllinux_1_1_x86_64",
        "musllinux_1_0_x86_64",
    )


def test_the_closure_follows_extras_and_leaves_out_what_nothing_needs(tmp_path: Path) -> None:
    wheels = [
        make_wheel(tmp_path, "a", requires=["b[x]", "never; extra == 'y'", "win; sys_platform == 'win32'"]),
        make_wheel(tmp_path, "b", requires=["c>=2; extra == 'x'", "a"]),
        make_wheel(tmp_path, "win"),
    ]
    paths = {wheel.name: wheel.path for wheel in read_wheels(wheels)}
    assert close_over([Requirement("a")], paths, CP311.markers) == ({"a", "b"}, ["c>=2"])


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + b"\0" * 40])
def test_a_damaged_wheel_is_a_dependency_that_cannot_be_had(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad-1.0-py3-none-any.whl"
    path.write_bytes(content)
    [wheel] = read_wheels([path])
    with pytest.raises(DependencyUnavailable, match=r"bad-1\.0.*damaged"):
        close_over([Requirement("bad")], {wheel.name: path}, CP311.markers)


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DependencyUnavailable, match="no wheel"):
        read_wheels([make_sdist(tmp_path, "x")])


def test_output_is_shown_without_escapes_and_secrets() -> None:
    dirty = "\x1b[31mred\x1b[0m \x1b]0;title\x07 https://me:pw@host/x http://token@host \x00\x9b2J ok\r\n"
    assert clean(dirty) == "red  https://***@host/x http://***@host   2J ok\n"


@pytest.mark.parametrize("secret", ["u:p/w@", "u:S3cr/et@", "u:pa@ss@", "tok/en@", "@u:p@"])
def test_a_secret_that_should_have_been_quoted_is_not_shown_either(secret: str) -> None:
    assert clean(f"at https://{secret}host/x, ok a@b") == "at https://***@host/x, ok a@b"


def test_output_in_tiny_chunks_takes_no_more_than_its_bytes() -> None:
    printed = Tail()
    tracemalloc.start()
    try:
        for _ in range(500_000):
            printed.add(b"ab")
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
    assert printed.text == "ab" * 500_000


@given(st.text())
def test_what_patterns_are_looked_for_in_is_short(text: str) -> None:
    for long in (text, text * 3000, f"{text}\n" * 3000):
        lines = readable(long).splitlines()
        assert len(lines) <= 10_000
        assert max(map(len, lines), default=0) <= 1000


@pytest.mark.parametrize(
    "line",
    [
        "401 " * (1 << 14),
        "Could not fetch URL " * 3000,
        "ERROR: Could not find a version that satisfies the requirement x" + " (from versions: " * 4000,
        "ERROR: Cannot install " * 3000,
        "\x1b[0" * 20_000,
        "://" * 20_000,
        "\n".join(["401 " * 250] * 60),
    ],
)
async def test_output_made_to_be_slow_to_read_is_explained_at_once(line: str) -> None:
    text = f"x\n{line}\ny"
    async with asyncio.timeout(5):
        assert str(await asyncio.to_thread(lambda: explain(clean(text), clean(text), "cp311")))


@given(st.text())
def test_no_output_of_pip_breaks_its_explanation(text: str) -> None:
    error = explain(clean(text), None, "cp311")
    assert str(error)
    assert "\x1b" not in str(error)
    assert len(str(error)) <= 400


@pytest.mark.parametrize(
    ("printed", "details", "said", "temporary"),
    [
        (
            "ERROR: Could not find a version that satisfies the requirement six==99 (from versions: 1.15, 1.16)\n",
            None,
            "six==99: no such version has a wheel for cp311; the newest that have: 1.15, 1.16",
            False,
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement six==99 (from versions: "
            f"{', '.join(f'1.{number}' for number in range(1000))})\n",
            None,
            "six==99: no such version has a wheel for cp311; the newest that have: 1.995, 1.996, 1.997, 1.998, 1.999",
            False,
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n",
            "Could not fetch URL https://h/x/: 401 Client Error: Unauthorized for url - skipping\n",
            "the package index refuses access: check the credentials in pip's settings",
            True,
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement x>1 (from versions: none)\n",
            "  Skipping link: 2.0 Requires-Python <3: https://h/x-2.0-py2-none-any.whl\n",
            "x: no version for this Python (cp311)",
            False,
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            None,
            "pip failed: Could not install packages due to an OSError: [Errno 28] No space left on device",
            False,
        ),
    ],
)
def test_the_explanation_is_what_pip_meant(printed: str, details: str | None, said: str, temporary: bool) -> None:
    error = explain(printed, details, "cp311")
    assert str(error) == said
    assert error.temporary is temporary


def running(word: str) -> bool:
    """Say whether a process has this word among its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False
