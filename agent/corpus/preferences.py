"""Compares the matches of two labelled datasets, A and B: draws snippets for the same queries and counts preferences.

Each query is drawn with a snippet of A and a snippet of B, as two comparisons with ids that end in `ab` and `ba`, the
order of the snippets. A person sees the first comparison, whose order is random, and a model sees both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Literal

from agent.corpus.labelled import read_labelled
from agent.datasets.fields import FieldMap
from agent.errors import InputError, UsageError
from agent.evaluation.statistics import Interval, mcnemar_exact, wilson_interval
from agent.runs.store.run_view import RunView
from agent.types import Choice, Comparison, Frozen, Pair, Preference

Orders = Sequence[Comparison]
"""The comparison of two snippets in both orders."""
Outcome = Literal["a", "b", "tie", "position_dependent", "error"]


class PreferenceCounts(Frozen):
    """The outcomes of one judge.

    `position_dependent` counts the ties for which a model preferred the same position in both orders. `share` is the
    share of B among the decided comparisons, `interval` is its Wilson interval, and `p_value` belongs to the two-sided
    sign test. All three are None if nothing is decided.
    """

    judge: str
    prefer_a: int
    prefer_b: int
    ties: int
    position_dependent: int
    errors: int
    pending: int
    share: float | None = None
    interval: Interval | None = None
    p_value: float | None = None


def draw_comparisons(a: Path, b: Path, size: int, seed: int, mapping: FieldMap = None) -> tuple[list[Orders], int]:
    """Draw queries with label 1 and different snippets in both datasets, and two of these snippets.

    Also counts such queries. Ignores the case and white space of queries, and the white space at the end of lines. The
    languages must be equal. Keeps the matches of A, and the matches of B for the same queries, in memory.

    Raises:
        InputError: there is no such query, or one of these matches has a context.
        InputError, RunFolderError, ExtraMissing: see `read_labelled`.
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
    common = [sides for sides in matches.values() if all(sides) and len(sides[0].keys() | sides[1].keys()) > 1]
    if not common:
        rule = "Queries match in any case and spacing within the same language, and the snippets must differ"
        raise InputError(f"has no query in common with {b} among the pairs with label 1. {rule}", path=a)
    rng = Random(seed)
    drawn = list[Orders]()
    for number, snippets in enumerate(rng.sample(common, min(size, len(common))), start=1):
        while (ours := rng.choice([*snippets[0]])) == (theirs := rng.choice([*snippets[1]])):
            pass  # ends soon, because at most every second draw has equal snippets
        pair = snippets[0][ours]
        texts = {"a": pair.code, "b": snippets[1][theirs].code}
        base = Comparison(id="", query=pair.query, language=pair.language, first="", code="")
        drawn.append(
            [
                base.model_copy(update={"id": f"{number}{order}", "first": texts[order[0]], "code": texts[order[1]]})
                for order in rng.sample(("ab", "ba"), 2)
            ]
        )
    return drawn, len(common)


def find_preferred(comparison_id: str, choice: Choice | None) -> Outcome:
    """Return the preferred dataset.

    Raises:
        UsageError: there is no choice, because an earlier version stored it as a label.
    """
    if choice is None:
        raise UsageError("the folder has choices of an earlier version. Pass another folder (-o).")
    return "tie" if choice == "tie" else "a" if (choice == "first") == comparison_id.endswith("ab") else "b"


def collect_replies(run: RunView, drawn: Iterable[Orders]) -> list[Outcome]:
    """Return the outcomes of the comparisons for which a run has replies in both orders, or an error.

    Raises:
        UsageError: see `find_preferred`.
    """
    outcomes = list[Outcome]()
    for orders in drawn:
        found = [(comparison.input_sha256(), run.annotation(comparison.id)) for comparison in orders]
        replies = [reply for sha256, reply in found if reply is not None and reply.input_sha256 == sha256]
        if any(reply.error is not None for reply in replies):
            outcomes.append("error")
            continue
        preferred = {
            find_preferred(reply.id, reply.document.choice if isinstance(reply.document, Preference) else None)
            for reply in replies
        }
        if len(replies) == 2:
            disagreement: Outcome = "tie" if "tie" in preferred else "position_dependent"
            outcomes.append(preferred.pop() if len(preferred) == 1 else disagreement)
    return outcomes


def count_preferences(judge: str, outcomes: Sequence[Outcome], total: int) -> PreferenceCounts:
    """Count the outcomes of one judge. `total` is the number of comparisons. Needs SciPy."""
    a, b, dependent = (outcomes.count(outcome) for outcome in ("a", "b", "position_dependent"))
    return PreferenceCounts(
        judge=judge,
        prefer_a=a,
        prefer_b=b,
        ties=outcomes.count("tie") + dependent,
        position_dependent=dependent,
        errors=outcomes.count("error"),
        pending=total - len(outcomes),
        share=b / (a + b) if a + b else None,
        interval=wilson_interval(b, a + b) if a + b else None,
        # without the ties, the sign test is McNemar's exact test
        p_value=mcnemar_exact(a, b) if a + b else None,
    )
