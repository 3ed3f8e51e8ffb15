"""Compares the CPU time of a screened-out pair with that of a bare `ChatOpenAI.ainvoke`, with many of them in flight.

Both use a server in another process. The pairs are annotated by the variant `full` with a run folder and a cache, and
the screener decides them. Other load on the machine has little effect on CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import openai
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from agent import Annotator, Config, Pair, ScriptedSandbox
from agent.config import RunnerConfig
from agent.events import Event
from agent.pipeline.nodes.asking import SCREEN
from agent.pipeline.prompts import Prompts
from tests.benchmarks.figures import print_table
from tests.benchmarks.server import start_server

CODE = 'def reverse(values):\n    """Return the values, the last one first."""\n    return values[::-1]\n'
PROMPT = [(message.role, message.content) for message in Prompts().render(SCREEN, SCREEN.variables)]


async def call_model(url: str, number: int, in_flight: int) -> None:
    """Make `number` calls with langchain-openai only, with one client and connection pool."""
    async with openai.DefaultAsyncHttpxClient() as http:  # the default client outlives the event loop
        chat = ChatOpenAI(model="m", base_url=url, api_key=SecretStr("none"), max_retries=0, http_async_client=http)
        numbers = iter(range(number))

        async def worker() -> None:
            for i in numbers:
                await chat.ainvoke([*PROMPT, ("user", str(i))])

        await asyncio.gather(*(worker() for _ in range(in_flight)))


async def annotate(
    url: str, number: int, runner: RunnerConfig, on_event: Callable[[Event], None] | None = None
) -> None:
    """Annotate `number` pairs, each decided by the screener."""
    pairs = [Pair(id=str(i), query=f"reverse list {i}", code=CODE) for i in range(number)]
    with tempfile.TemporaryDirectory() as folder:
        annotator = Annotator(
            model="m",
            base_url=url,
            sandbox=ScriptedSandbox(),
            run_dir=Path(folder, "run"),
            cache=Path(folder, "cache.sqlite"),
            config=Config(runner=runner),
            on_event=on_event,
        )
        async with annotator:
            labels = [annotation.label async for annotation in annotator.annotate(pairs)]
    assert labels == [0] * number


def measure_cpu_ms(work: Callable[[str, int, int], Awaitable[None]], url: str, number: int, in_flight: int) -> float:
    """Return the CPU time of this process per item, in milliseconds."""

    async def run() -> float:
        start = time.process_time()
        await work(url, number, in_flight)
        return (time.process_time() - start) / number * 1e3

    return asyncio.run(run())


def measure(number: int, in_flight: int, times: int, console: Console) -> dict[str, float]:
    """Measure calls and pairs alternately, print a table, and return the medians in milliseconds."""

    def annotate_pairs(url: str, number: int, in_flight: int) -> Awaitable[None]:
        return annotate(url, number, RunnerConfig(concurrency=in_flight, llm_calls=in_flight))

    works = {"bare ChatOpenAI.ainvoke": call_model, "screened-out pair": annotate_pairs}
    times_ms: dict[str, list[float]] = {name: [] for name in works}
    with start_server() as (url, _):
        for work in works.values():
            measure_cpu_ms(work, url, min(number, in_flight), in_flight)  # imports, connections
        for _ in range(times):
            for name, work in works.items():
                times_ms[name].append(measure_cpu_ms(work, url, number, in_flight))
    medians = {name: statistics.median(values) for name, values in times_ms.items()}
    table = Table(f"{in_flight} in flight", "n", "median ms", "min", "max")
    for name, values in times_ms.items():
        table.add_row(name, f"{times} × {number}", *(f"{ms:.2f}" for ms in (medians[name], min(values), max(values))))
    print_table(console, "CPU time", table)
    bare_ms, pair_ms = medians.values()
    console.print(f"overhead of a screened-out pair: {pair_ms - bare_ms:+.2f} ms", highlight=False)
    return medians


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=3000, help="Number of calls and of pairs per measurement.")
    parser.add_argument("--in-flight", type=int, default=512, help="Calls or pairs in flight.")
    parser.add_argument("--times", type=int, default=3, help="Number of measurements of each kind.")
    arguments = parser.parse_args()
    measure(arguments.calls, arguments.in_flight, arguments.times, Console())


if __name__ == "__main__":
    main()
