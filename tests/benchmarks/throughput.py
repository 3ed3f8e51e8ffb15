"""Compares the time to annotate screened-out pairs with the ideal time, for a number of pairs in flight.

The server is another process and replies after a delay. The ideal time is `pairs / in_flight * delay`. With `auto`, the
run adapts the number in flight, up to the same maximum. The server is also measured alone, with prepared requests.
Exits with 1 if a limit is exceeded.
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
from tests.benchmarks.calls import annotate
from tests.benchmarks.server import start_server

_REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True)
class Measurement:
    """Wall time and ideal time in seconds, and CPU time per pair in milliseconds."""

    pairs: int
    wall: float
    ideal: float
    cpu_ms: float

    @property
    def ratio(self) -> float:
        """Wall time divided by ideal time."""
        return self.wall / self.ideal

    @property
    def rate(self) -> float:
        """Pairs per second."""
        return self.pairs / self.wall


def time_work(work: Callable[[], Coroutine[Any, Any, None]], pairs: int, ideal: float) -> Measurement:
    """Measure a coroutine function in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(work())
    return Measurement(pairs, time.perf_counter() - wall, ideal, (time.process_time() - cpu) / pairs * 1e3)


async def send_requests(port: int, number: int, in_flight: int) -> None:
    """Send prepared requests and discard the responses."""
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


def measure_server(number: int, in_flight: int) -> tuple[float, float]:
    """Return the CPU time per request of the server, and of a client with prepared requests, in milliseconds."""
    with start_server(0.0) as (url, process):
        before = get_cpu_seconds(process.pid)
        port = int(url.rpartition(":")[2].partition("/")[0])
        client = time_work(lambda: send_requests(port, number, in_flight), number, 1.0)
        return (get_cpu_seconds(process.pid) - before) / number * 1e3, client.cpu_ms


def get_cpu_seconds(pid: int) -> float:
    """Return the CPU time used by a process (Linux)."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / 100


def run_in_process(
    url: str, pairs: int, in_flight: int, delay: float, concurrency: Literal["auto"] | int
) -> Measurement:
    """Annotate pairs in this process."""
    config = RunnerConfig(concurrency=concurrency, llm_calls=in_flight)
    return time_work(lambda: annotate(url, pairs, config), pairs, pairs / in_flight * delay)


def run_on_ray(url: str, pairs: int, in_flight: int, delay: float) -> Measurement:
    """Annotate pairs in two workers on Ray. Excludes the start of the workers and their CPU time."""
    config = RunnerConfig(concurrency=in_flight, llm_calls=in_flight, engine="ray", workers=2)
    starts: list[tuple[float, float]] = []

    def listen(event: Event) -> None:
        if isinstance(event, RunStarted):
            starts.append((time.perf_counter(), time.process_time()))

    asyncio.run(annotate(url, pairs, config, listen))
    wall, cpu = time.perf_counter() - starts[0][0], time.process_time() - starts[0][1]
    return Measurement(pairs, wall, pairs / in_flight * delay, cpu / pairs * 1e3)


def measure(pairs: int, in_flight: int, delay: float) -> dict[str, Any]:
    """Measure all setups, print the results as they arrive, and return them."""
    server, sender = measure_server(min(pairs, 5000), in_flight)
    print(f"server alone: {server:.2f} ms CPU per request (and {sender:.2f} ms in the client)")
    print(f"{pairs:,} pairs, {in_flight} in flight, replies after {delay:g} s", flush=True)
    setups: dict[str, Callable[[str], Measurement]] = {
        "one process": lambda url: run_in_process(url, pairs, in_flight, delay, in_flight),
        "one process, auto": lambda url: run_in_process(url, pairs, in_flight, delay, "auto"),
        "Ray, two workers": lambda url: run_on_ray(url, pairs, in_flight, delay),
    }
    results: dict[str, Any] = {}
    with start_server(delay) as (url, _):
        asyncio.run(annotate(url, in_flight, RunnerConfig(concurrency=in_flight, llm_calls=in_flight)))  # imports
        for name, run in setups.items():
            result = run(url)
            results[name] = {**asdict(result), "ratio": result.ratio, "rate": result.rate}
            times = f"{result.wall:.1f} s, {result.ratio:.2f} × the ideal time ({result.ideal:.1f} s)"
            print(f"{name}: {times}, {result.rate:.1f} pairs/s, {result.cpu_ms:.2f} ms CPU per pair", flush=True)
    return {"server_ms": server, "in_flight": in_flight, "delay": delay, "setups": results}


def list_misses(results: dict[str, Any], max_ratio: float, min_gain: float) -> list[str]:
    """Print the speed-up by Ray. Return a sentence for each limit that is exceeded."""
    ratio, gain = results["one process"]["ratio"], results["Ray, two workers"]["rate"] / results["one process"]["rate"]
    print(f"Ray with two workers is {gain:.2f} × as fast as one process")
    return [
        *([f"one process took {ratio:.2f} × the ideal time (limit {max_ratio:g} ×)"] if ratio > max_ratio else []),
        *([f"Ray was {gain:.2f} × as fast (minimum {min_gain:g} ×)"] if gain < min_gain else []),
    ]


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.throughput", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="Number of pairs per measurement.")
    parser.add_argument("--in-flight", type=int, default=96, help="Number of pairs in flight.")
    parser.add_argument("--delay", type=float, default=1.0, help="Seconds until the server replies.")
    parser.add_argument("--max-ratio", type=float, default=math.inf, help="Maximum ratio to the ideal time.")
    parser.add_argument("--min-gain", type=float, default=0.0, help="Minimum speed-up by Ray.")
    parser.add_argument("--json", type=Path, help="File for all results.")
    arguments = parser.parse_args()
    figures = measure(arguments.pairs, arguments.in_flight, arguments.delay)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if misses := list_misses(figures["setups"], arguments.max_ratio, arguments.min_gain):
        sys.exit("missed: " + "; ".join(misses))


if __name__ == "__main__":
    main()
