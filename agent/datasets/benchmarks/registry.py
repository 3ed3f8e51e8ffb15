"""Read published benchmarks for code search, with one reader per format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.datasets.arrow import is_dataset
from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks import beir, codesearchnet, cosqa, neural_code_search, pairs, triples
from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRequest, read_rows
from agent.datasets.fields import FieldMap, Fields
from agent.errors import InputError, UsageError


@dataclass(frozen=True)
class BenchmarkFormat:
    """A format for published benchmarks: its name in messages, and the function that reads a benchmark.

    `fields` contains the fields that every row must have, which identify the format. It is empty for folders. `others`
    contains optional fields. `codes` describes the files to pass with `--codes`. It is empty if the benchmark includes
    its snippets. `may_lack_grades` says whether a benchmark without any grades is valid.
    """

    name: str
    read: Callable[[BenchmarkBuilder], None]
    fields: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    codes: str = ""
    may_lack_grades: bool = False


_COSQA = "CoSQA's search task (cosqa-retrieval-dev-500.json)"
_COSQA_CODES = "code_idx_map.txt, or a file with 'code-idx' and 'code' fields"
_PLUS = BenchmarkFormat(
    "CoSQA+ (a folder with query.json, codebase.json and pairs.json, or with the file names of a release)",
    cosqa.read_cosqa_plus,
)
_BEIR = BenchmarkFormat(
    "a folder in BEIR, MTEB or CoIR format (corpus, queries and optional qrels)", beir.read_beir, may_lack_grades=True
)
_SPLIT = BenchmarkFormat("a folder of `agent corpus split`", pairs.read_split, may_lack_grades=True)
_TRIPLES = BenchmarkFormat("a folder of `agent corpus stackexchange`", triples.read_triples)
_TABLES = (
    BenchmarkFormat(_COSQA, cosqa.read_search_task, ("doc", "retrieval_idx"), ("idx", "label"), _COSQA_CODES),
    BenchmarkFormat(_COSQA, cosqa.read_search_task, ("query-idx", "query", "code-idx"), ("label",), _COSQA_CODES),
    BenchmarkFormat(
        "CodeSearchNet (annotationStore.csv)",
        codesearchnet.read_challenge,
        ("Language", "Query", "GitHubUrl", "Relevance"),
        codes="the corpus, such as 'python/final/jsonl/**/*.jsonl.gz'",
    ),
    BenchmarkFormat(
        "Neural Code Search (287_android_questions.json)",
        neural_code_search.read_questions,
        ("stackoverflow_id", "question", "answer", "examples"),
        codes="search_corpus_*.jsonl with a 'code' field",
    ),
    BenchmarkFormat(
        "CoNaLa (conala-train.json)",
        pairs.read_conala,
        ("question_id", "intent", "snippet"),
        ("rewritten_intent", "prob"),
    ),
    BenchmarkFormat("StaQC (Parquet files)", pairs.read_staqc, ("question_id", "question", "snippet")),
)
_PAIRS = BenchmarkFormat(
    "pairs (rows with query, code and an optional label)", pairs.read_labelled, ("query", "code"), may_lack_grades=True
)


def read_benchmark(path: Path, request: BenchmarkRequest) -> Benchmark:
    """Read a benchmark in any known format. The format is detected from the content.

    A note in the benchmark names the format and any ignored columns.

    Raises:
        UsageError: snippets are missing, or snippets were passed for a format that includes them.
        InputError: the format is unknown, or a file is malformed.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    benchmark_format, columns = find_format(path, request.mapping)
    if benchmark_format.codes and not request.codes:
        raise UsageError(
            f"{path}: contains only queries. Pass the snippets to search with --codes ({benchmark_format.codes})"
        )
    if request.codes and not benchmark_format.codes:
        raise UsageError(f"{path}: includes its own snippets. Remove --codes")
    builder = BenchmarkBuilder(path, request)
    benchmark_format.read(builder)
    if request.mapping and benchmark_format is not _PAIRS:
        builder.notes.append("--map has no effect, because this format has fixed field names")
    used = {*benchmark_format.fields, *benchmark_format.others}
    if benchmark_format is _PAIRS:
        used = {field for name in ("query", "code", "label") for field in Fields(request.mapping).names[name]}
    ignored = ", ".join(repr(name) for name in columns if name not in used)
    builder.notes.insert(0, f"read as {benchmark_format.name}" + (f"; ignored columns: {ignored}" if ignored else ""))
    return builder.build(may_lack_grades=benchmark_format.may_lack_grades)


def find_format(path: Path, mapping: FieldMap = None) -> tuple[BenchmarkFormat, Sequence[str]]:
    """Detect the format of a benchmark. Also return the columns of a table. `mapping` applies to tables of pairs.

    Raises:
        InputError: the format is unknown, or the first row is malformed.
        ExtraMissing: the libraries for the file's format are not installed.
    """
    if path.is_dir() and cosqa.is_cosqa_plus(path):
        return _PLUS, ()
    if path.is_dir() and beir.is_beir(path):
        return _BEIR, ()
    if path.is_dir() and pairs.is_split(path):
        return _TRIPLES if triples.is_triples(path) else _SPLIT, ()
    columns = read_columns(path)
    return _recognise(path, columns, mapping), columns


def read_columns(path: Path) -> list[str]:
    """Return the field names of a table's first row. For a folder that is not a dataset, return an empty list."""
    first = None if path.is_dir() and not is_dataset(path) else next(read_rows(path), None)
    return [] if first is None else list(first.fields)


def _recognise(path: Path, columns: Sequence[str], mapping: FieldMap) -> BenchmarkFormat:
    fields = Fields(mapping)
    is_pairs = fields.has("query", columns) and fields.has("code", columns)
    benchmark_format = next((table for table in _TABLES if set(table.fields) <= set(columns)), None)
    if is_pairs and (mapping or benchmark_format is None):
        return _PAIRS
    if benchmark_format is None:
        listed = f" (fields: {', '.join(map(repr, columns[:12]))})" if columns else ""
        names = dict.fromkeys(table.name for table in (*_TABLES, _PAIRS, _PLUS, _BEIR, _SPLIT, _TRIPLES))
        known_names = "; ".join([*names, "a run folder created by agent annotate"])
        raise InputError(f"unknown benchmark format{listed}. Known formats: {known_names}", path=path)
    if "label" in columns and "label" not in {*benchmark_format.fields, *benchmark_format.others}:
        raise InputError(
            f"has the fields of {benchmark_format.name} and a 'label' column, which is not part of that format. "
            "To use the labels, pass --map query=FIELD,code=FIELD. Otherwise, remove the 'label' column",
            path=path,
        )
    return benchmark_format
