"""What a report's bars count of a pair, where no column of its table says it.

A row carries the marks of its annotation, so that each bar finds the pairs that it counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.evaluation.tally import Observation, Tally

GROUPING_NAMES = {"decided_by": "decided by", "tests": "test", "stand_ins": "stand-ins", "overrides": "label and test"}
"""The ways in which pairs with gold are grouped (`tally.WAYS`), in words."""
UNIVERSAL_MOCK = "universal mock"
"""What stands among the kinds of mutants for the mock that no use breaks."""
_LONGEST = 100


def format_mark(what: str, name: str) -> str:
    """Return a mark by what it is of and by its name there, as in `node: repair`."""
    return f"{what}: {name}"


def get_gold_mark_kind(way: str) -> str:
    """Return what marks of pairs with gold are of, by the way they are grouped."""
    return f"with gold, {GROUPING_NAMES[way]}"


def iterate_marks(seen: Observation) -> Iterator[str]:
    """Yield an annotation's marks, from a tally of it alone: the bars are drawn from a tally, too."""
    one = Tally()
    one.add(seen)
    named: Mapping[str, Iterable[str]] = {
        "program": [*one.stages["programs"], *one.stages["executed"], *one.run_outcomes],
        "stand-in": one.stand_in_names,
        "asked": one.roles,
        "node": one.nodes,
        **one.commands,
        **{
            f"mutant {kind or UNIVERSAL_MOCK}": ["noticed" if killed else "missed" for killed in counts]
            for kind, counts in one.mutants.items()
        },
        **{get_gold_mark_kind(way): groups for way, groups in one.judgements.items()},
    }
    for what, names in named.items():
        yield from (format_mark(what, name) for name in names if len(name) <= _LONGEST)
