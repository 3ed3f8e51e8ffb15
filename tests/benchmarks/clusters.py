"""Measures the clustering of the functions of installed packages, or of changed copies if there are too few."""

from __future__ import annotations

import argparse
import json
import re
import resource
import sysconfig
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path

from agent.corpus.near_duplicates import cluster
from agent.languages.python.functions import find_functions
from agent.languages.python.source import Unparsable


def write_functions(file: Path, number: int) -> None:
    """Write `number` different functions, one JSON string per line."""
    paths = (Path(sysconfig.get_path(name)).rglob("*.py") for name in ("purelib", "stdlib"))
    codes: dict[str, None] = {}
    for path in (path for group in paths for path in sorted(group) if len(codes) < number):
        with suppress(Unparsable, UnicodeDecodeError):
            codes.update((found.code, None) for found in find_functions(path.read_text("utf-8")) if found.code)
    copies = (re.sub(r"(\w{4,})", rf"\g<0>_{copy}", code) for copy in range(number) for code in codes)
    file.write_text("".join(f"{json.dumps(code)}\n" for code in islice(chain(codes, copies), number)))


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.clusters", description=__doc__)
    parser.add_argument("--functions", type=int, default=200_000, help="Number of functions.")
    number = parser.parse_args().functions
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(write_functions, file := Path(folder, "codes.jsonl"), number).result()  # not in this peak memory
        with file.open() as lines:
            start = time.process_time()
            sizes = Counter(cluster(map(json.loads, lines), number, lambda *_: None))
        seconds, megabytes = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{number:,} functions: {seconds:.0f} s CPU, {number / seconds:,.0f} per s, {megabytes:.0f} MB peak memory")
    print(f"{len(sizes):,} clusters, {sum(size for size in sizes.values() if size > 1):,} functions in shared clusters")


if __name__ == "__main__":
    main()
