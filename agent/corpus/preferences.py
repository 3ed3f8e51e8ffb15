"""Compares the matches of two labelled datasets, A and B: draws codes for the same queries and counts preferences.

A comparison is two pairs whose `context` is the first code and whose `code` is the second code. Their ids end in `ab`
and `ba`, the order of the codes. A person sees the first pair, whose order is random, and a model sees both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, Literal

from agent.corpus.labelled import read_labelled
from agent.datasets.fields import FieldMap
from agent.errors import InputError
from agent.evaluation.statistics import mcnemar_exact, wilson_interval
from agent.runs.store.run_view import RunView
from agent.types import Pair

Comparison = Sequence[Pair]
Outcome = Literal["a", "b", "tie", "position_dependent", "error"]


def draw_comparisons(a: Path, b: Path, size: int, seed: int, mapping: FieldMap = None) -> tuple[list[Comparison], int]:
    """Draw queries with label 1 and different codes in both datasets, and two of these codes. Also count such queries.

    Ignores the case and white space of queries, and the white space at the end of code lines. The languages must be
    equal. Keeps the matches of A, and the matches of B for the same queries, in memory. Raises `InputError` if there is
    no such query or one of these matches has a context, and the errors of `read_labelled`.
    """
    matches = defaultdict[tuple[str, str], tuple[dict[int, Pair], dict[int, Pair]]](lambda: ({}, {}))
    for side, path in enumerate((a, b)):
        pair: Pair | None = None
        for pair in (labelled.pair for labelled in read_labelled(path, mapping) if labelled.label == 1):
            key = pair.language, " ".join(pair.query.lower().split())
            if side == 0 or key in matches:
                if pair.context:
                    raise InputError(f"pair {pair.id[:60]!r} has a context. Such pairs cannot be compared", path=path)
                matches[key][side].setdefault(hash("\n".join(map(str.rstrip, pair.code.rstrip().splitlines()))), pair)
        if pair is None:
            raise InputError("has no pair with label 1", path=path)
    common = [codes for codes in matches.values() if all(codes) and len(codes[0].keys() | codes[1].keys()) > 1]
    if not common:
        rule = "Queries match in any case and spacing within the same language, and the codes must differ"
        raise InputError(f"has no query in common with {b} among the pairs with label 1. {rule}", path=a)
    rng, comparisons = Random(seed), list[Comparison]()
    for number, codes in enumerate(rng.sample(common, min(size, len(common))), start=1):
        while (ours := rng.choice([*codes[0]])) == (theirs := rng.choice([*codes[1]])):
            pass  # ends soon, because at most every second draw has equal codes
        pair, texts = codes[0][ours], {"a": codes[0][ours].code, "b": codes[1][theirs].code}
        orders = [(order, texts[order[0]], texts[order[1]]) for order in rng.sample(("ab", "ba"), 2)]
        changes = [{"id": f"{number}{order}", "context": one, "code": two, "meta": {}} for order, one, two in orders]
        comparisons.append([pair.model_copy(update=change) for change in changes])
    return comparisons, len(common)


def find_preferred(pair_id: str, label: int | None) -> Outcome:
    """Return the preferred dataset. The label is 1 for the first code, 0 for the second code, and None for a tie."""
    return "tie" if label is None else "a" if (label == 1) == pair_id.endswith("ab") else "b"


def collect_replies(run: RunView, comparisons: Iterable[Comparison]) -> list[Outcome]:
    """Return the outcomes of the comparisons for which a run has replies in both orders, or an error."""
    outcomes = list[Outcome]()
    for pairs in comparisons:
        found = [(pair.input_sha256(), run.annotation(pair.id)) for pair in pairs]
        replies = [reply for sha256, reply in found if reply is not None and reply.input_sha256 == sha256]
        preferred = {find_preferred(reply.id, reply.label) for reply in replies}
        if any(reply.error is not None for reply in replies):
            outcomes.append("error")
        elif len(replies) == 2:
            outcomes.append(
                preferred.pop() if len(preferred) == 1 else "tie" if "tie" in preferred else "position_dependent"
            )
    return outcomes


def count_preferences(judge: str, outcomes: Sequence[Outcome], total: int) -> dict[str, Any]:
    """Count the outcomes of one judge as JSON. `total` is the number of comparisons. Needs SciPy.

    `position_dependent` counts the ties for which a model preferred the same position in both orders. `share` is the
    share of B among the decided comparisons, `interval` is its Wilson interval, and `p_value` belongs to the two-sided
    sign test. All three are None if nothing is decided.
    """
    a, b, position_dependent = (outcomes.count(outcome) for outcome in ("a", "b", "position_dependent"))
    return {
        "judge": judge,
        "prefer_a": a,
        "prefer_b": b,
        "ties": outcomes.count("tie") + position_dependent,
        "position_dependent": position_dependent,
        "errors": outcomes.count("error"),
        "pending": total - len(outcomes),
        "share": b / (a + b) if a + b else None,
        "interval": asdict(wilson_interval(b, a + b)) if a + b else None,
        # without the ties, the sign test is McNemar's exact test
        "p_value": mcnemar_exact(a, b) if a + b else None,
    }
