"""Read folders in BEIR, MTEB and CoIR format.

BEIR (github.com/beir-cellar/beir, beir/datasets/data_loader.py) has `corpus.jsonl` with `_id`, `title` and `text`,
`queries.jsonl` with `_id` and `text`, and `qrels/SPLIT.tsv` with the header `query-id corpus-id score`. Queries without
a judgement in the split are skipped. The text to search consists of the title, a space and the `text` field.

MTEB (github.com/embeddings-benchmark/mteb, mteb/abstasks/retrieval_dataset_loaders.py) has the parts `corpus`,
`queries`, and either `default` or `qrels`. Each part is stored as `PART/SPLIT-*.parquet`. If there are several
configurations, the folders are named `CONFIG-corpus`, and so on. If a part has files for the split, only those files
are read. Otherwise, all files in the part are read.

CoIR (github.com/CoIR-team/coir, coir/data_loader.py) consists of two datasets. `NAME-queries-corpus` contains
`data/corpus-*.parquet` and `data/queries-*.parquet`, and `NAME-qrels` contains `data/SPLIT-*.parquet`. Both datasets
must be in the same folder. The fields of snippets and queries are `_id`, `title` and `text`. The fields of judgements
are `query_id`, `corpus_id` and `score`. Hyphens are accepted instead of underscores in `query_id` and `corpus_id`.

If a folder in any of these formats has no qrels at all, every query and every document is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.errors import UsageError
from agent.text import plural

_SUFFIXES = re.compile(r"(-\d+-of-\d+.*)?\.(jsonl|parquet|tsv)(\.gz)?$")
_PART = re.compile(r"(?:(?P<config>.+)-)?(?P<part>corpus|quer(?:y|ies)|qrels|default|top_ranked|instruction)")
_NAMES = {"query": "queries", "default": "qrels"}


@dataclass(frozen=True)
class _PartFile:
    """A file that belongs to a part: `corpus`, `queries` or `qrels`."""

    path: Path
    part: str
    split: str
    config: str


def is_beir(folder: Path) -> bool:
    """Return whether a folder contains files for the corpus or the queries."""
    return bool({"corpus", "queries"} & {file.part for file in _list_files(folder)})


def read_beir(builder: BenchmarkBuilder) -> None:
    """Read a folder in BEIR, MTEB or CoIR format.

    A score of 1 or more is a relevance grade. A score of 0 or less means that the document was judged not relevant.

    Raises:
        UsageError: the corpus or the queries are missing, or the split has no judgements although a split was requested
            or other splits have judgements.
        InputError: a file is malformed.
        ExtraMissing: a file is in Parquet format, and the `io` extra is not installed.
    """
    folder, split = builder.path, builder.request.split or "test"
    if missing := {"corpus", "queries"} - {file.part for file in _list_files(folder)}:
        raise UsageError(
            f"{folder}: has no {missing.pop()}. Expected corpus.jsonl and queries.jsonl, or folders with Parquet files"
        )
    files = _select_config(folder, builder.request.language)
    splits = sorted({file.split for file in files if file.part == "qrels"})
    if builder.request.split is None and not any(file.part == "qrels" for file in _list_files(folder)):
        split = ""
    elif split not in splits:
        remedy = f"Choose another split with --split: {', '.join(splits)}" if splits else "The folder contains no qrels"
        raise UsageError(f"{folder}: has no judgements (qrels) for split {split!r}. {remedy}")
    for row in _read_part(files, "corpus", split):
        builder.add_code(row.get_id("_id", "id"), _read_text(row), row)
    rows = dict[str, BenchmarkRow]()
    for row in _read_part(files, "queries", split):
        if rows.setdefault(query := row.get_id("_id", "id"), row) is not row:
            raise row.build_error(f"two queries have the id {query[:60]!r}. Ids must be unique")
    judgements = [
        (row.get_id("query-id", "query_id"), row.get_id("corpus-id", "corpus_id"), row.get_grade("score"), row)
        for row in _read_part(files, "qrels", split)
    ]
    judged_queries = {query for query, *_ in judgements}
    for query, row in rows.items():
        if query in judged_queries or not split:
            builder.add_query(query, row.get_text("text"), row)
    for query, code, grade, row in judgements:
        builder.add_grade(query, code, max(grade, 0), row)
    if same := sum(map(builder.has_code, builder.queries)):
        builder.notes.append(
            f"{plural(same, 'query has', 'queries have')} the same id as a document. BEIR leaves the document out "
            "of the results of its query, and `agent retrieval` does not"
        )
    builder.name += f"-{split}" if split else ""


def _list_files(folder: Path) -> list[_PartFile]:
    """Return the files that belong to a part, sorted by path. Search at most two levels of subfolders."""
    paths = sorted(path for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(pattern) if path.is_file())
    return [file for path in paths if (file := _classify_file(folder, path))]


def _classify_file(folder: Path, path: Path) -> _PartFile | None:
    """Return the part that a file belongs to. If the file name is a number or names no part, use the folder names."""
    stem, folders = _SUFFIXES.sub("", path.name), path.relative_to(folder).parts[:-1]
    if stem == path.name:
        return None
    split, *above = [*([] if stem.isdigit() else [stem]), *reversed(folders)][:2] or [stem]
    for name in (split, *above):
        if match := _PART.fullmatch(name):
            part = _NAMES.get(match["part"], match["part"])
            return _PartFile(path, part, split, match["config"] or "")
    return _PartFile(path, "qrels", split, "") if folders else None


def _select_config(folder: Path, language: str | None) -> list[_PartFile]:
    """Return the files of the configuration named after the language, or of the only configuration."""
    files = _list_files(folder)
    configs = sorted({file.config for file in files if file.part == "corpus"})
    if len(configs) == 1:
        return [file for file in files if file.config in ("", configs[0])]
    if language in configs:
        return [file for file in files if file.config == language]
    raise UsageError(f"{folder}: contains several configurations. Choose one with --language: {', '.join(configs)}")


def _read_part(files: list[_PartFile], part: str, split: str) -> Iterator[BenchmarkRow]:
    part_files = [file for file in files if file.part == part]
    for file in [file for file in part_files if file.split == split] or part_files:
        yield from read_rows(file.path)


def _read_text(row: BenchmarkRow) -> str:
    if "text" not in row.fields:
        raise row.build_error(f"no 'text' field (available fields: {', '.join(map(repr, list(row.fields)[:12]))})")
    title, text = row.fields.get("title") or "", row.fields["text"] or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise row.build_error("'title' and 'text' must be text")
    return f"{title} {text}" if title else text
