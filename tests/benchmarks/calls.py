"""Measures what a call costs this process with many in flight: a bare `ChatOpenAI.ainvoke`, and a screened-out pair.

Both ask a server of another process. A pair is annotated by the variant `full` into a run's folder, with a cache of
replies; its screener settles it. The figures are the process's own time, so that other work on the machine counts
little.
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
from agent.nodes.asking import SCREEN
from agent.prompts import Prompts
from tests.benchmarks.figures import show
from tests.benchmarks.server import serving

CODE = 'def reverse(values):\n    """Return the values, the last one first."""\n    return values[::-1]\n'
PROMPT = [(message.role, message.content) for message in Prompts().render(SCREEN, SCREEN.variables)]


async def bare(url: str, number: int, in_flight: int) -> None:
    """Ask so many times with langchain-openai alone: one client, one pool of connections."""
    async with openai.DefaultAsyncHttpxClient() as http:  # the default one outlives the event loop
        chat = ChatOpenAI(model="m", base_url=url, api_key=SecretStr("none"), max_retries=0, http_async_client=http)
        numbers = iter(range(number))

        async def worker() -> None:
            for each in numbers:
                await chat.ainvoke([*PROMPT, ("user", str(each))])

        await asyncio.gather(*(worker() for _ in range(in_flight)))


async def annotated(
    url: str, number: int, runner: RunnerConfig, on_event: Callable[[Event], None] | None = None
) -> None:
    """Annotate so many pairs, each settled by the screener."""
    pairs = [Pair(id=str(each), query=f"reverse list {each}", code=CODE) for each in range(number)]
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


def spent(work: Callable[[str, int, int], Awaitable[None]], url: str, number: int, in_flight: int) -> float:
    """Return the milliseconds of this process's time that each piece of work took."""

    async def measured() -> float:
        started = time.process_time()
        await work(url, number, in_flight)
        return (time.process_time() - started) / number * 1e3

    return asyncio.run(measured())


def measure(number: int, in_flight: int, times: int, console: Console) -> dict[str, float]:
    """Measure both by turns, print a table, and return the medians in milliseconds."""

    def pairs(url: str, number: int, in_flight: int) -> Awaitable[None]:
        return annotated(url, number, RunnerConfig(concurrency=in_flight, llm_calls=in_flight))

    works = {"bare ChatOpenAI.ainvoke": bare, "screened-out pair": pairs}
    found: dict[str, list[float]] = {name: [] for name in works}
    with serving() as (url, _):
        for work in works.values():
            spent(work, url, min(number, in_flight), in_flight)  # imports, connections
        for _ in range(times):
            for name, work in works.items():
                found[name].append(spent(work, url, number, in_flight))
    medians = {name: statistics.median(each) for name, each in found.items()}
    table = Table(f"{in_flight} in flight", "n", "median ms", "least", "most")
    for name, each in found.items():
        table.add_row(name, f"{times} × {number}", *(f"{ms:.2f}" for ms in (medians[name], min(each), max(each))))
    show(console, "A call", table)
    bare_ms, pair_ms = medians.values()
    console.print(f"a screened-out pair takes {pair_ms - bare_ms:+.2f} ms beside a bare call", highlight=False)
    return medians


def main() -> None:
    """Read the command line, measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=3000, help="calls, and pairs, of one measurement")
    parser.add_argument("--in-flight", type=int, default=512, help="how many at once")
    parser.add_argument("--times", type=int, default=3, help="how often each is measured")
    arguments = parser.parse_args()
    measure(arguments.calls, arguments.in_flight, arguments.times, Console())


if __name__ == "__main__":
    main()
