"""Implements `agent corpus split`, which divides labelled pairs into train, validation and test."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import MutableMapping, Sequence
from importlib.metadata import version
from pathlib import Path
from sys import intern
from typing import Any

from agent.cli.corpus_options import SplitOptions
from agent.cli.progress import Steps
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, print_json, print_table, print_text
from agent.corpus.labelled import read_labelled
from agent.corpus.split import FIELDS, PARTS, SplitCounts, SplitPair, SplitRules, describe_split, split_pairs
from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, format_left_out, open_labelled
from agent.exports.target import check_target, open_target
from agent.text import build_table, plural


def run(path: Path, out: Path, options: SplitOptions) -> None:
    """Write the parts of a dataset to a folder, and print a summary.

    Raises:
        UsageError: the pairs cannot be read or split, a part would be empty, or the folder must not be written.
        typer.Exit: the command stopped early, and wrote nothing.
    """
    notes = Console(stderr=True)
    rules = _read_rules(options)
    entries = FORMATS[options.to].list_part_entries(PARTS) | {"split.json", "removed.jsonl"}
    check_writable(out.parent, None)
    check_target(out, entries, force=options.force)
    if path == Path("-") or path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{path}: standard input and files in {out} cannot be split. Pass another file.")
    with stoppable(notes), open_labelled(path, options.field_map) as source, Steps(notes) as steps:
        pairs = _read_pairs(path, options.field_map, rules.field)
        not_annotated = sum(1 for _ in source.pairs()) - len(pairs)
        if not_annotated:
            print_text(notes, f"note: not annotated yet and therefore not used: {plural(not_annotated, 'pair')}")
        outcomes = split_pairs(pairs, rules, steps)
        counts = describe_split(pairs, outcomes)
        _check_parts(counts, rules)
        record = {**counts.model_dump(mode="json"), "source": str(path), "to": options.to, "rules": rules.describe()}
        record |= {"version": version("test-driven-annotator"), "not_annotated": not_annotated}
        export = Export(source, left_out=+Counter({**counts.dropped, "not annotated yet": not_annotated}))
        with open_target(out, entries, force=options.force) as draft:
            _write(draft, list(zip(pairs, outcomes, strict=True)), export, record)
    if options.as_json:
        print_json({"out": str(out), **record})
    else:
        _print(out, options, counts, not_annotated, export.notes)


def _read_rules(options: SplitOptions) -> SplitRules:
    if options.ratios and options.sizes:
        raise UsageError("--ratios cannot be combined with --sizes. Pass one of them.")
    if options.field and options.by not in FIELDS:
        remedy = "Remove it, or pass --by repository or --by time."
        raise UsageError(f"--field has no effect with --by {options.by}. {remedy}")
    try:
        shares = tuple(map(float, (options.ratios or "8:1:1").split(":")))
        sizes = tuple(map(int, options.sizes.split(","))) if options.sizes else None
    except ValueError:
        raise UsageError("pass numbers, such as --ratios 8:1:1 or --sizes 500,500.") from None
    positives = frozenset(options.positives_only.split(",") if options.positives_only else ())
    return SplitRules(options.by, shares, sizes, positives, options.seed, options.field or FIELDS.get(options.by, ""))


def _read_pairs(path: Path, field_map: str | None, field: str) -> list[SplitPair]:
    pairs = [
        SplitPair(item.pair.id, intern(item.pair.query), intern(item.pair.code), item.label, item.pair.meta.get(field))
        for item in read_labelled(path, field_map)
    ]
    if all(pair.label is None for pair in pairs):
        raise InputError("no pair has a label. Run `agent annotate` on the pairs, and split the run folder", path=path)
    return pairs


def _check_parts(counts: SplitCounts, rules: SplitRules) -> None:
    for part, share in zip(PARTS, (1, *rules.sizes) if rules.sizes else rules.ratios, strict=True):
        if share and part not in counts.parts:
            raise UsageError(f"{part} would be empty. Change --ratios or --sizes, or pass more pairs.")


def _write(
    draft: Path, assigned: Sequence[tuple[SplitPair, str]], export: Export, record: MutableMapping[str, Any]
) -> None:
    """Write the files of a split, and add the notes of the export to its record."""
    export.parts = {part: {pair.id for pair, own in assigned if own == part} for part in record["parts"]}
    FORMATS[record["to"]].write_parts(export, draft)
    dropped = ({"removed_by": outcome, **pair._asdict()} for pair, outcome in assigned if outcome not in PARTS)
    (draft / "removed.jsonl").write_bytes(b"".join(dumps(pair) + b"\n" for pair in dropped))
    if export.notes:
        record["notes"] = export.notes
    (draft / "split.json").write_bytes(dumps(record, indent=True) + b"\n")


def _print(out: Path, options: SplitOptions, counts: SplitCounts, not_annotated: int, notes: Sequence[str]) -> None:
    console = Console()
    shared = counts.shared_between_parts
    columns = ("part", "pairs", "queries", "snippets", "matches", "undecided")
    parts = counts.parts.items()
    rows = [(name, part.pairs, part.queries, part.codes, part.matches, part.undecided) for name, part in parts]
    print_table(console, build_table(columns, rows))
    pending = f" ({not_annotated:,} more are not annotated yet)" if not_annotated else ""
    lines = [f"kept: {counts.share_kept:.1%} of {plural(counts.pairs, 'pair')}{pending}"]
    if counts.dropped:
        lines.append(f"dropped: {format_left_out(counts.dropped)}")
    texts = f"{plural(shared['queries'], 'query', 'queries')}, {plural(shared['codes'], 'snippet')}"
    warning = "warning: " if options.by in ("pair", "time") and any(shared.values()) else ""
    lines += [*notes, f"{warning}in two or more parts: {texts}"]
    if "test" in counts.parts and options.to != "cosqa-plus":
        lines.append(f"Next: agent retrieval run {shlex.quote(str(out))} --split test --searcher bm25")
    print_text(console, "\n".join(lines))
