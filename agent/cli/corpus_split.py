"""Implements `agent corpus split`, which divides labelled pairs into train, validation and test."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from sys import intern
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_writable, stoppable
from agent.cli.text import Console, add_row, make_table, print_json, print_text
from agent.corpus.labelled import read_labelled
from agent.corpus.split import PARTS, SplitPair, SplitRules, describe_split, split_pairs
from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, format_left_out, open_labelled
from agent.exports.target import check_target, open_target
from agent.text import plural


def run(
    path: Path, out: Path, field_map: str | None, *, rules: SplitRules, to: str, force: bool, as_json: bool
) -> None:
    """Write the parts of a dataset to a folder, and print a summary.

    Raises:
        UsageError: the pairs cannot be read or split, a part would be empty, or the folder must not be written.
        typer.Exit: the command stopped early, and wrote nothing.
    """
    notes, entries = Console(stderr=True), FORMATS[to].list_part_entries(PARTS) | {"split.json", "removed.jsonl"}
    check_writable(out.parent, None)
    check_target(out, entries, force=force)
    if path == Path("-") or path.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{path}: standard input and files in {out} cannot be split. Pass another file.")
    with stoppable(notes), open_labelled(path, field_map) as source, Steps(notes) as steps:
        pairs = _read_pairs(path, field_map, rules.field)
        not_annotated = sum(1 for _ in source.pairs()) - len(pairs)
        if not_annotated:
            print_text(notes, f"note: not annotated yet and therefore not used: {plural(not_annotated, 'pair')}")
        outcomes = split_pairs(pairs, rules, steps)
        document = {"source": str(path), "to": to, "version": version("test-driven-annotator")}
        document |= _describe(pairs, outcomes, rules) | {"not_annotated": not_annotated}
        with open_target(out, entries, force=force) as draft:
            _write(draft, list(zip(pairs, outcomes, strict=True)), Export(source), document)
    print_json({"out": str(out), **document}) if as_json else _print(out, document)


def _read_pairs(path: Path, field_map: str | None, field: str) -> list[SplitPair]:
    pairs = [
        SplitPair(item.pair.id, intern(item.pair.query), intern(item.pair.code), item.label, item.pair.meta.get(field))
        for item in read_labelled(path, field_map)
    ]
    if all(pair.label is None for pair in pairs):
        raise InputError("no pair has a label. Run `agent annotate` on the pairs, and split the run folder", path=path)
    return pairs


def _describe(pairs: Sequence[SplitPair], outcomes: Sequence[str], rules: SplitRules) -> dict[str, Any]:
    """Describe the split without fields that have no value. Raises a `UsageError` if a part with a share is empty."""
    described = describe_split(pairs, outcomes)
    for part, share in zip(PARTS, (1, *rules.sizes) if rules.sizes else rules.ratios, strict=True):
        if share and part not in described["parts"]:
            raise UsageError(f"{part} would be empty. Change --ratios or --sizes, or pass more pairs.")
    shares = {"sizes": rules.sizes} if rules.sizes else {"ratios": rules.ratios}
    others = {"positives_only": sorted(rules.positives_only), "field": rules.field}
    given = {name: value for name, value in others.items() if value}
    described["rules"] = {"by": rules.by, **shares, "seed": rules.seed, **given}
    return {name: value for name, value in described.items() if value != {}}


def _write(draft: Path, assigned: Sequence[tuple[SplitPair, str]], export: Export, document: dict[str, Any]) -> None:
    export.parts = {part: {pair.id for pair, own in assigned if own == part} for part in document["parts"]}
    export.left_out = +Counter({**document.get("dropped", {}), "not annotated yet": document["not_annotated"]})
    FORMATS[document["to"]].write_parts(export, draft)
    dropped = ({"removed_by": outcome, **pair._asdict()} for pair, outcome in assigned if outcome not in PARTS)
    (draft / "removed.jsonl").write_bytes(b"".join(dumps(pair) + b"\n" for pair in dropped))
    document |= {"notes": export.notes} if export.notes else {}
    (draft / "split.json").write_bytes(dumps(document, indent=True) + b"\n")


def _print(out: Path, document: dict[str, Any]) -> None:
    console, shared = Console(), document["shared_between_parts"]
    table = make_table("part", "pairs", "queries", "codes", "matches", "undecided")
    for name, part in document["parts"].items():
        add_row(table, name, *(f"{count:,}" for count in list(part.values())[:5]))
    console.print(table)
    pending = f" ({document['not_annotated']:,} more are not annotated yet)" if document["not_annotated"] else ""
    lines = [f"kept: {document['share_kept']:.1%} of {plural(document['pairs'], 'pair')}{pending}"]
    if "dropped" in document:
        lines.append(f"dropped: {format_left_out(document['dropped'])}")
    texts = f"{plural(shared['queries'], 'query', 'queries')}, {plural(shared['codes'], 'code')}"
    warning = "warning: " if document["rules"]["by"] in ("pair", "time") and any(shared.values()) else ""
    lines += [*document.get("notes", ()), f"{warning}in two or more parts: {texts}"]
    if "test" in document["parts"] and document["to"] != "cosqa-plus":
        lines.append(f"Next: agent retrieval run {shlex.quote(str(out))} --split test --searcher bm25")
    print_text(console, "\n".join(lines))
