"""Implements `agent corpus split`, which divides labelled pairs into train, validation and test."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.running import check_writable, explain_stop
from agent.cli.text import Console, add_row, make_table, print_json, print_text
from agent.corpus.labelled import read_labelled
from agent.corpus.split import PARTS, Split, SplitPair, SplitRules, split_pairs
from agent.datasets.encoding import dumps
from agent.errors import RunStopped, UsageError
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, PairsFile
from agent.exports.target import check_target, open_target
from agent.store import files
from agent.store.run_view import RunView, load_run
from agent.wording import plural

_COUNTS = ("pairs", "queries", "codes", "matches")


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
        source = load_run(path) if (path / files.ANNOTATIONS).is_file() else PairsFile(path)
        with source if isinstance(source, RunView) else nullcontext(), Steps(notes) as steps:
            pairs = _read_pairs(path, rules.field)
            split = split_pairs(pairs, rules, steps)
            document = {"source": str(path), "to": to, **_describe(pairs, split, rules)}
            if missing := [part for part, size in split.targets.items() if size and part not in document["parts"]]:
                raise UsageError(f"{missing[0]} would be empty, because there are too few groups. Change --ratios.")
            with open_target(out, entries, force=force) as draft:
                _write(draft, pairs, split, Export(source, parts=split.list_ids(pairs)), document)
    except (KeyboardInterrupt, RunStopped) as error:
        explain_stop(notes, error, "")
    if as_json:
        print_json({"out": str(out), **document})
    else:
        _print(out, document)


def _read_pairs(path: Path, field: str) -> list[SplitPair]:
    pairs, texts = list[SplitPair](), dict[str, str]()  # equal texts are stored once
    for item in read_labelled(path):
        pair, cluster = item.pair, item.pair.meta.get("cluster")
        query, code = (texts.setdefault(text, text) for text in (pair.query, pair.code))
        name = None if cluster is None else str(cluster)
        pairs.append(SplitPair(pair.id, query, code, item.label, name, pair.meta.get(field)))
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
    export.left_out.update(document["dropped"])
    FORMATS[document["to"]].write_parts(export, draft)
    document |= {"notes": export.notes}
    (draft / "split.json").write_bytes(dumps(document, indent=True) + b"\n")
    with (draft / "removed.jsonl").open("wb") as file:
        for position, reason in sorted(split.reasons.items()):
            file.write(dumps({"removed_by": reason, **pairs[position]._asdict()}) + b"\n")


def _print(out: Path, document: dict[str, Any]) -> None:
    console, table, shared = Console(), make_table("part", *_COUNTS), document["shared_between_parts"]
    for name, part in document["parts"].items():
        add_row(table, name, *(f"{part[key]:,}" for key in _COUNTS))
        if document["rules"]["sizes"] and name != "train" and part["pairs"] != document["targets"][name]:
            remedy = f"groups are not divided: {part['pairs']:,} pairs instead of {document['targets'][name]:,}"
            document["notes"].append(f"{name}: {remedy}")
    console.print(table)
    for reason, count in document["dropped"].items():
        print_text(console, f"dropped: {plural(count, 'pair')} ({reason}), listed in {out / 'removed.jsonl'}")
    print_text(console, f"kept: {document['share_kept']:.1%} of {plural(document['pairs'], 'pair')}")
    shares = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in shared.items())
    warning = "warning: " if document["rules"]["by"] == "pair" and any(shared.values()) else ""
    print_text(console, f"{warning}in two or more parts: {shares}")
    for note in document["notes"]:
        print_text(console, f"note: {note}")
    print_text(console, f"Next: agent retrieval run {shlex.quote(str(out))} --split test --searcher bm25")
