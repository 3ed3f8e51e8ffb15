"""Figures on the audit of a benchmark, for the terminal, a page, and the report on a retrieval folder."""

from __future__ import annotations

from collections.abc import Iterator

from agent.retrieval.results import Audit
from agent.text import Figure, build_figure, build_table

FACTS = {
    "equal_codes": "Snippets that equal an earlier snippet",
    "near_codes": "Snippets that nearly equal an earlier snippet",
    "equal_queries": "Queries that equal an earlier query",
    "near_queries": "Queries that nearly equal an earlier query",
    "repeated_judgements": "Repeated judgements",
    "conflicting_copies": "Queries and snippets whose copies have different grades",
    "unjudged_copies": "Relevant snippets with a copy that has no grade",
    "queries_without_relevant": "Queries without a relevant snippet",
    "unknown_ids": "Judgements with an unknown id",
    "leaked_queries": "Queries in the training data",
    "leaked_codes": "Snippets in the training data",
    "ungraded_equivalents": "Equivalents of relevant snippets that have no grade",
    "queries_with_ungraded_equivalents": "Queries with such an equivalent",
}


def build_audit_figures(audit: Audit) -> Iterator[Figure]:
    """Yield the counts of all facts, examples of each, the best expected scores, and the effect of equivalents."""
    counts = ((FACTS[kind], fact.count, fact.of) for kind, fact in audit.facts.items())
    yield build_figure("Facts", "", None, [build_table(("", "count", "of"), counts)])
    for kind, fact in audit.facts.items():
        if fact.examples:
            columns = tuple(fact.examples[0])
            rows = (example.values() for example in fact.examples)
            yield build_figure(f"Examples: {FACTS[kind]}", "", None, [build_table(columns, rows, left=columns)])
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
