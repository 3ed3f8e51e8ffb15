"""Measures blindness: how often a searcher prefers right code to a mutant of it, and whether that depends on the query.

A searcher can learn what mutated code looks like, and then prefers right code under any query. Each contrast is
therefore also scored under wrong queries, which belong to other functions.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from agent.datasets.mutants import Contrast, read_contrasts
from agent.errors import InputError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, ClusterBootstrap, divide
from agent.languages.base import CodeView
from agent.retrieval.code_views import FULL, find_language
from agent.retrieval.folder import BLINDNESS, EMBEDDINGS, RetrievalFolder, write_json
from agent.retrieval.results import Blindness, BlindnessFigures, MetricValue, SearcherBlindness
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.presets import EmbedderOptions, restore_options
from agent.retrieval.searchers.registry import make_searcher
from agent.runs.store.manifest import as_json, list_differences
from agent.text import one_line, plural
from agent.types import Progress

WRONG_QUERIES = 8
"""Maximum number of wrong queries per function."""
_TIE = 1e-6
"""Scores that differ by at most this tie, because vectors of equal tokens can have different rounding errors."""


@dataclass(frozen=True)
class ContrastSet:
    """Contrasts, with the wrong queries of each contrast in the same order.

    `equivalent` is the number of mutants that were excluded because they equal right code of their query.
    """

    contrasts: Sequence[Contrast]
    wrong_queries: Sequence[Sequence[str]]
    equivalent: int


def read_contrast_set(path: Path, seed: int) -> ContrastSet:
    """Read a file of mutants, exclude mutants that equal right code, and draw wrong queries.

    Raises:
        InputError: see `read_contrasts`. Also raised if code is not formatted as mutants are, because formatting would
            then tell the mutant, and if all mutants are excluded.
        UsageError: a function has no wrong query.
    """
    contrasts, right = list(read_contrasts(path)), defaultdict[str, set[str]](set)
    check = cache(_is_formatted)
    for contrast in contrasts:
        right[contrast.query].add(contrast.right)
        if not (check(contrast.language, contrast.right) and check(contrast.language, contrast.wrong)):
            raise InputError(
                f"the code of {contrast.function!r:.80} or its mutant ({one_line(contrast.mutant.change)}) is not "
                "formatted as `agent corpus mutate` writes code, so formatting would tell right from wrong. Write the "
                "file again with that command",
                path=path,
            )
    different = [contrast for contrast in contrasts if contrast.wrong not in right[contrast.query]]
    if not different:
        raise InputError("every mutant equals right code of its query", path=path)
    wrong_queries = draw_wrong_queries(different, seed)
    if not all(wrong_queries):
        raise InputError("contains too few different queries. Pass a file with mutants of other functions", path=path)
    return ContrastSet(different, wrong_queries, len(contrasts) - len(different))


def _is_formatted(language: str, code: str) -> bool:
    try:
        return find_language(language).reformat(code) == code
    except ValueError:
        return False


def draw_wrong_queries(contrasts: Sequence[Contrast], seed: int) -> list[Sequence[str]]:
    """Draw at most `WRONG_QUERIES` queries for each contrast. Contrasts of one function and query have the same ones.

    The queries belong to other functions, and share at most half of their words (of both queries together) with the
    own query.
    """
    queries_of = defaultdict[str, set[str]](set)
    for contrast in contrasts:
        queries_of[contrast.right].add(contrast.query)
    queries = sorted(set().union(*queries_of.values()))
    words = {query: frozenset(re.findall(r"\w+", query.lower())) for query in queries}

    def is_similar(first: str, second: str) -> bool:
        return 2 * len(words[first] & words[second]) > len(words[first] | words[second])

    @cache
    def draw(query: str, right: str) -> Sequence[str]:
        shuffled = random.Random(f"{seed}\0{query}\0{right}").sample(queries, len(queries))
        others = (other for other in shuffled if other not in queries_of[right] and not is_similar(query, other))
        return tuple(islice(others, WRONG_QUERIES))

    return [draw(contrast.query, contrast.right) for contrast in contrasts]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of one searcher.

    `values` has one row per contrast. The first column is 1 if the right code scores above the mutant, ½ for a tie, and
    0 otherwise. The second column is the mean of the same value under the wrong queries. See `SearcherBlindness` for
    `truncated_ties`.
    """

    values: np.ndarray[Any, Any]
    truncated_ties: int | None


def compare_snippets(searcher: Searcher, contrasts: ContrastSet, code_view: str, progress: Progress) -> Outcomes:
    """Index all snippets of a set, and compare the scores of right code and mutants under each query.

    A snippet that a searcher does not retrieve scores below all others. Snippets that are equal up to the model's limit
    are indexed once, so they tie regardless of rounding errors.

    Raises:
        UnsupportedLanguage: a language does not support the view.
        ExtraMissing, UsageError, StorageError, RunStopped: see `Searcher`.
    """
    pairs = [[_apply_view(c.language, code, code_view) for code in (c.right, c.wrong)] for c in contrasts.contrasts]
    codes = list(dict.fromkeys(code for pair in pairs for code in pair))
    truncate = getattr(searcher, "truncate", None)
    beginnings = None if truncate is None else truncate(codes)
    code_of = dict(zip(beginnings or codes, codes, strict=True))
    rows = {beginning: row for row, beginning in enumerate(code_of)}
    row_of = {code: rows[beginning] for code, beginning in zip(codes, beginnings or codes, strict=True)}
    right, wrong = np.array([[row_of[code] for code in pair] for pair in pairs]).T
    searcher.index(list(code_of.values()), progress)
    own, foreign = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    for number, (contrast, others) in enumerate(zip(contrasts.contrasts, contrasts.wrong_queries, strict=True)):
        own[contrast.query].append(number)
        for other in others:
            foreign[other].append(number)
    values = np.zeros((len(pairs), 2))
    for done, (query, result) in enumerate(zip(own, searcher.search(list(own), len(codes), progress), strict=True), 1):
        scores = np.full(len(rows), -np.inf)
        scores[result.positions] = result.scores
        tie = np.isclose(scores[right], scores[wrong], rtol=0, atol=_TIE)
        outcomes = np.where(tie, 0.5, scores[right] > scores[wrong])
        for column, numbers in enumerate((own[query], foreign[query])):
            values[numbers, column] += outcomes[numbers]
        progress("searching", done, len(own))
    values[:, 1] /= list(map(len, contrasts.wrong_queries))
    truncated = sum(first != second and row_of[first] == row_of[second] for first, second in pairs)
    return Outcomes(values, None if beginnings is None else truncated)


def _apply_view(language: str, code: str, view: str) -> str:
    extracted = code if view == FULL else find_language(language).extract_view(code, cast(CodeView, view))
    return code if extracted is None else extracted


def summarise_outcomes(
    contrasts: Sequence[Contrast], outcomes: Mapping[str, Outcomes], settings: BootstrapSettings
) -> tuple[SearcherBlindness, ...]:
    """Compute the figures of all searchers, in total and by kind of change. Intervals are clustered by right code.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    bootstrap = ClusterBootstrap([contrast.right for contrast in contrasts], settings)
    kinds = np.array([contrast.mutant.kind for contrast in contrasts])
    crashes = np.array([contrast.mutant.crashes for contrast in contrasts])

    def summarise(mask: np.ndarray[Any, Any]) -> list[BlindnessFigures]:
        """Return the figures of each searcher for some of the contrasts. The first row of an array is the mean."""
        table = np.column_stack([mask, *(mask[:, None] * own.values for own in outcomes.values())]).astype(float)
        sums = np.vstack([table.sum(axis=0), bootstrap.resample_sums(list(table), table.shape[1])])
        means = divide(sums[:, 1:], sums[:, :1])
        gaps = means[:, ::2] - np.maximum(0.5, means[:, 1::2])

        def build(column: np.ndarray[Any, Any]) -> MetricValue:
            return MetricValue(mean=float(column[0]), interval=bootstrap.percentile_interval(column[1:]))

        return [
            BlindnessFigures(
                contrasts=int(mask.sum()),
                functions=len({contrast.right for contrast, used in zip(contrasts, mask, strict=True) if used}),
                accuracy=build(means[:, 2 * i]),
                wrong_query_accuracy=build(means[:, 2 * i + 1]),
                gap=build(gaps[:, i]),
                gap_difference=build(gaps[:, i] - gaps[:, 0]) if i else None,
            )
            for i in range(len(outcomes))
        ]

    total = summarise(np.ones(len(contrasts), dtype=bool))
    without_crashes = summarise(~crashes) if not crashes.all() else [None] * len(outcomes)
    by_kind = {kind: summarise(kinds == kind) for kind in sorted(set(kinds.tolist()))}
    return tuple(
        SearcherBlindness(
            searcher=name,
            ties=int((own.values[:, 0] == 0.5).sum()),
            truncated_ties=own.truncated_ties,
            total=total[i],
            without_crashes=without_crashes[i],
            kinds={kind: figures[i] for kind, figures in by_kind.items()},
        )
        for i, (name, own) in enumerate(outcomes.items())
    )


def restore_searcher(folder: RetrievalFolder, name: str, options: EmbedderOptions) -> Searcher:
    """Create the searcher that computed a ranking. `options` has the server, and whether custom code is trusted.

    Raises:
        UsageError: the searcher is no longer the same, for example because its model has changed.
        ConfigError, ExtraMissing: see `make_searcher`.
    """
    recorded = folder.rankings[name].settings
    searcher = make_searcher(name, restore_options(options, recorded))
    # scores on different devices differ only by rounding errors
    before, now = ({**settings, "device": None} for settings in (recorded, as_json(searcher.settings)))
    if lines := list_differences(before, now):
        indented = "".join(f"  {line}\n" for line in lines)
        raise UsageError(
            f"{name} is not the searcher that computed the ranking in {folder.path}:\n{indented}"
            "Run it again with `agent retrieval run`, or name the searchers to measure with --searcher."
        )
    return searcher


def update_blindness(
    folder: RetrievalFolder,
    path: Path,
    *,
    searchers: Sequence[str] = (),
    options: EmbedderOptions | None = None,
    settings: BootstrapSettings = DEFAULTS,
    progress: Progress = lambda *_: None,
) -> Blindness:
    """Measure the blindness of all searchers in a folder, or only of `searchers`, and write it.

    Vectors are stored in the folder, so an interrupted command can be repeated. Imported rankings are skipped with a
    note. The caller must hold the lock.

    Raises:
        UsageError: a searcher is unknown or no longer the same, there is no searcher to measure, or the file is not
            usable (see `read_contrast_set`).
        ExtraMissing, StorageError, RunStopped: see `Searcher`.
    """
    folder.check_searchers(searchers)
    selected = searchers or list(folder.rankings)
    names = [name for name in selected if folder.rankings[name].kind == "searched"]
    notes = [f"{name} was imported and cannot be run" for name in selected if name not in names]
    if not names:
        raise UsageError(f"{folder.path} has no searcher that can be run. Add one with: agent retrieval run")
    contrasts = read_contrast_set(path, settings.seed)
    embedder = EmbedderOptions(**{**vars(options or EmbedderOptions()), "embeddings": folder.path / EMBEDDINGS})
    restored = [restore_searcher(folder, name, embedder) for name in reversed(names)]
    outcomes = {}
    while restored:  # a model is freed before the next one is loaded
        searcher = restored.pop()

        def report(step: str, done: int, total: int | None, name: str = searcher.name) -> None:
            progress(f"{name}: {step}", done, total)

        outcomes[searcher.name] = compare_snippets(searcher, contrasts, folder.identity["code_view"], report)
        notes += [f"{searcher.name}: {note}" for note in getattr(searcher, "notes", ())]
    if few := sum(len(queries) < WRONG_QUERIES for queries in contrasts.wrong_queries):
        notes.append(f"{plural(few, 'contrast')} with fewer than {WRONG_QUERIES} wrong queries")
    blindness = Blindness(
        benchmark=folder.about["name"],
        queries=len({contrast.query for contrast in contrasts.contrasts}),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        notes=tuple(notes),
        mutants=path.name,
        contrasts=len(contrasts.contrasts),
        functions=len({contrast.right for contrast in contrasts.contrasts}),
        equivalent=contrasts.equivalent,
        wrong_queries=WRONG_QUERIES,
        code_view=folder.identity["code_view"],
        searchers=summarise_outcomes(contrasts.contrasts, outcomes, settings),
    )
    write_json(folder.path / BLINDNESS, blindness)
    return blindness
