"""Small benchmarks in the published formats and under the published file names, for the commands in the docs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

CODES = {f"add {number}": f"def add{number}(x):\n    return x + {number}\n" for number in range(4)}
URL = "https://github.com/owner/repository/blob/c0ffee/adding.py#L{}-L9"


def write_all(folder: Path) -> None:
    """Write one benchmark per format into a folder. Each query has one relevant snippet."""
    numbered = [(number, query, code) for number, (query, code) in enumerate(CODES.items())]
    cosqa = [{"idx": f"cosqa-{n}", "doc": query, "code": code, "label": 1} for n, query, code in numbered]
    _write(folder / "cosqa-retrieval-dev-500.json", [{**row, "retrieval_idx": n} for n, row in enumerate(cosqa)])
    _write(folder / "code_idx_map.txt", {code: n for n, _, code in numbered})
    labelled = "".join(f'{query},"{code}",1\n' for _, query, code in numbered)
    (folder / "labelled.csv").write_text(f"query,code,label\n{labelled}")
    plus = folder / "CoSQA_Plus" / "dataset"
    _write(plus / "query.json", [{"query-idx": n, "query": query} for n, query, _ in numbered])
    _write(plus / "gpt4o_augment_codebase.json", [{"code-idx": n, "code": code} for n, _, code in numbered])
    pairs = [{"pair-idx": n, "query-idx": n, "code-idx": n, "label": 1} for n, _, _ in numbered]
    _write(plus / "gpt4o_augment_query_code_pairs.json", pairs)
    ratings = "".join(f"Python,{query},{URL.format(n)},3,\n" for n, query, _ in numbered)
    (folder / "annotationStore.csv").write_text(f"Language,Query,GitHubUrl,Relevance,Notes\n{ratings}")
    corpus = folder / "python" / "final" / "jsonl" / "test" / "python_test_0.jsonl.gz"
    corpus.parent.mkdir(parents=True)
    with gzip.open(corpus, "wt") as file:
        file.write(
            _format_lines([{"url": URL.format(n), "code": code, "language": "python"} for n, _, code in numbered])
        )
    questions = [
        {"stackoverflow_id": n, "question": query, "answer": code, "examples": [n]} for n, query, code in numbered
    ]
    _write(folder / "287_android_questions.json", questions)
    (folder / "search_corpus_1.jsonl").write_text(_format_lines([{"id": n, "code": code} for n, _, code in numbered]))
    conala = [
        {"question_id": n, "intent": query, "rewritten_intent": None, "snippet": code} for n, query, code in numbered
    ]
    _write(folder / "conala-test.json", conala)
    staqc = [
        {"question_id": n, "question": query, "snippet": {"text": [code], "is_sda": [True]}}
        for n, query, code in numbered
    ]
    (folder / "man_python" / "train").mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(staqc), folder / "man_python" / "train" / "0000.parquet")
    beir = folder / "scifact"
    (beir / "qrels").mkdir(parents=True)
    (beir / "corpus.jsonl").write_text(
        _format_lines([{"_id": f"d{n}", "title": "", "text": code} for n, _, code in numbered])
    )
    (beir / "queries.jsonl").write_text(_format_lines([{"_id": f"q{n}", "text": query} for n, query, _ in numbered]))
    judgements = "".join(f"q{n}\td{n}\t1\n" for n, _, _ in numbered)
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def _format_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)
