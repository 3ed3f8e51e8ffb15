"""Published benchmarks for code search, each by a reader of its own files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.datasets.arrow import is_dataset
from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks import beir, codesearchnet, cosqa, neural_code_search, pairs
from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRequest, read_rows
from agent.errors import InputError, UsageError


@dataclass(frozen=True)
class BenchmarkFormat:
    """A published form of benchmarks, by its name in messages, and what reads it into a builder.

    `fields` are those that each row of such a table has, and that rows of no other form have; folders have none.
    `others` are the other fields that are read. `codes` describes the files that the user must name by `--codes`; it is
    empty where a benchmark comes with its codes.
    """

    name: str
    read: Callable[[BenchmarkBuilder], None]
    fields: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    codes: str = ""


_COSQA = "CoSQA's search task (cosqa-retrieval-dev-500.json)"
_COSQA_CODES = "code_idx_map.txt, or lines of code-idx and code"
_PLUS = BenchmarkFormat(
    "CoSQA+ (a folder with query.json, codebase.json and pairs.json, or as released)", cosqa.read_plus
)
_BEIR = BenchmarkFormat("a folder of BEIR's form (corpus, queries and qrels; also of MTEB and CoIR)", beir.read_beir)
_TABLES = (
    BenchmarkFormat(_COSQA, cosqa.read_search_task, ("doc", "retrieval_idx"), ("idx", "label"), _COSQA_CODES),
    BenchmarkFormat(_COSQA, cosqa.read_search_task, ("query-idx", "query", "code-idx"), ("label",), _COSQA_CODES),
    BenchmarkFormat(
        "CodeSearchNet (annotationStore.csv)",
        codesearchnet.read_challenge,
        ("Language", "Query", "GitHubUrl", "Relevance"),
        codes="the corpus, as 'python/final/jsonl/**/*.jsonl.gz'",
    ),
    BenchmarkFormat(
        "Neural Code Search (287_android_questions.json)",
        neural_code_search.read_questions,
        ("stackoverflow_id", "question", "answer", "examples"),
        codes="search_corpus_*.jsonl with the field code",
    ),
    BenchmarkFormat(
        "CoNaLa (conala-train.json)",
        pairs.read_conala,
        ("question_id", "intent", "snippet"),
        ("rewritten_intent", "prob"),
    ),
    BenchmarkFormat("StaQC (its Parquet files)", pairs.read_staqc, ("question_id", "question", "snippet")),
    BenchmarkFormat("labelled pairs (rows of query, code and label)", pairs.read_labelled, ("query", "code", "label")),
)


def read_benchmark(path: Path, request: BenchmarkRequest) -> Benchmark:
    """Read a benchmark of any known form, recognised by its content. A note names the form and ignored columns.

    Raises:
        UsageError: codes are missing, or given for a form that has its own.
        InputError: the form is not known, or a file is malformed.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    columns: Sequence[str] = ()
    if path.is_dir() and cosqa.is_plus(path):
        form = _PLUS
    elif path.is_dir() and beir.is_beir(path):
        form = _BEIR
    else:
        columns = _columns(path)
        form = _recognise(path, columns)
    if form.codes and not request.codes:
        raise UsageError(f"{path}: holds queries alone; give the codes to search by --codes ({form.codes})")
    if request.codes and not form.codes:
        raise UsageError(f"{path}: brings its own codes; leave --codes out")
    builder = BenchmarkBuilder(path, request)
    form.read(builder)
    ignored = ", ".join(repr(name) for name in columns if name not in {*form.fields, *form.others})
    builder.notes.insert(0, f"read as {form.name}" + (f"; ignored columns: {ignored}" if ignored else ""))
    return builder.build()


def _columns(path: Path) -> list[str]:
    """Return the fields of a table's first row. A folder that is no dataset has none."""
    first = None if path.is_dir() and not is_dataset(path) else next(read_rows(path), None)
    return [] if first is None else list(first.fields)


def _recognise(path: Path, columns: Sequence[str]) -> BenchmarkFormat:
    form = next((each for each in _TABLES if set(each.fields) <= set(columns)), None)
    if form is None:
        listed = f" (fields: {', '.join(map(repr, columns[:12]))})" if columns else ""
        known = dict.fromkeys(each.name for each in (*_TABLES, _PLUS, _BEIR))
        names = "; ".join([*known, "the folder of a run of agent annotate"])
        raise InputError(f"is no benchmark of a known form{listed}. Known are: {names}", path=path)
    if "label" in columns and "label" not in {*form.fields, *form.others}:
        raise InputError(
            f"has the fields of {form.name}, and labels, which that form does not have. "
            "To use the labels, name the columns query, code and label. Otherwise remove the column label",
            path=path,
        )
    return form
