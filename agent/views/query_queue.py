"""The review queue of whole queries of a retrieval folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from agent.errors import UsageError
from agent.retrieval.reviewed import shuffle
from agent.text import plural
from agent.types import Annotation
from agent.views.queues import Queue, QueueEntry


def build_query_queue(pairs: Iterable[Sequence[Annotation]], count: int) -> Queue:
    """Return the queue of all pairs of the first `count` queries in random order. `pairs` is as in `build_queue`.

    Raises:
        UsageError: the run was not created by `agent retrieval judge`.
    """
    by_query = defaultdict[str, dict[str, QueueEntry]](dict)
    for rounds in pairs:
        pair = rounds[0]
        if "query_id" not in pair.meta:
            raise UsageError("--queries reviews only runs of `agent retrieval judge`, such as RUN/retrieval/judged.")
        by_query[str(pair.meta["query_id"])][pair.id] = QueueEntry(pair.id, pair.round)
    queries = shuffle(by_query)[:count]
    entries = tuple(by_query[query][pair] for query in queries for pair in shuffle(by_query[query]))
    title = f"{len(queries):,} of {plural(len(by_query), 'query', 'queries')}, {plural(len(entries), 'pair')}"
    return Queue(title, entries, "queries")
