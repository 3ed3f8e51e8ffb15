"""Implements `agent corpus queries`, which keeps the queries that ask for code."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from agent.cli.corpus_options import QueriesOptions
from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, print_result, print_table, print_text
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.queries import QueryFilter, count_agreement, read_queries
from agent.corpus.rules import load_rules
from agent.datasets.formats import expand_patterns
from agent.errors import UsageError
from agent.evaluation.measures import Confusion, compute_measures
from agent.text import build_table, format_value, plural
from agent.types import Frozen

_CELLS = ("tp", "fp", "fn", "tn")


class _Result(Frozen):
    out: str
    removed_out: str
    kept: int
    removed: int
    read: int
    removed_by: dict[str, dict[str, int]]
    labelled: dict[str, int | float | None] | None = Field(exclude_if=lambda measures: measures is None)


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
    result = _Result(
        out=str(out),
        removed_out=str(get_removed_path(out)),
        kept=writer.kept,
        removed=writer.removed.total(),
        read=writer.kept + writer.removed.total(),
        removed_by={category: dict(counts.most_common()) for category, counts in categories},
        labelled=_measure(confusion) if confusion else None,
    )
    print_result(result, _print, as_json=options.as_json)


def _measure(confusion: Confusion) -> dict[str, int | float | None]:
    measures = compute_measures(confusion)
    return {name: measures[name] for name in ("accuracy", "f1")} | {cell: getattr(confusion, cell) for cell in _CELLS}


def _print(result: _Result) -> None:
    console = Console()
    rows = list[tuple[str, int]]()
    for category, rules in result.removed_by.items():
        rows += [(category, sum(rules.values())), *((f"· {text}", count) for text, count in rules.items())]
    if rows:
        print_table(console, build_table(("removed by", "queries"), rows))
    if scores := result.labelled:
        measures = f"accuracy {format_value(scores['accuracy'])}, F1 {format_value(scores['f1'])}"
        cells = ", ".join(f"{cell} {scores[cell]:,}" for cell in _CELLS)
        print_text(console, f"rules compared with labels: {measures} ({cells})")
    print_text(console, f"{result.out}: {result.kept:,} of {plural(result.read, 'query', 'queries')}")
    print_text(console, f"{result.removed_out}: {result.removed:,} removed")
    if result.kept:
        print_text(console, "Next: agent corpus code PATH… -o codes.jsonl")
