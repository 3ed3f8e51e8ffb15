"""Wheels are downloaded in builders that reach the configured index, and nothing else there is."""

from __future__ import annotations

import asyncio
import io
import json
import os
import socket
import tarfile
import threading
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent.errors import DependencyUnavailable, SandboxError
from agent.sandbox.base import SandboxBackend
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.dependencies.egress import EgressProxy
from agent.sandbox.dependencies.environments import WheelEnvironments
from agent.sandbox.dependencies.sandboxed_pip import SandboxedPip, copy_plain_files
from agent.sandbox.dependencies.wheels import InterpreterTag, Wheel, WheelFetcher
from agent.sandbox.docker.backend import DockerBackend
from agent.sandbox.docker.fetch import unpack_plain_files
from agent.sandbox.inside.relay import Mux, job_bytes
from agent.sandbox.owner import KIND, Owner
from tests.sandbox.wheelhouse import make_sdist, make_wheel, plain_settings, use_folder, use_index


@pytest.fixture
def fetcher(backend: SandboxBackend) -> WheelFetcher:
    """The fetcher that a backend uses."""
    assert isinstance(backend.environments, WheelEnvironments)
    return backend.environments.fetcher


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """An empty folder for what is fetched."""
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


@pytest.fixture
def index(httpserver: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    """An index on this machine with one distribution."""
    wheel = make_wheel(tmp_path, "tinything").read_bytes()
    httpserver.expect_request("/simple/tinything/").respond_with_data(
        '<a href="/files/tinything-1.0-py3-none-any.whl">tinything-1.0-py3-none-any.whl</a>', content_type="text/html"
    )
    httpserver.expect_request("/files/tinything-1.0-py3-none-any.whl").respond_with_data(wheel)
    use_index(monkeypatch, f"http://127.0.0.1:{httpserver.port}/simple")
    return httpserver


async def fetch(fetcher: WheelFetcher, into: Path, *requirements: str) -> list[Wheel]:
    return await fetcher.fetch([Requirement(text) for text in requirements], InterpreterTag("3.11"), into)


async def failure(fetcher: WheelFetcher, into: Path, *requirements: str) -> DependencyUnavailable:
    with pytest.raises(DependencyUnavailable) as caught:
        await fetch(fetcher, into, *requirements)
    return caught.value


async def test_a_wheel_comes_from_an_index_of_this_machine(
    fetcher: WheelFetcher, index: HTTPServer, into: Path
) -> None:
    [wheel] = await fetch(fetcher, into, "tinything")
    assert wheel.locked == "tinything==1.0"
    assert [request.path for request, _ in index.log] == ["/simple/tinything/", "/files/tinything-1.0-py3-none-any.whl"]


async def test_wheels_come_from_a_folder_that_only_its_user_may_enter(
    fetcher: WheelFetcher, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (links := tmp_path / "my links").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    links.rename(tmp_path / "links")
    use_folder(monkeypatch, Path("links"))
    make_wheel(tmp_path / "links", "top", requires=["below"])
    make_wheel(tmp_path / "links", "below")
    assert [wheel.locked for wheel in await fetch(fetcher, into, "top")] == ["below==1.0", "top==1.0"]


async def test_wheels_come_from_an_index_that_is_a_folder(
    fetcher: WheelFetcher, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (page := tmp_path / "index" / "simple" / "x").mkdir(parents=True)
    (files := tmp_path / "index" / "files").mkdir()
    (page / "index.html").write_text(f'<a href="../../files/{make_wheel(files, "x").name}">x</a>')
    use_index(monkeypatch, (tmp_path / "index" / "simple").as_uri())
    assert [wheel.locked for wheel in await fetch(fetcher, into, "x")] == ["x==1.0"]


async def test_the_index_is_asked_with_the_users_credentials(
    fetcher: WheelFetcher, index: HTTPServer, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    await fetch(fetcher, into, "tinything")
    assert {request.headers.get("Authorization") for request, _ in index.log} == {"Basic bWU6czNjcmV0"}


async def test_a_constraint_of_the_users_holds(
    fetcher: WheelFetcher, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_folder(monkeypatch, tmp_path)
    make_wheel(tmp_path, "lib", "1.0")
    make_wheel(tmp_path, "lib", "2.0")
    (tmp_path / "limits.txt").write_text("lib<2\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "limits.txt"))
    assert [wheel.version for wheel in await fetch(fetcher, into, "lib")] == ["1.0"]


@pytest.mark.network
async def test_a_real_index_gives_a_real_wheel_through_a_tunnel(
    fetcher: WheelFetcher, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_settings(monkeypatch)
    [wheel] = await fetch(fetcher, into, "six")
    assert wheel.name == "six"


@pytest.mark.parametrize("way", ["redirect", "link"])
async def test_a_download_that_leads_elsewhere_is_refused_by_name(
    fetcher: WheelFetcher, httpserver: HTTPServer, into: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    use_index(monkeypatch, f"http://127.0.0.1:{httpserver.port}/simple")
    elsewhere = f"http://localhost:{httpserver.port}/files/evil-1.0-py3-none-any.whl"  # the same place, another name
    link = "/files/evil-1.0-py3-none-any.whl" if way == "redirect" else elsewhere
    httpserver.expect_request("/simple/evil/").respond_with_data(f'<a href="{link}">evil</a>', content_type="text/html")

    def redirect(request: Request) -> Response:
        assert not request.host.startswith("localhost")
        return Response(status=302, headers={"Location": elsewhere})

    httpserver.expect_request("/files/evil-1.0-py3-none-any.whl").respond_with_handler(redirect)
    error = await failure(fetcher, into, "evil")
    assert f"the download leads to localhost:{httpserver.port}, which" in str(error)
    assert not error.temporary
    httpserver.check_assertions()


async def test_what_a_wheel_asks_for_by_url_is_neither_fetched_nor_run(
    fetcher: WheelFetcher, into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, httpserver: HTTPServer
) -> None:
    use_folder(monkeypatch, tmp_path)
    make_sdist(tmp_path, "sourceonly")
    make_wheel(tmp_path, "asks", requires=[f"byurl @ {httpserver.url_for('/byurl-1.0.tar.gz')}"])
    assert f"localhost:{httpserver.port}" in str(await failure(fetcher, into, "asks"))
    assert httpserver.log == []
    (into / "0").rmdir()
    assert "only a source distribution" in str(await failure(fetcher, into, "sourceonly"))


async def test_an_index_that_does_not_answer_is_no_missing_distribution(
    fetcher: WheelFetcher, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        use_index(monkeypatch, f"http://me:s3cret@127.0.0.1:{unused.getsockname()[1]}/simple")
        error = await failure(fetcher, into, "six")
    assert error.temporary
    assert "s3cret" not in str(error)


async def test_a_download_beyond_the_limit_is_cut_off(fetcher: WheelFetcher, index: HTTPServer, into: Path) -> None:
    small = WheelFetcher(fetcher.pip, size=600)
    assert "larger than" in str(await failure(small, into, "tinything"))
    assert index.log


async def test_a_builder_with_too_many_files_is_ended(
    fetcher: WheelFetcher, index: HTTPServer, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import pathlib, time\nfor number in range(70): pathlib.Path('/fetch/tmp', str(number)).touch()\ntime.sleep(60)"
    )
    monkeypatch.setattr("agent.sandbox.dependencies.sandboxed_pip.guarded_pip", lambda *_: code)
    monkeypatch.setattr("agent.sandbox.dependencies.sandboxed_pip.MOST_FILES", 50)
    monkeypatch.setattr("agent.sandbox.dependencies.pip_process.MOST_FILES", 50)
    assert "more than 50 files" in str(await failure(fetcher, into, "tinything"))
    assert not index.log


async def test_settings_that_pip_cannot_read_are_an_error_with_its_words(
    fetcher: WheelFetcher, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, "http://127.0.0.1/simple")
    monkeypatch.setenv("PIP_CERT", "/nonexistent.pem")
    with pytest.raises(SandboxError, match="nonexistent"):
        await fetch(fetcher, into, "six")


PROBE = """
import json, os, socket
def reaches(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return True
    except OSError:
        return False
def named(host):
    try:
        return bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False
def asked(line):
    with socket.create_connection(("127.0.0.1", int(os.environ["PIP_PROXY"].rpartition(":")[2]))) as proxy:
        proxy.sendall(line.encode() + b"\\r\\n\\r\\n")
        return proxy.recv(100).decode().split()[1]
places = PLACES
print(json.dumps({
    "direct": [place for place in places if reaches(*place)],
    "named": named("pypi.org"),
    "asked": sorted({asked("CONNECT %s:%d HTTP/1.1" % tuple(place)) for place in places}),
    "folders": [path for path in SECRETS if os.path.exists(path)],
    "links": sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else ["lo"],
}))
"""


async def test_a_builder_reaches_nothing_but_the_proxy(
    fetcher: WheelFetcher, httpserver: HTTPServer, tmp_path: Path
) -> None:
    places = [("127.0.0.1", httpserver.port), ("169.254.169.254", 80), ("172.17.0.1", httpserver.port)]
    places += [("172.17.0.1", 22), ("1.1.1.1", 53), (socket.gethostname(), 80)]
    code = PROBE.replace("PLACES", repr(places)).replace("SECRETS", repr([str(tmp_path), "/var/run/docker.sock"]))
    assert isinstance(fetcher.pip, SandboxedPip)
    proxy, printed = EgressProxy({("index.example", 443)}), bytearray()
    async with fetcher.pip.open_builder(1 << 20) as builder:
        builder.writer.write(job_bytes({"command": ["-c", code], "environment": {}, "folders": [], "files": {}}))
        await Mux(builder.reader, builder.writer, proxy.serve, printed.extend).run()
    said = json.loads(printed)
    assert said == {"direct": [], "named": False, "asked": ["403"], "folders": [], "links": ["lo"]}
    assert len(proxy.refused) == len(places)


async def test_a_builder_that_breaks_is_an_error(fetcher: WheelFetcher) -> None:
    assert isinstance(fetcher.pip, SandboxedPip)
    async with fetcher.pip.open_builder(1 << 20) as builder:
        builder.writer.write(b"\0\0\0\4null")
        await asyncio.wait_for(builder.reader.read(), 20)
        assert "TypeError" in str(await builder.trouble())


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_only_plain_files_come_out_of_a_builder(tmp_path: Path, into: Path, kind: str) -> None:
    (folder := tmp_path / "out").mkdir()
    entry = folder / "x-1.0-py3-none-any.whl"
    {"link": lambda: entry.symlink_to("/etc/passwd"), "folder": entry.mkdir, "pipe": lambda: os.mkfifo(entry)}[kind]()
    with pytest.raises(DependencyUnavailable, match="no wheel"):
        copy_plain_files(folder, into, 1000)
    assert list(into.iterdir()) == []


def packed(*entries: tarfile.TarInfo) -> list[bytes]:
    """Return a tar archive of these entries, each with its size in zeros, in small pieces."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    content = stream.getvalue()
    return [content[start : start + 700] for start in range(0, len(content), 700)]


def entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size = kind, size
    made.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return made


def test_the_files_of_a_container_are_unpacked(into: Path) -> None:
    unpack_plain_files(packed(entry("wheels", tarfile.DIRTYPE), entry("wheels/a.whl", size=5000)), into, 5000)
    assert [(path.name, path.stat().st_size) for path in into.iterdir()] == [("a.whl", 5000)]
    with pytest.raises(DependencyUnavailable, match="larger than"):
        unpack_plain_files(packed(entry("wheels/b.whl", size=5001)), into, 5000)
    with pytest.raises(SandboxError):
        unpack_plain_files([b"nonsense" * 100], into, 5000)


@pytest.mark.parametrize(
    "bad",
    [
        entry("wheels/a.whl", tarfile.SYMTYPE),
        entry("wheels/a.whl", tarfile.LNKTYPE),
        entry("wheels/a.whl", tarfile.FIFOTYPE),
        entry("wheels/a", tarfile.DIRTYPE),
        entry("wheels/a/b.whl"),
        entry("wheels/../b.whl"),
        entry("wheels/.."),
        entry("b.whl"),
    ],
    ids=lambda each: f"{each.name}-{each.type.decode()}",
)
def test_nothing_but_plain_files_is_unpacked(into: Path, bad: tarfile.TarInfo) -> None:
    with pytest.raises(DependencyUnavailable, match="no wheel"):
        unpack_plain_files(packed(bad), into, 5000)
    assert list(into.parent.rglob("*")) == [into]


async def test_a_cancelled_download_leaves_no_builder(
    backend: SandboxBackend, fetcher: WheelFetcher, httpserver: HTTPServer, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hang(_request: Request) -> Response:
        asked.set()
        go_on.wait(30)
        return Response(status=404)

    httpserver.expect_request("/simple/silent/").respond_with_handler(hang)
    use_index(monkeypatch, f"http://127.0.0.1:{httpserver.port}/simple")
    try:
        before = await builders(backend)
        fetching = asyncio.ensure_future(fetch(fetcher, into, "silent"))
        assert await asyncio.to_thread(asked.wait, 30)
        assert len(await builders(backend) - before) == 1
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        for _ in range(200):
            if not (left := await builders(backend) - before):
                break
            await asyncio.sleep(0.1)
        assert not left
    finally:
        go_on.set()


async def builders(backend: SandboxBackend) -> set[str]:
    """Return what a backend's builders leave: containers, or folders."""
    if isinstance(backend, BwrapBackend):
        _, store = backend._running()
        return {path.name for path in store.staging.glob("fetch-*")}
    assert isinstance(backend, DockerBackend)
    found = await asyncio.to_thread(backend._running().engine.containers)
    ours = Owner.current().labels().items()
    return {name for name, labels in found if labels.get(KIND) == "builder" and ours <= labels.items()}
