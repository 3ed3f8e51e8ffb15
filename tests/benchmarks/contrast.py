"""Trains a model on the mutants of `agent corpus mutate`, and writes held-out mutants to measure it with.

Needs the extra `train`, and the folder of real data in AGENT_REAL_DATA. A function's name and a salt decide whether it
is held out. Training sees no mutant of the held-out kinds. It sees neither held-out functions, nor those that answer a
query of CoSQA's development set, nor their near duplicates. Measure the models with `agent retrieval score --mutants`.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_code
from agent.datasets.encoding import dumps
from agent.languages.python.spans import extract_view
from tests.benchmarks.training import read_rows, run, write_training_codes

NEW_KINDS = frozenset({"swapped_comparison", "negated_condition", "empty_result", "swapped_truth"})
SETTINGS = {"recipe": "biencoder", "epochs": 1, "batch-size": 32, "text-tokens": 128, "learning-rate": 4e-5, "mix": 0.5}
"""Chosen on functions that are not held out, before the held-out ones were measured."""


def make_splitter(salt: str, percent: int) -> Callable[[str], bool]:
    """Return a function that tells whether a snippet is held out. Names that differ in style only are equal."""

    def is_held_out(code: str) -> bool:
        match = re.search(r"\bdef\s+(\w+)", code)
        name = (match[1] if match else code).replace("_", "").lower()
        return int(sha256(f"{salt} {name}".encode()).hexdigest(), 16) % 100 < percent

    return is_held_out


def make_index(codes: Iterable[str]) -> NearDuplicateIndex:
    """Index snippets with and without their docstrings."""
    index = NearDuplicateIndex()
    for view in sorted(set(chain.from_iterable((code, extract_view(code, "no-docstring") or code) for code in codes))):
        index.add(shingle_code(view))
    return index


def select(rows: Iterable[dict[str, Any]], accepts: Callable[[str, str], bool]) -> Iterator[dict[str, Any]]:
    """Iterate over the accepted mutants with their right code. `accepts` receives the right code and the kind."""
    rows = list(rows)
    right = {row["id"]: row for row in rows if not row.get("mutant")}
    mutants = [row for row in rows if row.get("mutant")]
    chosen = [row for row in mutants if accepts(right[row["mutant"]["of"]]["code"], row["mutant"]["kind"])]
    yield from (right[name] for name in dict.fromkeys(row["mutant"]["of"] for row in chosen))
    yield from chosen


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    lines = [dumps(row) + b"\n" for row in rows]
    path.write_bytes(b"".join(lines))
    return len(lines)


def main() -> None:
    """Parse the command line, split the mutants, train, and print the CPU seconds of each training."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.contrast", description=__doc__)
    parser.add_argument("mutants", type=Path)
    parser.add_argument("--base", default="minilm")
    parser.add_argument("--salt", default="2026-11")
    parser.add_argument("--held-out", type=int, default=30, metavar="PERCENT")
    parser.add_argument("--pairs", type=int, default=2048, help="docstring pairs, which set the number of steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/contrast"))
    options, more = parser.parse_known_args()
    out, data = options.out, Path(os.environ["AGENT_REAL_DATA"])
    out.mkdir(parents=True, exist_ok=True)
    is_held_out, rows = make_splitter(options.salt, options.held_out), list(read_rows(options.mutants))
    held_out = make_index(row["code"] for row in rows if not row.get("mutant") and is_held_out(row["code"]))
    named = {row["code-idx"] for row in read_rows(data / "cosqa_search_dev_500.jsonl")}
    answers = make_index(
        row["code"] for row in read_rows(data / "cosqa_search_codes_6267.jsonl") if row["code-idx"] in named
    )

    def is_free(code: str) -> bool:
        shingles = {shingle_code(view) for view in (code, extract_view(code, "no-docstring") or code)}
        return not is_held_out(code) and all(
            index.find(own) is None for index in (held_out, answers) for own in shingles
        )

    parts: dict[str, Callable[[str, str], bool]] = {
        "contrast": lambda code, kind: is_free(code) and kind not in NEW_KINDS,
        "known-kinds": lambda code, kind: is_held_out(code) and kind not in NEW_KINDS,
        "new-kinds": lambda code, kind: is_held_out(code) and kind in NEW_KINDS,
    }
    for name, accepts in parts.items():
        print(f"{name}: {write(out / f'{name}.jsonl', select(rows, accepts)):,} rows", flush=True)
    write_training_codes(data, out / "codes.jsonl")
    codes = sorted(
        (row["code"] for row in read_rows(out / "codes.jsonl")), key=lambda code: sha256(code.encode()).digest()
    )
    chosen = [{"code": code} for code in codes if is_free(code)][: options.pairs]
    print(f"pairs: {write(out / 'pairs.jsonl', chosen):,} functions", flush=True)
    recipe = [f"--{name}={value}" for name, value in SETTINGS.items()]
    for seed in range(options.seeds):
        command = ("train", out / "pairs.jsonl", "--pairs", "docstrings", "--contrast", out / "contrast.jsonl")
        seconds = run(
            *command, "--base", options.base, *recipe, "--seed", str(seed), "-o", out / f"model-{seed}", *more
        )
        print(f"model-{seed}: {seconds:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
