"""Marks of annotations: facts that the bars of a report count but that have no column in the table.

Each row contains the marks of its annotation, so a click on a bar can list the bar's pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.evaluation.tally import Observation, Tally

GROUPING_NAMES = {
    "decided_by": "decided by",
    "evidence": "evidence",
    "tests": "test",
    "stand_ins": "stand-ins",
    "overrides": "label and test",
}
"""Display names of the groupings of pairs with gold labels (`tally.GROUPINGS`)."""
_MAX_LENGTH = 100


def format_mark(kind: str, name: str) -> str:
    """Return a mark such as `node: repair`."""
    return f"{kind}: {name}"


def get_gold_mark_kind(grouping: str) -> str:
    """Return the kind of marks that a grouping adds to pairs with gold labels."""
    return f"with gold, {GROUPING_NAMES[grouping]}"


def iterate_marks(observation: Observation) -> Iterator[str]:
    """Iterate over an annotation's marks.

    The marks agree with the bars, because a `Tally` computes both.
    """
    tally = Tally()
    tally.add(observation)
    names_by_kind: Mapping[str, Iterable[str]] = {
        "program": [*tally.stages["programs"], *tally.stages["executed"], *tally.run_outcomes],
        "stand-in": tally.stand_in_names,
        "module": tally.modules,
        "role": tally.roles,
        "node": tally.nodes,
        **tally.commands,
        **{get_gold_mark_kind(grouping): groups for grouping, groups in tally.judgements.items()},
    }
    for kind, names in names_by_kind.items():
        yield from (format_mark(kind, name) for name in names if len(name) <= _MAX_LENGTH)
