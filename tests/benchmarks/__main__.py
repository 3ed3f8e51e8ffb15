"""Measures the cost of sandboxes: latency at a fixed arrival rate, and cycles per second."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import resource
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.config import SandboxConfig
from agent.errors import SandboxUnavailable
from agent.sandbox.base import SandboxBackend, Toolchain
from agent.sandbox.select import BACKENDS
from agent.streams import run_concurrently
from tests.benchmarks.cycles import JAVASCRIPT, NODE, Cycle, NaiveDocker, make_sandbox_cycle, run_bare_process
from tests.benchmarks.environments import measure_environment
from tests.benchmarks.figures import Series, make_latency_table, make_throughput_table, print_table

LEVELS = (1, 4, 8, 16)
JAVASCRIPT_SUFFIX = ", JavaScript"
BARE, NAIVE = "bare process", "naive container"


async def measure_latencies(cycles: dict[str, Cycle], *, pairs: int, interval: float) -> dict[str, Series]:
    """Run each cycle once per interval, one after another, and return the durations."""
    seconds: dict[str, list[float]] = {name: [] for name in cycles}
    start = time.perf_counter()
    for number in range(pairs):
        for position, (name, run) in enumerate(cycles.items()):
            due = start + interval * (number + position / len(cycles))
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            seconds[name].append(await run())
    return {name: Series(tuple(values)) for name, values in seconds.items()}


async def measure_rate(run: Cycle, *, concurrency: int, cycles: int) -> tuple[float, float]:
    """Return the number of cycles per second at a given concurrency, and the milliseconds of CPU time per cycle.

    The CPU time includes this process, and its children that have exited. Containers are not its children.
    """
    start, cpu = time.perf_counter(), count_cpu_seconds()
    async for _ in run_concurrently(range(cycles), lambda _number: run(), concurrency=concurrency):
        pass
    return cycles / (time.perf_counter() - start), (count_cpu_seconds() - cpu) / cycles * 1e3


def count_cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have exited."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def measure(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run all benchmarks on every available backend, print tables, and return the results."""
    async with AsyncExitStack() as stack:
        backends = await _start_backends(stack, console)
        cycles = {f"{name} sandbox": make_sandbox_cycle(backend) for name, backend in backends.items()}
        # separate backends, because a backend prepares its sandboxes for the language of its last program
        for name, backend in (await _start_backends(stack, console, NODE)).items():
            cycles[f"{name} sandbox{JAVASCRIPT_SUFFIX}"] = run = make_sandbox_cycle(backend, JAVASCRIPT)
            for _ in range(2 * SandboxConfig().pool):  # until every sandbox starts its runner in advance
                await run()
        naive = None
        if "docker" in backends:
            naive = await stack.enter_async_context(NaiveDocker(backends["docker"].describe()["image"]))
        await asyncio.sleep(2)  # until the pools are full
        console.print(f"Latency from request to result: {arguments.pairs} cycles per setup, one per second")
        series = await measure_latencies({**cycles, BARE: run_bare_process}, pairs=arguments.pairs, interval=1.0)
        if naive is not None:
            await asyncio.sleep(1)
            series |= await measure_latencies({NAIVE: naive.run}, pairs=arguments.pairs, interval=0.5)
        print_table(console, "Latency with a full pool", make_latency_table(series, bare=BARE, naive=NAIVE))
        rates: dict[str, dict[int, tuple[float, float]]] = {}
        for name, run in {**cycles, BARE: run_bare_process, **({} if naive is None else {NAIVE: naive.run})}.items():
            slow = name == NAIVE or name.startswith("docker")
            count = arguments.cycles if slow else arguments.cycles * 5
            rates[name] = {level: await measure_rate(run, concurrency=level, cycles=count) for level in LEVELS}
            await asyncio.sleep(1)
        print_table(console, "Throughput (milliseconds of CPU time)", make_throughput_table(rates, LEVELS))
        hits = {f"{name} sandbox": await measure_environment(backend) for name, backend in backends.items()}
        for name, hit in hits.items():
            console.print(f"{name}: a cached environment adds {hit['added_ms']:.2f} ms to a run", highlight=False)
        descriptions = {name: dict(backend.describe()) for name, backend in backends.items()}
    return {
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()},
        "backends": descriptions,
        "latency": {name: values.as_json() for name, values in series.items()},
        "cycles_per_second": {
            name: {str(level): round(rate, 2) for level, (rate, _) in by_level.items()}
            for name, by_level in rates.items()
        },
        "cpu_ms_per_cycle": {name: round(by_level[1][1], 2) for name, by_level in rates.items()},
        "environment": hits,
    }


async def _start_backends(
    stack: AsyncExitStack, console: Console, toolchain: Toolchain | None = None
) -> dict[str, SandboxBackend]:
    backends: dict[str, SandboxBackend] = {}
    for name, make in BACKENDS.items():
        backend = make(SandboxConfig())
        try:
            await backend.start(lambda line: console.print(line, highlight=False, markup=False))
            stack.push_async_callback(backend.close)
            if toolchain is not None:
                await backend.require_toolchain(toolchain)
        except SandboxUnavailable as error:
            console.print(f"skipped: {error}", highlight=False, markup=False)
            continue
        backends[name] = backend
    return backends


def main() -> None:
    """Parse the command line, measure, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--pairs", type=int, default=50, help="Number of cycles per setup, to measure the latency.")
    parser.add_argument(
        "--cycles",
        type=int,
        default=40,
        help="Number of cycles per concurrency, to measure the throughput (five times as many for fast setups).",
    )
    parser.add_argument("--json", type=Path, help="File for all results.")
    parser.add_argument("--max-ratio", type=float, default=math.inf, help="Maximum ratio of JavaScript to Python.")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments, Console()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    latency = {name: values["median_ms"] for name, values in figures["latency"].items()}
    if (name := f"bwrap sandbox{JAVASCRIPT_SUFFIX}") in latency:
        ratio = latency[name] / latency["bwrap sandbox"]
        print(f"In bubblewrap, JavaScript takes {ratio:.2f} × as long as Python")
        if ratio > arguments.max_ratio:
            sys.exit(f"missed: at most {arguments.max_ratio:g} ×")


if __name__ == "__main__":
    main()
