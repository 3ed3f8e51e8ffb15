"""CoNaLa and StaQC: questions of Stack Overflow, each paired with snippets that answer it.

CoNaLa (conala-corpus.github.io; huggingface.co/datasets/neulab/conala): `conala-train.json` and `conala-test.json` have
`question_id`, `intent`, `rewritten_intent` (null for some) and `snippet`; `conala-mined.jsonl` has `question_id`,
`parent_answer_post_id`, `prob`, `snippet`, `intent` and `id`.

StaQC (github.com/LittleYUYU/StackOverflow-Question-Code-Dataset) is published as pickles, which run code when they are
read and are therefore not read here; huggingface.co/datasets/koutch/staqc has it as Parquet with `id`, `question_id`,
`question` and `snippet`: a text (`sca_*`, single-code answers), a list of them (`mca_*`, mined), or `text` and `is_sda`
(`man_*`, by people: whether it is a standalone answer).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.building import Building, Row, Wanted, named, rows


def conala(path: Path, wanted: Wanted) -> Benchmark:
    """Read pairs of CoNaLa: the rewritten intent, else the intent, and its snippet, which is relevant.

    Raises:
        UsageError: codes are given.
        InputError: the file is malformed.
    """
    return _of_pairs(path, wanted, "rewritten_intent", "intent")


def staqc(path: Path, wanted: Wanted) -> Benchmark:
    """Read pairs of StaQC: a question and its snippets, relevant but for those that people judged to be no answer.

    Raises:
        UsageError: codes are given.
        InputError: the file is malformed.
    """
    return _of_pairs(path, wanted, "question")


def _of_pairs(path: Path, wanted: Wanted, *query: str) -> Benchmark:
    """Equal queries are one; queries and codes have the number of the first row that has them as ids."""
    wanted.check_codes(path)
    building, ids = Building(), dict[str, str]()
    for number, row in enumerate(rows(path), start=1):
        text = row.text(*query)
        if text not in ids:
            ids[text] = str(number)
            building.add_query(ids[text], text, row)
        for place, (code, grade) in enumerate(_snippets(row)):
            identifier = f"{number}.{place}" if place else str(number)
            building.add_code(identifier, code, row)
            building.add_grade(ids[text], identifier, grade, row)
        if "prob" in row.fields:
            building.notes.append("mined pairs count as relevant whatever their `prob`; filter the file first if not")
            building.notes = building.notes[:1]
    return building.done(named(path), path, wanted.language or "python")


def _snippets(row: Row) -> Iterator[tuple[str, int]]:
    """Yield the snippets of a row, each with its grade."""
    value = row.value("snippet")
    if isinstance(value, dict):  # of Parquet: a list per field
        texts, judged = value.get("text"), value.get("is_sda")
        if not isinstance(texts, list) or not isinstance(judged, list) or len(texts) != len(judged):
            raise row.error("'snippet' is an object; `text` and `is_sda` of equal length expected in it")
        value = [{"text": text, "is_sda": found} for text, found in zip(texts, judged, strict=True)]
    for each in value if isinstance(value, list) else [value]:
        judged = each.get("is_sda") if isinstance(each, dict) else True
        text = each.get("text") if isinstance(each, dict) else each
        if not isinstance(text, str) or not isinstance(judged, bool):
            raise row.error("'snippet' is no text, list of texts, or list of `text` and `is_sda`")
        yield text, int(judged)
