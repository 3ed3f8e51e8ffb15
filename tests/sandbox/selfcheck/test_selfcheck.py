"""Every check holds on both backends, or the backend says why this machine cannot enforce it; and nothing is left."""

from __future__ import annotations

import asyncio

import pytest

from agent.sandbox.selfcheck import CHECKS, CheckVerdict, inspect
from tests.sandbox.conftest import LIMITS, start
from tests.sandbox.leftovers import comes_to, containers, held, orphans_kept, volumes_and_networks


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param("bwrap", marks=pytest.mark.bwrap), pytest.param("docker", marks=pytest.mark.docker)]
)
async def test_every_check_holds_and_nothing_is_left_of_it(name: str) -> None:
    await (await start(name)).close()  # what is made once and kept, as the store and the image, is there
    docker = name == "docker"
    ours = await asyncio.to_thread(containers) if docker else set()
    made = await asyncio.to_thread(volumes_and_networks) if docker else set()
    needs = {str(check): check.needs for check in CHECKS}
    with orphans_kept():
        before = held()
        backend = await start(name)
        findings = [finding async for finding in inspect(backend, LIMITS)]
        unenforced = backend.unenforced()
        await backend.close()
        assert await comes_to(before) == before
    assert [finding for finding in findings if finding.verdict is CheckVerdict.BROKEN] == []
    assert len(findings) == len(CHECKS)
    for finding in findings:
        if finding.verdict is CheckVerdict.NOT_ENFORCED:
            assert finding.detail == unenforced[needs[f"{finding.group}: {finding.check}"]]
    if docker:
        assert await asyncio.to_thread(containers) <= ours
        assert await asyncio.to_thread(volumes_and_networks) <= made


def test_checks_have_names_of_their_own() -> None:
    assert len({str(check) for check in CHECKS}) == len(CHECKS) >= 216
    assert {check.needs for check in CHECKS} == {"", "memory", "cpu", "inodes", "seccomp"}
