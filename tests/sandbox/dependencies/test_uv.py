"""uv installs only wheels and respects limits. Its failures raise errors of the right type."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies import uv as uv_module
from agent.sandbox.dependencies.tool import mask_secrets
from agent.sandbox.dependencies.uv import Target, Uv
from agent.sandbox.interpreter import InterpreterTag
from tests.sandbox.wheelhouse import clear_settings, make_project_page, make_sdist, make_wheel, use_folder, use_index

TAG = InterpreterTag("3.11", full="3.11.2")


class Wheels:
    """uv with a separate cache, and with a folder of wheels as its only package source."""

    def __init__(self, folder: Path) -> None:
        self.links = folder / "links"
        self.links.mkdir()
        self.folder = folder
        self.uv = Uv(folder / "uv")
        self._count = 0

    async def install(self, *requirements: str, target: Target = Target(TAG), **options: bool) -> tuple[str, ...]:  # noqa: B008
        """Install into a new folder."""
        self._count += 1
        return await self.uv.install(requirements, target, self.tree, **options)

    async def fail(self, *requirements: str, target: Target = Target(TAG)) -> DependencyUnavailable:  # noqa: B008
        """Try to install packages, and return the error."""
        with pytest.raises(DependencyUnavailable) as caught:
            await self.install(*requirements, target=target)
        return caught.value

    @property
    def tree(self) -> Path:
        """The folder of the last installation."""
        return self.folder / f"tree-{self._count}"


@pytest.fixture
def wheels(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Wheels:
    prepared = Wheels(open_folder)
    use_folder(monkeypatch, prepared.links)
    return prepared


async def test_requirements_and_their_dependencies_are_installed(wheels: Wheels) -> None:
    make_wheel(wheels.links, "Top_Thing", requires=["below>=2", "never; sys_platform == 'win32'"])
    for version in ("1.0", "2.0", "3.0a1"):
        make_wheel(wheels.links, "below", version)
    assert await wheels.install("top-thing") == ("below==2.0", "top-thing==1.0")
    assert (wheels.tree / "Top_Thing.py").is_file()


async def test_markers_and_wheels_match_the_sandbox_and_not_this_process(wheels: Wheels) -> None:
    tag = InterpreterTag("3.9", libc_version="2.30", full="3.9.18")
    for name in ("old", "new"):
        make_wheel(wheels.links, name)
    make_wheel(wheels.links, "tagged", tag="cp39-cp39-manylinux_2_28_x86_64")
    make_wheel(wheels.links, "tagged", "2.0", tag="cp39-cp39-manylinux_2_31_x86_64")
    requirements = ("old; python_full_version < '3.9.19'", "new; python_version > '3.9'", "tagged")
    assert await wheels.install(*requirements, target=Target(tag)) == ("old==1.0", "tagged==1.0")


@pytest.mark.parametrize(
    "tag",
    [
        InterpreterTag("3.11", machine="s390x"),
        InterpreterTag("3.11", libc_version="2.12"),
        InterpreterTag("3.10", "pp"),
    ],
)
def test_an_unsupported_platform_is_refused_unless_its_interpreter_is_local(tag: InterpreterTag) -> None:
    with pytest.raises(DependencyUnavailable, match=str(tag)):
        Target(tag).as_options()
    assert Target(tag, python="/usr/bin/python3").as_options()[:2] == ["--python", "/usr/bin/python3"]


async def test_source_distributions_are_never_run(wheels: Wheels, open_folder: Path) -> None:
    canary = open_folder / "canary"
    make_sdist(wheels.links, "sourceful", canary=canary)
    assert "sourceful" in str(await wheels.fail("sourceful"))
    make_wheel(wheels.links, "linked", requires=[f"sourceful @ {(wheels.links / 'sourceful-1.0.tar.gz').as_uri()}"])
    await wheels.fail("linked")
    assert not canary.exists()


async def test_the_error_names_the_unavailable_package(wheels: Wheels) -> None:
    make_wheel(wheels.links, "foreign", tag="cp27-cp27m-win32")
    make_wheel(wheels.links, "top", requires=["below<2"])
    make_wheel(wheels.links, "below", "2.0")
    assert "foreign" in str(await wheels.fail("foreign"))
    assert "nowhere-to-be-found" in str(await wheels.fail("nowhere-to-be-found"))
    assert "below" in str(await wheels.fail("top"))
    assert not (await wheels.fail("top")).temporary


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_denied_access_is_distinguished_from_a_missing_project(
    wheels: Wheels, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    use_index(monkeypatch, httpserver.url_for("/simple").replace("http://", "http://me:s3cret@"))
    httpserver.expect_request("/simple/thing/").respond_with_data("", status=status)
    error = await wheels.fail("thing")
    assert error.temporary == (status != 404)
    assert ("credentials" in str(error)) == (status != 404)
    assert "s3cret" not in str(error)


def is_on_command_line(secret: str) -> bool:
    """Return whether a text is on the command line of any process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if secret.encode() in path.read_bytes():
                return True
    return False


def serve(httpserver: HTTPServer, folder: Path, *versions: str, requires: str | None = None) -> None:
    """Serve a project through the JSON simple API."""
    page = make_project_page("thing", {version: f"201{version[0]}-06-01T00:00:00Z" for version in versions})
    kind = "application/vnd.pypi.simple.v1+json"

    def respond(request: Request) -> Response:
        login = request.authorization
        if requires is not None and (login is None or login.password != requires or is_on_command_line(requires)):
            return Response(status=401)
        return Response(json.dumps(page), content_type=kind)

    httpserver.expect_request("/simple/thing/").respond_with_handler(respond)
    for version in versions:
        wheel = make_wheel(folder, "thing", version)
        httpserver.expect_request(f"/simple/thing/{wheel.name}").respond_with_data(wheel.read_bytes())


@pytest.mark.slow
async def test_an_index_that_is_down_is_a_temporary_error_unless_the_package_is_cached(
    wheels: Wheels, httpserver: HTTPServer, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, httpserver.url_for("/simple"))
    serve(httpserver, open_folder, "1.0")
    assert await wheels.install("thing") == ("thing==1.0",)
    httpserver.clear()
    httpserver.expect_request("/simple/thing/").respond_with_data("", status=503)
    httpserver.expect_request("/simple/other/").respond_with_data("", status=503)
    assert await wheels.install("thing") == ("thing==1.0",)
    error = await wheels.fail("other")
    assert error.temporary
    assert "network" in str(error)


async def test_offline_queries_no_index(
    wheels: Wheels, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, httpserver.url_for("/simple"))
    with pytest.raises(DependencyUnavailable, match="network") as caught:
        await wheels.install("thing", offline=True)
    assert not caught.value.temporary
    assert httpserver.log == []


async def test_passwords_reach_the_index_and_no_command_line(
    wheels: Wheels, httpserver: HTTPServer, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear_settings(monkeypatch)
    serve(httpserver, open_folder, "1.0", requires="s3cret")
    monkeypatch.setenv("PIP_INDEX_URL", httpserver.url_for("/simple").replace("http://", "http://me:s3cret@"))
    assert await wheels.install("thing") == ("thing==1.0",)
    (netrc := open_folder / "netrc").write_text("machine localhost login me password s3cret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("PIP_INDEX_URL", httpserver.url_for("/simple"))
    wheels.uv = Uv(open_folder / "uv2")
    assert await wheels.install("thing") == ("thing==1.0",)


async def test_files_newer_than_the_limit_are_ignored(
    wheels: Wheels, httpserver: HTTPServer, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, httpserver.url_for("/simple"))
    serve(httpserver, open_folder, "1.0", "2.0", "3.0")
    before = Target(TAG, exclude_newer=datetime(2012, 6, 1, 0, 0, 1, tzinfo=UTC))
    assert await wheels.install("thing", target=before) == ("thing==2.0",)
    error = await wheels.fail("thing", target=Target(TAG, exclude_newer=datetime(2001, 1, 1, tzinfo=UTC)))
    assert "sandbox.exclude_newer" in str(error)


async def test_exclude_newer_needs_upload_times_from_indexes_but_not_from_folders(
    wheels: Wheels, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels.links, "mine")
    before = Target(TAG, exclude_newer=datetime(2012, 6, 1, tzinfo=UTC))
    assert await wheels.install("mine", target=before) == ("mine==1.0",)
    httpserver.expect_request("/simple/thing/").respond_with_data(
        '<a href="thing-1.0-py3-none-any.whl">thing-1.0-py3-none-any.whl</a>', content_type="text/html"
    )
    use_index(monkeypatch, httpserver.url_for("/simple"))
    error = await wheels.fail("thing", target=before)
    assert "PEP 700" in str(error)
    assert not error.temporary


async def test_an_installation_stops_before_the_disk_is_full_and_leaves_nothing(wheels: Wheels) -> None:
    make_wheel(wheels.links, "thing")
    wheels.uv = Uv(wheels.folder / "uv", min_free=1 << 62)
    assert f"{1 << 42} MB" in str(await wheels.fail("thing"))
    assert not (wheels.tree / "thing.py").exists()


@pytest.fixture
def silent_index() -> Iterator[str]:
    """An index that accepts connections but never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/simple"


async def test_an_installation_times_out(wheels: Wheels, silent_index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_index(monkeypatch, silent_index)
    wheels.uv = Uv(wheels.folder / "uv", seconds=0.5)
    assert "0.5 seconds" in str(await wheels.fail("thing"))


@pytest.mark.parametrize(
    ("output", "word", "temporary"),
    [
        ("error: Request failed after 3 retries\n  cause: dns error: failed to lookup", "network", True),
        (
            "error: Failed to fetch: https://x/\n  cause: HTTP status client error (403 Forbidden)",
            "credentials",
            True,
        ),
        ("", "uv", False),
        ("error: \x1b[31mbroken\x1b[0m https://me:s3cret@x/\n", "broken https://***@x/", False),
    ],
)
def test_errors_of_uv_contain_no_escapes_and_no_secrets(output: str, word: str, temporary: bool) -> None:
    error = uv_module.build_error(mask_secrets(output))
    assert word in str(error)
    assert "s3cret" not in str(error)
    assert error.temporary == temporary
