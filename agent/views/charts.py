"""Charts as plain data for Plotly, and tables that say the same.

Colours are names of CSS variables (`@good`), which the page puts in, so that charts follow its theme. Plotly reads a
little HTML in every text it draws: names that come from a model or a dataset go through `label`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, TypedDict

from agent.evaluation.statistics import Interval

LABEL_LENGTH = 26
_ROW_PIXELS = 34
# Up to here every whole number has its mark, so that nothing is counted in halves.
_FEW = 6
_HOVER = "%{hovertext}<extra></extra>"
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


Filter = Mapping[str, str]
"""The pairs that a bar counts: values by the names of the table's filters (`report_table.js`)."""


class Chart(TypedDict):
    """A chart: Plotly's traces and layout, its height in pixels, and what it shows in one sentence.

    The `customdata` of a bar is the filter that lists its pairs, null where there is none.
    """

    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int
    alt: str


class Table(TypedDict):
    """A table of texts; `numeric` holds the numbers of the columns that are set to the right."""

    columns: list[str]
    numeric: list[int]
    rows: list[list[str]]


class Figure(TypedDict):
    """One figure of the page: any of its parts may be missing."""

    title: str
    text: str
    chart: Chart | None
    tables: list[Table]


@dataclass(frozen=True)
class Segment:
    """A part of a stacked bar. `colour` is the name of a CSS variable, `text` what stands in the bar."""

    name: str
    value: float
    colour: str
    text: str
    pairs: Filter | None = None


@dataclass(frozen=True)
class Dot:
    """A value with its interval and its colour."""

    name: str
    value: float
    low: float
    high: float
    colour: str = "accent"
    pairs: Filter | None = None


def build_figure(title: str, text: str = "", chart: Chart | None = None, tables: Iterable[Table] = ()) -> Figure:
    """Return a figure."""
    return {"title": title, "text": text, "chart": chart, "tables": list(tables)}


def build_table(columns: Mapping[str, bool], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table; `columns` says of each whether it holds numbers."""
    return {
        "columns": list(columns),
        "numeric": [number for number, numeric in enumerate(columns.values()) if numeric],
        "rows": [list(row) for row in rows],
    }


def build_dot(name: str, value: float, interval: Interval | None, **more: Any) -> Dot:
    """Return a dot. Without an interval the value is its own."""
    return (
        Dot(name, value, value, value, **more)
        if interval is None
        else Dot(name, value, interval.low, interval.high, **more)
    )


def format_label(text: str, limit: int = LABEL_LENGTH) -> str:
    """Return a text for a chart: on one line, visible escapes for what is not printable, no markup, cut."""
    line = _escape_line(text)
    return (line if len(line) <= limit else line[: limit - 1] + "…").translate(_MARKUP)


def format_row_label(text: str) -> str:
    """Return a text as `label` does, on up to two lines, which is what fits beside a bar."""
    lines = wrap(_escape_line(text), LABEL_LENGTH, max_lines=2, placeholder="…")
    return "<br>".join(line.translate(_MARKUP) for line in lines)


def _escape_line(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in " ".join(text.split())
    )


def draw_stacked_bars(
    rows: Sequence[tuple[str, Sequence[Segment]]], *, alt: str, unit: str, legend: bool = False
) -> Chart:
    """Return horizontal bars of segments, the first row on top; `unit` stands under the axis."""
    placed: dict[tuple[str, str], list[tuple[int, Segment, str]]] = {}
    totals = [sum(segment.value for segment in segments) for _, segments in rows]
    for position, (row, segments) in enumerate(rows):
        for segment in segments:
            # of an empty one the place among the others, which is that in the legend
            trace = placed.setdefault((segment.name, segment.colour), [])
            if segment.value:
                name = f", {format_label(segment.name, 60)}" if segment.name else ""
                share = f" ({segment.value / totals[position]:.1%})" if segment.name else ""
                trace.append(
                    (position, segment, f"{format_label(row, 60)}{name}: {format_label(segment.text, 60)}{share}")
                )
    axis: dict[str, Any] = {"title": {"text": unit}, "rangemode": "tozero", "fixedrange": True}
    if max(totals, default=0) <= _FEW and all(isinstance(total, int) for total in totals):
        axis["dtick"] = 1
    layout = {
        "barmode": "stack",
        "showlegend": legend,
        "uniformtext": {"mode": "hide", "minsize": 11},
        "xaxis": axis,
        "yaxis": _build_rows_axis([name for name, _ in rows]),
    }
    return {
        "traces": [_build_trace(*trace, bars_of_trace) for trace, bars_of_trace in placed.items() if bars_of_trace],
        "layout": layout,
        "height": _compute_height(len(rows), legend),
        "alt": alt,
    }


def draw_bars(
    values: Iterable[tuple[str, float, str]],
    *,
    alt: str,
    unit: str,
    colour: str = "accent",
    pairs: Callable[[str], Filter] | None = None,
) -> Chart:
    """Return one bar for each name, value and text; `pairs` says which pairs a name stands for."""
    rows = [
        (name, [Segment("", value, colour, text, None if pairs is None else pairs(name))])
        for name, value, text in values
    ]
    return draw_stacked_bars(rows, alt=alt, unit=unit)


def draw_intervals(dots: Sequence[Dot], *, alt: str, unit: str, extent: tuple[float, float] | None = None) -> Chart:
    """Return a dot with its interval for each name, the first on top; `alt` is a title, which the values follow."""
    values = "; ".join(f"{dot.name} {dot.value:.3f}, {dot.low:.3f} to {dot.high:.3f}" for dot in dots)
    trace = {
        "type": "scatter",
        "mode": "markers+text",
        "text": [f"{dot.value:.3f}" for dot in dots],
        # beside a value at the axis stands its name
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


def draw_reliability(bins: Sequence[Dot], confidences: Sequence[float], *, alt: str) -> Chart:
    """Return the share that is right, a dot for each bin, against mean confidence, and the line of equal ones."""
    chart = draw_intervals(bins, alt=alt, unit="confidence")
    dots = chart["traces"][0]
    error = {**dots.pop("error_x"), "color": "@muted"}
    trace = {**dots, "x": list(confidences), "y": [each.value for each in bins], "error_y": error, "name": "labels",
             "textposition": "middle right"}  # fmt: skip
    line = {
        "type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip",
        "line": {"color": "@muted", "dash": "dot"},
    }  # fmt: skip
    axis = {"range": [-0.02, 1.02], "fixedrange": True, "dtick": 0.2}
    layout = {
        "showlegend": False,
        "xaxis": {**axis, "title": {"text": "mean confidence"}},
        "yaxis": {**axis, "title": {"text": "share that is right"}, "automargin": True},
    }
    return {"traces": [line, trace], "layout": layout, "height": 380, "alt": chart["alt"]}


def _build_trace(name: str, colour: str, placed: Sequence[tuple[int, Segment, str]]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": format_label(name),
        "x": [segment.value for _, segment, _ in placed],
        "y": [position for position, _, _ in placed],
        "marker": {"color": f"@{colour}"},
        "text": [format_label(segment.text, 60) for _, segment, _ in placed],
        "textposition": "inside" if name else "auto",
        "insidetextanchor": "middle" if name else "end",
        "textangle": 0,
        "insidetextfont": {"color": "@inside"},
        "width": 0.72,
        "customdata": [segment.pairs for _, segment, _ in placed],
        "hovertext": [hover for _, _, hover in placed],
        "hovertemplate": _HOVER,
    }


def _build_rows_axis(names: Sequence[str]) -> dict[str, Any]:
    # By position: two long names that are cut alike stay two rows, and none is taken for a number or a date.
    return {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": [format_row_label(name) for name in names],
        "range": [len(names) - 0.5, -0.5],
        "automargin": True,
        "fixedrange": True,
        "zeroline": False,
        "showgrid": False,
    }


def _compute_height(rows: int, legend: bool = False) -> int:
    return 70 + _ROW_PIXELS * rows + (30 if legend else 0)
