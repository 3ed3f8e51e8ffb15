"""Published benchmarks for code search, each by a reader of its own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks import beir, codesearchnet, cosqa, neural_code_search, stack_overflow
from agent.datasets.benchmarks.building import Wanted, rows
from agent.datasets.huggingface import is_dataset
from agent.errors import InputError

Reader = Callable[[Path, Wanted], Benchmark]

KNOWN = (
    "CoSQA's search task (cosqa-retrieval-dev-500.json)",
    "CoSQA+ (a folder with query.json, codebase.json and pairs.json, or as released)",
    "CodeSearchNet (annotationStore.csv)",
    "Neural Code Search (287_android_questions.json)",
    "CoNaLa (conala-train.json)",
    "StaQC (its Parquet files)",
    "a folder of BEIR's form (corpus, queries and qrels; also of MTEB and CoIR)",
    "the folder of a run of agent annotate",
)
"""The forms that are read, in the words of messages."""

_BY_FIELDS: Mapping[tuple[str, ...], Reader] = {
    ("doc", "retrieval_idx"): cosqa.search_task,
    ("query-idx", "query", "code-idx"): cosqa.search_task,
    ("Language", "Query", "GitHubUrl", "Relevance"): codesearchnet.challenge,
    ("question", "answer", "examples"): neural_code_search.questions,
    ("intent", "snippet"): stack_overflow.conala,
    ("question", "snippet"): stack_overflow.staqc,
}
"""By fields that each row of its file has."""


def read_benchmark(path: Path, wanted: Wanted) -> Benchmark:
    """Read a benchmark of any form that is known, told by what is in its files.

    Raises:
        UsageError: what the form needs is not given.
        InputError: the form is not known, or a file is malformed.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    if path.is_dir():
        if cosqa.is_plus(path):
            return cosqa.plus(path, wanted)
        if beir.is_beir(path):
            return beir.beir(path, wanted)
    first = None if path.is_dir() and not is_dataset(path) else next(rows(path), None)
    fields = {} if first is None else first.fields
    for names, reader in _BY_FIELDS.items():
        if all(name in fields for name in names):
            return reader(path, wanted)
    found = f" (fields: {', '.join(map(repr, list(fields)[:12]))})" if fields else ""
    raise InputError(f"is no benchmark of a known form{found}. Known are: {'; '.join(KNOWN)}", path=path)
