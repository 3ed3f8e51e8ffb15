"""Statistics of a benchmark, and their tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Series:
    """Durations of equal pieces of work, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median in milliseconds."""
        return statistics.median(self.seconds) * 1e3

    @property
    def p90(self) -> float:
        """The 90th percentile in milliseconds."""
        return statistics.quantiles(self.seconds, n=10, method="inclusive")[-1] * 1e3

    def as_json(self) -> dict[str, float]:
        """Return the statistics for a JSON report."""
        return {"n": len(self.seconds), "median_ms": round(self.median, 2), "p90_ms": round(self.p90, 2)}


def make_latency_table(series: Mapping[str, Series], *, bare: str, naive: str) -> Table:
    """Return a table of latencies, with their ratios to the series `bare` and, if present, `naive`."""
    table = Table("", "n", "median ms", "p90 ms", f"× {bare}", f"{naive} ÷ median", f"{naive} p90 ÷ p90")
    for name, values in series.items():
        ratios = [f"{values.median / series[bare].median:.2f}"]
        ratios += [f"{series[naive].median / values.median:.1f}", f"{series[naive].p90 / values.p90:.1f}"] if (
            naive in series) else ["", ""]  # fmt: skip
        table.add_row(name, str(len(values.seconds)), f"{values.median:.1f}", f"{values.p90:.1f}", *ratios)
    return table


def make_throughput_table(rates: Mapping[str, Mapping[int, tuple[float, float]]], levels: Sequence[int]) -> Table:
    """Return a table of cycles per second, with CPU time in ms, by the number of cycles in flight."""
    table = Table("cycles/s", *(f"{level} in flight" for level in levels))
    for name, by_level in rates.items():
        table.add_row(name, *("{:.1f} ({:.1f})".format(*by_level[level]) for level in levels))
    return table


def print_table(console: Console, title: str, table: Table) -> None:
    """Print a table with a title."""
    console.print(f"\n{title}", highlight=False)
    console.print(table)
