"""Implements `agent corpus split`, which divides labelled pairs into train, validation and test."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from sys import intern
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_writable, explain_stop
from agent.cli.text import Console, add_row, make_table, print_json, print_text
from agent.corpus.labelled import read_labelled
from agent.corpus.split import PARTS, Split, SplitPair, SplitRules, split_pairs
from agent.datasets.encoding import dumps
from agent.errors import RunStopped, UsageError
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, format_left_out, open_labelled
from agent.exports.target import check_target, open_target
from agent.wording import plural


def run(path: Path, out: Path, *, rules: SplitRules, to: str, force: bool, as_json: bool) -> None:
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
    try:
        with open_labelled(path) as source, Steps(notes) as steps:
            pairs = _read_pairs(path, rules.field)
            split = split_pairs(pairs, rules, steps)
            document = {"source": str(path), "to": to, **_describe(pairs, split, rules)}
            document["not_annotated"] = sum(1 for _ in source.pairs()) - len(pairs)
            if missing := [part for part, size in split.targets.items() if size and part not in document["parts"]]:
                raise UsageError(f"{missing[0]} would be empty, because there are too few groups. Change --ratios.")
            with open_target(out, entries, force=force) as draft:
                _write(draft, pairs, split, Export(source), document)
    except (KeyboardInterrupt, RunStopped) as error:
        explain_stop(notes, error, "")
    print_json({"out": str(out), **document}) if as_json else _print(out, document)


def _read_pairs(path: Path, field: str) -> list[SplitPair]:
    pairs = list[SplitPair]()
    for pair, label in ((item.pair, item.label) for item in read_labelled(path)):
        cluster = None if pair.meta.get("cluster") in (None, "") else str(pair.meta["cluster"])
        query, code = intern(pair.query), intern(pair.code)
        pairs.append(SplitPair(pair.id, query, code, label, cluster, pair.meta.get(field)))
    return pairs


def _describe(pairs: Sequence[SplitPair], split: Split, rules: SplitRules) -> dict[str, Any]:
    shared, libraries = split.count_shared(pairs), ["test-driven-annotator", "datasketch"]
    return {
        "rules": {**asdict(rules), "positives_only": sorted(rules.positives_only)},
        "targets": split.targets,
        "pairs": len(pairs),
        "parts": split.describe_parts(pairs),
        "dropped": dict(Counter(split.reasons.values()).most_common()),
        "share_kept": 1 - len(split.reasons) / len(pairs),
        "shared_between_parts": shared,
        "versions": {name: version(name) for name in libraries[: 2 if "query_groups" in shared else 1]},
    }


def _write(draft: Path, pairs: Sequence[SplitPair], split: Split, export: Export, document: dict[str, Any]) -> None:
    assigned = list(zip(pairs, split.parts, strict=True))
    export.parts = {part: {pair.id for pair, own in assigned if own == part} for part in document["parts"]}
    export.left_out = +Counter({**document["dropped"], "not annotated yet": document["not_annotated"]})
    FORMATS[document["to"]].write_parts(export, draft)
    removed = ({"removed_by": why, **pairs[number]._asdict()} for number, why in sorted(split.reasons.items()))
    (draft / "removed.jsonl").write_bytes(b"".join(dumps(pair) + b"\n" for pair in removed))
    document["notes"] = [*export.notes, *([f"left out: {format_left_out(export.left_out)}"] if export.left_out else [])]
    (draft / "split.json").write_bytes(dumps(document, indent=True) + b"\n")


def _print(out: Path, document: dict[str, Any]) -> None:
    console, shared = Console(), document["shared_between_parts"]
    table = make_table("part", "wanted", "pairs", "queries", "codes", "matches")
    for name, part in document["parts"].items():
        add_row(table, name, *(f"{count:,}" for count in (document["targets"][name], *list(part.values())[:4])))
    console.print(table)
    shares = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in shared.items())
    warning = "warning: " if document["rules"]["by"] == "pair" and any(shared.values()) else ""
    print_text(console, f"kept: {document['share_kept']:.1%} of {plural(document['pairs'], 'pair')}")
    print_text(console, "\n".join([*document["notes"], f"{warning}in two or more parts: {shares}"]))
    if "test" in document["parts"]:
        folder = shlex.quote(str(out / "test" if document["to"] == "cosqa-plus" else out))
        print_text(console, f"Next: agent retrieval run {folder} --split test --searcher bm25")
