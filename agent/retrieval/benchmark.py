"""Benchmarks to measure searchers on: published ones, and finished runs of this project."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks import read_benchmark
from agent.datasets.benchmarks.building import Building, Row, Wanted, named, rows
from agent.datasets.formats import files_of
from agent.errors import UsageError
from agent.evaluation.tally import annotated_pairs, as_one
from agent.store import files
from agent.store.run_view import load_run
from agent.types import language_name
from agent.wording import counted


def open_benchmark(
    path: str | Path,
    codes: Iterable[str | Path] = (),
    *,
    language: str | None = None,
    split: str | None = None,
) -> Benchmark:
    """Return the benchmark in a file or folder: a run of ours, or a published form, told by what is in it.

    Args:
        codes: files of the codes to search, or patterns of their names, where the form has them apart; to those of a
            run they are added.
        language: of the codes, where there are several or the form does not say; Python unless given.
        split: of a BEIR folder, `test` unless given.

    Raises:
        UsageError: something is missing, or given that the form does not have.
        InputError: the form is not known, or a file is malformed.
        RunFolderError: a run's folder is damaged.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    path = Path(path)
    wanted = Wanted(tuple(files_of(codes)), language and language_name(language), split)
    return _of_run(path, wanted) if (path / files.ANNOTATIONS).is_file() else read_benchmark(path, wanted)


def _of_run(path: Path, wanted: Wanted) -> Benchmark:
    """Read a run: a pair labelled 1 is relevant, one labelled 0 was judged, another was not.

    Of several rounds the majority counts. Queries are `q1` and on, codes `c1` and on, in the order of the input: equal
    query is one query, equal code one code.
    """
    building, languages, unlabelled = Building(), dict[str, None](), 0
    queries, codes = dict[str, str](), dict[str, str]()
    with load_run(path) as view:
        labels = {pair.id: as_one(rounds).annotation.label for pair, rounds in annotated_pairs(view)}
        for number, pair in enumerate(view.pairs(), start=1):
            languages[pair.language] = None
            if wanted.language not in (None, pair.language):
                continue
            query = queries.setdefault(pair.query, f"q{len(queries) + 1}")
            code = codes.setdefault(pair.code, f"c{len(codes) + 1}")
            building.queries[query], building.codes[code] = pair.query, pair.code
            if (label := labels.get(pair.id)) is None:
                unlabelled += 1
            else:
                building.add_grade(query, code, label, Row({}, path / files.INPUT, number))
    if len(languages) > 1 and wanted.language is None:
        raise UsageError(f"{path}: its pairs are in {', '.join(languages)}; choose one by --language")
    for file in wanted.codes:
        for row in rows(file):
            code = codes.setdefault(row.text("code"), f"c{len(codes) + 1}")
            building.codes[code] = row.text("code")
    if unlabelled:
        building.notes.append(
            f"{counted(unlabelled, 'pair')} without a label (undecided, an error, not yet): not judged"
        )
    return building.done(named(path), path, wanted.language or next(iter(languages), "python"))
