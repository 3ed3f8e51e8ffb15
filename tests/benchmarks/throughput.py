"""Measures how long screened-out pairs take against the least that they could, with so many in flight.

The server is another process and answers after a given time. The least is `pairs / in flight * delay`. With `auto` the
number in flight is determined, up to the same cap. What the server itself costs is measured alone, with requests that
are ready. Where a bound is given and missed it exits with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from agent.config import RunnerConfig
from agent.events import Event, RunStarted
from tests.benchmarks.calls import annotated
from tests.benchmarks.server import serving

_REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Measured:
    """Seconds by the clock, the least they could be, and the milliseconds of a processor for each pair."""

    pairs: int
    wall: float
    ideal: float
    cpu_ms: float

    @property
    def ratio(self) -> float:
        """How many times the least it took."""
        return self.wall / self.ideal

    @property
    def rate(self) -> float:
        """Pairs per second."""
        return self.pairs / self.wall


def timed(work: Callable[[], Coroutine[Any, Any, None]], pairs: int, ideal: float) -> Measured:
    """Run the work in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work())
    return Measured(pairs, time.perf_counter() - wall, ideal, (time.process_time() - cpu) / pairs * 1e3)


async def requests(port: int, number: int, in_flight: int) -> None:
    """Send requests that are ready, and read no more of the answers than their first line."""
    numbers = iter(range(number))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in numbers:
            writer.write(_REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    await asyncio.gather(*(connection() for _ in range(in_flight)))


def server_cost(number: int, in_flight: int) -> tuple[float, float]:
    """Return the milliseconds of a processor that a request costs the server, and whoever sends it ready-made."""
    with serving(0.0) as (url, process):
        before = _cpu_seconds(process.pid)
        port = int(url.rpartition(":")[2].partition("/")[0])
        client = timed(lambda: requests(port, number, in_flight), number, 1.0)
        return (_cpu_seconds(process.pid) - before) / number * 1e3, client.cpu_ms


def _cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used (Linux)."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / 100


def one_process(url: str, pairs: int, in_flight: int, delay: float, kind: Literal["auto"] | int) -> Measured:
    """Annotate so many pairs in this process."""
    config = RunnerConfig(concurrency=kind, llm_calls=in_flight)
    return timed(lambda: annotated(url, pairs, config), pairs, pairs / in_flight * delay)


def on_ray(url: str, pairs: int, in_flight: int, delay: float) -> Measured:
    """Annotate so many pairs in two workers on Ray, whose start is not counted; nor is the workers' processor time."""
    config = RunnerConfig(concurrency=in_flight, llm_calls=in_flight, engine="ray", workers=2)
    began: list[tuple[float, float]] = []

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            began.append((time.perf_counter(), time.process_time()))

    asyncio.run(annotated(url, pairs, config, listen))
    wall, cpu = time.perf_counter() - began[0][0], time.process_time() - began[0][1]
    return Measured(pairs, wall, pairs / in_flight * delay, cpu / pairs * 1e3)


def measure(pairs: int, in_flight: int, delay: float) -> dict[str, Any]:
    """Measure all ways, print what each took at once, and return the figures."""
    server, sender = server_cost(min(pairs, 5000), in_flight)
    print(f"the server alone: {server:.2f} ms of a processor for each request, and {sender:.2f} ms for sending it")
    print(f"{pairs:,} pairs, {in_flight} in flight, replies after {delay:g} s", flush=True)
    ways: dict[str, Callable[[str], Measured]] = {
        "one process": lambda url: one_process(url, pairs, in_flight, delay, in_flight),
        "one process, auto": lambda url: one_process(url, pairs, in_flight, delay, "auto"),
        "Ray, two workers": lambda url: on_ray(url, pairs, in_flight, delay),
    }
    found: dict[str, Any] = {}
    with serving(delay) as (url, _):
        asyncio.run(annotated(url, in_flight, RunnerConfig(concurrency=in_flight, llm_calls=in_flight)))  # imports
        for name, way in ways.items():
            each = way(url)
            found[name] = {**asdict(each), "ratio": each.ratio, "rate": each.rate}
            took = f"{each.wall:.1f} s, {each.ratio:.2f} × the least ({each.ideal:.1f} s)"
            print(f"{name}: {took}, {each.rate:.1f} pairs/s, {each.cpu_ms:.2f} ms of a processor a pair", flush=True)
    return {"server_ms": server, "in_flight": in_flight, "delay": delay, "ways": found}


def missed(ways: dict[str, Any], most_ratio: float, least_gain: float) -> list[str]:
    """Return what is past its bound, one sentence for each."""
    ratio, gain = ways["one process"]["ratio"], ways["Ray, two workers"]["rate"] / ways["one process"]["rate"]
    print(f"Ray with two workers does {gain:.2f} × the pairs per second of one process")
    return [
        *([f"one process took {ratio:.2f} × the least, and not {most_ratio:g} ×"] if ratio > most_ratio else []),
        *([f"Ray was {gain:.2f} × as fast, and not {least_gain:g} ×"] if gain < least_gain else []),
    ]


def main() -> None:
    """Read the command line, measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.throughput", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="pairs of one measurement")
    parser.add_argument("--in-flight", type=int, default=96, help="how many at once")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds until the server answers")
    parser.add_argument("--most-ratio", type=float, default=math.inf, help="bound: one process to the least")
    parser.add_argument("--least-gain", type=float, default=0.0, help="bound: pairs/s on Ray to those of one process")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    arguments = parser.parse_args()
    figures = measure(arguments.pairs, arguments.in_flight, arguments.delay)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if past := missed(figures["ways"], arguments.most_ratio, arguments.least_gain):
        sys.exit("missed: " + "; ".join(past))


if __name__ == "__main__":
    main()
