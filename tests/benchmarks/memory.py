"""Measures how large `agent annotate` gets with few pairs and with ten times as many: resident memory at its peak.

Each run is a process of its own, from reading the file to the closing summary, with a folder and a cache of replies. It
asks a server of another process, which answers after 50 ms that the code does not match; the screener settles every
pair. `--heuristic` takes the embedded rules instead of the server, which is quicker and leaves the HTTP client out.
"""

# Imports nothing large: a process begins with the peak of the one that made it.
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BOUND = 1.25
"""How much more ten times as many pairs may take."""


@contextmanager
def serving() -> Iterator[str]:
    """Start the server in a process of its own; give its base URL."""
    command = [sys.executable, "-m", "tests.benchmarks.calls", "--serve", "0.05"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def write_pairs(path: Path, number: int) -> None:
    """Write so many pairs of about a kilobyte, three to a query, no two alike."""
    body = "".join(f"    total_{line} = values[{line}] * {line}  # a step of the way\n" for line in range(12))
    with path.open("w") as file:
        for each in range(number):
            query = f"sum the values number {each // 3} of a list, each times its place"
            code = f"def weighted_{each}(values):\n{body}    return total_0 + {each}\n"
            meta = {"source": "generated", "url": f"https://example.org/{each}", "votes": [each % 2, 1]}
            file.write(json.dumps({"id": f"pair-{each:09}", "query": query, "code": code, "meta": meta}) + "\n")


def peak(number: int, model: list[str], concurrency: int) -> tuple[float, float]:
    """Annotate so many pairs, and return the peak in MB and the seconds."""
    with tempfile.TemporaryDirectory() as place:
        pairs, run = Path(place, "pairs.jsonl"), Path(place, "run")
        write_pairs(pairs, number)
        options = ["--variant", "ps_fa", "--concurrency", str(concurrency), "--cache", str(Path(place, "cache.sqlite"))]
        command = [sys.executable, "-m", "agent", "annotate", str(pairs), "-o", str(run), *model, *options, "--json"]
        started = time.monotonic()
        with Path(place, "summary.json").open("w+") as summary:
            process = subprocess.Popen(command, stdout=summary, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            summary.seek(0)
            assert json.load(summary)["annotations"] == number
        return usage.ru_maxrss / 1024, time.monotonic() - started  # Linux counts in KB


def main() -> None:
    """Read the command line, measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="the smaller number; the larger is ten times it")
    parser.add_argument("--concurrency", type=int, default=96, help="pairs in progress")
    parser.add_argument("--heuristic", action="store_true", help="no server, the embedded rules")
    arguments = parser.parse_args()
    found = []
    with serving() as url:
        model = ["--model", "heuristic"] if arguments.heuristic else ["--model", "m", "--base-url", url]
        for number in (arguments.pairs, 10 * arguments.pairs):
            megabytes, seconds = peak(number, model, arguments.concurrency)
            found.append(megabytes)
            print(f"{number:,} pairs: {megabytes:.0f} MB at the peak, {seconds:.0f} s", flush=True)
    print(f"ten times as many pairs take {found[1] / found[0]:.2f} × the memory (at most {BOUND} is asked for)")


if __name__ == "__main__":
    main()
