"""Benchmarks to measure searchers on: published ones, and finished runs of this project."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks import read_benchmark
from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRequest, BenchmarkRow, read_rows
from agent.datasets.formats import expand_patterns
from agent.errors import UsageError
from agent.evaluation.tally import iterate_annotated_pairs, merge_rounds
from agent.store import files
from agent.store.run_view import load_run
from agent.types import normalise_language
from agent.wording import plural


def open_benchmark(
    path: str | Path,
    codes: Iterable[str | Path] = (),
    *,
    language: str | None = None,
    split: str | None = None,
) -> Benchmark:
    """Open the benchmark in a file or folder: a run of this project, or a published form, recognised by its content.

    Args:
        codes: files of the codes to search, or patterns of their names, where the form keeps them in files of their
            own. The codes of a run are searched as well.
        language: of the codes, where there are several or the form does not say; Python by default.
        split: of a BEIR folder, `test` by default.

    Raises:
        UsageError: something is missing, or given that the form does not have.
        InputError: the form is not known, or a file is malformed.
        RunFolderError: a run's folder is damaged.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    path = Path(path)
    request = BenchmarkRequest(tuple(expand_patterns(codes)), language and normalise_language(language), split)
    return _read_run(path, request) if (path / files.ANNOTATIONS).is_file() else read_benchmark(path, request)


def _read_run(path: Path, request: BenchmarkRequest) -> Benchmark:
    """Read a run. A pair labelled 1 is relevant, one labelled 0 is judged not relevant, others are not judged.

    The majority of several rounds counts. Queries are `q1` and on, codes `c1` and on, in the order of the input. Equal
    queries are one query, equal codes one code.
    """
    builder, languages, unlabelled = BenchmarkBuilder(path, request), dict[str, None](), 0
    queries, codes = dict[str, str](), dict[str, str]()
    with load_run(path) as view:
        labels = {pair.id: merge_rounds(rounds).annotation.label for pair, rounds in iterate_annotated_pairs(view)}
        for number, pair in enumerate(view.pairs(), start=1):
            languages[pair.language] = None
            if request.language not in (None, pair.language):
                continue
            query = queries.setdefault(pair.query, f"q{len(queries) + 1}")
            code = codes.setdefault(pair.code, f"c{len(codes) + 1}")
            builder.queries[query], builder.codes[code] = pair.query, pair.code
            if (label := labels.get(pair.id)) is None:
                unlabelled += 1
            else:
                builder.add_grade(query, code, label, BenchmarkRow({}, path / files.INPUT, number))
    if len(languages) > 1 and request.language is None:
        raise UsageError(f"{path}: its pairs are in {', '.join(languages)}; choose one by --language")
    for file in request.codes:
        for row in read_rows(file):
            code = codes.setdefault(row.get_text("code"), f"c{len(codes) + 1}")
            builder.codes[code] = row.get_text("code")
    if unlabelled:
        builder.notes.append(f"{plural(unlabelled, 'pair')} without a label (undecided, an error, not yet): not judged")
    builder.language = request.language or next(iter(languages), "python")
    return builder.build()
