"""Benchmarks of code search: BEIR, also with the qrels of TREC, and the four JSON files of CoSQA+.

Source of CoSQA+: github.com/DeepSoftwareAnalytics/CoSQA_Plus, README and evaluate/run_evalute_transformer.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.exports.rows import Export, TextNumbers, escape_surrogates
from agent.types import Pair
from agent.wording import plural


def write_beir(export: Export, folder: Path) -> None:
    """Write `corpus.jsonl`, `queries.jsonl` and qrels of the labelled pairs.

    Equal code is one document, equal query one query.

    Pairs without a label are left out, as are those of one query and one code that have different labels. Qrels are of
    queries with a match alone: on the others every ranking is as bad, and a mean over them says nothing.

    Raises:
        OSError: a file cannot be written.
    """
    queries, documents = TextNumbers(), TextNumbers()
    judged: dict[tuple[int, int], int | None] = {}
    repeated = 0
    with (folder / "queries.jsonl").open("wb") as query_file, (folder / "corpus.jsonl").open("wb") as corpus:
        for row in export.iterate_rows(labelled=True):
            label = row["label"]
            query, is_new = queries.of(row["query"])
            if is_new:
                query_file.write(dumps({"_id": f"q{query}", "text": row["query"]}) + b"\n")
            document, is_new = documents.of(row["code"])
            if is_new:
                corpus.write(dumps({"_id": f"d{document}", "title": "", "text": row["code"]}) + b"\n")
            repeated += (query, document) in judged
            if judged.setdefault((query, document), label) != label:
                judged[query, document] = None
    matched = {query for (query, _), label in judged.items() if label == 1}
    _write_qrels(folder / "qrels", {key: label for key, label in judged.items() if key[0] in matched})
    sizes = f"{plural(len(queries), 'query', 'queries')} · {plural(len(documents), 'document')}"
    export.notes.append(f"{sizes} · qrels of the {len(matched):,} with a match")
    if repeated:
        differing = list(judged.values()).count(None)
        export.notes.append(
            f"{plural(repeated, 'pair')} with the query and code of an earlier one; {differing:,} of these judgements "
            "left out, as their labels differ"
        )


def _write_qrels(folder: Path, judged: dict[tuple[int, int], int | None]) -> None:
    folder.mkdir()
    with (folder / "test.tsv").open("w") as beir, (folder / "test.trec").open("w") as trec:
        beir.write("query-id\tcorpus-id\tscore\n")
        for (query, document), label in judged.items():
            if label is not None:
                beir.write(f"q{query}\td{document}\t{label}\n")
                trec.write(f"q{query} 0 d{document} {label}\n")


_WHOLE = re.compile("0|[1-9][0-9]{0,17}")


def write_cosqa_plus(export: Export, folder: Path) -> None:
    """Write the labelled pairs of an export: equal code is one code, equal query one query.

    `pair-idx`, `query-idx` and `code-idx` are the input's own where all of its pairs have them as integers, and no two
    texts have the same; else they count from 0.

    Raises:
        OSError: a file cannot be written.
    """
    own = _own(export.run.pairs())
    with ExitStack() as stack:
        queries, codes, pairs, matches = (
            stack.enter_context(_Array(folder / f"test_agent_{name}.json"))
            for name in ("query", "codebase", "pairs", "pairs_true")
        )
        numbers, seen = {"query": TextNumbers(), "code": TextNumbers()}, set[tuple[str, int]]()
        for row in export.iterate_rows(labelled=True):
            record: dict[str, Any] = {"pair-idx": int(row["id"]) if "pair-idx" in own else pairs.count}
            for name, file in (("query", queries), ("code", codes)):
                index = f"{name}-idx"
                number = row[index] if index in own else numbers[name].of(row[name])[0]
                text = {index: number, name: row[name]}
                record |= text
                if (name, number) not in seen:
                    seen.add((name, number))
                    file.add(text)
            record["label"] = row["label"]
            pairs.add(record)
            if row["label"] == 1:
                matches.add(record)
        counts = (plural(queries.count, "query", "queries"), plural(codes.count, "code"))
        export.notes.append(" · ".join(counts))


def _own(pairs: Iterable[Pair]) -> set[str]:
    """Return which of the numbers of CoSQA+ the input has for all of its pairs, each for one text."""
    own = {"pair-idx", "query-idx", "code-idx"}
    texts, named = TextNumbers(), dict[tuple[str, int], int]()
    for pair in pairs:
        if not _WHOLE.fullmatch(pair.id):
            own.discard("pair-idx")
        for index, text in (("query-idx", pair.query), ("code-idx", pair.code)):
            number, place = pair.meta.get(index), texts.of(escape_surrogates(text))[0]
            if type(number) is not int or named.setdefault((index, number), place) != place:
                own.discard(index)
    return own


class _Array:
    """Writes a JSON array, an element a line."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._file = path.open("wb")

    def add(self, record: Any) -> None:
        self._file.write((b",\n" if self.count else b"[\n") + dumps(record))
        self.count += 1

    def __enter__(self) -> _Array:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.write(b"\n]\n" if self.count else b"[]\n")
