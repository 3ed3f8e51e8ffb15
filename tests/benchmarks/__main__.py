"""Measures what a sandbox costs: latency at a paced arrival and lives a second, all kinds in one run."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable
from agent.sandbox.base import SandboxBackend
from agent.sandbox.select import BACKENDS
from agent.streams import run_concurrently
from tests.benchmarks.environments import environment_hit
from tests.benchmarks.figures import Series, latency_table, show, throughput_table
from tests.benchmarks.lives import Life, NaiveDocker, bare, sandboxed

LEVELS = (1, 4, 8, 16)
BARE, NAIVE = "bare process", "naive container"


async def paced(lives: dict[str, Life], *, pairs: int, interval: float) -> dict[str, Series]:
    """Let each kind live once in every interval, one after the other, and return how long each took."""
    seconds: dict[str, list[float]] = {name: [] for name in lives}
    begin = time.perf_counter()
    for number in range(pairs):
        for place, (name, live) in enumerate(lives.items()):
            due = begin + interval * (number + place / len(lives))
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            seconds[name].append(await live())
    return {name: Series(tuple(each)) for name, each in seconds.items()}


async def rate(live: Life, *, at_once: int, lives: int) -> float:
    """Return how many lives a second end with so many in flight."""
    started = time.perf_counter()
    async for _ in run_concurrently(range(lives), lambda _number: live(), concurrency=at_once):
        pass
    return lives / (time.perf_counter() - started)


async def measure(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run every benchmark on every backend that works here; print tables and return all figures."""
    async with AsyncExitStack() as stack:
        backends = await _backends(stack, console)
        lives: dict[str, Life] = {f"{name} sandbox": sandboxed(backend) for name, backend in backends.items()}
        naive = None
        if "docker" in backends:
            naive = await stack.enter_async_context(NaiveDocker(backends["docker"].describe()["image"]))
        await asyncio.sleep(2)  # the pools fill
        console.print(f"{arguments.pairs} pairs, one a second: from the wish to the result")
        series = await paced({**lives, BARE: bare}, pairs=arguments.pairs, interval=1.0)
        if naive is not None:
            await asyncio.sleep(1)
            series |= await paced({NAIVE: naive.live}, pairs=arguments.pairs, interval=0.5)
        show(console, "Latency, pool full", latency_table(series, bare=BARE, naive=NAIVE))
        rates: dict[str, dict[int, float]] = {}
        for name, live in {**lives, BARE: bare, **({} if naive is None else {NAIVE: naive.live})}.items():
            slow = name in (NAIVE, "docker sandbox")
            count = arguments.lives if slow else arguments.lives * 5
            rates[name] = {level: await rate(live, at_once=level, lives=count) for level in LEVELS}
            await asyncio.sleep(1)
        show(console, "Throughput", throughput_table(rates, LEVELS))
        hits = {f"{name} sandbox": await environment_hit(backend) for name, backend in backends.items()}
        for name, hit in hits.items():
            console.print(f"{name}: a built environment adds {hit['added_ms']:.2f} ms to a run", highlight=False)
        described = {name: dict(backend.describe()) for name, backend in backends.items()}
    return {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "backends": described,
        "latency": {name: each.as_json() for name, each in series.items()},
        "lives_per_second": {
            name: {str(level): round(value, 2) for level, value in each.items()} for name, each in rates.items()
        },
        "environment": hits,
    }


async def _backends(stack: AsyncExitStack, console: Console) -> dict[str, SandboxBackend]:
    started: dict[str, SandboxBackend] = {}
    for name, make in BACKENDS.items():
        backend = make(SandboxConfig())
        try:
            await backend.start(lambda line: console.print(line, highlight=False, markup=False))
        except SandboxUnavailable as error:
            console.print(f"left out: {error}", highlight=False, markup=False)
            continue
        stack.push_async_callback(backend.close)
        started[name] = backend
    return started


def main() -> None:
    """Read the command line, measure, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=50, help="pairs of the paced arrival")
    parser.add_argument("--lives", type=int, default=40, help="lives for each throughput (five times that for bwrap)")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments, Console()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
