"""A backend with a weakness is found out: each check can fail, and does where it should."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from agent.sandbox.base import CommandResult, ReportLine, RunResult, Sandbox, SandboxBackend, SandboxJob
from agent.sandbox.bwrap.process import Bubblewrap
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.selfcheck import CHECKS, Check, CheckContext, CheckResult, CheckVerdict, canaries, examine
from agent.sandbox.selfcheck.check import Host
from tests.sandbox.conftest import LIMITS, start


@dataclass(eq=False)
class Answering(SandboxBackend, Sandbox):
    """A backend whose sandboxes run nothing: every program ends as `answer` says."""

    answer: Callable[[SandboxJob], RunResult]
    exit_code: int
    name: str = "answering"

    async def acquire(self) -> Sandbox:
        return self

    async def run(self, job: SandboxJob) -> RunResult:
        return self.answer(job)

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:  # noqa: ARG002
        return CommandResult(self.exit_code, "")

    async def release(self) -> None:
        """Nothing was acquired."""


def believes(job: SandboxJob) -> RunResult:
    """Report every case as passed."""
    cases = [record for name in job.cases for record in (ReportLine("start", name), ReportLine("case", name, "passed"))]
    return RunResult((*cases, ReportLine("end")))


def fails(_job: SandboxJob) -> RunResult:
    """Report nothing."""
    return RunResult((), exit_code=1)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """Canaries."""
    with canaries() as made:
        yield made


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_no_check_holds_whatever_the_answer(host: Host, check: Check) -> None:
    contexts = [CheckContext(Answering(believes, 0), LIMITS, host), CheckContext(Answering(fails, 0), LIMITS, host)]
    assert CheckVerdict.BROKEN in [(await examine(check, context)).verdict for context in contexts]


async def test_a_sandbox_that_breaks_is_a_finding(host: Host) -> None:
    silent = ScriptedSandbox()
    await silent.start(lambda _line: None)
    finding = await examine(CHECKS[0], CheckContext(silent, LIMITS, host))
    assert (finding.verdict, "the sandbox itself broke" in finding.detail) == (CheckVerdict.BROKEN, True)


async def test_what_cannot_be_enforced_is_not_tried(host: Host) -> None:
    class Modest(Answering):
        def unenforced(self) -> Mapping[str, str]:
            return {"memory": "no control groups"}

    check = next(check for check in CHECKS if check.needs == "memory")
    finding = await examine(check, CheckContext(Modest(believes, 0), LIMITS, host))
    assert finding == CheckResult(check.name, check.group, CheckVerdict.NOT_ENFORCED, "no control groups")


Change = Callable[[list[str]], list[str]]


def with_options(*options: str) -> Change:
    """Give bubblewrap further options, after all others."""
    return lambda words: [*words[: words.index("--")], *options, *words[words.index("--") :]]


def without(*options: str) -> Change:
    """Leave out options that stand one after another."""

    def change(words: list[str]) -> list[str]:
        at = next(n for n in range(len(words)) if tuple(words[n : n + len(options)]) == options)
        return words[:at] + words[at + len(options) :]

    return change


def unlimited(words: list[str]) -> list[str]:
    """Leave out the sizes of temporary folders."""
    kept = list(words)
    while "--size" in kept:
        at = kept.index("--size")
        del kept[at : at + 2]
    return kept


WEAK: dict[str, tuple[Change, tuple[str, ...]]] = {
    "it shares the host's network": (
        with_options("--share-net"),
        (
            "network: the host and its neighbours",
            "network: any interface but its own",
            "network: Unix sockets of the host",
        ),
    ),
    "it shows the host's temporary folder": (
        lambda words: with_options("--bind", tempfile.gettempdir(), tempfile.gettempdir())(words),
        ("the host: links to the host's files lead nowhere", "the host: no path leads up and out"),
    ),
    "its root can be written": (
        without("--remount-ro", "/"),
        ("files that are not its own: the root",),
    ),
    "its folders have no size": (unlimited, ("resources: the size of each folder",)),
    "it passes a secret on": (
        lambda words: with_options("--setenv", "X", os.environ["AGENT_SELFCHECK_SECRET"])(words),
        ("the host: its secrets cannot be seen",),
    ),
}  # fmt: skip


@asynccontextmanager
async def weak(
    change: Change, monkeypatch: pytest.MonkeyPatch, *, filtered: bool = True
) -> AsyncIterator[CheckContext]:
    """A context whose bubblewrap was weakened."""
    strong = Bubblewrap.build_arguments

    def arguments(self: Bubblewrap, argv: Sequence[str], **shown: object) -> list[str]:
        return change(strong(self, argv, **shown))  # type: ignore[arg-type]

    monkeypatch.setattr(Bubblewrap, "build_arguments", arguments)
    if not filtered:
        monkeypatch.setattr("agent.sandbox.bwrap.backend.kernel_filter", lambda _machine: None)
    with canaries() as host:
        backend = await start("bwrap")
        try:
            yield CheckContext(backend, LIMITS, host)
        finally:
            await backend.close()


def named(name: str) -> Check:
    """Return a check by its name."""
    return next(check for check in CHECKS if str(check) == name)


@pytest.mark.bwrap
@pytest.mark.parametrize(("change", "names"), WEAK.values(), ids=WEAK)
async def test_a_weakness_is_found(change: Change, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with weak(change, monkeypatch) as context:
        findings = {name: await examine(named(name), context) for name in names}
    assert {finding.verdict for finding in findings.values()} == {CheckVerdict.BROKEN}, findings


@pytest.mark.bwrap
@pytest.mark.parametrize("name", ["a key", "a keyring", "input pushed into a terminal", "code in the kernel"])
async def test_a_missing_filter_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with weak(lambda words: words, monkeypatch, filtered=False) as context:
        check = named(f"the kernel: {name}")
        assert (await examine(check, context)).verdict is CheckVerdict.NOT_ENFORCED
        assert (await examine(replace(check, needs=""), context)).verdict is CheckVerdict.BROKEN
