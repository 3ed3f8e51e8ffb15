"""Measures the peak resident memory of `agent annotate` for a number of pairs and for ten times as many.

Each run is a separate process with a run folder and a cache. By default, the heuristic model replies. With `--server`,
a server in another process replies after 50 ms, and the screener decides every pair. This includes the HTTP client, but
takes twice as long. Exits with 1 if a limit is exceeded.
"""

# Avoids large imports, because a process inherits the peak memory of its parent.
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.server import start_server

_MAX_RATIO, _MAX_MEGABYTES = 1.25, 500


def write_pairs(path: Path, number: int) -> None:
    """Write `number` different pairs of about 1 kB, three per query."""
    body = "".join(f"    total_{line} = values[{line}] * {line}  # a step of the way\n" for line in range(12))
    with path.open("w") as file:
        for i in range(number):
            query = f"sum the values number {i // 3} of a list, each times its place"
            code = f"def weighted_{i}(values):\n{body}    return total_0 + {i}\n"
            meta = {"source": "generated", "url": f"https://example.org/{i}", "votes": [i % 2, 1]}
            file.write(json.dumps({"id": f"pair-{i:09}", "query": query, "code": code, "meta": meta}) + "\n")


def measure_peak(number: int, model: list[str], concurrency: int) -> tuple[float, float]:
    """Annotate `number` pairs, and return the peak memory in MB and the duration in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        pairs, run = Path(folder, "pairs.jsonl"), Path(folder, "run")
        write_pairs(pairs, number)
        options = ["--variant", "ps_fa", "--concurrency", str(concurrency), "--cache", f"{folder}/cache.sqlite"]
        command = [sys.executable, "-m", "agent", "annotate", str(pairs), "-o", str(run), *model, *options, "--json"]
        start = time.monotonic()
        with Path(folder, "summary.json").open("w+") as summary:
            process = subprocess.Popen(command, stdout=summary, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            summary.seek(0)
            assert json.load(summary)["annotations"] == number
        return usage.ru_maxrss / 1024, time.monotonic() - start  # KB on Linux


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.memory", description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="Number of pairs of the smaller run.")
    parser.add_argument("--concurrency", type=int, default=96, help="Number of pairs in progress.")
    parser.add_argument("--server", action="store_true", help="Use a server instead of the heuristic model.")
    arguments = parser.parse_args()
    peaks = []
    with start_server() as (url, _):
        model = ["--model", "m", "--base-url", url] if arguments.server else ["--model", "heuristic"]
        for number in (arguments.pairs, 10 * arguments.pairs):
            megabytes, seconds = measure_peak(number, model, arguments.concurrency)
            peaks.append(megabytes)
            print(f"{number:,} pairs: {megabytes:.0f} MB peak memory, {seconds:.0f} s", flush=True)
    ratio = peaks[1] / peaks[0]
    print(f"ten times as many pairs: {ratio:.2f} × the memory (limits: {_MAX_RATIO} × and {_MAX_MEGABYTES} MB)")
    if ratio > _MAX_RATIO or peaks[1] > _MAX_MEGABYTES:
        sys.exit(f"exceeded a limit: {peaks[1]:.0f} MB, {ratio:.2f} × the memory of the smaller run")


if __name__ == "__main__":
    main()
