"""Opens published benchmarks and annotation runs, so that searchers can be evaluated on them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRequest, BenchmarkRow, OnUnknownId, read_rows
from agent.datasets.benchmarks.registry import find_format, read_benchmark
from agent.datasets.fields import FieldMap
from agent.datasets.formats import expand_patterns
from agent.errors import UsageError
from agent.evaluation.tally import iterate_annotated_pairs, merge_rounds
from agent.runs.store import files
from agent.runs.store.reviews import read_verdicts
from agent.runs.store.run_view import load_run
from agent.text import plural
from agent.types import normalise_language


def open_benchmark(
    path: str | Path,
    codes: Iterable[str | Path] = (),
    *,
    language: str | None = None,
    split: str | None = None,
    with_generated: bool = False,
    mapping: FieldMap = None,
    own_ids: bool = False,
    on_unknown_id: OnUnknownId = "fail",
) -> Benchmark:
    """Open a published benchmark or an annotation run. The format is detected from the content.

    Args:
        codes: files (or glob patterns) that contain the snippets to search, for formats that store snippets separately.
            For a run, these snippets are added to those in the run.
        language: language of the snippets. Required if a run or folder contains several languages. Defaults to the only
            language in the benchmark, or to Python.
        split: split to read from a BEIR folder or a folder of `agent corpus`. Defaults to `test`, or to all files
            if a BEIR folder has no judgements.
        with_generated: include all generated code. By default, a reviewer must have confirmed it.
        mapping: names of the fields of a table of pairs, as in `read_pairs`.
        own_ids: identify the queries and snippets of pairs by the ids of the pairs. By default, they are numbered.
        on_unknown_id: whether a grade of an unknown query or snippet is an error (`fail`) or is left out (`skip`).

    Raises:
        UsageError: a required argument is missing, or an argument does not apply to the format.
        InputError: the format is unknown, or a file is malformed.
        RunFolderError: the run folder is damaged.
        ExtraMissing: the libraries for a file's format are not installed.
    """
    path = Path(path)
    language = language and normalise_language(language)
    files_with_codes = tuple(expand_patterns(codes))
    request = BenchmarkRequest(files_with_codes, language, split, with_generated, mapping, own_ids, on_unknown_id)
    return _read_run(path, request) if (path / files.ANNOTATIONS).is_file() else read_benchmark(path, request)


def includes_codes(path: Path, mapping: FieldMap = None) -> bool:
    """Return whether a benchmark includes its snippets, so that `open_benchmark` needs no `codes`.

    Raises:
        InputError, ExtraMissing: see `open_benchmark`.
    """
    return (path / files.ANNOTATIONS).is_file() or not find_format(path, mapping)[0].codes


def _read_run(path: Path, request: BenchmarkRequest) -> Benchmark:
    """Read a run as a benchmark. Snippets with label 1 are relevant, and snippets with label 0 are not.

    A pair without a label is unjudged. If a run has several rounds, the majority label is used. Identical queries are
    merged, and so are identical snippets. Ids are assigned in input order: `q1`, `q2`, … for queries and `c1`, `c2`, …
    for snippets. With `own_ids`, they are the ids of the first pairs with the query and with the snippet.
    """
    builder, languages, unlabelled = BenchmarkBuilder(path, request, lists_pairs=True), dict[str, None](), 0
    queries, codes = dict[str, str](), dict[str, str]()
    with load_run(path) as view:
        labels = {pair.id: merge_rounds(rounds).annotation.label for pair, rounds in iterate_annotated_pairs(view)}
        confirmed = {pair for pair, review in read_verdicts(path / files.REVIEWS).items() if review.label == 1}
        for number, pair in enumerate(view.pairs(), start=1):
            if not builder.includes(pair.meta | ({"reviewed": True} if pair.id in confirmed else {})):
                continue
            languages[pair.language] = None
            if request.language not in (None, pair.language):
                continue
            own_id = pair.id if request.own_ids else ""
            query = queries.setdefault(pair.query, own_id or f"q{len(queries) + 1}")
            code = codes.setdefault(pair.code, own_id or f"c{len(codes) + 1}")
            builder.queries[query], builder.codes[code] = pair.query, pair.code
            if (label := labels.get(pair.id)) is None:
                unlabelled += 1
            else:
                builder.add_grade(query, code, label, BenchmarkRow({}, path / files.INPUT, number))
    if len(languages) > 1 and request.language is None:
        raise UsageError(f"{path} has pairs in several languages: {', '.join(languages)}. Choose one with --language.")
    for file in request.codes:
        for row in read_rows(file):
            code = codes.setdefault(row.get_text("code"), f"c{len(codes) + 1}")
            builder.codes[code] = row.get_text("code")
    if unlabelled:
        reasons = "undecided, failed, pending or without search intent"
        builder.notes.append(f"not judged: {plural(unlabelled, 'pair')} without a label ({reasons})")
    builder.language = request.language or next(iter(languages), "python")
    return builder.build()
