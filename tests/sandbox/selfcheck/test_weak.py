"""Every check can fail, and weakened backends fail the checks for what was weakened."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from agent.sandbox.base import CommandResult, RunResult, Sandbox, SandboxBackend, SandboxJob
from agent.sandbox.bwrap.process import Bubblewrap
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.selfcheck.check import Canaries, Check, CheckContext, CheckResult, CheckVerdict, open_canaries
from agent.sandbox.selfcheck.run import CHECKS, run_check
from tests.sandbox.conftest import LIMITS, start
from tests.scripts import pass_all


@dataclass(eq=False)
class FakeBackend(SandboxBackend, Sandbox):
    """A backend whose sandboxes do not run programs. `make_result` returns the result for every program."""

    make_result: Callable[[SandboxJob], RunResult]
    exit_code: int
    name: str = "fake"

    async def acquire(self) -> Sandbox:
        return self

    async def run(self, job: SandboxJob) -> RunResult:
        return self.make_result(job)

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:  # noqa: ARG002
        return CommandResult(self.exit_code, "")

    async def release(self) -> None:
        """Do nothing: `acquire` acquired no resources."""


def report_nothing(_job: SandboxJob) -> RunResult:
    return RunResult((), exit_code=1)


@pytest.fixture(scope="module")
def canaries() -> Iterator[Canaries]:
    with open_canaries() as canaries:
        yield canaries


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_every_check_can_fail(canaries: Canaries, check: Check) -> None:
    contexts = [CheckContext(FakeBackend(make, 0), LIMITS, canaries) for make in (pass_all, report_nothing)]
    assert CheckVerdict.FAILED in [(await run_check(check, context)).verdict for context in contexts]


async def test_a_sandbox_error_is_a_failed_check(canaries: Canaries) -> None:
    silent = ScriptedSandbox()
    await silent.start(lambda _line: None)
    result = await run_check(CHECKS[0], CheckContext(silent, LIMITS, canaries))
    assert (result.verdict, "sandbox" in result.detail) == (CheckVerdict.FAILED, True)


async def test_a_check_of_an_unenforced_limit_is_skipped(canaries: Canaries) -> None:
    class PartialBackend(FakeBackend):
        def unenforced(self) -> Mapping[str, str]:
            return {"memory": "cgroups"}

    check = next(check for check in CHECKS if check.needs == "memory")
    result = await run_check(check, CheckContext(PartialBackend(pass_all, 0), LIMITS, canaries))
    assert result == CheckResult(check.name, check.group, CheckVerdict.NOT_ENFORCED, "cgroups")


Change = Callable[[list[str]], list[str]]


def add_options(*options: str) -> Change:
    """Append options to the bubblewrap command."""
    return lambda words: [*words[: words.index("--")], *options, *words[words.index("--") :]]


def remove_options(*options: str) -> Change:
    """Remove a sequence of consecutive options."""

    def change(words: list[str]) -> list[str]:
        at = next(n for n in range(len(words)) if tuple(words[n : n + len(options)]) == options)
        return words[:at] + words[at + len(options) :]

    return change


def remove_sizes(words: list[str]) -> list[str]:
    """Remove the size limits of temporary folders."""
    remaining = list(words)
    while "--size" in remaining:
        at = remaining.index("--size")
        del remaining[at : at + 2]
    return remaining


WEAK: dict[str, tuple[Change, tuple[str, ...]]] = {
    "shared network": (
        add_options("--share-net"),
        (
            "network: the host and its local network",
            "network: any interface except lo",
            "network: Unix sockets of the host",
        ),
    ),
    "visible temporary folder": (
        lambda words: add_options("--bind", tempfile.gettempdir(), tempfile.gettempdir())(words),
        ("host: links to host files do not work", "host: no path leads out of the sandbox"),
    ),
    "writable root": (
        remove_options("--remount-ro", "/"),
        ("protected files: the root folder",),
    ),
    "unlimited folders": (remove_sizes, ("resources: the size of each folder",)),
    "leaked secret": (
        lambda words: add_options("--setenv", "X", os.environ["AGENT_SELFCHECK_SECRET"])(words),
        ("host: the host's secrets are invisible",),
    ),
}  # fmt: skip


@asynccontextmanager
async def open_weak_context(
    change: Change, monkeypatch: pytest.MonkeyPatch, *, filtered: bool = True
) -> AsyncIterator[CheckContext]:
    """Yield a context for checks whose backend uses a weakened bubblewrap command."""
    build_unweakened = Bubblewrap.build_arguments

    def build_weakened(self: Bubblewrap, argv: Sequence[str], **shown: object) -> list[str]:
        return change(build_unweakened(self, argv, **shown))  # type: ignore[arg-type]

    monkeypatch.setattr(Bubblewrap, "build_arguments", build_weakened)
    if not filtered:
        monkeypatch.setattr("agent.sandbox.bwrap.backend.find_kernel_filter", lambda _machine: None)
    with open_canaries() as canaries:
        backend = await start("bwrap")
        try:
            yield CheckContext(backend, LIMITS, canaries)
        finally:
            await backend.close()


def find_check(name: str) -> Check:
    return next(check for check in CHECKS if str(check) == name)


@pytest.mark.bwrap
@pytest.mark.parametrize(("change", "names"), WEAK.values(), ids=WEAK)
async def test_a_weakness_is_detected(change: Change, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_weak_context(change, monkeypatch) as context:
        results = {name: await run_check(find_check(name), context) for name in names}
    assert {result.verdict for result in results.values()} == {CheckVerdict.FAILED}, results


@pytest.mark.bwrap
@pytest.mark.parametrize("name", ["a key", "a keyring", "injecting input into a terminal", "a BPF program"])
async def test_a_missing_filter_is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_weak_context(lambda words: words, monkeypatch, filtered=False) as context:
        check = find_check(f"kernel: {name}")
        assert (await run_check(check, context)).verdict is CheckVerdict.NOT_ENFORCED
        assert (await run_check(replace(check, needs=""), context)).verdict is CheckVerdict.FAILED
