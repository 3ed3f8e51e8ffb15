"""`agent env` lists what is kept from run to run and removes what nobody needs."""

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
from agent.sandbox.dependencies.store import Leases
from agent.sandbox.dependencies.uv import Uv
from agent.sandbox.select import BackendFactory
from tests.cli.commands import Commands
from tests.sandbox.stores import publish_wheel
from tests.sandbox.wheelhouse import make_wheel

DAY = 24 * 3600
BWRAP = EnvOptions(values={"sandbox.backend": "bwrap"})
NO_ENGINE = {"DOCKER_HOST": "tcp://127.0.0.1:9"}
pytestmark = pytest.mark.bwrap


@pytest.fixture
def kept(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, BackendFactory]:
    """A store of the test's own with `old`, unused for nine days, and `new`; uv's cache is the test's own."""
    monkeypatch.setattr("agent.cli.env.Uv", lambda: Uv(tmp_path / "uv"))

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
def read(kept: Mapping[str, BackendFactory], capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what is listed."""

    def listed() -> list[dict[str, Any]]:
        capsys.readouterr()
        env.show(EnvOptions(), as_json=True, backends=kept)
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    return listed


def prune(kept: Mapping[str, BackendFactory], *settings: str, **options: Any) -> None:
    given = {"older_than": None, "everything": False, "dry_run": False, "as_json": False, **options}
    env.prune(replace(BWRAP, settings=list(settings)), backends=kept, **given)


def test_environments_are_listed_with_what_is_known_of_them_then_places_and_sums(
    kept: Mapping[str, BackendFactory], store: Path, read: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    env.show(BWRAP, as_json=False, backends=kept)
    head, first, second, own, downloads, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["KEY", "LAST", "USED", "SIZE", "BACKEND", "PACKAGES"]
    assert first.startswith("newnewnewnew  ")
    assert second.endswith("MB  bwrap    old==1.0")
    assert own.startswith(f"bwrap: {store}/bwrap: 2 environments, 2.")
    assert downloads.endswith("/uv/cache: 0.0 MB")
    assert total.startswith("total: 2.")
    new, old = read()
    assert (new["key"], new["installed"], new["backend"]) == ("new" * 10, ["new==1.0"], "bwrap")
    assert 1_200_000 <= new["size"] < 1_400_000
    assert old["used"] < new["used"]


def test_downloads_are_counted_and_go_with_the_rest(
    kept: Mapping[str, BackendFactory], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "uv" / "cache"
    (cache / "archive-v0").mkdir(parents=True)
    (cache / "archive-v0" / "x").write_bytes(b"0" * 5_000_000)
    env.show(BWRAP, as_json=False, backends=kept)
    assert "/uv/cache: 5.0 MB\ntotal: 7." in capsys.readouterr().out
    prune(kept, "sandbox.store_mb=6")
    assert "downloads" not in capsys.readouterr().out
    prune(kept, everything=True, dry_run=True)
    assert "to remove: 5.0 MB of downloads" in capsys.readouterr().out
    prune(kept, "sandbox.store_mb=4")
    assert "removed: 5.0 MB of downloads" in capsys.readouterr().out
    assert not (cache / "archive-v0").exists()


def test_what_was_unused_for_longer_is_removed_and_told(
    kept: Mapping[str, BackendFactory], read: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    prune(kept, older_than=7.0)
    said = capsys.readouterr().out
    assert "old==1.0" in said
    assert "removed: 1 environment, 1." in said
    assert [each["key"] for each in read()] == ["new" * 10]


def test_a_dry_run_tells_the_same_and_removes_nothing(
    kept: Mapping[str, BackendFactory], read: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read()
    prune(kept, everything=True, dry_run=True)
    assert "to remove: 2 environments, 2." in capsys.readouterr().out
    assert read() == before


def test_all_are_removed_but_those_in_use(kept: Mapping[str, BackendFactory], read: Any, in_use: str) -> None:
    prune(kept, everything=True)
    assert [each["key"] for each in read()] == [in_use]


def test_without_a_wish_the_store_is_brought_within_its_limit(kept: Mapping[str, BackendFactory], read: Any) -> None:
    with pytest.raises(UsageError, match="there is no limit to shrink to"):
        prune(kept, "sandbox.store_mb=0")
    prune(kept, "sandbox.store_mb=3")
    assert len(read()) == 2
    prune(kept, "sandbox.store_mb=2")
    assert [each["key"] for each in read()] == ["new" * 10]


@pytest.fixture
def in_use(store: Path) -> Iterator[str]:
    """An environment that another process holds, as far as locks tell."""
    leases = Leases(lambda: store / "leases")
    asyncio.run(leases.acquire("old" * 10))
    yield "old" * 10
    leases.close()


def test_the_command_lists_and_prunes_the_stores_of_this_machine(agent: Commands) -> None:
    listed = agent("env", "list", "--json", **NO_ENGINE)
    assert listed.code == 0
    assert all(each["backend"] == "bwrap" for each in listed.json)
    assert "docker does not work here" in listed.err
    pruned = agent("env", "prune", "--older-than", "36500", "--dry-run", "--sandbox", "bwrap")
    assert (pruned.code, pruned.out) == (0, "to remove: 0 environments, 0.0 MB\n")


def test_a_backend_that_does_not_work_is_an_error_without_a_traceback(agent: Commands) -> None:
    ended = agent("env", "list", "--sandbox", "docker", **NO_ENGINE)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("agent: no Docker engine answers")


def test_two_wishes_at_once_are_refused(agent: Commands) -> None:
    ended = agent("env", "prune", "--all", "--older-than", "3")
    assert ended.code == 2
    assert "give one of them" in ended.err
