"""Measures executions of programs in their snippets' modules, in fresh processes and in forks.

Exits with 1 if an execution is slower than the targets, or if a fork and a fresh process have different results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import median

from rich.console import Console
from rich.table import Table

from agent.config import SandboxConfig
from agent.languages.base import Module
from agent.languages.python.language import PythonLanguage
from agent.sandbox.base import ReportLine, Sandbox, SandboxBackend, SandboxJob
from agent.sandbox.inside import read_source
from agent.sandbox.select import LOCKED_BACKENDS
from agent.types import Origin
from tests.benchmarks.figures import Series, print_table

PYTHON = PythonLanguage()
FUNCTIONS = (
    ("idna==3.10", "idna.core", "check_hyphen_ok", "check_hyphen_ok('ab')"),
    ("joblib==1.6.0", "joblib.logger", "format_time", "format_time(61)"),
    ("pandas==3.1.1", "pandas.core.dtypes.inference", "is_dict_like", "is_dict_like({})"),
    ("sympy==1.14.0", "sympy.utilities.misc", "ordinal", "ordinal(2) == '2nd'"),
    ("datasets==5.2.0", "datasets.utils.py_utils", "unique_values", "[*unique_values([1, 1])] == [1]"),
)
FRESH_MS, FORKED_MS, FORKED_90_MS, GAIN = 40, 15, 80, 10
"""The targets: a fresh process after the import, the median and 90% of forks, and the gain of the slowest imports."""
SLOW = ("pandas", "sympy", "datasets")
INSPECT = """\
import time
start = time.perf_counter()
import {0} as module
seconds = time.perf_counter() - start
import inspect, json
lines, first = inspect.getsourcelines(module.{1})
def test_a(): print(json.dumps([seconds, "".join(lines).rstrip(), first]))
"""


@dataclass(frozen=True)
class Figures:
    """Durations of the import (in ms) and of executions, and whether fresh processes and forks have equal results."""

    distribution: str
    importing: float
    fresh: Series
    forked: Series
    same: bool

    @property
    def gain(self) -> float:
        """How many times faster forks are."""
        return self.fresh.median / self.forked.median


async def build_jobs(
    backend: SandboxBackend, requirement: str, module: str, name: str, expression: str
) -> tuple[list[SandboxJob], float]:
    """Return the jobs of the test and the sentinel run of a function, and the milliseconds that its import takes."""
    environment = await backend.environments.build([requirement])
    job = SandboxJob(
        read_source("python_harness"), INSPECT.format(module, name), ("test_a",), {}, environment.key, timeout=60
    )
    seconds = []
    for _ in range(3):  # the first import reads the files from disk
        async with acquire(backend) as sandbox:
            result = await sandbox.run(job)
        second, code, line = json.loads(result.stdout)
        seconds.append(second)
    origin = Origin(repository=requirement, commit="", name=name, module=module, lines=(line, line + code.count("\n")))
    text = f"from {module} import {name}\n\n\ndef test_a():\n    assert {expression}\n"
    program = PYTHON.insert_in_module(text, PYTHON.inspect(code), Module(origin, ""))
    jobs = [make(program, environment=environment.key, timeout=60) for make in (PYTHON.job, PYTHON.sentinel_job)]
    return [job for job in jobs if job is not None], min(seconds) * 1e3


@asynccontextmanager
async def acquire(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    """Provide a sandbox and release it."""
    sandbox = await backend.acquire()
    yield sandbox
    await sandbox.release()


async def time_run(sandbox: Sandbox, job: SandboxJob) -> tuple[float, tuple[ReportLine, ...]]:
    """Run a job. Return the seconds from the request to the result, and the records."""
    start = time.perf_counter()
    result = await sandbox.run(job)
    return time.perf_counter() - start, result.records


async def measure(backend: SandboxBackend, function: tuple[str, str, str, str], count: int) -> Figures:
    """Run the test and the sentinel of a function `count` times, in fresh sandboxes and in the forks of one process."""
    jobs, importing = await build_jobs(backend, *function)
    fresh = []
    for job in jobs * count:
        async with acquire(backend) as sandbox:
            await asyncio.sleep(0.2)  # until the pool is full
            fresh.append(await time_run(sandbox, job))
    async with acquire(backend) as sandbox:
        forks = [replace(job, fork=True) for job in jobs * count]
        await sandbox.run(forks[0])
        forked = [await time_run(sandbox, job) for job in forks]
    same = [records for _, records in fresh] == [records for _, records in forked]
    series = [Series(tuple(seconds for seconds, _ in runs)) for runs in (fresh, forked)]
    return Figures(function[0], importing, *series, same)


def report(figures: list[Figures], console: Console) -> bool:
    """Print the figures. Return whether the targets are met."""
    table = Table("milliseconds", "import", "fresh", "forked", "forked, 90%", "gain", "same results")
    for each in figures:
        durations = (each.importing, each.fresh.median, each.forked.median, each.forked.p90, each.gain)
        table.add_row(each.distribution, *(f"{value:.1f}" for value in durations), str(each.same))
    print_table(console, "Executions in modules", table)
    forked = Series(tuple(value for each in figures for value in each.forked.seconds))
    over = median(each.fresh.median - each.importing for each in figures)
    console.print(f"Fresh beyond the import: {over:.1f} ms. Forked: {forked.median:.1f} ms, 90%: {forked.p90:.1f} ms")
    return (
        all(each.same for each in figures)
        and over <= FRESH_MS
        and forked.median <= FORKED_MS
        and forked.p90 < FORKED_90_MS
        and all(each.gain >= GAIN for each in figures if each.distribution.startswith(SLOW))
    )


async def main() -> bool:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.modules", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="tests and sentinel runs per function")
    parser.add_argument("--backend", choices=sorted(LOCKED_BACKENDS), default="bwrap")
    arguments = parser.parse_args()
    console = Console()
    backend = LOCKED_BACKENDS[arguments.backend](SandboxConfig())
    await backend.start(console.print)
    try:
        figures = [await measure(backend, function, arguments.runs) for function in FUNCTIONS]
    finally:
        await backend.close()
    return report(figures, console)


if __name__ == "__main__":
    sys.exit(not asyncio.run(main()))
