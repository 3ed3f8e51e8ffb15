"""Training data: labelled pairs of queries and snippets, and the held-out queries that they must not contain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from sys import intern
from typing import Literal, NamedTuple

from agent.corpus.describe import LICENCE, SOURCE, get_name
from agent.corpus.labelled import LabelledPair, read_labelled
from agent.corpus.near_duplicates import cluster, shingle_query
from agent.datasets.benchmark import Benchmark
from agent.datasets.benchmarks.pairs import find_part_files, is_split
from agent.datasets.benchmarks.registry import read_columns
from agent.datasets.benchmarks.triples import is_triples
from agent.datasets.encoding import dumps
from agent.datasets.fields import FieldMap, Fields
from agent.datasets.formats import strip_suffixes
from agent.datasets.mutants import MUTANT
from agent.errors import UsageError
from agent.languages.base import Language
from agent.retrieval.benchmark import includes_codes, open_benchmark
from agent.retrieval.code_views import find_language, split_docstring
from agent.runs.store import files
from agent.text import plural
from agent.training.contrasts import Contrasts, read_contrast_data
from agent.types import Pair, Progress, normalise_language


class TrainingPair(NamedTuple):
    """A pair with its label, 1 or 0. `query` and `code` are positions in the texts of `TrainingData`."""

    query: int
    code: int
    label: int


@dataclass(frozen=True)
class TrainingData:
    """Pairs to train on, without undecided pairs.

    `queries` and `codes` are distinct texts of these pairs. `languages` has the language of each snippet. Queries
    with equal `query_groups` are near duplicates, and so are snippets with equal `code_clusters`. `proved` has the
    queries and snippets of pairs whose label 0 was decided by a test or by the check of a mutant. `validation` selects
    the best epoch. The queries of `validation` and `tests` are held out. `labels` counts the distinct pairs that were
    read (`1`, `0`, `undecided`). `sources` and `licences` count `pairs` by their name or `missing`. `sha256` is the
    hash of the pairs with their labels and languages, and of the contrasts, in order.
    """

    name: str
    queries: Sequence[str] = field(repr=False)
    codes: Sequence[str] = field(repr=False)
    pairs: Sequence[TrainingPair] = field(repr=False)
    languages: Sequence[str] = field(repr=False)
    query_groups: Sequence[int] = field(repr=False)
    code_clusters: Sequence[int] = field(repr=False)
    validation: Benchmark | None = None
    tests: Sequence[Benchmark] = ()
    labels: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, int] = field(default_factory=dict)
    licences: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""
    notes: Sequence[str] = ()
    proved: Collection[tuple[int, int]] = field(default=frozenset(), repr=False)
    contrasts: Contrasts | None = None


def read_training_data(
    path: Path,
    *,
    pairs: Literal["labels", "docstrings"] = "labels",
    mapping: FieldMap = None,
    codes: Sequence[str] = (),
    language: str | None = None,
    validation: Path | None = None,
    tests: Sequence[Path] = (),
    contrast: Path | None = None,
    excluded: Collection[str] = (),
    progress: Progress,
) -> TrainingData:
    """Read the pairs to train on, and open the held-out benchmarks.

    `path` is a run, a table of pairs, a folder of `agent corpus split` or a benchmark. A split folder trains on
    `train`, validates on `validation` unless another benchmark is passed, and holds out `test`. All others train on all
    pairs. Grades of 1 or more become label 1. Equal pairs are merged. If their labels differ, the pair is undecided.
    With `docstrings`, the pairs are made from the docstrings of functions, and `path` may also be a file of snippets.

    A folder of `agent corpus stackexchange` is a benchmark in one language only. Without `language`, each held-out part
    is therefore read as a table of pairs, and only its own snippets are searched.

    Args:
        mapping: names of the fields of tables of pairs, in `path` and in held-out benchmarks.
        codes: files (or glob patterns) with the snippets of the benchmarks that store them separately.
        language: language of the pairs and contrasts to train on, and of the held-out benchmarks.
        contrast: file of `agent corpus mutate` with right code and mutants.
        excluded: queries and snippets whose pairs and contrasted functions are left out, with a note.

    Raises:
        UsageError: there is no pair with label 1, in training or in a held-out benchmark, a split folder has no
            training part, or no benchmark needs `codes`.
        InputError, RunFolderError, ExtraMissing: see `open_benchmark` and `read_labelled`.
    """
    language = language and normalise_language(language)
    unused_codes = list(codes)
    notes = list[str]()

    def open_path(path: Path, split: str | None = None) -> Benchmark:
        if needs_codes := not includes_codes(path, mapping):
            unused_codes.clear()
        return open_benchmark(path, codes if needs_codes else (), language=language, split=split, mapping=mapping)

    parts = find_part_files(path) if is_split(path) else {"train": path}
    if "train" not in parts:
        raise UsageError(f"{path}: has no table of pairs for train. Pass a file or a run instead.")
    is_table = language is None and is_triples(path)
    held_out = {
        part: open_path(file) if is_table else open_path(path, part) for part, file in parts.items() if part != "train"
    }
    if validation is not None:
        held_out["validation"] = open_path(validation, "validation" if is_split(validation) else None)
    benchmarks = [*(held_out[part] for part in held_out if part == "test"), *map(open_path, tests)]
    for benchmark in (*held_out.values(), *benchmarks):
        if not any(grade > 0 for grades in benchmark.grades.values() for grade in grades.values()):
            raise UsageError(
                f"{benchmark.name}: has no relevant snippet, so scores cannot be computed. Add pairs with label 1."
            )
    items = _iterate_pairs(parts["train"], pairs, mapping, open_path, notes)
    if pairs == "docstrings":
        items = _make_docstring_pairs(items, notes)
    items = (item for item in items if language in (None, item.pair.language))
    if excluded:
        items = (item for item in items if item.pair.query not in excluded and item.pair.code not in excluded)
        notes.append(f"left out the pairs with {plural(len(excluded), 'held-out text')}")
    data = _build(path, items, notes, progress)
    if unused_codes:
        raise UsageError("--codes: no benchmark stores its snippets separately. Remove --codes.")
    data = replace(data, validation=held_out.get("validation"), tests=benchmarks)
    if contrast is None:
        return data
    contrasts = read_contrast_data(contrast, language, excluded, progress)
    digest = sha256(f"{data.sha256} {contrasts.record.sha256}".encode()).hexdigest()
    return replace(data, contrasts=contrasts, sha256=digest)


def _iterate_pairs(
    path: Path, kind: str, mapping: FieldMap, opener: Callable[[Path], Benchmark], notes: list[str]
) -> Iterator[LabelledPair]:
    """Iterate over labelled pairs. For docstrings, iterate over all snippets, whose query may be empty."""
    fields = Fields(mapping)
    columns = read_columns(path)
    is_run = (path / files.ANNOTATIONS).is_file()
    has_code = fields.has("code", columns)
    if is_run or (has_code and (kind == "docstrings" or fields.has("query", columns))):
        yield from read_labelled(path, mapping, codes_alone=kind == "docstrings")
    elif has_code:
        raise UsageError(
            f"{path}: has snippets without queries. To train on their docstrings, pass --pairs docstrings."
        )
    else:
        benchmark = opener(path)
        notes += benchmark.notes
        unlabelled = {"": dict.fromkeys(benchmark.codes, 1)}
        for query, grades in (benchmark.grades if kind == "labels" else unlabelled).items():
            for code, grade in grades.items():
                text = benchmark.queries.get(query, "")
                own = benchmark.codes[code]
                yield LabelledPair(Pair(id="", query=text, code=own, language=benchmark.language), int(grade > 0))


def _make_docstring_pairs(items: Iterable[LabelledPair], notes: list[str]) -> Iterator[LabelledPair]:
    skipped = Counter[str]()
    for pair in (item.pair for item in items):
        parts = split_docstring(pair.code, pair.language, pair.meta)
        if parts is None:
            is_known = type(find_language(pair.language)) is not Language
            skipped["that cannot be parsed" if is_known else "in other languages"] += 1
        elif parts[0]:
            yield LabelledPair(pair.model_copy(update={"query": parts[0], "code": parts[1]}), 1)
        else:
            skipped["that are not one function with a docstring"] += 1
    notes += [f"skipped {plural(count, 'snippet')} {reason}" for reason, count in skipped.items()]


def _build(path: Path, items: Iterable[LabelledPair], notes: Sequence[str], progress: Progress) -> TrainingData:
    """Merge equal pairs, number the texts, and find near duplicates."""
    merged = dict[tuple[str, str], int | None]()
    disputed = set[tuple[str, str]]()
    proved = set[tuple[str, str]]()
    origins = dict[tuple[str, str], tuple[str, str, str]]()
    for number, item in enumerate(items, start=1):
        key = intern(item.pair.query), intern(item.pair.code)
        meta = item.pair.meta
        label = merged.setdefault(key, item.label)
        if label is None:
            merged[key] = item.label
        elif item.label is not None and item.label != label:
            disputed.add(key)
        if _is_proved_wrong(item):
            proved.add(key)
        origins.setdefault(key, (item.pair.language, get_name(meta, SOURCE), get_name(meta, LICENCE)))
        if number % 1000 == 0:
            progress("reading pairs", number, None)
    labels = {key: label for key, label in merged.items() if label is not None and key not in disputed}
    by_label = {"1": (ones := sum(labels.values())), "0": len(labels) - ones, "undecided": len(merged) - len(labels)}
    if not ones:
        reasons = "; ".join([*(f"{name}: {count:,}" for name, count in by_label.items()), *notes])
        raise UsageError(f"{path}: has no pair with label 1, so there is nothing to learn ({reasons}).")
    queries = dict[str, int]()
    codes = dict[str, int]()
    digest = sha256()
    pairs = list[TrainingPair]()
    languages = list[str]()
    for (query, code), label in labels.items():
        language = origins[query, code][0]
        languages += [] if code in codes else [language]
        numbers = queries.setdefault(query, len(queries)), codes.setdefault(code, len(codes))
        pairs.append(TrainingPair(*numbers, label))
        digest.update(dumps([query, code, label, language]) + b"\n")
    return TrainingData(
        name=strip_suffixes(path),
        queries=list(queries),
        codes=list(codes),
        pairs=pairs,
        languages=languages,
        query_groups=cluster(queries, len(queries), progress, shingle_query),
        code_clusters=cluster(codes, len(codes), progress),
        proved={(queries[query], codes[code]) for query, code in proved & labels.keys()},
        labels=by_label,
        sources=dict(Counter(origins[pair][1] for pair in labels).most_common()),
        licences=dict(Counter(origins[pair][2] for pair in labels).most_common()),
        sha256=digest.hexdigest(),
        notes=notes,
    )


def _is_proved_wrong(item: LabelledPair) -> bool:
    """Return whether a failed test, or the check of a mutant, decided a label 0."""
    test = item.observation.annotation.test if item.observation else None
    has_evidence = isinstance(item.pair.meta.get(MUTANT), dict) or (test is not None and test.says == 0)
    return item.label == 0 and has_evidence
