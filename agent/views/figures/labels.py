"""The way from pairs to labels: the funnel, who decided, what errors there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agent.views.charts import Block, Segment, bars, block, stacked, table
from agent.views.figures.base import LABEL_COLOURS, OUTCOME_COLOURS, Seen, share

_VERDICTS = {"match": "good", "non_match": "bad", "unclear": "accent"}
_Stage = tuple[str, list[Segment]]


class Funnel:
    """What became of the pairs, stage by stage. `pairs` are those of the input."""

    def __init__(self, pairs: int) -> None:
        self._expected = pairs
        self._seen = 0
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in ("screened", "programs", "executed", "tests", "labels")
        }

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        self._seen += 1
        test, verdict = seen.annotation.test, seen.annotation.screen_verdict
        if verdict is not None:
            self._counts["screened"][verdict.value] += 1
        if seen.generated:
            self._counts["programs"]["written"] += 1
        elif test is not None:
            self._counts["programs"]["none, for the snippet does not parse"] += 1
        if test is not None and seen.generated:
            self._counts["executed"]["ran" if test.executed else "did not run"] += 1
            self._counts["tests"][test.outcome] += 1
        self._counts["labels"][seen.label] += 1

    @property
    def labels(self) -> Counter[str]:
        """Return how many there are of each label, undecided and errors included."""
        return self._counts["labels"]

    def blocks(self) -> list[Block]:
        """Return the funnel as bars and as a table."""
        stages = [stage for stage in self._stages() if any(segment.value for segment in stage[1])]
        told = "; ".join(
            f"{name}: " + ", ".join(f"{segment.name} {segment.value:g}" for segment in segments if segment.value)
            for name, segments in stages
        )
        rows = [
            [name, segment.name, f"{segment.value:,.0f}", share(segment.value, self._seen)]
            for name, segments in stages
            for segment in segments
            if segment.value
        ]
        columns = {"stage": False, "outcome": False, "count": True, "of all annotated": True}
        return [
            block(
                "From pairs to labels",
                "Each bar is a stage of the pipeline. The next one holds what went on from it.",
                stacked(stages, alt=f"Funnel. {told}.", unit="pairs"),
                [table(columns, rows)],
            )
        ]

    def _stages(self) -> list[_Stage]:
        left = self._expected - self._seen
        counts = self._counts
        pairs = [_segment("annotated", self._seen, "accent"), _segment("not yet", left, "muted")]
        return [
            ("pairs", pairs),
            ("screened", _segments(counts["screened"], _VERDICTS)),
            ("programs", _segments(counts["programs"], {"written": "accent"})),
            ("executed", _segments(counts["executed"], {"ran": "accent", "did not run": "warn"})),
            ("tests", _segments(counts["tests"], OUTCOME_COLOURS)),
            ("labels", _segments(counts["labels"], LABEL_COLOURS)),
        ]


class Deciders:
    """Which node gave which labels."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        if seen.annotation.decided_by is not None:
            self._counts.setdefault(seen.annotation.decided_by, Counter())[seen.label] += 1

    def blocks(self) -> list[Block]:
        """Return labels by who decided."""
        if not self._counts:
            return []
        rows = [(name, _segments(counts, LABEL_COLOURS)) for name, counts in sorted(self._counts.items())]
        columns = {"decided by": False, **dict.fromkeys(("1", "0", "undecided"), True)}
        cells = [
            [name, *(f"{counts[value]:,}" for value in ("1", "0", "undecided"))]
            for name, counts in sorted(self._counts.items())
        ]
        chart = stacked(rows, alt="Labels by the node that decided.", unit="labels", legend=True)
        return [block("Who decided", "", chart, [table(columns, cells)])]


class Errors:
    """Why annotations have no label."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, seen: Seen) -> None:
        """Take in one annotation."""
        if seen.annotation.error is not None:
            self._counts[seen.annotation.error.type] += 1

    def blocks(self) -> list[Block]:
        """Return errors by type."""
        if not self._counts:
            return []
        found = self._counts.most_common()
        chart = bars(
            [(name, count, f"{count:,}") for name, count in found],
            alt="Errors by type.", unit="errors", colour="error",
        )  # fmt: skip
        rows = [[name, f"{count:,}"] for name, count in found]
        text = "What ended in an error has no label: a broken model, reply or sandbox says nothing of the code."
        return [block("Errors", text, chart, [table({"error": False, "count": True}, rows)])]


def _segment(name: str, count: int, colour: str) -> Segment:
    return Segment(name, count, colour, f"{name}: {count:,}")


def _segments(counts: Counter[str], colours: Mapping[str, str]) -> list[Segment]:
    names = [*colours, *(name for name in counts if name not in colours)]
    return [_segment(name, counts[name], colours.get(name, "muted")) for name in names if counts[name]]
