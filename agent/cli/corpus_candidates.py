"""Implements `agent corpus candidates`, which proposes snippets for queries as pairs."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from agent.cli.corpus_options import CandidatesOptions
from agent.cli.options import SearcherOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, one_line, print_json, print_table, print_text
from agent.corpus.candidates import CandidateRules, propose_codes, read_items, write_pairs
from agent.corpus.output import get_removed_path, open_output
from agent.errors import UsageError
from agent.retrieval.searchers.base import CosineSearcher, Searcher, report_progress
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.text import build_table, plural


def run(queries: Path, codes: Path, names: Sequence[str], out: Path, options: CandidatesOptions) -> None:
    """Write candidate pairs, and print a summary.

    Raises:
        UsageError, InputError: a searcher cannot be used, a file is malformed, or the output exists already.
        typer.Exit: the command stopped early. Stored vectors are reused.
    """
    notes = Console(stderr=True)
    rules = CandidateRules(
        options.combine, options.top, options.min_similarity, options.max_uses, options.pilot, options.seed
    )
    embedder = {field.name: getattr(options, field.name) for field in fields(SearcherOptions)}
    embeddings = options.embeddings or out.with_name("embeddings")
    searchers = _make_searchers(names, rules, EmbedderOptions(embeddings, **embedder))
    check_corpus_output(out, [queries, codes], force=options.force)
    with stoppable(notes, "No pairs were written. Stored vectors are reused."):
        with notes.status("reading queries and snippets"):
            query_items = read_items(queries, "query", options.field_map)
            code_items = read_items(codes, "code", options.field_map)
        if rules.pilot is not None:
            count = len(query_items)
            drawn = random.Random(rules.seed).sample(range(count), min(rules.pilot, count))
            query_items = [query_items[position] for position in sorted(drawn)]
        with Steps(notes) as steps:
            query_texts, code_texts = ([item.text for item in items] for items in (query_items, code_items))
            proposals, messages = propose_codes(searchers, query_texts, code_texts, rules, steps)
            for message in messages:
                print_text(notes, f"note: {message}")
            with open_output(out) as writer:
                tracked = report_progress(query_items, "writing pairs", steps)
                uses, unanswered = write_pairs(writer, tracked, code_items, proposals, rules)
    counts = {"queries": len(query_items), "codes": len(code_items), "pairs": writer.kept}
    overlap = proposals.measure_overlap()
    by_uses = {0: len(code_items) - len(uses), **dict(sorted(Counter(uses.values()).items()))}
    if options.as_json:
        document = {"out": str(out), "removed_out": str(get_removed_path(out)), **counts, "removed": writer.removed}
        without = {"count": len(unanswered), "first": unanswered[:5]}
        document |= {"overlap": overlap, "codes_by_uses": by_uses, "queries_without_pairs": without}
        print_json(document)
    else:
        _print(out, writer.removed, counts, overlap, by_uses, unanswered)


def _make_searchers(names: Sequence[str], rules: CandidateRules, options: EmbedderOptions) -> list[Searcher]:
    if len(set(names)) < len(names):
        raise UsageError(f"--searcher: {', '.join(names)}. Pass each searcher only once.")
    searchers = [make_searcher(name, options) for name in names]
    for searcher in searchers:
        if rules.combine != "rrf" and not isinstance(searcher, CosineSearcher):
            remedy = "Use the searchers lsa, minilm, hf:NAME or openai:MODEL, or pass --combine rrf."
            raise UsageError(f"{searcher.name} has no vectors, which --combine {rules.combine} needs. {remedy}")
    return searchers


def _print(
    out: Path,
    removed: Mapping[str, int],
    counts: Mapping[str, int],
    overlap: Mapping[str, Mapping[str, float]],
    by_uses: Mapping[int, int],
    unanswered: Sequence[str],
) -> None:
    console = Console()
    sizes = f"{plural(counts['queries'], 'query', 'queries')} and {plural(counts['codes'], 'snippet')}"
    print_text(console, f"{out}: {plural(counts['pairs'], 'pair')} of {sizes}")
    for rule, count in removed.items():
        print_text(console, f"removed by --{rule}: {plural(count, 'pair')}, listed in {get_removed_path(out)}")
    columns = ("searcher", "share of its candidates that were chosen", "Jaccard similarity")
    rows = [(name, *(f"{value:.1%}" for value in shares.values())) for name, shares in overlap.items()]
    print_table(console, build_table(columns, rows))
    folded = Counter[str]()
    for uses, count in by_uses.items():
        folded[str(uses) if uses < 10 else "10 or more"] += count
    numbers = ", ".join(f"{count:,} with {uses}" for uses, count in folded.items())
    print_text(console, f"snippets by number of pairs: {numbers}")
    if unanswered:
        first = one_line(", ".join(unanswered[:5]))
        print_text(console, f"{plural(len(unanswered), 'query', 'queries')} without pairs, such as {first}")
    if counts["pairs"]:
        print_text(console, f"Next: agent annotate {shlex.quote(str(out))} --model MODEL")
