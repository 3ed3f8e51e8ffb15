"""The figures of a report, from two tallies: what became of the pairs, what their tests showed, what it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from agent.evaluation.breakdown import audit_screener, describe_audits
from agent.evaluation.statistics import format_bin
from agent.evaluation.tally import Observation, Tally
from agent.store.manifest import WallTime
from agent.types import PROVES_NOTHING
from agent.views.charts import Figure, Filter, Segment, build_figure, build_table, draw_bars, draw_stacked_bars
from agent.views.marks import UNIVERSAL_MOCK, format_mark
from agent.wording import plural

LABELS: Mapping[str, str] = {"1": "good", "0": "bad", "undecided": "muted", "error": "error"}
_OUTCOMES = {
    "passed": "good", PROVES_NOTHING: "accent", "failed": "bad", "error": "warn", "timeout": "accent-2",
    "not_run": "muted",
}  # fmt: skip
_NO_CAUSE = "no failure"
_CAUSES = {
    _NO_CAUSE: "good", "snippet": "bad", "program": "warn", "dependency": "accent-2", "sandbox": "error",
    "flaky": "muted",
}  # fmt: skip
_REPAIRS = {"installed": "good", "ran": "accent", "failed": "bad", "refused": "muted", "changed": "accent-2"}
_STAGES: Mapping[str, Mapping[str, str]] = {
    "pairs": {"annotated": "accent", "not yet": "muted"},
    "screened": {"match": "good", "non_match": "bad", "unclear": "accent"},
    "programs": {"written": "accent"},
    "executed": {"ran": "accent", "did not run": "warn"},
    "tests": _OUTCOMES,
    "labels": LABELS,
}
# What the table's filters call it where a pair has no value.
NOTHING = "–"
_MOST_NAMES = 15
_Value = TypeVar("_Value")


def format_share(part: float, whole: float) -> str:
    """Return a share in percent; a dash for a share of nothing."""
    return f"{part / whole:.1%}" if whole else "–"


def format_cost(cost: float | None) -> str:
    """Return a cost in US dollars; unknown stays unknown."""
    if cost is None:
        return "unknown"
    return "$0" if cost == 0 else f"${cost:,.4f}" if cost < 100 else f"${cost:,.2f}"


def format_duration(seconds: float) -> str:
    """Return a time to read, as in `4.2 s` or `3 h 05 min`."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


class RunFigures:
    """Counts one run, of which `expected` pairs were to be annotated; `wall` is what its starts took.

    Labels and what they rest on count pairs, each by the majority of its rounds. What was done counts every round.
    """

    def __init__(self, expected: int, wall: WallTime | None = None) -> None:
        self._expected = expected
        self._wall = wall
        self._pairs, self._work = Tally(), Tally()

    def add(self, whole: Observation, rounds: Sequence[Observation]) -> None:
        """Take in a pair: `whole` is all its rounds `as_one`."""
        self._pairs.add(whole)
        self._work.add(*rounds)

    @property
    def labels(self) -> list[Figure]:
        """The way from pairs to labels, who decided, how rounds agree, and what ended in errors."""
        return [
            self._build_funnel(),
            *cross_tabulate(
                "Who decided", "", dict(sorted(self._pairs.deciders.items())), LABELS, by="decided by", unit="labels",
                pairs=lambda decider, label: self._filter_pairs(decided_by=decider, label=label),
            ),
            *self._build_rounds(),
            *_build_name_counts(
                "Errors",
                "What ended in an error has no label: a broken model, reply or sandbox says nothing about the code.",
                self._work.errors, by="error", unit="errors", colour="error", pairs=lambda name: {"error": name},
            ),
        ]  # fmt: skip

    @property
    def tests(self) -> list[Figure]:
        """What the test programs showed: whether they ran, how they ended, what labels go with that."""
        pairs = self._pairs
        causes = {
            outcome: Counter({cause or _NO_CAUSE: count for cause, count in counts.items()})
            for outcome, counts in _order(pairs.causes, _OUTCOMES).items()
        }
        return [
            *self._build_programs(),
            *cross_tabulate(
                "Outcomes and causes",
                "Only failures of the snippet say something about it. A program or a dependency that failed was "
                "repaired first. A pass proves nothing when mutants in the snippet's place passed too, or at most "
                "crashed.",
                causes, _CAUSES, by="outcome", unit="pairs with a test",
                pairs=lambda outcome, cause: self._filter_pairs(
                    status=outcome, cause=NOTHING if cause == _NO_CAUSE else cause
                ),
            ),
            *cross_tabulate(
                "Labels by test outcome",
                f"{plural(pairs.against_test, 'label goes', 'labels go')} against the outcome of the test. The "
                "arbiter may rule that a test does not decide a pair. Tests that failed, or passed and prove "
                "something, speak for a label; others for none.",
                _order(pairs.outcomes, _OUTCOMES), LABELS, by="outcome", unit="pairs with a test",
                pairs=lambda outcome, label: self._filter_pairs(status=outcome, label=label),
            ),
            *self._build_strength(),
        ]  # fmt: skip

    @property
    def repairs(self) -> list[Figure]:
        """What made programs run, and what they invented around the snippets."""
        work = self._work
        text = (
            f"{plural(work.repairs, 'repair')} on {plural(work.repaired, 'pair')} led to another execution. "
            "A refused command was answered, not run."
        )
        kinds = dict(sorted(work.commands.items(), key=lambda each: -each[1].total()))
        return [
            *cross_tabulate(
                "Repairs by kind", text, kinds, _REPAIRS, by="kind", unit="repairs tried", pairs=_filter_mark
            ),
            *self._build_stand_ins(),
        ]

    @property
    def confidence(self) -> list[Figure]:
        """The number of labels by confidence, the surest on top."""
        pairs, without = self._pairs, self._pairs.without_confidence
        text = f"{plural(without, 'label has', 'labels have')} no confidence. " if without else ""
        if pairs.confidences_with_gold:
            text += f"Calibration compares it with {plural(pairs.confidences_with_gold, 'gold label')}."
        else:
            text += "Whether it can be believed is known only with gold labels of the same pairs (--gold)."
        bins = {format_bin(number): pairs.confidences[number] for number in sorted(pairs.confidences, reverse=True)}
        return cross_tabulate(
            "Confidence", text, bins, LABELS, by="confidence", unit="labels",
            pairs=lambda confidence, label: self._filter_pairs(confidence=confidence, label=label),
        )  # fmt: skip

    @property
    def spending(self) -> list[Figure]:
        """What it cost, and where the time went."""
        return [*self._build_cost(), self._build_time()]

    def build_cards(self) -> list[dict[str, str]]:
        """Return the key figures: name, value, and a word on it."""
        labels, work, usage = self._pairs.labels, self._work, self._work.usage
        of_pairs, of_all = (" by majority", ", all rounds") if len(work.rounds) > 1 else ("", "")
        cards = [
            (name, f"{labels[label]:,}", format_share(labels[label], labels.total()) + of_pairs)
            for name, label in (("match", "1"), ("no match", "0"), ("undecided", "undecided"), ("errors", "error"))
        ]
        if work.programs:
            cards.append((
                "programs run",
                format_share(work.executed, work.programs),
                f"{work.executed:,} of {work.programs:,}{of_all}",
            ))  # fmt: skip
        cards += [
            ("cost", format_cost(usage.cost_usd), plural(usage.calls, "call") + of_all),
            ("tokens", f"{usage.input_tokens + usage.output_tokens:,}", f"{usage.output_tokens:,} of them out"),
            *([] if self._wall is None else [("wall time", *_describe_wall_time(self._wall))]),
            (
                "summed time",
                format_duration(work.seconds),
                "of all rounds, added up" if of_all else "of all pairs, added up",
            ),
        ]
        return [{"name": name, "value": value, "note": note} for name, value, note in cards]

    def _filter_pairs(self, **values: str) -> Filter:
        """Return the filter of pairs with these values, each as the one of its rounds that stands for it."""
        if len(self._work.rounds) < 2:
            return values
        return {"majority" if name == "label" else name: value for name, value in values.items()} | {"standing": "yes"}

    def _filter_stage(self, stage: str, outcome: str) -> Filter | None:
        """Return the filter of the pairs in a part of the funnel; those not annotated are in no table."""
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
        counts["pairs"]["not yet"] = self._expected - pairs.annotations
        rows, cells = [], []
        for stage, colours in _STAGES.items():
            outcomes = _order(counts.get(stage, {}), colours)
            rows.append((stage, [
                Segment(name, count, colours.get(name, "muted"), f"{name}: {count:,}", self._filter_stage(stage, name))
                for name, count in outcomes.items() if count
            ]))  # fmt: skip
            cells += [
                [stage, each.name, f"{each.value:,}", format_share(each.value, pairs.annotations)]
                for each in rows[-1][1]
            ]
        rows = [(stage, segments) for stage, segments in rows if segments]
        alt = "; ".join(f"{stage}: " + ", ".join(f"{each.name} {each.value}" for each in row) for stage, row in rows)
        return build_figure(
            "From pairs to labels",
            "Each bar is a stage of the pipeline. The next one holds what went on from it. "
            + describe_audits(audit_screener(self._work)),
            draw_stacked_bars(rows, alt=f"Funnel. {alt}.", unit="pairs"),
            [build_table({"stage": False, "outcome": False, "count": True, "of all annotated": True}, cells)],
        )

    def _build_rounds(self) -> list[Figure]:
        if len(self._work.rounds) < 2:
            return []
        agreement, alpha = self._work.agreement, self._work.rounds_alpha
        text = "" if agreement is None else f"Two rounds of a pair ended alike in {agreement:.1%} of the cases. "
        text += "" if alpha is None else f"Krippendorff's alpha between rounds is {alpha:.3f}. "
        text += (
            "Figures of labels, test outcomes and confidence count a pair once: as the first of its rounds that ended "
            "as their majority. Programs, repairs, stand-ins, errors, cost and time are those of all rounds, and the "
            "pairs are listed once for each."
        )
        rounds = {f"round {number}": counts for number, counts in sorted(self._work.rounds.items())}
        return cross_tabulate(
            "Rounds", text, {**rounds, "majority": self._pairs.labels}, LABELS, by="round", unit="pairs",
            pairs=self._filter_round,
        )  # fmt: skip

    def _filter_round(self, row: str, label: str) -> Filter:
        return self._filter_pairs(label=label) if row == "majority" else {"round": row.split()[-1], "label": label}

    def _build_programs(self) -> list[Figure]:
        work = self._work
        text = (
            f"{work.executed:,} of {work.programs:,} programs ran as tests "
            f"({format_share(work.executed, work.programs)}), {work.cases_per_program or 0:.1f} cases each."
        )
        return _build_name_counts(
            "Programs that ran", text, work.run_outcomes, by="program", unit="programs", colour="accent",
            pairs=lambda way: _filter_mark("program", way),
        )  # fmt: skip

    def _build_strength(self) -> list[Figure]:
        work = self._work
        text = (
            f"Mutants took the snippet's place in {plural(work.checked_tests, 'program')}; the mean share that a "
            f"program noticed is {work.mean_strength or 0:.2f}. Of {plural(work.vacuous, 'program')} it was nothing "
            "but crashes: they prove nothing."
        )
        kinds = {
            kind or UNIVERSAL_MOCK: Counter(noticed=counts[True], missed=counts[False])
            for kind, counts in sorted(work.mutants.items(), key=lambda each: (-each[1].total(), each[0]))
        }
        return cross_tabulate(
            "Strength of the programs", text, kinds, {"noticed": "good", "missed": "bad"}, by="kind", unit="mutants",
            pairs=lambda kind, how: _filter_mark(f"mutant {kind}", how),
        )  # fmt: skip

    def _build_stand_ins(self) -> list[Figure]:
        work = self._work
        labels = {name: work.by_stand_ins[name] for name in ("with stand-ins", "without")}
        used, programs = labels["with stand-ins"].total(), sum(each.total() for each in labels.values())
        names = dict(work.stand_in_names.most_common(_MOST_NAMES))
        text = (
            f"{used:,} of {programs:,} programs ({format_share(used, programs)}) invented something around the snippet."
        )
        if len(names) < len(work.stand_in_names):
            text += f" The {len(names)} most frequent of {len(work.stand_in_names):,} names are listed."
        blocks = _build_name_counts(
            "Stand-ins", text, names, by="stand-in", unit="programs", colour="accent-2",
            pairs=lambda name: _filter_mark("stand-in", name),
        )  # fmt: skip
        for each in blocks:
            each["tables"] += cross_tabulate("", "", labels, LABELS, by="programs", unit="")[0]["tables"]
        return blocks

    def _build_cost(self) -> list[Figure]:
        """Return cost by role; tokens where a price is not known."""
        roles, without = self._work.roles, self._work.without_history
        if not roles:
            return []
        priced = all(each.usage.cost_usd is not None for each in roles.values())
        costs = priced and any(each.usage.cost_usd for each in roles.values())
        values, rows = [], []
        for name, each in roles.items():
            usage = each.usage
            tokens = usage.input_tokens + usage.output_tokens
            drawn = (usage.cost_usd or 0.0, format_cost(usage.cost_usd)) if costs else (float(tokens), f"{tokens:,}")
            values.append((name, *drawn))
            counts = (usage.calls, each.cached, each.reasks, usage.input_tokens, usage.cached_input_tokens,
                      usage.output_tokens)  # fmt: skip
            rows.append([name, *(f"{count:,}" for count in counts), format_cost(usage.cost_usd)])
        columns = {"node": False} | dict.fromkeys(
            ("calls paid", "from the cache", "asked again", "tokens in", "of these cached", "tokens out", "cost"), True
        )
        text = "" if priced else "The price of a model is not known, so that its cost is not either: tokens are drawn. "
        text += f"Nothing is kept of {plural(without, 'annotation')}: they are not in here." if without else ""
        unit = "US dollars" if costs else "tokens, in and out"
        drawing = draw_bars(values, alt=f"{unit} by node.", unit=unit, pairs=lambda name: _filter_mark("asked", name))
        chart = drawing if any(value for _, value, _ in values) else None
        return [build_figure("Cost by node", text, chart, [build_table(columns, rows)])]

    def _build_time(self) -> Figure:
        nodes = self._work.nodes
        if not nodes:
            return build_figure("Time by node", "No node came to its end.")
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
            [name, f"{len(node.visits):,}", format_duration(median(node.visits)), format_duration(sum(node.visits)),
             *map(format_duration, (node.model, node.programs, node.rest))]
            for name, node in nodes.items()
        ]  # fmt: skip
        took = "" if self._wall is None else f" (from start to end the run took {_describe_wall_time(self._wall)[0]})"
        text = (
            f"The pairs' own seconds, added up{took}; many pairs are worked on at once. "
            "Model is the time of calls that were made, programs that of all their runs. The rest is waiting for a "
            "turn or a sandbox, installing, and the work between."
        )
        columns = {"node": False} | dict.fromkeys(("visits", "median", "all", *colours), True)
        return build_figure(
            "Time by node",
            text,
            draw_stacked_bars(rows, alt="Seconds by node.", unit="seconds, added up over pairs", legend=True),
            [build_table(columns, cells)],
        )


def _filter_mark(what: str, name: str) -> dict[str, str]:
    return {"marks": format_mark(what, name)}


def _describe_wall_time(wall: WallTime) -> tuple[str, str]:
    """Return the time that a run's starts took, and a word on it."""
    text = format_duration(wall.seconds) if wall.seconds >= 1 else "under 1 s"
    note = "from start to end" if wall.starts == 1 else f"{wall.starts} starts, added up"
    return (text, note) if wall.known else (f"over {text}", f"{note}; an end is not known")


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
    """Return counts by row and column as stacked bars and as a table, nothing where there is none.

    `by` is what the rows are; `colours` gives the order of the columns, too. `pairs` says of a row and a column which
    pairs they stand for.
    """
    seen = Counter[str]()
    for counts in rows.values():
        seen.update(counts)
    columns = [name for name in _order(seen, colours) if seen[name]]
    if not columns:
        return []
    several = len(colours) > 1
    drawn = [
        (name, [
            Segment(each if several else "", counts[each], colours.get(each, "muted"), f"{counts[each]:,}",
                    pairs and pairs(name, each))
            for each in columns
        ])
        for name, counts in rows.items()
    ]  # fmt: skip
    cells = [[name, *(f"{counts[each]:,}" for each in columns)] for name, counts in rows.items()]
    chart = draw_stacked_bars(drawn, alt=f"{title}, by {by}.", unit=unit, legend=several)
    return [build_figure(title, text, chart, [build_table({by: False, **dict.fromkeys(columns, True)}, cells)])]


def _order(values: Mapping[str, _Value], order: Iterable[str]) -> dict[str, _Value]:
    """Return the same in an order; what it does not name comes last."""
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
    """Return counts of names, the most frequent on top; nothing where there is none."""
    rows = {name: Counter({unit: count}) for name, count in Counter(counts).most_common()}
    return cross_tabulate(title, text, rows, {unit: colour}, by=by, unit=unit, pairs=lambda name, _unit: pairs(name))
