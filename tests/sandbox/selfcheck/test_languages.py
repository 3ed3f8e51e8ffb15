"""On both backends, honest programs pass and attacks do not. Every check can fail."""

from __future__ import annotations

import tempfile

import pytest

from agent.languages.base import HONEST
from agent.languages.registry import Languages
from agent.languages.selfcheck import build_checks
from agent.sandbox.base import SENTINEL, RunResult, SandboxBackend, SandboxJob
from agent.sandbox.selfcheck.check import CheckContext, CheckVerdict, open_canaries
from agent.sandbox.selfcheck.run import run_check
from tests.sandbox.conftest import LIMITS
from tests.sandbox.selfcheck.test_weak import FakeBackend, add_options, open_weak_context, report_nothing
from tests.scripts import fail_all, pass_all

LANGUAGES = {name: Languages()[name] for name in ("javascript", "typescript", "sql")}
FOLDER = tempfile.gettempdir()
ATTACKS = [(name, attack) for name, language in LANGUAGES.items() for attack in language.attacks]


def believe(job: SandboxJob) -> RunResult:
    """Return a pass that a sentinel run confirms."""
    return fail_all(job) if SENTINEL in job.options else pass_all(job)


async def find_broken(context: CheckContext, name: str) -> list[str]:
    """Return the names of the checks that the context's backend fails."""
    language = LANGUAGES[name]
    if language.toolchain is not None:
        await context.backend.require_toolchain(language.toolchain)
    results = [await run_check(check, context) for check in build_checks(language)]
    return [result.check for result in results if result.verdict is not CheckVerdict.PASSED]


@pytest.mark.node
@pytest.mark.parametrize("name", LANGUAGES)
async def test_sandboxes_withstand_the_attacks(backend: SandboxBackend, name: str) -> None:
    with open_canaries() as canaries:
        assert await find_broken(CheckContext(backend, LIMITS, canaries), name) == []


@pytest.mark.node
@pytest.mark.bwrap
@pytest.mark.parametrize(
    ("options", "name", "attack"),
    [
        (("--share-net",), "javascript", "connects to the host"),
        (("--bind", FOLDER, FOLDER), "typescript", "writes outside its folders"),
        (("--bind", FOLDER, FOLDER), "sql", "creates a file on the host"),
    ],
)
async def test_a_weakness_is_detected(
    options: tuple[str, ...], name: str, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_weak_context(add_options(*options), monkeypatch) as context:
        assert attack in await find_broken(context, name)


@pytest.mark.parametrize(("name", "attack"), ATTACKS)
async def test_every_check_can_fail(name: str, attack: str) -> None:
    check = next(check for check in build_checks(LANGUAGES[name]) if check.name == attack)
    make_result = report_nothing if attack == HONEST else believe
    with open_canaries() as canaries:
        result = await run_check(check, CheckContext(FakeBackend(make_result, 0), LIMITS, canaries))
    assert (result.verdict, "not to pass" in result.detail) == (CheckVerdict.FAILED, attack != HONEST)
