"""Distributions that are not in the map are allowed only if they are old, have several releases and a distinct name."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from agent.config import SandboxConfig
from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies import package_index
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.sources import PackageSources
from agent.sandbox.select import build_rule
from tests.sandbox.dependencies.test_environments import Clock, FakeUv, MemoryStore
from tests.sandbox.wheelhouse import make_project_page

NOW = 1_750_000_000.0  # June 2025
OLD = {f"1.{number}": f"20{10 + number}-01-01T00:00:00.000000Z" for number in range(5)}
JSON = "application/vnd.pypi.simple.v1+json"


class World:
    """A package index on this machine, and a client for this index."""

    def __init__(self, server: HTTPServer) -> None:
        self.server = server
        self.clock = Clock()
        self.clock.now = NOW
        self.settings = PackageSources((server.url_for("/simple"),))
        self.rule = self.make_rule()

    def make_rule(self) -> IndexRule:
        return IndexRule(PackageIndex(sources=lambda: self.settings, clock=self.clock), clock=self.clock)

    def serve(self, name: str, page: Any, *, under: str = "simple", status: int = 200, kind: str = JSON) -> None:
        body = page if isinstance(page, str | bytes) else json.dumps(page)
        self.server.expect_request(f"/{under}/{name}/").respond_with_data(body, status=status, content_type=kind)

    def record_credentials(self, name: str, server: HTTPServer | None = None, path: str = "/simple/{}/") -> list[Any]:
        """Serve an established project. Returns a list to which each request adds its credentials."""
        credentials: list[Any] = []

        def respond(request: Request) -> Response:
            credentials.append(request.headers.get("Authorization"))
            return Response(json.dumps(make_project_page(name, OLD)), content_type=JSON)

        (server or self.server).expect_request(path.format(name)).respond_with_handler(respond)
        return credentials

    def handle(self, name: str, handler: Callable[[Request], Response]) -> None:
        self.server.expect_request(f"/simple/{name}/").respond_with_handler(handler)

    @property
    def requested_paths(self) -> list[str]:
        return [request.path for request, _response in self.server.log]


@pytest.fixture
def world(httpserver: HTTPServer) -> World:
    return World(httpserver)


async def fail_temporarily(rule: IndexRule, name: str) -> str:
    with pytest.raises(DependencyUnavailable) as caught:
        await rule.resolve(name)
    assert caught.value.temporary
    return str(caught.value)


async def find_refusal(rule: IndexRule, name: str) -> str:
    reason = await rule.find_refusal(name)
    assert reason is not None
    if not name.isidentifier():
        assert await rule.resolve(name) is None
        return reason
    with pytest.raises(DependencyUnavailable) as caught:
        await rule.resolve(name)
    assert (str(caught.value), caught.value.temporary) == (reason, False)
    return reason


async def test_an_established_project_provides_the_import_of_its_name(world: World) -> None:
    world.serve("venerable-thing", make_project_page("venerable-thing", OLD))
    assert await world.rule.resolve("Venerable_Thing") == "venerable-thing"
    assert await world.rule.find_refusal("venerable.thing") is None


async def test_names_in_the_map_are_never_looked_up(world: World) -> None:
    assert await world.rule.resolve("cv2") == "opencv-python-headless"
    refusals = [await world.rule.find_refusal(name) for name in ("numpy", "PyYAML", "scikit_learn", "setuptools")]
    assert refusals == [None] * 4
    assert world.requested_paths == []


@pytest.mark.parametrize("name", ["os", "urllib2", "imp", "google", "a.b", "", "..", "naïve", "a b", "../etc", "1x"])
async def test_names_that_no_distribution_provides_are_never_looked_up(world: World, name: str) -> None:
    assert await world.rule.resolve(name) is None
    assert world.requested_paths == []


@pytest.mark.parametrize(
    "name", ["numpi", "pandass", "panda", "reqeusts", "requests2", "urlib3", "Pilow", "sklern", "scikit-lear", "Yaml"]
)
async def test_a_misspelt_known_name_is_refused_without_a_lookup(world: World, name: str) -> None:
    world.serve(canonicalize_name(name), make_project_page(canonicalize_name(name), OLD))
    known_name = (await find_refusal(world.rule, name)).split("'")[1]
    assert known_name in ["numpy", "pandas", "requests", "urllib3", "pillow", "sklearn", "scikit-learn", "yaml"]
    assert world.requested_paths == []


async def test_a_distribution_in_the_map_does_not_provide_the_import_of_its_own_name(world: World) -> None:
    assert await world.rule.resolve("pyyaml") is None
    assert await world.rule.find_refusal("pyyaml") is None


YOUNG = {f"1.{number}": f"2023-07-0{number + 1}T00:00:00Z" for number in range(9)}
MANY_FILES = make_project_page("thing-name", {"1.0": "2012-01-01T00:00:00Z"})
MANY_FILES["files"] = [{**MANY_FILES["files"][0], "filename": f"thing_name-1.0-cp3{n}-none-any.whl"} for n in range(9)]


@pytest.mark.parametrize(
    ("page", "fact"),
    [
        (make_project_page("thing-name", YOUNG), "2023-07-01"),
        (make_project_page("thing-name", dict(list(OLD.items())[:4])), "releases: 4"),
        (make_project_page("thing-name", OLD, yanked=OLD), "releases: 0"),
        (MANY_FILES, "releases: 1"),
        (None, "not found"),
    ],
)
async def test_a_project_that_is_not_established_is_refused(world: World, page: Any, fact: str) -> None:
    world.serve("thing-name", page or "", status=200 if page else 404)
    assert fact in await find_refusal(world.rule, "thing_name")
    world.clock.now += 30 * 86400
    assert (await world.make_rule().find_refusal("thing_name") is None) == (fact == "2023-07-01")


async def test_an_index_without_upload_times_allows_nothing(world: World) -> None:
    page = make_project_page("undated-thing", OLD)
    world.serve("undated-thing", {**page, "files": [{"filename": file["filename"]} for file in page["files"]]})
    world.serve(
        "unversioned-thing",
        {key: value for key, value in page.items() if key != "versions"} | {"name": "unversioned-thing"},
    )
    world.serve("hypertext", "<a href='x'>x</a>", kind="text/html; charset=utf-8")
    world.serve("unacceptable", "", status=406)
    for name in ("undated-thing", "unversioned-thing", "hypertext", "unacceptable"):
        assert "PEP 700" in await find_refusal(world.rule, name.replace("-", "_"))


@pytest.mark.parametrize("status", [500, 503, 429, 401, 403])
async def test_an_index_that_does_not_respond_is_queried_again_later(world: World, status: int) -> None:
    world.serve("venerable-thing", "", status=status)
    await fail_temporarily(world.rule, "venerable_thing")
    world.server.clear()
    world.serve("venerable-thing", make_project_page("venerable-thing", OLD))
    await fail_temporarily(world.rule, "venerable_thing")
    assert world.requested_paths == []
    world.clock.now += 61
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"


async def test_an_unreachable_index_is_a_temporary_error(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    world.settings = PackageSources((f"http://someone:s3cret@127.0.0.1:{port}/simple",))
    assert "network" in await fail_temporarily(world.rule, "venerable_thing")


async def test_a_hanging_index_times_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "_TIMEOUT", 0.3)
    proceed = threading.Event()
    world.handle("tarpit", lambda _request: (proceed.wait(30), Response())[1])
    try:
        assert "network" in await fail_temporarily(world.rule, "tarpit")
    finally:
        proceed.set()


async def test_a_huge_response_is_not_read_to_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "_MAX_BYTES", 1 << 20)
    world.serve("huge-thing", b" " * (8 << 20))
    assert "1 MB" in await find_refusal(world.rule, "huge_thing")


async def test_a_redirect_to_a_file_is_not_followed(world: World) -> None:
    world.handle("moved-thing", lambda _: Response(status=302, headers={"Location": "file:///etc/passwd"}))
    assert "network" in await fail_temporarily(world.rule, "moved_thing")


async def test_a_password_is_not_sent_to_a_redirect_target(world: World) -> None:
    with HTTPServer() as other:
        credentials = world.record_credentials("moved-thing", other, "/elsewhere/")
        target = other.url_for("/elsewhere/")
        world.handle("moved-thing", lambda _: Response(status=302, headers={"Location": target}))
        world.settings = PackageSources((world.server.url_for("/simple").replace("http://", "http://me:secret@"),))
        assert await world.rule.resolve("moved_thing") == "moved-thing"
    assert credentials == [None]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"name": "odd-thing"}', b'{"name": 1, "files": []}',
        json.dumps({**make_project_page("odd-thing", OLD), "files": {"a": 1}}),
        json.dumps(make_project_page("odd-thing", {"1.0": "yesterday"})),
        json.dumps(make_project_page("another-thing", OLD)),
    ],
)  # fmt: skip
async def test_an_invalid_response_allows_nothing(world: World, body: bytes) -> None:
    world.serve("odd-thing", body)
    assert "package index" in await find_refusal(world.rule, "odd_thing")


async def test_the_password_of_an_index_is_sent_to_it_and_not_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    credentials = world.record_credentials("venerable-thing")
    url = world.server.url_for("/simple").replace("http://", "http://me:s3cr%20et@")
    world.settings = PackageSources((url,))
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"
    assert credentials == ["Basic " + base64.b64encode(b"me:s3cr et").decode()]
    assert "s3cr" not in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"indexes": ("http://[::1",)},
        {"indexes": ("https://index.invalid/simple",), "certificates": "/no/such/file"},
        {"indexes": ("https://index.invalid/simple",), "proxy": "gopher://me:s3cret@proxy.invalid"},
    ],
)
async def test_unusable_settings_are_reported_without_secrets(world: World, settings: dict[str, Any]) -> None:
    world.settings = PackageSources(**settings)
    message = await fail_temporarily(world.rule, "venerable_thing")
    assert "network" in message
    assert "s3cret" not in message


async def test_the_proxy_in_pips_settings_is_used(world: World) -> None:
    world.settings = PackageSources(("http://index.invalid/simple",), proxy=world.server.url_for("/").rstrip("/"))
    world.serve("venerable-thing", make_project_page("venerable-thing", OLD))
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"


async def test_without_an_index_only_the_map_is_allowed(world: World) -> None:
    world.settings = PackageSources(())
    assert "pip's settings" in await find_refusal(world.rule, "venerable_thing")
    assert "sandbox.index_rule" in await find_refusal(IndexRule(None), "venerable_thing")
    assert await IndexRule(None).resolve("yaml") == "pyyaml"


@pytest.mark.parametrize("config", [SandboxConfig(index_rule=False), SandboxConfig(install_packages=False)])
async def test_the_settings_switch_the_rule_off(config: SandboxConfig) -> None:
    assert "sandbox.index_rule" in await find_refusal(build_rule(config), "venerable_thing")


def make_builder(
    world: World, tmp_path: Path, *, network: bool = True, base: tuple[str, ...] = ()
) -> tuple[WheelEnvironments, FakeUv]:
    uv = FakeUv(tmp_path / "uv")
    policy = DependencyPolicy(network, world.rule, base_requirements=base)
    resolutions, store = tmp_path / "answers", MemoryStore(tmp_path)
    return WheelEnvironments(store, uv=uv, resolutions=resolutions, clock=world.clock, policy=policy), uv


async def test_refused_packages_are_not_installed_under_any_spelling(world: World, tmp_path: Path) -> None:
    builder, uv = make_builder(world, tmp_path)
    world.serve("hallucinated", "", status=404)
    for requirement, name in (("hallucinated[x]>=1", "hallucinated"), ("Numpi==1.0", "numpi")):
        with pytest.raises(DependencyUnavailable, match=name):
            await builder.build(["numpy", requirement])
    assert uv.requests == []
    assert (await builder.build(["numpy"])).installed == ("numpy==1.0",)


async def test_without_network_no_index_is_queried(world: World, tmp_path: Path) -> None:
    builder, _uv = make_builder(world, tmp_path, network=False)
    assert await builder.find_requirement("venerable_thing") is None
    assert world.requested_paths == []


async def test_only_the_users_requirements_are_exempt_from_the_rule(world: World, tmp_path: Path) -> None:
    builder, _uv = make_builder(world, tmp_path, base=("our-own-tool<2",))
    world.serve("hallucinated", "", status=404)
    built = await builder.build([])
    assert (built.requirements, world.requested_paths) == (("our-own-tool<2",), [])
    assert (await builder.build(["numpy"])).requirements == ("numpy", "our-own-tool<2")
    with pytest.raises(DependencyUnavailable, match="hallucinated"):
        await builder.build(["hallucinated"])
