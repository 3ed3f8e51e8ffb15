"""Figures of a benchmark: medians, 90th percentiles, and the table that shows them."""

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
        """The middle one, in milliseconds."""
        return statistics.median(self.seconds) * 1e3

    @property
    def p90(self) -> float:
        """What nine of ten do not exceed, in milliseconds."""
        return statistics.quantiles(self.seconds, n=10, method="inclusive")[-1] * 1e3

    def as_json(self) -> dict[str, float]:
        """Return what a report keeps."""
        return {"n": len(self.seconds), "median_ms": round(self.median, 2), "p90_ms": round(self.p90, 2)}


def latency_table(series: Mapping[str, Series], *, bare: str, naive: str) -> Table:
    """Return a table of latencies, each with its ratio to two of them, where they are there."""
    table = Table("", "n", "median ms", "p90 ms", f"× {bare}", f"{naive} ÷ median", f"{naive} p90 ÷ p90")
    for name, each in series.items():
        ratios = [f"{each.median / series[bare].median:.2f}"]
        ratios += [f"{series[naive].median / each.median:.1f}", f"{series[naive].p90 / each.p90:.1f}"] if (
            naive in series) else ["", ""]  # fmt: skip
        table.add_row(name, str(len(each.seconds)), f"{each.median:.1f}", f"{each.p90:.1f}", *ratios)
    return table


def throughput_table(rates: Mapping[str, Mapping[int, float]], levels: Sequence[int]) -> Table:
    """Return a table of lives a second by the number in flight."""
    table = Table("lives a second", *(f"{level} in flight" for level in levels))
    for name, by_level in rates.items():
        table.add_row(name, *(f"{by_level[level]:.1f}" for level in levels))
    return table


def show(console: Console, title: str, table: Table) -> None:
    """Print a table under its title."""
    console.print(f"\n{title}", highlight=False)
    console.print(table)
