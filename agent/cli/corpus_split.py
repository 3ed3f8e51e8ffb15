"""Implements `agent corpus split`, which divides labelled pairs into train, validation and test."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from sys import intern
from typing import Any

from pydantic import Field

from agent.cli.corpus_options import SplitOptions
from agent.cli.progress import Steps
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, print_result, print_table, print_text
from agent.corpus.labelled import read_labelled
from agent.corpus.split import FIELDS, PARTS, SplitCounts, SplitPair, SplitRules, describe_split, split_pairs
from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, format_left_out, open_labelled
from agent.exports.target import check_target, open_target
from agent.text import build_table, plural


class _Result(SplitCounts):
    out: str
    source: str
    to: str
    version: str
    rules: dict[str, Any]
    not_annotated: int
    notes: list[str] = Field(default=[], exclude_if=lambda notes: not notes)


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
        result = _Result(
            **dict(counts),
            out=str(out),
            source=str(path),
            to=options.to,
            version=version("test-driven-annotator"),
            rules=rules.describe(),
            not_annotated=not_annotated,
        )
        with open_target(out, entries, force=options.force) as draft:
            result = _write(draft, list(zip(pairs, outcomes, strict=True)), Export(source), result)
    print_result(result, _print, as_json=options.as_json)


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


def _write(draft: Path, assigned: Sequence[tuple[SplitPair, str]], export: Export, result: _Result) -> _Result:
    """Write the files of a split. Return the result with the notes of the export."""
    export.parts = {part: {pair.id for pair, own in assigned if own == part} for part in result.parts}
    export.left_out = +Counter({**result.dropped, "not annotated yet": result.not_annotated})
    FORMATS[result.to].write_parts(export, draft)
    dropped = ({"removed_by": outcome, **pair._asdict()} for pair, outcome in assigned if outcome not in PARTS)
    (draft / "removed.jsonl").write_bytes(b"".join(dumps(pair) + b"\n" for pair in dropped))
    result = result.model_copy(update={"notes": export.notes})
    (draft / "split.json").write_bytes(dumps(result.model_dump(mode="json", exclude={"out"}), indent=True) + b"\n")
    return result


def _print(result: _Result) -> None:
    console = Console()
    shared = result.shared_between_parts
    columns = ("pairs", "queries", "codes", "matches", "undecided")
    rows = [(name, *(getattr(part, column) for column in columns)) for name, part in result.parts.items()]
    print_table(console, build_table(("part", *columns), rows))
    pending = f" ({result.not_annotated:,} more are not annotated yet)" if result.not_annotated else ""
    lines = [f"kept: {result.share_kept:.1%} of {plural(result.pairs, 'pair')}{pending}"]
    if result.dropped:
        lines.append(f"dropped: {format_left_out(result.dropped)}")
    texts = f"{plural(shared['queries'], 'query', 'queries')}, {plural(shared['codes'], 'code')}"
    warning = "warning: " if result.rules["by"] in ("pair", "time") and any(shared.values()) else ""
    lines += [*result.notes, f"{warning}in two or more parts: {texts}"]
    if "test" in result.parts and result.to != "cosqa-plus":
        lines.append(f"Next: agent retrieval run {shlex.quote(result.out)} --split test --searcher bm25")
    print_text(console, "\n".join(lines))
