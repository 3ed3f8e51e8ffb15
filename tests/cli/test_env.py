"""`agent env` lists and removes cached environments."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.cli import env
from agent.cli.options import EnvOptions
from agent.errors import UsageError
from agent.sandbox.bwrap.backend import BwrapBackend
from agent.sandbox.dependencies.npm import Npm
from agent.sandbox.dependencies.store import Leases
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.select import BackendFactory
from tests.cli.commands import Commands
from tests.sandbox.stores import publish_wheel
from tests.sandbox.wheelhouse import make_wheel

DAY = 24 * 3600
BWRAP = EnvOptions(sandbox="bwrap")
NO_ENGINE = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
pytestmark = pytest.mark.bwrap


@pytest.fixture
def stores(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, BackendFactory]:
    """A new store with `old` (unused for nine days) and `new`, and new caches of uv and npm."""
    monkeypatch.setattr("agent.cli.env.Uv", lambda: Uv(tmp_path / "uv"))
    monkeypatch.setattr("agent.cli.env.Npm", lambda: Npm(tmp_path / "npm"))

    async def fill() -> None:
        backend = BwrapBackend(store=store, pool=0)
        await backend.start(lambda _line: None)
        for name in ("old", "new"):
            wheel = make_wheel(tmp_path, name, files={f"{name}.py": "", f"{name}.bin": "x" * 1_200_000})
            await publish_wheel(backend, wheel, name * 10)
            await backend.store.leases.acquire(name * 10)
        await backend.close()
        os.utime(store / "leases" / ("old" * 10), (time.time() - 9 * DAY,) * 2)

    asyncio.run(fill())
    return {"bwrap": lambda _config: BwrapBackend(store=store, pool=0)}


@pytest.fixture
def read_list(stores: Mapping[str, BackendFactory], capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that returns the list of environments."""

    def list_environments() -> list[dict[str, Any]]:
        capsys.readouterr()
        env.show(EnvOptions(), as_json=True, backends=stores)
        entries: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return entries

    return list_environments


def prune(stores: Mapping[str, BackendFactory], *settings: str, **options: Any) -> None:
    arguments = {"older_than": None, "everything": False, "dry_run": False, "as_json": False, **options}
    env.prune(replace(BWRAP, assignments=list(settings)), backends=stores, **arguments)


def test_environments_stores_and_totals_are_listed(
    stores: Mapping[str, BackendFactory], store: Path, read_list: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    env.show(BWRAP, as_json=False, backends=stores)
    head, first, second, store_line, *downloads, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["KEY", "LAST", "USED", "SIZE", "BACKEND", "PACKAGES"]
    assert first.startswith("newnewnewnew  ")
    assert second.split()[-2:] == ["bwrap", "old==1.0"]
    assert store_line.startswith(f"bwrap: {store}/bwrap: 2 ")
    assert [line.split("/", 1)[0] for line in downloads] == ["downloads: "] * 2
    assert all(line.endswith("/cache: 0.0 MB") for line in downloads)
    assert total.startswith("total: 2.")
    new, old = read_list()
    assert (new["key"], new["installed"], new["backend"]) == ("new" * 10, ["new==1.0"], "bwrap")
    assert 1_200_000 <= new["size"] < 1_400_000
    assert old["used"] < new["used"]


@pytest.mark.parametrize(("tool", "folder"), [("uv", "archive-v0"), ("npm", "_cacache")])
def test_downloads_are_counted_and_pruned(
    stores: Mapping[str, BackendFactory], tool: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / tool / "cache"
    (cache / folder).mkdir(parents=True)
    (cache / folder / "x").write_bytes(b"0" * 5_000_000)
    env.show(BWRAP, as_json=False, backends=stores)
    output = capsys.readouterr().out
    assert f"/{tool}/cache: 5.0 MB\n" in output
    assert "\ntotal: 7." in output
    prune(stores, "sandbox.store_mb=6")
    assert "downloads" not in capsys.readouterr().out
    prune(stores, everything=True, dry_run=True)
    assert "\nto remove: 5.0 MB " in capsys.readouterr().out
    prune(stores, "sandbox.store_mb=4")
    assert "\nremoved: 5.0 MB " in capsys.readouterr().out
    assert not (cache / folder).exists()


def test_environments_unused_for_longer_are_removed(
    stores: Mapping[str, BackendFactory], read_list: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    prune(stores, older_than=7.0)
    out = capsys.readouterr().out
    assert "old==1.0" in out
    assert "\nremoved: 1 " in out
    assert [entry["key"] for entry in read_list()] == ["new" * 10]


def test_dry_run_removes_nothing(
    stores: Mapping[str, BackendFactory], read_list: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_list()
    prune(stores, everything=True, dry_run=True)
    assert "\nto remove: 2 " in capsys.readouterr().out
    assert read_list() == before


def test_prune_all_keeps_environments_in_use(stores: Mapping[str, BackendFactory], read_list: Any, in_use: str) -> None:
    prune(stores, everything=True)
    assert [entry["key"] for entry in read_list()] == [in_use]


def test_prune_shrinks_the_store_to_its_limit_by_default(stores: Mapping[str, BackendFactory], read_list: Any) -> None:
    with pytest.raises(UsageError, match=r"sandbox\.store_mb=0"):
        prune(stores, "sandbox.store_mb=0")
    prune(stores, "sandbox.store_mb=3")
    assert len(read_list()) == 2
    prune(stores, "sandbox.store_mb=2")
    assert [entry["key"] for entry in read_list()] == ["new" * 10]


@pytest.fixture
def in_use(store: Path) -> Iterator[str]:
    """An environment with a lease, as if another process used it."""
    leases = Leases(lambda: store / "leases")
    asyncio.run(leases.acquire("old" * 10))
    yield "old" * 10
    leases.close()


def test_command_lists_and_prunes_stores(agent: Commands) -> None:
    result = agent("env", "list", "--json", **NO_ENGINE)
    assert result.code == 0
    assert all(entry["backend"] == "bwrap" for entry in result.json)
    assert "docker" in result.err
    pruned = agent("env", "prune", "--older-than", "36500", "--dry-run", "--sandbox", "bwrap")
    assert (pruned.code, pruned.out) == (0, "to remove: 0 environments, 0.0 MB\n")


def test_broken_backend_is_an_error_without_traceback(agent: Commands) -> None:
    assert agent.check_refused("Docker", "env", "list", "--sandbox", "docker", **NO_ENGINE).startswith("agent: ")


def test_all_and_older_than_cannot_be_combined(agent: Commands) -> None:
    agent.check_refused("--older-than", "env", "prune", "--all", "--older-than", "3")
