"""Exports labels as code search benchmarks: BEIR (with qrels in BEIR and TREC format) and CoSQA+ (JSON files).

Source of the CoSQA+ format: github.com/DeepSoftwareAnalytics/CoSQA_Plus (README and
evaluate/run_evalute_transformer.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent.datasets.encoding import dumps
from agent.exports.hugging_face import TAGS, render_front_matter
from agent.exports.rows import Export, Row, TextNumbers, escape_surrogates
from agent.text import plural
from agent.types import GENERATED, Pair


def write_beir(export: Export, folder: Path) -> None:
    """Write `corpus.jsonl`, `queries.jsonl`, relevance judgements (qrels), and a card with the names that MTEB reads.

    Identical snippets become one document, and identical query texts become one query. Pairs without a label and
    judgements with conflicting labels are skipped. The qrels contain only queries with a match, because every ranking
    scores 0 on the other queries. If the export has parts, each part has its own qrels.

    Raises:
        OSError: a file cannot be written.
    """
    queries, documents = TextNumbers(), TextNumbers()
    relevant, duplicates, conflicts, written, names = set[int](), 0, 0, 0, list[str]()
    (folder / "qrels").mkdir()
    with (folder / "queries.jsonl").open("wb") as query_file, (folder / "corpus.jsonl").open("wb") as corpus:
        for name, part in export.iterate_parts("test"):
            judgements: dict[tuple[int, int], int | None] = {}
            for row in _iterate_labelled(part):
                label = row["label"]
                query, is_new = queries.assign(row["query"])
                if is_new:
                    query_file.write(dumps({"_id": f"q{query}", "text": row["query"]}) + b"\n")
                document, is_new = documents.assign(row["code"])
                if is_new:
                    corpus.write(dumps({"_id": f"d{document}", "title": "", "text": row["code"]}) + b"\n")
                duplicates += (query, document) in judgements
                if judgements.setdefault((query, document), label) != label:
                    judgements[query, document] = None
            matched = {query for (query, _), label in judgements.items() if label == 1}
            qrels = {key: label for key, label in judgements.items() if key[0] in matched and label is not None}
            _write_qrels(folder / "qrels", name, qrels)
            relevant |= matched
            written += len(qrels)
            names += [name] * bool(qrels)  # `load_dataset` cannot read empty files
            conflicts += list(judgements.values()).count(None)
    sizes = f"{plural(len(queries), 'query', 'queries')} · {plural(len(documents), 'document')}"
    count = f"{plural(written, 'judgement')} (qrels) of {plural(len(relevant), 'query', 'queries')} with a match"
    export.notes.append(f"{sizes} · {count}")
    configs = {
        "default": {name: f"qrels/{name}.jsonl" for name in names},
        "corpus": {"corpus": "corpus.jsonl"},
        "queries": {"queries": "queries.jsonl"},
    }
    card = render_front_matter({"task_categories": ["text-retrieval"], "tags": TAGS}, folder, configs)
    (folder / "README.md").write_text(card, encoding="utf-8")
    if duplicates:
        export.notes.append(
            f"{plural(duplicates, 'duplicate pair')} (same query and code); "
            f"{plural(conflicts, 'judgement')} skipped because of conflicting labels"
        )


def _iterate_labelled(export: Export) -> Iterator[Row]:
    """Iterate over the labelled rows. Note generated code, which these formats cannot mark."""
    generated = 0
    for row in export.iterate_rows(labelled=True):
        generated += row.get("source") == GENERATED
        yield row
    if generated:
        export.notes.append(f"{plural(generated, 'pair')} with generated code, which this format does not mark")


def _write_qrels(folder: Path, name: str, judgements: dict[tuple[int, int], int]) -> None:
    with ExitStack() as stack:
        beir, trec, mteb = (
            stack.enter_context((folder / f"{name}.{suffix}").open("w")) for suffix in ("tsv", "trec", "jsonl")
        )
        beir.write("query-id\tcorpus-id\tscore\n")
        for (query, document), label in judgements.items():
            beir.write(f"q{query}\td{document}\t{label}\n")
            trec.write(f"q{query} 0 d{document} {label}\n")
            mteb.write(f'{{"query-id":"q{query}","corpus-id":"d{document}","score":{label}}}\n')


_INTEGER = re.compile("0|[1-9][0-9]{0,17}")


def write_cosqa_plus(export: Export, folder: Path) -> None:
    """Write the queries, the codebase, the labelled pairs and the matches as JSON files.

    Keeps an index from the input (`pair-idx`, `query-idx` or `code-idx`) if it is an integer in every pair and each
    value refers to only one text. Otherwise, assigns numbers starting at 0. Identical texts get the same number.

    Raises:
        OSError: a file cannot be written.
    """
    input_indices = _find_usable_indices(export.run.pairs())
    with ExitStack() as stack:
        queries, codes, pairs, matches = (
            stack.enter_context(_Array(folder / f"test_agent_{name}.json"))
            for name in ("query", "codebase", "pairs", "pairs_true")
        )
        numbers, written = {"query": TextNumbers(), "code": TextNumbers()}, set[tuple[str, int]]()
        for row in _iterate_labelled(export):
            record: dict[str, Any] = {"pair-idx": int(row["id"]) if "pair-idx" in input_indices else pairs.count}
            for name, file in (("query", queries), ("code", codes)):
                index = f"{name}-idx"
                number = row[index] if index in input_indices else numbers[name].assign(row[name])[0]
                text = {index: number, name: row[name]}
                record |= text
                if (name, number) not in written:
                    written.add((name, number))
                    file.add(text)
            record["label"] = row["label"]
            pairs.add(record)
            if row["label"] == 1:
                matches.add(record)
        counts = (plural(queries.count, "query", "queries"), plural(codes.count, "snippet"))
        export.notes.append(" · ".join(counts))


def _find_usable_indices(pairs: Iterable[Pair]) -> set[str]:
    """Return the names of the indices that `write_cosqa_plus` can keep from the input."""
    usable = {"pair-idx", "query-idx", "code-idx"}
    texts, text_of_index = TextNumbers(), dict[tuple[str, int], int]()
    for pair in pairs:
        if not _INTEGER.fullmatch(pair.id):
            usable.discard("pair-idx")
        for index, text in (("query-idx", pair.query), ("code-idx", pair.code)):
            number, text_number = pair.meta.get(index), texts.assign(escape_surrogates(text))[0]
            if type(number) is not int or text_of_index.setdefault((index, number), text_number) != text_number:
                usable.discard(index)
    return usable


class _Array:
    """Writes a JSON array with one element per line."""

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
