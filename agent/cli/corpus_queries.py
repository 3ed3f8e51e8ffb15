"""Implements `agent corpus queries`, which keeps the queries that ask for code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.cli.corpus_options import QueriesOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, print_json, print_table, print_text
from agent.corpus.output import CorpusWriter, get_removed_path, open_output
from agent.corpus.queries import QueryFilter, count_agreement, load_rules, read_queries
from agent.datasets.formats import expand_patterns
from agent.errors import UsageError
from agent.evaluation.measures import Confusion, compute_measures
from agent.text import build_table, format_value, plural

_CELLS = ("tp", "fp", "fn", "tn")


def run(files: list[str], out: Path, options: QueriesOptions) -> None:
    """Write the kept and the removed queries, and print the number of removed queries by category and rule.

    Raises:
        UsageError: an input or an option is invalid, or an output file must not be written.
        typer.Exit: the command stopped early, and wrote no files.
    """
    limits = options.min_words, options.max_words
    if limits[1] is not None and limits[1] < limits[0]:
        raise UsageError(f"--max-words {limits[1]} is less than --min-words {limits[0]}. Pass a larger maximum.")
    paths = expand_patterns(files)
    rules = load_rules(options.rules)
    others = [path for path in (Path(options.rules), options.labelled) if path is not None and path.is_file()]
    check_corpus_output(out, [*paths, *others], force=options.force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."), Steps(notes) as steps:
        confusion = count_agreement(rules, options.labelled, options.field_map) if options.labelled else None
        with open_output(out) as writer:
            removed = QueryFilter(rules, *limits).apply(read_queries(paths, options.field_map), writer, steps)
            if not writer.kept and not removed:
                raise UsageError("the input files contain no queries. Pass a file with at least one query.")
    categories = sorted(removed.items(), key=lambda item: -item[1].total())
    removed_by = {category: dict(counts.most_common()) for category, counts in categories}
    labelled = _measure(confusion) if confusion else {}
    if options.as_json:
        counts = {"kept": writer.kept, "removed": writer.removed.total(), "read": writer.kept + writer.removed.total()}
        written = {"out": str(out), "removed_out": str(get_removed_path(out))}
        print_json({**written, **counts, "removed_by": removed_by, **({"labelled": labelled} if labelled else {})})
    else:
        _print(out, writer, removed_by, labelled)


def _measure(confusion: Confusion) -> dict[str, int | float | None]:
    measures = compute_measures(confusion)
    return {name: measures[name] for name in ("accuracy", "f1")} | {cell: getattr(confusion, cell) for cell in _CELLS}


def _print(
    out: Path, writer: CorpusWriter, removed_by: Mapping[str, Mapping[str, int]], labelled: Mapping[str, Any]
) -> None:
    console = Console()
    rows = list[tuple[str, int]]()
    for category, rules in removed_by.items():
        rows += [(category, sum(rules.values())), *((f"· {text}", count) for text, count in rules.items())]
    if rows:
        print_table(console, build_table(("removed by", "queries"), rows))
    if labelled:
        measures = f"accuracy {format_value(labelled['accuracy'])}, F1 {format_value(labelled['f1'])}"
        cells = ", ".join(f"{cell} {labelled[cell]:,}" for cell in _CELLS)
        print_text(console, f"rules compared with labels: {measures} ({cells})")
    removed = writer.removed.total()
    print_text(console, f"{out}: {writer.kept:,} of {plural(writer.kept + removed, 'query', 'queries')}")
    print_text(console, f"{get_removed_path(out)}: {removed:,} removed")
    if writer.kept:
        print_text(console, "Next: agent corpus code PATH… -o codes.jsonl")
