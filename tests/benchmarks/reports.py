"""Measures the time to write a report, and the time until a browser shows its table and its first chart."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.table import Table

from agent.runs.store.run_view import load_run
from agent.views.report import Report
from tests.benchmarks.figures import Series, print_table
from tests.conftest import find_browser
from tests.views.runs import make_pairs, make_run


def open_report(browser: Browser, file: Path, times: int) -> dict[str, Series]:
    """Open a report `times` times in new windows, and return the time until each part was visible."""
    parts = {"table": "html[data-ready]", "first chart": "[data-drawn]"}
    seconds: dict[str, list[float]] = {part: [] for part in parts}
    for _ in range(times):
        window = browser.new_context(viewport={"width": 1280, "height": 900})
        page, start = window.new_page(), time.perf_counter()
        page.goto(file.as_uri(), wait_until="commit")
        for part, selector in parts.items():
            page.wait_for_selector(selector)
            seconds[part].append(time.perf_counter() - start)
        window.close()
    return {part: Series(tuple(values)) for part, values in seconds.items()}


def measure(pairs: int, times: int, console: Console) -> None:
    """Write a report of `pairs` pairs, open it `times` times, and print the times."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        run, file = make_run(Path(folder, "run"), make_pairs(pairs)), Path(folder, "report.html")
        start = time.perf_counter()
        with load_run(run) as view:
            written = Report(view).write(file)
        seconds = time.perf_counter() - start
        size = f"{written.bytes / 1e6:.1f} MB, evidence of {written.with_evidence:,} pairs"
        console.print(f"\n{pairs:,} pairs: written in {seconds:.1f} s, {size}", highlight=False)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        table = Table("visible part", "n", "median ms", "p90 ms")
        for part, series in open_report(browser, file, times).items():
            table.add_row(part, str(times), f"{series.median:.0f}", f"{series.p90:.0f}")
        browser.close()
    print_table(console, "Opening the report", table)


def main() -> None:
    """Parse the command line, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.reports", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5000, help="Number of pairs in the report.")
    parser.add_argument("--times", type=int, default=7, help="Number of times to open the report.")
    arguments = parser.parse_args()
    if find_browser() is None:
        parser.exit(0, "skipped: no Chromium or Chrome is installed\n")
    measure(arguments.pairs, arguments.times, Console())


if __name__ == "__main__":
    main()
