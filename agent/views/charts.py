"""Charts as plain data for Plotly.

Colours are names of CSS variables (`@good`), which the page resolves, so charts follow its theme. Plotly interprets
some HTML tags in any text, so names from models and datasets must pass through `format_label`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, TypedDict

from agent.evaluation.statistics import Interval
from agent.text import escape_hidden, one_line

LABEL_LENGTH = 26
_ROW_PIXELS = 34
# Up to this total, the axis has a tick at every integer. By default, Plotly would add ticks at halves.
_MAX_TOTAL_FOR_INTEGER_TICKS = 6
_HOVER = "%{hovertext}<extra></extra>"
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


Filter = Mapping[str, str]
"""Maps the names of filters (`FACETS` in `report_table.js`) to values, which select the pairs that a bar counts."""


class Chart(TypedDict):
    """A chart: Plotly's traces and layout, the height in pixels, and a text alternative.

    The `customdata` of a bar is the filter that lists its pairs, or null.
    """

    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int
    alt: str


@dataclass(frozen=True)
class Segment:
    """A segment of a stacked bar. `colour` is the name of a CSS variable. `text` is drawn inside the segment."""

    name: str
    value: float
    colour: str
    text: str
    pairs: Filter | None = None


@dataclass(frozen=True)
class Dot:
    """A value with its interval. `colour` is the name of a CSS variable."""

    name: str
    value: float
    low: float
    high: float
    colour: str = "accent"
    pairs: Filter | None = None


def build_dot(name: str, value: float, interval: Interval | None, **more: Any) -> Dot:
    """Return a dot. Without an interval, both bounds equal the value."""
    low, high = (value, value) if interval is None else (interval.low, interval.high)
    return Dot(name, value, low, high, **more)


def format_label(text: str, limit: int = LABEL_LENGTH) -> str:
    """Format text as one line of a chart: truncate it, escape markup, and show unprintable characters as escapes."""
    return escape_hidden(one_line(text, None), limit=limit).translate(_MARKUP)


def format_row_label(text: str) -> str:
    """Format text like `format_label`, but on up to two lines, which fit beside a bar."""
    lines = wrap(one_line(text, None), LABEL_LENGTH, max_lines=2, placeholder="…")
    return "<br>".join(line.translate(_MARKUP) for line in lines)


def draw_stacked_bars(
    rows: Sequence[tuple[str, Sequence[Segment]]], *, alt: str, unit: str, legend: bool = False
) -> Chart:
    """Return a chart of stacked horizontal bars, with the first row on top. `unit` is the axis title."""
    traces: dict[tuple[str, str], list[tuple[int, Segment, str]]] = {}
    totals = [sum(segment.value for segment in segments) for _, segments in rows]
    for position, (row, segments) in enumerate(rows):
        for segment in segments:
            # Empty segments create traces too, so that the legend follows the order of the first row.
            trace = traces.setdefault((segment.name, segment.colour), [])
            if segment.value:
                name = f", {format_label(segment.name, 60)}" if segment.name else ""
                share = f" ({segment.value / totals[position]:.1%})" if segment.name else ""
                trace.append(
                    (position, segment, f"{format_label(row, 60)}{name}: {format_label(segment.text, 60)}{share}")
                )
    axis: dict[str, Any] = {"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True}
    if max(totals, default=0) <= _MAX_TOTAL_FOR_INTEGER_TICKS and all(isinstance(total, int) for total in totals):
        axis["dtick"] = 1
    layout = {
        "barmode": "stack",
        "showlegend": legend,
        "uniformtext": {"mode": "hide", "minsize": 11},
        "xaxis": axis,
        "yaxis": _build_rows_axis([name for name, _ in rows]),
    }
    return {
        "traces": [_build_trace(*trace, segments) for trace, segments in traces.items() if segments],
        "layout": layout,
        "height": _compute_height(len(rows), legend),
        "alt": alt,
    }


def draw_bars(
    values: Iterable[tuple[str, float, str]],
    *,
    alt: str,
    unit: str,
    pairs: Callable[[str], Filter] | None = None,
) -> Chart:
    """Return a chart with one bar per (name, value, text). `pairs` returns the filter for the bar with a given name."""
    rows = [
        (name, [Segment("", value, "accent", text, None if pairs is None else pairs(name))])
        for name, value, text in values
    ]
    return draw_stacked_bars(rows, alt=alt, unit=unit)


def draw_intervals(dots: Sequence[Dot], *, alt: str, unit: str, extent: tuple[float, float] | None = None) -> Chart:
    """Return a chart of dots with intervals, the first dot on top. The text alternative is `alt` plus the values."""
    values = "; ".join(f"{dot.name} {dot.value:.3f}, {dot.low:.3f} to {dot.high:.3f}" for dot in dots)
    trace = {
        "type": "scatter",
        "mode": "markers+text",
        "text": [f"{dot.value:.3f}" for dot in dots],
        # Near the axis, centred text would cover the name of the row.
        "textposition": ["top right" if dot.value < 0.05 else "top center" for dot in dots],
        "textfont": {"size": 11},
        "cliponaxis": False,
        "x": [dot.value for dot in dots],
        "y": list(range(len(dots))),
        "marker": {"color": [f"@{dot.colour}" for dot in dots], "size": 10},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [dot.high - dot.value for dot in dots],
            "arrayminus": [dot.value - dot.low for dot in dots],
            "color": "@muted",
            "thickness": 2,
            "width": 5,
        },
        "customdata": [dot.pairs for dot in dots],
        "hovertext": [
            f"{format_label(dot.name, 60)}: {dot.value:.3f} ({dot.low:.3f} to {dot.high:.3f})" for dot in dots
        ],
        "hovertemplate": _HOVER,
    }
    axis: dict[str, Any] = {"title": {"text": unit}, "fixedrange": True}
    if extent is not None:
        axis["range"] = list(extent)
    return {
        "traces": [trace],
        "layout": {"showlegend": False, "xaxis": axis, "yaxis": _build_rows_axis([dot.name for dot in dots])},
        "height": _compute_height(len(dots)),
        "alt": f"{alt}. {values}",
    }


def draw_lines(lines: Mapping[str, Sequence[tuple[float, float]]], *, alt: str, x: str, y: str) -> Chart:
    """Return a chart with one line of (x, y) points per name. `x` and `y` are the axis titles."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(points) <= 50 else "lines",
            "name": format_label(name),
            "x": [point[0] for point in points],
            "y": [point[1] for point in points],
            "hovertext": [f"{format_label(name, 60)}: {point[1]:.4g} at {point[0]:g}" for point in points],
            "hovertemplate": _HOVER,
        }
        for name, points in lines.items()
    ]
    axes = {f"{axis}axis": {"title": {"text": title}, "fixedrange": True} for axis, title in (("x", x), ("y", y))}
    return {"traces": traces, "layout": {"showlegend": len(traces) > 1, **axes}, "height": 320, "alt": alt}


def _build_trace(name: str, colour: str, segments: Sequence[tuple[int, Segment, str]]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": format_label(name),
        "x": [segment.value for _, segment, _ in segments],
        "y": [position for position, _, _ in segments],
        "marker": {"color": f"@{colour}"},
        "text": [format_label(segment.text, 60) for _, segment, _ in segments],
        "textposition": "inside" if name else "auto",
        "insidetextanchor": "middle" if name else "end",
        "textangle": 0,
        "insidetextfont": {"color": "@inside"},
        "width": 0.72,
        "customdata": [segment.pairs for _, segment, _ in segments],
        "hovertext": [hover for _, _, hover in segments],
        "hovertemplate": _HOVER,
    }


def _build_rows_axis(names: Sequence[str]) -> dict[str, Any]:
    # Ticks are positions instead of names, so names that are truncated to the same text keep separate rows. If
    # ticks were names, Plotly would also parse names that look like numbers or dates.
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [format_row_label(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "fixedrange": True,
        "zeroline": False,
        "showgrid": False,
    }


def _compute_height(rows: int, legend: bool = False) -> int:
    return 70 + _ROW_PIXELS * rows + (30 if legend else 0)
