"""Folders in the form of BEIR, as also MTEB and CoIR publish them.

BEIR (github.com/beir-cellar/beir, beir/datasets/data_loader.py): `corpus.jsonl` with `_id`, `title` and `text`,
`queries.jsonl` with `_id` and `text`, `qrels/SPLIT.tsv` with the header `query-id corpus-id score`; queries without a
judgement in the split are left out, and title and text are searched with a space between.

MTEB (github.com/embeddings-benchmark/mteb, mteb/abstasks/retrieval_dataset_loaders.py): a dataset of the parts
`corpus`, `queries` and `default` or `qrels`, each as `PART/SPLIT-*.parquet`; with several configurations the folders
are `CONFIG-corpus` and so on. Of a part that has the split, that is taken, else all of it.

CoIR (github.com/CoIR-team/coir, coir/data_loader.py): two datasets, `NAME-queries-corpus` with `data/corpus-*.parquet`
and `data/queries-*.parquet`, and `NAME-qrels` with `data/SPLIT-*.parquet`: put both into one folder. Fields are
`_id`, `title`, `text`, and `query_id`, `corpus_id`, `score`, or with hyphens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import UsageError

_SUFFIXES = re.compile(r"(-\d+-of-\d+.*)?\.(jsonl|parquet|tsv)(\.gz)?$")
_PART = re.compile(r"(?:(?P<config>.+)-)?(?P<part>corpus|quer(?:y|ies)|qrels|default|top_ranked|instruction)")
_NAMES = {"query": "queries", "default": "qrels"}


@dataclass(frozen=True)
class _PartFile:
    """A file of a part: `corpus`, `queries` or `qrels`."""

    path: Path
    part: str
    split: str
    config: str


def is_beir(folder: Path) -> bool:
    """Return whether a folder has a corpus or queries."""
    return bool({"corpus", "queries"} & {file.part for file in _files(folder)})


def read_beir(builder: BenchmarkBuilder) -> None:
    """Read a folder. A score of 1 or more is the grade of a relevant code; 0 and below means judged not relevant.

    Raises:
        UsageError: corpus, queries or the judgements of the split are missing.
        InputError: a file is malformed.
        ExtraMissing: Parquet without the extra `io`.
    """
    folder, split = builder.path, builder.request.split or "test"
    if missing := {"corpus", "queries"} - {file.part for file in _files(folder)}:
        raise UsageError(f"{folder}: has no {missing.pop()} (as corpus.jsonl and queries.jsonl, or folders of Parquet)")
    files = _files_of_config(folder, builder.request.language)
    splits = sorted({file.split for file in files if file.part == "qrels"})
    if split not in splits:
        there = f"there is {', '.join(splits)}; choose by --split" if splits else "there are none at all"
        raise UsageError(f"{folder}: has no judgements (qrels) of the split {split!r}; {there}")
    for row in _rows(files, "corpus", split):
        builder.add_code(row.identifier("_id", "id"), _text(row), row)
    texts = {row.identifier("_id", "id"): row for row in _rows(files, "queries", split)}
    judged = [
        (row.identifier("query-id", "query_id"), row.identifier("corpus-id", "corpus_id"), row.grade("score"), row)
        for row in _rows(files, "qrels", split)
    ]
    judged_queries = {query for query, *_ in judged}
    for query, row in texts.items():
        if query in judged_queries:
            builder.add_query(query, row.text("text"), row)
    for query, code, grade, row in judged:
        builder.add_grade(query, code, max(grade, 0), row)
    builder.name += f"-{split}"


def _files(folder: Path) -> list[_PartFile]:
    """Return the files of parts in a folder, at most two folders down, in the order of their names."""
    paths = sorted(path for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(pattern) if path.is_file())
    return [file for path in paths if (file := _part_file(folder, path))]


def _part_file(folder: Path, path: Path) -> _PartFile | None:
    """Return what a file is by its own name, else by that of its folder; a numbered one goes by its folders alone."""
    stem, folders = _SUFFIXES.sub("", path.name), path.relative_to(folder).parts[:-1]
    if stem == path.name:
        return None
    split, *above = [*([] if stem.isdigit() else [stem]), *reversed(folders)][:2] or [stem]
    for name in (split, *above):
        if match := _PART.fullmatch(name):
            part = _NAMES.get(match["part"], match["part"])
            return _PartFile(path, part, split, match["config"] or "")
    return _PartFile(path, "qrels", split, "") if folders else None


def _files_of_config(folder: Path, language: str | None) -> list[_PartFile]:
    """Return the files of the configuration that is called like the language, or of the only one."""
    files = _files(folder)
    configs = sorted({file.config for file in files if file.part == "corpus"})
    if len(configs) == 1:
        return [file for file in files if file.config in ("", configs[0])]
    if language in configs:
        return [file for file in files if file.config == language]
    raise UsageError(f"{folder}: holds several configurations ({', '.join(configs)}); choose one by --language")


def _rows(files: list[_PartFile], part: str, split: str) -> Iterator[BenchmarkRow]:
    of_part = [file for file in files if file.part == part]
    for file in [file for file in of_part if file.split == split] or of_part:
        yield from read_rows(file.path)


def _text(row: BenchmarkRow) -> str:
    if "text" not in row.fields:
        raise row.error(f"no field 'text' (fields here: {', '.join(map(repr, list(row.fields)[:12]))})")
    title, text = row.fields.get("title") or "", row.fields["text"] or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise row.error("'title' and 'text' must be text")
    return f"{title} {text}" if title else text
