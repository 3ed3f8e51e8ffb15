"""Figures on the audit of a benchmark, for the terminal, a page, and the report on a retrieval folder."""

from __future__ import annotations

from collections.abc import Iterator

from agent.retrieval.results import Audit
from agent.text import Figure, build_figure, build_table


def build_audit_figures(audit: Audit) -> Iterator[Figure]:
    """Yield the counts of all facts, examples of each, the best expected scores, and the effect of equivalents."""
    counts = ((kind.replace("_", " "), fact.count, fact.of) for kind, fact in audit.facts.items())
    yield build_figure("Facts", "", None, [build_table(("", "count", "of"), counts)])
    for kind, fact in audit.facts.items():
        if fact.examples:
            columns = tuple(fact.examples[0])
            rows = (example.values() for example in fact.examples)
            yield build_figure(
                f"Examples: {kind.replace('_', ' ')}", "", None, [build_table(columns, rows, left=columns)]
            )
    if audit.ceilings:
        text = (
            "A searcher that sees only texts can expect at most these means over the queries with a relevant snippet. "
            "It cannot tell copies of a snippet or of a query apart."
        )
        ceilings = ((own.metric, own.value, own.below, own.of) for own in audit.ceilings)
        table = build_table(("metric", "best mean", "queries below 1", "of"), ceilings)
        yield build_figure("Best possible scores", text, None, [table])
    if audit.shifts:
        text = (
            "The change of each mean if all equivalents without a grade were accepted as relevant. The "
            f"{audit.level:.0%} intervals in brackets are computed by bootstrap over clusters of queries that share "
            f"groups of equivalents (seed {audit.seed}, {audit.resamples:,} resamples)."
        )
        shifts = (
            (own.searcher, own.metric, own.before, own.before + own.difference.mean, own.difference)
            for own in audit.shifts
        )
        table = build_table(("searcher", "metric", "now", "accepted", "change"), shifts, left=["metric"])
        yield build_figure("Effect of equivalents", text, None, [table])
