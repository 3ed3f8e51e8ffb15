"""Tables of pairs: CoNaLa and StaQC (questions of Stack Overflow with snippets), and labelled pairs of any origin.

CoNaLa (conala-corpus.github.io; huggingface.co/datasets/neulab/conala): `conala-train.json` and `conala-test.json` have
`question_id`, `intent`, `rewritten_intent` (null for some) and `snippet`; `conala-mined.jsonl` has `question_id`,
`parent_answer_post_id`, `prob`, `snippet`, `intent` and `id`.

StaQC (github.com/LittleYUYU/StackOverflow-Question-Code-Dataset) is published as pickles, which run code when they are
read and are therefore not read here; huggingface.co/datasets/koutch/staqc has it as Parquet with `id`, `question_id`,
`question` and `snippet`: a text (`sca_*`, single-code answers), a list of them (`mca_*`, mined), or `text` and `is_sda`
(`man_*`, by people: whether it is a standalone answer).

Labelled pairs have `query`, `code` and `label`: 1 is relevant, 0 is judged not relevant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows

# Codes, each with its grade.
Graded = Iterable[tuple[str, int]]


def read_conala(builder: BenchmarkBuilder) -> None:
    """Read pairs of CoNaLa. The query is the rewritten intent, else the intent; its snippet is relevant.

    Raises:
        InputError: the file is malformed.
    """

    def read_snippet(row: BenchmarkRow) -> Graded:
        if "prob" in row.fields and not builder.notes:
            builder.notes.append("mined pairs count as relevant whatever their `prob`; filter the file first if not")
        return _snippets(row)

    _read_pairs(builder, ("rewritten_intent", "intent"), read_snippet)


def read_staqc(builder: BenchmarkBuilder) -> None:
    """Read pairs of StaQC. A snippet is relevant unless people judged that it is no answer to the question.

    Raises:
        InputError: the file is malformed.
    """
    _read_pairs(builder, ("question",), _snippets)


def read_labelled(builder: BenchmarkBuilder) -> None:
    """Read pairs of query, code and label. Label 1 is relevant, 0 is judged not relevant.

    Raises:
        InputError: the file is malformed, or has another label.
    """

    def read_label(row: BenchmarkRow) -> Graded:
        label = row.grade("label")
        if label not in (0, 1):
            raise row.error(f"'label' is {label}; 1 or 0 expected")
        return [(row.text("code"), label)]

    _read_pairs(builder, ("query",), read_label)


def _read_pairs(builder: BenchmarkBuilder, query: tuple[str, ...], codes_of: Callable[[BenchmarkRow], Graded]) -> None:
    """Read each row's query and codes. Equal queries are one; ids are the number of the first row that has the text."""
    ids = dict[str, str]()
    for number, row in enumerate(read_rows(builder.path), start=1):
        text = row.text(*query)
        if text not in ids:
            ids[text] = str(number)
            builder.add_query(ids[text], text, row)
        for place, (code, grade) in enumerate(codes_of(row)):
            identifier = f"{number}.{place}" if place else str(number)
            builder.add_code(identifier, code, row)
            builder.add_grade(ids[text], identifier, grade, row)


def _snippets(row: BenchmarkRow) -> Iterator[tuple[str, int]]:
    """Yield the snippets of a row, each with its grade."""
    value = row.value("snippet")
    if isinstance(value, dict):  # of Parquet: a list per field
        texts, judged = value.get("text"), value.get("is_sda")
        if not isinstance(texts, list) or not isinstance(judged, list) or len(texts) != len(judged):
            raise row.error("'snippet' is an object; `text` and `is_sda` of equal length expected in it")
        value = [{"text": text, "is_sda": is_answer} for text, is_answer in zip(texts, judged, strict=True)]
    for each in value if isinstance(value, list) else [value]:
        judged = each.get("is_sda") if isinstance(each, dict) else True
        text = each.get("text") if isinstance(each, dict) else each
        if not isinstance(text, str) or not isinstance(judged, bool):
            raise row.error("'snippet' is no text, list of texts, or list of `text` and `is_sda`")
        yield text, int(judged)
