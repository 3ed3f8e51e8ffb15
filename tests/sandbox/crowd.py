"""Many pairs that run programs concurrently while something disturbs the backend."""

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
from tests.sandbox.conftest import make_test_job, read_outcomes

RUNS = 200
MAX_RUNS = 10 * RUNS
RUNS_PER_PAIR = 4
CONCURRENCY = 8


@dataclass(frozen=True)
class Program:
    """A program and its expected ending."""

    body: str
    ending: str

    def make_job(self, number: int) -> SandboxJob:
        """Return a job that prints its number."""
        return make_test_job(f"print({number}, flush=True)\n{self.body}", timeout=15)


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


def describe_ending(result: RunResult) -> str:
    """Describe how a program ended, as in `Program.ending`."""
    if result.limit:
        return result.limit
    if result.signal is not None:
        return f"signal {result.signal}"
    if not result.clean:
        return "timed out" if result.timed_out else f"exit code {result.exit_code}"
    return read_outcomes(result).get("test_a", "nothing")


@dataclass
class Crowd:
    """The programs of many pairs: the number started, and the endings or errors by number."""

    programs: Sequence[Program]
    started_count: int = 0
    endings: dict[int, str] = field(default_factory=dict)
    errors: dict[int, SandboxError] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)

    @property
    def ended_count(self) -> int:
        """The number of programs that have ended."""
        return len(self.endings) + len(self.errors)

    async def run_programs(self, backend: SandboxBackend, enough: Callable[[], bool] = lambda: True) -> None:
        """Run all programs, sequentially within a pair and its session.

        Continues until `enough()`, but runs at most `MAX_RUNS` programs.
        """
        pairs = takewhile(lambda first: first < RUNS or not enough(), range(0, MAX_RUNS, RUNS_PER_PAIR))
        async for _ in run_concurrently(pairs, lambda first: self._run_pair(backend, first), concurrency=CONCURRENCY):
            pass

    async def wait_for_progress(self, by: int) -> None:
        """Wait until all programs that are running now and at least `by` programs have ended."""
        now, target = frozenset(self.running), self.ended_count + by
        while now & self.running or self.ended_count < target:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def find_wrong_endings(self) -> dict[int, tuple[str, str]]:
        """Return the actual and the expected endings of programs where they differ."""
        expected = {number: self._program(number).ending for number in self.endings}
        return {n: (self.endings[n], expected[n]) for n in expected if self.endings[n] != expected[n]}

    def _program(self, number: int) -> Program:
        return self.programs[number % len(self.programs)]

    async def _run_pair(self, backend: SandboxBackend, first: int) -> None:
        self.started_count += RUNS_PER_PAIR
        session = SandboxSession(backend, attempts=PipelineConfig().sandbox_attempts)
        try:
            for number in range(first, first + RUNS_PER_PAIR):
                self.running.add(number)
                try:
                    result = await session.run(self._program(number).make_job(number))
                except SandboxError as error:
                    self.errors[number] = error
                else:
                    assert result.stdout.strip() in (str(number), ""), "the result belongs to another program"
                    self.endings[number] = describe_ending(result)
                finally:
                    self.running.discard(number)
        finally:
            await session.close()
