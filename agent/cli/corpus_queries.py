"""Implements `agent corpus queries`, which keeps the queries that ask for code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_corpus_output, stoppable
from agent.cli.text import Console, add_row, make_table, print_json, print_text
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.queries import QueryFilter, count_agreement, read_queries
from agent.corpus.rules import load_rules
from agent.datasets.formats import expand_patterns
from agent.errors import UsageError
from agent.evaluation.measures import compute_measures
from agent.evaluation.statistics import format_number
from agent.text import plural

_CELLS = ("tp", "fp", "fn", "tn")


def run(
    files: list[str],
    out: Path,
    field_map: str | None,
    *,
    rules: str,
    limits: tuple[int, int | None],
    labelled: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the kept and the removed queries, and print the number of removed queries by category and rule.

    Raises:
        UsageError: an input or an option is invalid, or an output file must not be written.
        typer.Exit: the command stopped early, and wrote no files.
    """
    if limits[1] is not None and limits[1] < limits[0]:
        raise UsageError(f"--max-words {limits[1]} is less than --min-words {limits[0]}. Pass a larger maximum.")
    paths, loaded = expand_patterns(files), load_rules(rules)
    others = [path for path in (Path(rules), labelled) if path is not None and path.is_file()]
    check_corpus_output(out, [*paths, *others], force=force)
    notes = Console(stderr=True)
    with stoppable(notes, "No output was written."), Steps(notes) as steps:
        confusion = count_agreement(loaded, labelled, field_map) if labelled else None
        with open_output(out) as writer:
            removed = QueryFilter(loaded, *limits).apply(read_queries(paths, field_map), writer, steps)
            if not writer.kept and not removed:
                raise UsageError("the input files contain no queries. Pass a file with at least one query.")
    document: dict[str, Any] = {"out": str(out), "removed_out": str(get_removed_path(out))}
    document |= {"kept": writer.kept, "removed": writer.removed.total(), "read": writer.kept + writer.removed.total()}
    categories = sorted(removed.items(), key=lambda item: -item[1].total())
    document["removed_by"] = {category: dict(rules.most_common()) for category, rules in categories}
    if confusion:
        measures = compute_measures(confusion)
        document["labelled"] = {name: measures[name] for name in ("accuracy", "f1")}
        document["labelled"] |= {cell: getattr(confusion, cell) for cell in _CELLS}
    print_json(document) if as_json else _print(document)


def _print(document: dict[str, Any]) -> None:
    console, table = Console(), make_table("removed by", "queries")
    for category, rules in document["removed_by"].items():
        add_row(table, category, f"{sum(rules.values()):,}")
        for text, count in rules.items():
            add_row(table, f"· {text}", f"{count:,}")
    if document["removed"]:
        console.print(table)
    if scores := document.get("labelled"):
        measures = f"accuracy {format_number(scores['accuracy'])}, F1 {format_number(scores['f1'])}"
        cells = ", ".join(f"{cell} {scores[cell]:,}" for cell in _CELLS)
        print_text(console, f"rules compared with labels: {measures} ({cells})")
    print_text(console, f"{document['out']}: {document['kept']:,} of {plural(document['read'], 'query', 'queries')}")
    print_text(console, f"{document['removed_out']}: {document['removed']:,} removed")
    if document["kept"]:
        print_text(console, "Next: agent corpus code PATH… -o codes.jsonl")
