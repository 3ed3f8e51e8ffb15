"""The figures of a report on a run: labels, tests, repairs, cost and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from agent.evaluation.breakdown import audit_screener, describe_audits
from agent.evaluation.tally import Observation, Tally
from agent.runs.store.manifest import WallTime
from agent.text import Figure, build_figure, build_table, plural
from agent.views.charts import Filter, Segment, draw_bars, draw_stacked_bars
from agent.views.marks import format_mark

LABELS: Mapping[str, str] = {
    "1": "good", "0": "bad", "undecided": "muted", "no_intent": "accent-2", "error": "error",
}  # fmt: skip
_OUTCOMES = {
    "passed": "good", "failed": "bad", "error": "warn", "timeout": "accent-2", "not_run": "muted",
}  # fmt: skip
_NO_CAUSE = "no failure"
_CAUSES = {
    _NO_CAUSE: "good", "snippet": "bad", "program": "warn", "dependency": "accent-2", "sandbox": "error",
    "context": "muted",
}  # fmt: skip
_REPAIRS = {"installed": "good", "ran": "accent", "failed": "bad", "refused": "muted", "changed": "accent-2"}
_STAGES: Mapping[str, Mapping[str, str]] = {
    "pairs": {"annotated": "accent", "not annotated": "muted"},
    "screened": {"match": "good", "non_match": "bad", "unclear": "accent"},
    "programs": {"written": "accent"},
    "executed": {"ran": "accent", "did not run": "warn"},
    "tests": _OUTCOMES,
    "labels": LABELS,
}
# The filter value that selects pairs without a value.
NO_VALUE = "–"
_MAX_NAMES = 15
_Value = TypeVar("_Value")


def format_share(part: float, total: float) -> str:
    """Format a share as a percentage, or as a dash if the total is 0."""
    return f"{part / total:.1%}" if total else "–"


def format_cost(cost: float | None) -> str:
    """Format a cost in US dollars. None means an unknown cost."""
    if cost is None:
        return "unknown"
    return "$0" if cost == 0 else f"${cost:,.4f}" if cost < 100 else f"${cost:,.2f}"


def format_duration(seconds: float) -> str:
    """Format a duration, as in `4.2 s` or `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


class RunFigures:
    """The figures of one run whose input has `total` pairs.

    Figures on labels and test outcomes count each pair once, using the majority of its rounds. All other
    figures count every round.
    """

    def __init__(self, total: int, wall_time: WallTime | None = None) -> None:
        self._total = total
        self._wall_time = wall_time
        self._pairs, self._work = Tally(), Tally()

    def add(self, merged: Observation, rounds: Sequence[Observation]) -> None:
        """Count a pair. `merged` combines the pair's rounds (see `merge_rounds`)."""
        self._pairs.add(merged)
        self._work.add(*rounds)

    @property
    def labels(self) -> list[Figure]:
        """The funnel chart from pairs to labels, the deciding nodes, agreement between rounds, and errors."""
        return [
            self._build_funnel(),
            *cross_tabulate(
                "Who decided", "", dict(sorted(self._pairs.deciders.items())), LABELS, by="decided by", unit="labels",
                pairs=lambda decider, label: self._filter_pairs(decided_by=decider, label=label),
            ),
            *self._build_rounds(),
            *_build_name_counts(
                "Errors",
                "A pair that ended in an error has no label, because a failed model call says nothing about the code.",
                self._work.errors, by="error", unit="errors", colour="error", pairs=lambda name: {"error": name},
            ),
        ]  # fmt: skip

    @property
    def tests(self) -> list[Figure]:
        """Test programs: whether they ran, their outcomes, and labels by outcome."""
        pairs = self._pairs
        causes = {
            outcome: Counter({cause or _NO_CAUSE: count for cause, count in counts.items()})
            for outcome, counts in _order(pairs.causes, _OUTCOMES).items()
        }
        return [
            *self._build_programs(),
            *cross_tabulate(
                "Outcomes and causes",
                "Only failures with the cause “snippet” count against the snippet. Failures with the cause “program” "
                "or “dependency” are repaired first, if possible.",
                causes, _CAUSES, by="outcome", unit="pairs with a test",
                pairs=lambda outcome, cause: self._filter_pairs(
                    status=outcome, cause=NO_VALUE if cause == _NO_CAUSE else cause
                ),
            ),
            *cross_tabulate(
                "Labels by test outcome",
                f"{plural(pairs.against_test, 'label contradicts', 'labels contradict')} the test outcome. The arbiter "
                "may overrule a test. A test supports a label only if it passed or failed.",
                _order(pairs.outcomes, _OUTCOMES), LABELS, by="outcome", unit="pairs with a test",
                pairs=lambda outcome, label: self._filter_pairs(status=outcome, label=label),
            ),
            *cross_tabulate(
                "Tests in modules",
                "A snippet whose module cannot be used is tested alone, as in runs without modules.",
                dict(sorted(pairs.modules.items(), key=lambda item: -item[1].total())), LABELS, by="test", unit="pairs",
                pairs=lambda place, label: self._filter_pairs(label=label, **_filter_mark("module", place)),
            ),
        ]  # fmt: skip

    @property
    def repairs(self) -> list[Figure]:
        """Repairs by kind, and stand-ins."""
        work = self._work
        text = (
            f"{plural(work.repairs, 'repair')} for {plural(work.repaired, 'pair')} led to another execution. "
            "Refused commands were not run."
        )
        kinds = dict(sorted(work.commands.items(), key=lambda item: -item[1].total()))
        return [
            *cross_tabulate(
                "Repairs by kind", text, kinds, _REPAIRS, by="kind", unit="repair attempts", pairs=_filter_mark
            ),
            *self._build_stand_ins(),
        ]

    @property
    def spending(self) -> list[Figure]:
        """Cost and time by node."""
        return [*self._build_cost(), self._build_time()]

    def build_cards(self) -> list[dict[str, str]]:
        """Return the key figures, each with a name, a value and a note."""
        labels, work, usage = self._pairs.labels, self._work, self._work.usage
        label_scope, usage_scope = (" by majority", ", all rounds") if len(work.rounds) > 1 else ("", "")
        cards = [
            (name, f"{labels[label]:,}", format_share(labels[label], labels.total()) + label_scope)
            for name, label in (
                ("match", "1"),
                ("no match", "0"),
                ("undecided", "undecided"),
                ("no search intent", "no_intent"),
                ("errors", "error"),
            )
            if labels[label] or label != "no_intent"
        ]
        if work.programs:
            cards.append((
                "programs run",
                format_share(work.executed, work.programs),
                f"{work.executed:,} of {work.programs:,}{usage_scope}",
            ))  # fmt: skip
        cards += [
            ("cost", format_cost(usage.cost_usd), plural(usage.calls, "call") + usage_scope),
            ("tokens", f"{usage.input_tokens + usage.output_tokens:,}", f"{usage.output_tokens:,} output tokens"),
            *([] if self._wall_time is None else [("wall time", *_describe_wall_time(self._wall_time))]),
            (
                "summed time",
                format_duration(work.seconds),
                "over all rounds" if usage_scope else "over all pairs",
            ),
        ]
        return [{"name": name, "value": value, "note": note} for name, value, note in cards]

    def _filter_pairs(self, **values: str) -> Filter:
        """Return the filter for pairs with these values.

        If the run has several rounds, the filter selects one round per pair.
        """
        if len(self._work.rounds) < 2:
            return values
        return {"majority" if name == "label" else name: value for name, value in values.items()} | {"standing": "yes"}

    def _filter_stage(self, stage: str, outcome: str) -> Filter | None:
        """Return the filter for a segment of the funnel chart, or None for unannotated pairs, which the table omits."""
        match stage:
            case "pairs":
                return self._filter_pairs() if outcome == "annotated" else None
            case "screened":
                return self._filter_pairs(screened=outcome)
            case "programs" | "executed":
                return self._filter_pairs(**_filter_mark("program", outcome))
            case "tests":
                return self._filter_pairs(status=outcome, **_filter_mark("program", "written"))
        return self._filter_pairs(label=outcome)

    def _build_funnel(self) -> Figure:
        pairs = self._pairs
        counts = {**pairs.stages, "pairs": Counter(annotated=pairs.annotations)}
        counts["pairs"]["not annotated"] = self._total - pairs.annotations
        rows, cells = [], []
        for stage, colours in _STAGES.items():
            outcomes = _order(counts.get(stage, {}), colours)
            rows.append((stage, [
                Segment(name, count, colours.get(name, "muted"), f"{name}: {count:,}", self._filter_stage(stage, name))
                for name, count in outcomes.items() if count
            ]))  # fmt: skip
            cells += [
                [stage, segment.name, segment.value, format_share(segment.value, pairs.annotations)]
                for segment in rows[-1][1]
            ]
        rows = [(stage, segments) for stage, segments in rows if segments]
        alt = "; ".join(
            f"{stage}: " + ", ".join(f"{segment.name} {segment.value}" for segment in row) for stage, row in rows
        )
        return build_figure(
            "From pairs to labels",
            "Each bar shows a stage of the pipeline and the number of pairs that reached it. "
            + describe_audits(audit_screener(self._work)),
            draw_stacked_bars(rows, alt=f"Funnel. {alt}.", unit="pairs"),
            [build_table(("stage", "outcome", "count", "share of annotated"), cells, left=["outcome"])],
        )

    def _build_rounds(self) -> list[Figure]:
        if len(self._work.rounds) < 2:
            return []
        agreement, alpha = self._work.agreement, self._work.rounds_alpha
        text = "" if agreement is None else f"Two rounds of the same pair agree in {agreement:.1%} of cases. "
        text += "" if alpha is None else f"Krippendorff's alpha between rounds is {alpha:.3f}. "
        text += (
            "Figures on labels and test outcomes count each pair once. They use the pair's first round "
            "that agrees with the majority. Figures on programs, repairs, stand-ins, errors, cost and time count all "
            "rounds. The table lists a pair once per round."
        )
        rounds = {f"round {number}": counts for number, counts in sorted(self._work.rounds.items())}
        return cross_tabulate(
            "Rounds", text, {**rounds, "majority": self._pairs.labels}, LABELS, by="round", unit="pairs",
            pairs=lambda row, label: (
                self._filter_pairs(label=label) if row == "majority" else {"round": row.split()[-1], "label": label}
            ),
        )  # fmt: skip

    def _build_programs(self) -> list[Figure]:
        work = self._work
        text = (
            f"{work.executed:,} of {work.programs:,} programs ran as tests "
            f"({format_share(work.executed, work.programs)}), with "
            f"{work.cases_per_program or 0:.1f} test cases on average."
        )
        return _build_name_counts(
            "Programs that ran", text, work.run_outcomes, by="program", unit="programs", colour="accent",
            pairs=lambda outcome: _filter_mark("program", outcome),
        )  # fmt: skip

    def _build_stand_ins(self) -> list[Figure]:
        work = self._work
        labels = {name: work.by_stand_ins[name] for name in ("with stand-ins", "without")}
        with_stand_ins, programs = labels["with stand-ins"].total(), sum(counts.total() for counts in labels.values())
        names = dict(work.stand_in_names.most_common(_MAX_NAMES))
        share = format_share(with_stand_ins, programs)
        text = f"{with_stand_ins:,} of {programs:,} programs ({share}) contain stand-ins."
        if len(names) < len(work.stand_in_names):
            text += f" The {len(names)} most frequent of {len(work.stand_in_names):,} names are listed."
        blocks = _build_name_counts(
            "Stand-ins", text, names, by="stand-in", unit="programs", colour="accent-2",
            pairs=lambda name: _filter_mark("stand-in", name),
        )  # fmt: skip
        for block in blocks:
            block["tables"] += cross_tabulate("", "", labels, LABELS, by="programs", unit="")[0]["tables"]
        return blocks

    def _build_cost(self) -> list[Figure]:
        """Return cost by role. The chart shows tokens if a price is unknown or nothing was paid."""
        roles, without = self._work.roles, self._work.without_history
        if not roles:
            return []
        priced = all(role.usage.cost_usd is not None for role in roles.values())
        costs = priced and any(role.usage.cost_usd for role in roles.values())
        values, rows = [], []
        for name, role in roles.items():
            usage = role.usage
            tokens = usage.input_tokens + usage.output_tokens
            value = (usage.cost_usd or 0.0, format_cost(usage.cost_usd)) if costs else (float(tokens), f"{tokens:,}")
            values.append((name, *value))
            counts = (usage.calls, role.cached, role.reasks, usage.input_tokens, usage.cached_input_tokens,
                      usage.output_tokens)  # fmt: skip
            rows.append((name, *counts, format_cost(usage.cost_usd)))
        columns = ("node", "paid calls", "cached replies", "re-asked", "input tokens", "cached input tokens",
                   "output tokens", "cost")  # fmt: skip
        text = "" if priced else "The chart shows tokens because the price of a model is unknown. "
        text += f"{plural(without, 'annotation')} without evidence cannot be included." if without else ""
        unit = "US dollars" if costs else "tokens, input and output"
        drawing = draw_bars(values, alt=f"{unit} by node.", unit=unit, pairs=lambda name: _filter_mark("role", name))
        chart = drawing if any(value for _, value, _ in values) else None
        return [build_figure("Cost by node", text, chart, [build_table(columns, rows)])]

    def _build_time(self) -> Figure:
        nodes = self._work.nodes
        if not nodes:
            return build_figure("Time by node", "No node finished.")
        colours = {"model": "accent", "programs": "good", "rest": "muted"}
        rows = [
            (name, [
                Segment(part, getattr(node, part), colour, format_duration(getattr(node, part)),
                        _filter_mark("node", name))
                for part, colour in colours.items()
            ])
            for name, node in nodes.items()
        ]  # fmt: skip
        cells = [
            [name, len(node.node_runs),
              format_duration(median(node.node_runs)), format_duration(sum(node.node_runs)),
             *map(format_duration, (node.model, node.programs, node.rest))]
            for name, node in nodes.items()
        ]  # fmt: skip
        run_time = "" if self._wall_time is None else f" (the run took {_describe_wall_time(self._wall_time)[0]})"
        text = (
            f"The times are summed over pairs{run_time}. Many pairs are annotated at the same time. The “model” column "
            "covers paid calls, and the “programs” column covers executions. The “rest” column covers package "
            "installation, overhead, and waiting for a slot or a sandbox."
        )
        columns = ("node", "visits", "median", "total", *colours)
        return build_figure(
            "Time by node",
            text,
            draw_stacked_bars(rows, alt="Seconds by node.", unit="seconds, summed over pairs", legend=True),
            [build_table(columns, cells)],
        )


def _filter_mark(kind: str, name: str) -> dict[str, str]:
    return {"marks": format_mark(kind, name)}


def _describe_wall_time(wall: WallTime) -> tuple[str, str]:
    """Return the wall time summed over the sessions of a run, and a note."""
    text = format_duration(wall.seconds) if wall.seconds >= 1 else "under 1 s"
    note = "from start to end" if wall.starts == 1 else f"sum of {wall.starts} sessions"
    return (text, note) if wall.known else (f"over {text}", f"{note}, end unknown")


def cross_tabulate(
    title: str,
    text: str,
    rows: Mapping[str, Counter[str]],
    colours: Mapping[str, str],
    *,
    by: str,
    unit: str,
    pairs: Callable[[str, str], Filter] | None = None,
) -> list[Figure]:
    """Return counts by row and column as stacked bars and a table, or no figure if all counts are 0.

    `by` names the rows. `colours` defines the colours and the order of the columns. `pairs` returns the filter for a
    row and a column.
    """
    totals = Counter[str]()
    for counts in rows.values():
        totals.update(counts)
    columns = [name for name in _order(totals, colours) if totals[name]]
    if not columns:
        return []
    several = len(colours) > 1
    bars = [
        (name, [
            Segment(column if several else "", counts[column], colours.get(column, "muted"), f"{counts[column]:,}",
                    pairs and pairs(name, column))
            for column in columns
        ])
        for name, counts in rows.items()
    ]  # fmt: skip
    cells = [(name, *(counts[column] for column in columns)) for name, counts in rows.items()]
    chart = draw_stacked_bars(bars, alt=f"{title}, by {by}.", unit=unit, legend=several)
    return [build_figure(title, text, chart, [build_table((by, *columns), cells)])]


def _order(values: Mapping[str, _Value], order: Iterable[str]) -> dict[str, _Value]:
    """Return values sorted by their names: names in `order` first, the other names alphabetically."""
    return {name: values[name] for name in dict.fromkeys((*order, *sorted(values))) if name in values}


def _build_name_counts(
    title: str,
    text: str,
    counts: Mapping[str, int],
    *,
    by: str,
    unit: str,
    colour: str,
    pairs: Callable[[str], Filter],
) -> list[Figure]:
    """Return counts of names as bars and a table, the most frequent name on top, or no figure if there are no names."""
    rows = {name: Counter({unit: count}) for name, count in Counter(counts).most_common()}
    return cross_tabulate(title, text, rows, {unit: colour}, by=by, unit=unit, pairs=lambda name, _unit: pairs(name))
