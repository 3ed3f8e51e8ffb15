"""Read tables of pairs: CoNaLa and StaQC (Stack Overflow questions with snippets), and pairs of any origin.

CoNaLa (conala-corpus.github.io; huggingface.co/datasets/neulab/conala): `conala-train.json` and `conala-test.json` have
`question_id`, `intent`, `rewritten_intent` (which may be null) and `snippet`. `conala-mined.jsonl` has `question_id`,
`parent_answer_post_id`, `prob`, `snippet`, `intent` and `id`.

StaQC (github.com/LittleYUYU/StackOverflow-Question-Code-Dataset) is published as pickles, which are not supported
because they can run arbitrary code. huggingface.co/datasets/koutch/staqc has Parquet files with `id`, `question_id`,
`question` and `snippet`. In the `sca_*` files (single-code answers), `snippet` is text. In the `mca_*` files (mined),
`snippet` is a list of texts. In the `man_*` files (labelled by people), `snippet` has the fields `text` and `is_sda`.
`is_sda` says whether the snippet is a standalone answer.

Pairs of any origin have the fields `query` and `code`, and may have `label`. Label 1 means that the code is relevant,
and label 0 means that it was judged not relevant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.datasets.fields import Fields
from agent.errors import UsageError
from agent.types import normalise_language

# Snippets with their grades. The grade of an unjudged snippet is None.
GradedCodes = Iterable[tuple[str, int | None]]
TRIPLES_SUMMARY = "stackexchange.json"
"""The file that identifies a folder of `agent corpus stackexchange`."""
_PART_FILES = ("data/{}.parquet", "{}.jsonl", "{}.csv", "{}.parquet")


def read_conala(builder: BenchmarkBuilder) -> None:
    """Read pairs from CoNaLa.

    The query is the rewritten intent or, if that is null, the intent. The snippet is always relevant.

    Raises:
        InputError: the file is malformed.
    """

    def read_snippet(row: BenchmarkRow) -> GradedCodes:
        if "prob" in row.fields and not builder.notes:
            builder.notes.append(
                "mined pairs are relevant regardless of `prob`. To use only pairs with a high `prob`, "
                "filter the file first"
            )
        return _read_snippets(row)

    _read_pairs(builder, lambda n, row: (n, row.get_text("rewritten_intent", "intent"), read_snippet(row)))


def read_staqc(builder: BenchmarkBuilder) -> None:
    """Read pairs from StaQC. A snippet is relevant unless people judged that it does not answer the question.

    Raises:
        InputError: the file is malformed.
    """
    _read_pairs(builder, lambda number, row: (number, row.get_text("question"), _read_snippets(row)))


def is_split(folder: Path) -> bool:
    """Return whether `agent corpus split` or `agent corpus stackexchange` wrote a folder."""
    return any((folder / name).is_file() for name in ("split.json", TRIPLES_SUMMARY))


def find_part_files(folder: Path) -> dict[str, Path]:
    """Return the tables of pairs in a folder with splits, by part. Ignores links out of the folder."""
    return {
        part: path
        for part in ("train", "validation", "test")
        for name in _PART_FILES
        if (path := folder / name.format(part)).is_file() and path.resolve().is_relative_to(folder.resolve())
    }


def read_split(builder: BenchmarkBuilder) -> None:
    """Read a folder of `agent corpus split`: the queries and labels of one part, and the snippets of all parts.

    If a language is requested, rows in other languages are skipped, as in all tables of pairs.

    Raises:
        UsageError: the folder has no table for the part.
        InputError: a file is malformed, or a label is neither 0 nor 1.
    """
    split, paths = builder.request.split or "test", find_part_files(builder.path)
    if split not in paths:
        remedy = f"Choose another one with --split: {', '.join(paths)}" if paths else "Pass the folder of one part"
        raise UsageError(f"{builder.path}: has no table of pairs for the split {split!r}. {remedy}")
    builder.path = paths.pop(split)
    read_labelled(builder)
    fields = Fields()
    for part, path in paths.items():
        for number, row in _iterate_rows(builder, path, fields):
            pair = row.build_pair(fields, number)
            builder.add_code(pair.id if builder.request.own_ids else f"{part}-{row.line}", pair.code, row)
    builder.name += f"-{split}"


def read_labelled(builder: BenchmarkBuilder) -> None:
    """Read rows with query, code and label. The code is relevant if the label is 1, and judged not relevant if it is 0.

    If the label is missing, null or blank, the pair is unjudged. A note counts these pairs.

    Raises:
        InputError: the file is malformed, or a label is neither 0 nor 1.
    """
    fields = Fields(builder.request.mapping)

    def read(number: str, row: BenchmarkRow) -> tuple[str, str, GradedCodes]:
        pair = row.build_pair(fields, int(number))
        label = replace(row, fields=pair.meta).get_label("label")
        return pair.id if builder.request.own_ids else number, pair.query, [(pair.code, label)]

    _read_pairs(builder, read, fields)


def _read_pairs(
    builder: BenchmarkBuilder,
    read: Callable[[str, BenchmarkRow], tuple[str, str, GradedCodes]],
    fields: Fields | None = None,
) -> None:
    """Read the id, the query and the snippets of each row, and merge identical queries.

    `read` receives the number of a row as text, which is the usual id. The id of a query is the id of the first row
    that contains it. If a row contains several snippets, the ids of all snippets after the first also contain an index.
    The number of the row makes a repeated id unique.
    """
    ids, builder.lists_pairs = dict[str, str](), True
    for number, row in _iterate_rows(builder, builder.path, fields or Fields()):
        own, text, codes = read(str(number), row)
        own = f"{own}/{number}" if builder.has_code(own) else own
        if text not in ids:
            ids[text] = own
            builder.add_query(own, text, row)
        for index, (code, grade) in enumerate(codes):
            identifier = f"{own}.{index}" if index else own
            builder.add_code(identifier, code, row)
            builder.add_grade(ids[text], identifier, grade, row)


def _iterate_rows(builder: BenchmarkBuilder, path: Path, fields: Fields) -> Iterator[tuple[int, BenchmarkRow]]:
    """Iterate over the rows that were requested, with their numbers. Rows without a `language` are in any language."""
    language, name = builder.request.language, fields.names["language"][0]
    for number, row in enumerate(read_rows(path), start=1):
        fields.see(row.fields)
        own = row.fields.get(name)
        if (None in (language, own) or normalise_language(str(own)) == language) and builder.includes(row.fields):
            yield number, row
    fields.check_mapping()


def _read_snippets(row: BenchmarkRow) -> Iterator[tuple[str, int]]:
    """Iterate over the snippets in a row, with their grades."""
    value = row.get_value("snippet")
    if isinstance(value, dict):  # Parquet has one list per field
        texts, verdicts = value.get("text"), value.get("is_sda")
        if not isinstance(texts, list) or not isinstance(verdicts, list) or len(texts) != len(verdicts):
            raise row.build_error("'snippet' is an object; expected one with `text` and `is_sda` lists of equal length")
        value = [{"text": text, "is_sda": is_answer} for text, is_answer in zip(texts, verdicts, strict=True)]
    for snippet in value if isinstance(value, list) else [value]:
        is_answer = snippet.get("is_sda") if isinstance(snippet, dict) else True
        text = snippet.get("text") if isinstance(snippet, dict) else snippet
        if not isinstance(text, str) or not isinstance(is_answer, bool):
            raise row.build_error(
                "'snippet' must be text, a list of texts, or a list of objects with `text` and `is_sda`"
            )
        yield text, int(is_answer)
