"""Outside the map only that is installed which an index shows to be old, often released, and no slip of a name."""

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
from agent.sandbox.dependencies.environments import Supply, WheelEnvironments
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.sources import PackageSources
from agent.sandbox.select import build_rule
from tests.sandbox.dependencies.test_environments import Clock, MakingUv, MemoryStore
from tests.sandbox.wheelhouse import project_page

NOW = 1_750_000_000.0  # June 2025
OLD = {f"1.{number}": f"20{10 + number}-01-01T00:00:00.000000Z" for number in range(5)}
JSON = "application/vnd.pypi.simple.v1+json"


class World:
    """A package index on this machine, and what asks it."""

    def __init__(self, server: HTTPServer) -> None:
        self.server = server
        self.clock = Clock()
        self.clock.now = NOW
        self.settings = PackageSources((server.url_for("/simple"),))
        self.rule = self.another_process()

    def another_process(self) -> IndexRule:
        return IndexRule(PackageIndex(sources=lambda: self.settings, clock=self.clock), clock=self.clock)

    def serve(self, name: str, page: Any, *, under: str = "simple", status: int = 200, kind: str = JSON) -> None:
        body = page if isinstance(page, str | bytes) else json.dumps(page)
        self.server.expect_request(f"/{under}/{name}/").respond_with_data(body, status=status, content_type=kind)

    def answer(self, name: str, handler: Callable[[Request], Response]) -> None:
        self.server.expect_request(f"/simple/{name}/").respond_with_handler(handler)

    @property
    def asked(self) -> list[str]:
        return [request.path for request, _response in self.server.log]


@pytest.fixture
def world(httpserver: HTTPServer) -> World:
    return World(httpserver)


async def temporary(rule: IndexRule, name: str) -> str:
    with pytest.raises(DependencyUnavailable) as caught:
        await rule.resolve(name)
    assert caught.value.temporary
    return str(caught.value)


async def find_refusal(rule: IndexRule, name: str) -> str:
    found = await rule.find_refusal(name)
    assert found is not None
    assert await rule.resolve(name) is None
    return found


async def test_a_project_that_is_old_and_often_released_provides_the_import_of_its_name(world: World) -> None:
    world.serve("venerable-thing", project_page("venerable-thing", OLD))
    assert await world.rule.resolve("Venerable_Thing") == "venerable-thing"
    assert await world.rule.find_refusal("venerable.thing") is None


async def test_a_name_of_the_map_is_never_asked_about(world: World) -> None:
    assert await world.rule.resolve("cv2") == "opencv-python-headless"
    assert [await world.rule.find_refusal(name) for name in ("numpy", "PyYAML", "scikit_learn", "setuptools")] == [
        None
    ] * 4
    assert world.asked == []


@pytest.mark.parametrize("name", ["os", "urllib2", "imp", "google", "a.b", "", "..", "naïve", "a b", "../etc", "1x"])
async def test_what_no_distribution_can_provide_is_never_asked_about(world: World, name: str) -> None:
    assert await world.rule.resolve(name) is None
    assert world.asked == []


@pytest.mark.parametrize(
    "name", ["numpi", "pandass", "panda", "reqeusts", "requests2", "urlib3", "Pilow", "sklern", "scikit-lear", "Yaml"]
)
async def test_a_slip_of_a_known_name_is_refused_whatever_the_index_says(world: World, name: str) -> None:
    world.serve(canonicalize_name(name), project_page(canonicalize_name(name), OLD))
    assert "slip" in await find_refusal(world.rule, name)
    assert world.asked == []


async def test_a_distribution_of_the_map_is_not_taken_for_an_import_of_its_own_name(world: World) -> None:
    assert await world.rule.resolve("pyyaml") is None
    assert await world.rule.find_refusal("pyyaml") is None


YOUNG = {f"1.{number}": f"2023-07-0{number + 1}T00:00:00Z" for number in range(9)}
MANY_FILES = project_page("thing-name", {"1.0": "2012-01-01T00:00:00Z"})
MANY_FILES["files"] = [{**MANY_FILES["files"][0], "filename": f"thing_name-1.0-cp3{n}-none-any.whl"} for n in range(9)]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (project_page("thing-name", YOUNG), "not installed, for it is new: first uploaded 2023-07-01"),
        (project_page("thing-name", dict(list(OLD.items())[:4])), "few releases: 4"),
        (project_page("thing-name", OLD, yanked=OLD), "few releases: 0"),
        (MANY_FILES, "few releases: 1"),
        (None, "no such distribution"),
    ],
)
async def test_a_project_that_is_not_established_is_refused(world: World, page: Any, why: str) -> None:
    world.serve("thing-name", page or "", status=200 if page else 404)
    assert why in await find_refusal(world.rule, "thing_name")
    world.clock.now += 30 * 86400
    assert (await world.another_process().resolve("thing_name") is not None) == ("it is new" in why)


async def test_an_index_that_gives_no_times_vouches_for_nothing(world: World) -> None:
    page = project_page("undated-thing", OLD)
    world.serve("undated-thing", {**page, "files": [{"filename": file["filename"]} for file in page["files"]]})
    world.serve(
        "unversioned-thing",
        {key: value for key, value in page.items() if key != "versions"} | {"name": "unversioned-thing"},
    )
    world.serve("hypertext", "<a href='x'>x</a>", kind="text/html; charset=utf-8")
    world.serve("unacceptable", "", status=406)
    for name in ("undated-thing", "unversioned-thing", "hypertext", "unacceptable"):
        assert "does not say how old" in await find_refusal(world.rule, name.replace("-", "_"))


@pytest.mark.parametrize("status", [500, 503, 429, 401, 403])
async def test_an_index_that_does_not_answer_is_asked_again_later(world: World, status: int) -> None:
    world.serve("venerable-thing", "", status=status)
    await temporary(world.rule, "venerable_thing")
    world.server.clear()
    world.serve("venerable-thing", project_page("venerable-thing", OLD))
    await temporary(world.rule, "venerable_thing")
    assert world.asked == []
    world.clock.now += 61
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"


async def test_nobody_there_is_temporary(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    world.settings = PackageSources((f"http://someone:s3cret@127.0.0.1:{port}/simple",))
    assert "does not answer" in await temporary(world.rule, "venerable_thing")


async def test_an_index_that_hangs_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "_TIMEOUT", 0.3)
    go_on = threading.Event()
    world.answer("tarpit", lambda _request: (go_on.wait(30), Response())[1])
    try:
        assert "does not answer" in await temporary(world.rule, "tarpit")
    finally:
        go_on.set()


async def test_a_huge_answer_is_not_read_to_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "_MAX_BYTES", 1 << 20)
    world.serve("huge-thing", b" " * (8 << 20))
    assert "more than 1 MB" in await find_refusal(world.rule, "huge_thing")


async def test_a_redirect_to_no_web_page_is_not_followed(world: World) -> None:
    world.answer("moved-thing", lambda _: Response(status=302, headers={"Location": "file:///etc/passwd"}))
    assert "does not answer" in await temporary(world.rule, "moved_thing")


async def test_a_password_does_not_go_where_an_index_sends_elsewhere(world: World) -> None:
    seen: list[str | None] = []

    def answer(request: Request) -> Response:
        seen.append(request.headers.get("Authorization"))
        return Response(json.dumps(project_page("moved-thing", OLD)), content_type=JSON)

    with HTTPServer() as other:
        other.expect_request("/elsewhere/").respond_with_handler(answer)
        target = other.url_for("/elsewhere/")
        world.answer("moved-thing", lambda _: Response(status=302, headers={"Location": target}))
        world.settings = PackageSources((world.server.url_for("/simple").replace("http://", "http://me:secret@"),))
        assert await world.rule.resolve("moved_thing") == "moved-thing"
    assert seen == [None]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"name": "odd-thing"}', b'{"name": 1, "files": []}',
        json.dumps({**project_page("odd-thing", OLD), "files": {"a": 1}}),
        json.dumps(project_page("odd-thing", {"1.0": "yesterday"})),
        json.dumps(project_page("another-thing", OLD)),
    ],
)  # fmt: skip
async def test_an_answer_that_makes_no_sense_vouches_for_nothing(world: World, body: bytes) -> None:
    world.serve("odd-thing", body)
    assert "package index" in await find_refusal(world.rule, "odd_thing")


async def test_a_password_of_the_index_is_sent_to_it_and_logged_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str | None] = []

    def answer(request: Request) -> Response:
        seen.append(request.headers.get("Authorization"))
        return Response(json.dumps(project_page("venerable-thing", OLD)), content_type=JSON)

    world.answer("venerable-thing", answer)
    url = world.server.url_for("/simple").replace("http://", "http://me:s3cr%20et@")
    world.settings = PackageSources((url,))
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"
    assert seen == ["Basic " + base64.b64encode(b"me:s3cr et").decode()]
    assert "s3cr" not in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"indexes": ("http://[::1",)},
        {"indexes": ("https://index.invalid/simple",), "certificates": "/no/such/file"},
        {"indexes": ("https://index.invalid/simple",), "proxy": "gopher://me:s3cret@proxy.invalid"},
    ],
)
async def test_settings_that_cannot_be_used_are_named_without_their_secrets(
    world: World, settings: dict[str, Any]
) -> None:
    world.settings = PackageSources(**settings)
    said = await temporary(world.rule, "venerable_thing")
    assert "does not answer" in said
    assert "s3cret" not in said


async def test_the_proxy_of_pips_settings_is_used(world: World) -> None:
    world.settings = PackageSources(("http://index.invalid/simple",), proxy=world.server.url_for("/").rstrip("/"))
    world.serve("venerable-thing", project_page("venerable-thing", OLD))
    assert await world.rule.resolve("venerable_thing") == "venerable-thing"


async def test_without_an_index_only_the_map_is_left(world: World) -> None:
    world.settings = PackageSources(())
    assert "name no package index" in await find_refusal(world.rule, "venerable_thing")
    assert "switched off" in await find_refusal(IndexRule(None), "venerable_thing")
    assert await IndexRule(None).resolve("yaml") == "pyyaml"


@pytest.mark.parametrize("config", [SandboxConfig(index_rule=False), SandboxConfig(network_for_builds=False)])
async def test_the_settings_switch_the_rule_off(config: SandboxConfig) -> None:
    assert "switched off" in await find_refusal(build_rule(config), "venerable_thing")


def environments(
    world: World, tmp_path: Path, *, network: bool = True, base: tuple[str, ...] = ()
) -> tuple[WheelEnvironments, MakingUv]:
    uv = MakingUv(tmp_path / "uv")
    supply = Supply(network, world.rule, base_requirements=base)
    return WheelEnvironments(
        MemoryStore(tmp_path), uv=uv, resolutions=tmp_path / "answers", clock=world.clock, supply=supply
    ), uv


async def test_what_the_rule_refuses_is_not_fetched_by_whatever_name_it_is_asked_for(
    world: World, tmp_path: Path
) -> None:
    builder, uv = environments(world, tmp_path)
    world.serve("hallucinated", "", status=404)
    for requirement in ("hallucinated[x]>=1", "Numpi==1.0"):
        with pytest.raises(DependencyUnavailable, match=r"no such distribution|slip"):
            await builder.build(["numpy", requirement])
    assert uv.asked == []
    assert (await builder.build(["numpy"])).installed == ("numpy==1.0",)


async def test_with_the_network_off_nobody_is_asked(world: World, tmp_path: Path) -> None:
    builder, _uv = environments(world, tmp_path, network=False)
    assert await builder.find_requirement("venerable_thing") is None
    assert world.asked == []


async def test_what_the_user_wrote_is_not_judged_and_what_comes_with_it_is(world: World, tmp_path: Path) -> None:
    builder, _uv = environments(world, tmp_path, base=("our-own-tool<2",))
    world.serve("hallucinated", "", status=404)
    built = await builder.build([])
    assert (built.requirements, world.asked) == (("our-own-tool<2",), [])
    assert (await builder.build(["numpy"])).requirements == ("numpy", "our-own-tool<2")
    with pytest.raises(DependencyUnavailable, match="no such distribution"):
        await builder.build(["hallucinated"])
