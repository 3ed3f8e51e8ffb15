"""Asks a model for code for the queries of a run without a match, and tests it (CoSQA+ version 1, section 3.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.annotator import Annotator
from agent.corpus.output import CorpusWriter
from agent.errors import UsageError
from agent.languages.registry import Languages
from agent.pipeline.graph import END, Variant
from agent.pipeline.nodes.asking import WriteCode
from agent.pipeline.prompt_text import describe_report
from agent.runs.store import files
from agent.runs.store.reviews import Review, read_verdicts
from agent.runs.store.run_view import RunView, load_run
from agent.types import GENERATED, Annotation, Pair, WrittenCode

_EVIDENCE = {"label", "reason", "decided_by", "test"}
WRITING = Variant(name=WriteCode.name, start=WriteCode.name, nodes={WriteCode.name: {"written": END}})


@dataclass(frozen=True)
class Gap:
    """A query without a match, as a pair without code, and the last attempt to fill it.

    `pair` is the pair of the attempt. `reason` says why its code was rejected, and is empty if it was accepted. `error`
    says why there is no result.
    """

    query: Pair
    pair: Pair
    attempt: int = 0
    reason: str = "no attempt"
    error: str = ""
    result: Annotation | None = None
    review: Review | None = None

    def start_attempt(self) -> Gap:
        """Build the pair for the node `write_code`."""
        attempt = self.attempt + 1
        context = self.query.context
        if self.pair.code:
            rejection = f"Why the earlier code was rejected:\n{self.reason}"
            context = f"{context}\n\n{rejection}" if context else rejection
        changes = {"id": f"{self.query.id}/generated-{attempt}", "code": self.pair.code, "context": context}
        return replace(self, pair=self.query.model_copy(update=changes), attempt=attempt)

    def take_code(self, run: Path) -> Gap:
        """Build the pair for the variant that tests the written code.

        Raises:
            UsageError: an earlier version wrote the code, and stored it in another way.
        """
        document = self.result and self.result.document
        if not isinstance(document, WrittenCode):
            problem = f"{run}: has code that an earlier version wrote"
            raise UsageError(f"{problem}. Pass another file with -o, or remove {run.parent}.")
        return replace(self, pair=self.query.model_copy(update={"id": self.pair.id, "code": document.code}))


def find_gaps(run: RunView, model: str) -> tuple[list[Gap], Counter[str]]:
    """Return the queries without a match, and count the skipped queries by reason.

    Skips queries without search intent (`no_intent`), queries with a pair that ended in an error (`error`) or is not
    annotated yet (`pending`), and languages that cannot be tested (`language`). A query has a context if all of its
    pairs share it. `model` is the name of the model that will write code.

    Raises:
        ConfigError: a language is known but cannot be tested on this machine.
    """
    languages = Languages()
    labels = {label.id: label.status for label in run.index.iterate_labels()}
    queries = dict[tuple[str, str], Pair]()
    statuses = defaultdict[tuple[str, str], set[str]](set)
    for pair in run.pairs():
        key = pair.language, pair.query
        meta = {"query_id": pair.meta.get("query_id", pair.id), "source": GENERATED, "model": model}
        query = queries.setdefault(key, pair.model_copy(update={"code": "", "origin": None, "meta": meta}))
        if query.context != pair.context:
            queries[key] = query.model_copy(update={"context": None})
        statuses[key].add(labels.get(pair.id, "pending"))
    gaps = list[Gap]()
    skipped = Counter[str]()
    for key, query in queries.items():
        reason = next((status for status in ("1", "no_intent", "error", "pending") if status in statuses[key]), None)
        if reason is None and query.language in languages:
            languages.require(query.language)
            gaps.append(Gap(query, query))
        elif reason != "1":
            skipped[reason or "language"] += 1
    return gaps, skipped


async def fill(
    gaps: Sequence[Gap], runs: tuple[Path, Path], variant: Variant, attempts: int, **options: Any
) -> list[Gap]:
    """Fill gaps. Each attempt extends both runs: one writes code, and one tests it. Finished work is reused.

    Code is accepted if its label is 1, its test passed and no reviewer rejected it. `options` are arguments of
    `Annotator`, which also documents the other errors.

    Raises:
        UsageError: the runs have code for other queries, or an earlier version wrote the code.
        SandboxUnavailable: a language lacks its toolchain. Raised before any model call.
    """
    current = {gap.query.id: gap for gap in gaps}
    await _require_toolchains(gaps, variant, options)
    for _ in range(attempts):
        waiting = [gap.start_attempt() for gap in current.values() if gap.reason and not gap.error]
        if not waiting:
            break
        written = await _annotate(waiting, WRITING, runs[0], options)
        waiting = [gap.take_code(runs[0]) for gap in written if not gap.error]
        tested = await _annotate(waiting, variant, runs[1], options)
        verdicts = read_verdicts(runs[1] / files.REVIEWS)
        for gap in (*written, *tested):
            review = verdicts.get(gap.pair.id)
            current[gap.query.id] = replace(gap, review=review, reason=_explain_rejection(gap.result, review))
    return list(current.values())


async def _require_toolchains(gaps: Sequence[Gap], variant: Variant, options: dict[str, Any]) -> None:
    languages = Languages()
    queries = [gap.query for gap in gaps if languages[gap.query.language].toolchain is not None]
    if queries:
        async with Annotator(variant=variant, **{**options, "on_event": None}) as annotator:
            async for _ in annotator.annotate(queries, limit=0):
                pass


async def _annotate(gaps: Sequence[Gap], variant: Variant, run: Path, options: dict[str, Any]) -> list[Gap]:
    """Annotate the pairs of the gaps. Pairs that are in the run already stay unchanged."""
    earlier = load_run(run).pairs() if (run / files.MANIFEST).exists() else ()
    pairs = {pair.id: pair for pair in (*(gap.pair for gap in gaps), *earlier)}
    for gap in gaps:
        stored = pairs[gap.pair.id]
        if not stored.code and stored != gap.pair:
            problem = f"{run}: pair {stored.id!r} belongs to another query or context"
            raise UsageError(f"{problem}. Pass another file with -o, or remove {run.parent}.")
    async with Annotator(variant=variant, run_dir=run, **options) as annotator:
        results = {result.id: result async for result in annotator.annotate(list(pairs.values()), limit=len(gaps))}
    annotated = list[Gap]()
    for gap in gaps:
        result = results[gap.pair.id]
        error = f"{result.error.type}: {result.error.message}" if result.error else ""
        annotated.append(replace(gap, pair=pairs[gap.pair.id], result=result, error=error))
    return annotated


def _explain_rejection(result: Annotation | None, review: Review | None) -> str:
    """Return why code is rejected, or an empty text if it is accepted."""
    if review is not None and review.label == 0:
        return f"A person rejected it. {review.reason}"
    if result is None or (test := result.test) is None:
        return "It was not tested."
    if (result.label, test.says) == (1, 1):
        return ""
    return f"The label is {result.label}. {result.reason}\nThe test: {test.status.value}\n{describe_report(test)}"


def write_results(gaps: Sequence[Gap], writer: CorpusWriter) -> None:
    """Write the pairs with accepted code and the evidence of their labels. List the other queries with the reasons."""
    for gap in gaps:
        if gap.reason:
            last = {"code": gap.pair.code, "attempts": gap.attempt, "reason": gap.error or gap.reason}
            writer.remove("error" if gap.error else "no match", {**gap.query.model_dump(), **last})
        else:
            meta = {**gap.pair.meta, "attempt": gap.attempt, "reviewed": gap.review is not None}
            evidence = gap.result.model_dump(mode="json", include=_EVIDENCE) if gap.result else {}
            writer.keep({**gap.pair.model_dump(exclude_none=True), "meta": meta, **evidence})
