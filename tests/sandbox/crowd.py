"""Many pairs at work in sandboxes while something disturbs them, and how each of their programs ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from agent.config import PipelineConfig
from agent.errors import SandboxError
from agent.sandbox.base import RunResult, SandboxBackend, SandboxJob
from agent.sandbox.session import SandboxSession
from agent.streams import run_concurrently
from tests.sandbox.conftest import outcomes, statements

RUNS = 200
MOST = 10 * RUNS
RUNS_OF_A_PAIR = 4
AT_ONCE = 8


@dataclass(frozen=True)
class Program:
    """A program, and how it ends where nothing disturbs it."""

    body: str
    ending: str

    def job(self, number: int) -> SandboxJob:
        """Return a job that tells its own number."""
        return statements(f"print({number}, flush=True)\n{self.body}", timeout=15)


HONEST = (
    Program("assert 1 + 1 == 2", "passed"),
    Program("assert 1 + 1 == 3", "failed"),
    Program("raise KeyError('k')", "error"),
    Program("import time; time.sleep(0.4)", "passed"),
)
CRASHING = (
    *HONEST,
    Program("import os; os.abort()", "signal 6"),
    Program("import os; os._exit(3)", "exit code 3"),
    Program("import os; os.kill(os.getpid(), 9)", "signal 9"),
    Program("hoard = [bytearray(b'x' * (8 << 20)) for _ in range(1000)]", "error"),
    Program("for place in '/tmp', '/work': open(place + '/big', 'wb').write(bytes(1 << 20) * 100)", "memory"),
)


def ending(result: RunResult) -> str:
    """Say how a program ended, in the words of `Program.ending`."""
    if result.limit:
        return result.limit
    if result.signal is not None:
        return f"signal {result.signal}"
    if not result.clean:
        return "timed out" if result.timed_out else f"exit code {result.exit_code}"
    return outcomes(result).get("test_a", "nothing")


@dataclass
class Crowd:
    """The programs of many pairs: how many `begun`, `endings` by number, and the errors of those that had none."""

    programs: Sequence[Program]
    begun: int = 0
    endings: dict[int, str] = field(default_factory=dict)
    errors: dict[int, SandboxError] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)

    @property
    def ended(self) -> int:
        """How many programs have ended."""
        return len(self.endings) + len(self.errors)

    async def work(self, backend: SandboxBackend, enough: Callable[[], bool] = lambda: True) -> None:
        """Run all programs, those of a pair one after the other in one session, as a run of the tool does.

        More follow, up to `MOST`, until there were `enough`.
        """
        pairs = takewhile(lambda first: first < RUNS or not enough(), range(0, MOST, RUNS_OF_A_PAIR))
        async for _ in run_concurrently(pairs, lambda first: self._pair(backend, first), concurrency=AT_ONCE):
            pass

    async def go_on(self, by: int) -> None:
        """Wait until every program that runs now has ended, and that many more."""
        now, ended = frozenset(self.running), self.ended
        while now & self.running or self.ended < ended + by:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def wrong(self) -> dict[int, tuple[str, str]]:
        """Return the programs with another ending than theirs: what it was and what it should have been."""
        expected = {number: self._program(number).ending for number in self.endings}
        return {n: (self.endings[n], expected[n]) for n in expected if self.endings[n] != expected[n]}

    def _program(self, number: int) -> Program:
        return self.programs[number % len(self.programs)]

    async def _pair(self, backend: SandboxBackend, first: int) -> None:
        self.begun += RUNS_OF_A_PAIR
        session = SandboxSession(backend, attempts=PipelineConfig().sandbox_attempts)
        try:
            for number in range(first, first + RUNS_OF_A_PAIR):
                self.running.add(number)
                try:
                    result = await session.run(self._program(number).job(number))
                except SandboxError as error:
                    self.errors[number] = error
                else:
                    assert result.stdout.strip() in (str(number), ""), "the answer is another program's"
                    self.endings[number] = ending(result)
                finally:
                    self.running.discard(number)
        finally:
            await session.close()
