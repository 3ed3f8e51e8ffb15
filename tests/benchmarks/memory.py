"""Measures how large `agent annotate` gets with few pairs and with ten times as many: resident memory at its peak.

Each run is a process of its own, from reading the file to the closing summary, with a folder and a cache of replies.
The embedded rules answer, or (`--server`) a server of another process, which answers after 50 ms: the screener settles
every pair then, and the HTTP client is measured, too, but it takes twice as long. Past a bound it exits with 1.
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
from pathlib import Path

from tests.benchmarks.server import serving

_MOST_RATIO, _MOST_MEGABYTES = 1.25, 500


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
    parser.add_argument("--server", action="store_true", help="ask a server instead of the embedded rules")
    arguments = parser.parse_args()
    found = []
    with serving() as (url, _):
        model = ["--model", "m", "--base-url", url] if arguments.server else ["--model", "heuristic"]
        for number in (arguments.pairs, 10 * arguments.pairs):
            megabytes, seconds = peak(number, model, arguments.concurrency)
            found.append(megabytes)
            print(f"{number:,} pairs: {megabytes:.0f} MB at the peak, {seconds:.0f} s", flush=True)
    ratio = found[1] / found[0]
    print(f"ten times as many pairs take {ratio:.2f} × the memory (at most {_MOST_RATIO} × and {_MOST_MEGABYTES} MB)")
    if ratio > _MOST_RATIO or found[1] > _MOST_MEGABYTES:
        sys.exit("missed: the memory of ten times as many pairs")


if __name__ == "__main__":
    main()
