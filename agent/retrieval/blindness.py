"""Measures blindness: how often a searcher prefers right code to a mutant of it, and whether that depends on the query.

A searcher can learn what mutated code looks like, and then prefers right code under any query. Each contrast is
therefore also scored under wrong queries, which belong to other functions.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from agent.datasets.mutants import Contrast, read_contrasts
from agent.errors import InputError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.evaluation.statistics import DEFAULTS, LEVEL, BootstrapSettings, ClusterBootstrap, divide
from agent.retrieval.code_views import find_language
from agent.retrieval.folder import BLINDNESS, EMBEDDINGS, RetrievalFolder
from agent.retrieval.results import Blindness, BlindnessFigures, MetricValue, SearcherBlindness
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.known_models import remove_folder
from agent.retrieval.searchers.presets import EmbedderOptions, restore_options
from agent.retrieval.searchers.registry import make_searcher
from agent.runs.store.files import write_document
from agent.runs.store.manifest import as_json, list_differences
from agent.text import one_line, plural
from agent.types import Progress

WRONG_QUERIES = 8
"""Maximum number of wrong queries per function."""
_TIE = 1e-6
"""Scores that differ by at most this tie. Vectors of equal tokens can have different rounding errors."""


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of one searcher. `truncated_ties` is that of `SearcherBlindness`.

    `values` has a row per contrast: 1 if the right code scores above the mutant, ½ for a tie, otherwise 0. The second
    column has the mean over the wrong queries.
    """

    values: np.ndarray[Any, Any]
    truncated_ties: int | None


@dataclass(frozen=True)
class ContrastSet:
    """Contrasts, and the wrong queries of each contrast in the same order.

    `equivalent` is the number of mutants that were excluded because they equal right code of their query.
    """

    contrasts: Sequence[Contrast]
    wrong_queries: Sequence[Sequence[str]]
    equivalent: int


def read_contrast_set(path: Path, seed: int) -> ContrastSet:
    """Read a file of mutants, and draw wrong queries.

    Raises:
        InputError: see `read_contrasts`. Also raised if no mutant can be used, and if code is not formatted as mutants
            are, because formatting would then tell right from wrong.
    """
    contrasts, is_formatted = list(read_contrasts(path)), cache(_is_formatted)
    for contrast in contrasts:
        if not all(is_formatted(contrast.language, code) for code in (contrast.right, contrast.wrong)):
            place = f"{contrast.function!r:.80} or its mutant ({one_line(contrast.mutant.change)})"
            problem = "is not formatted as `agent corpus mutate` writes code, so formatting would tell right from wrong"
            raise InputError(f"the code of {place} {problem}. Write the file with that command", path=path)
    right = {(contrast.query, contrast.right) for contrast in contrasts}
    different = [contrast for contrast in contrasts if (contrast.query, contrast.wrong) not in right]
    wrong_queries = draw_wrong_queries(different, seed)
    if not different or not all(wrong_queries):
        raise InputError(
            "needs mutants that differ from the right code, of functions with different queries", path=path
        )
    return ContrastSet(different, wrong_queries, len(contrasts) - len(different))


def _is_formatted(language: str, code: str) -> bool:
    try:
        return find_language(language).reformat(code) == code
    except ValueError:
        return False


def draw_wrong_queries(contrasts: Sequence[Contrast], seed: int) -> list[Sequence[str]]:
    """Draw at most `WRONG_QUERIES` queries of other functions for each contrast.

    Contrasts with the same query and right code have the same wrong queries. A wrong query and the contrast's query
    share at most half of their distinct words.
    """
    queries_of = defaultdict[str, set[str]](set)
    for contrast in contrasts:
        queries_of[contrast.right].add(contrast.query)
    queries = sorted(set().union(*queries_of.values()))
    words = {query: set(re.findall(r"\w+", query.lower())) for query in queries}

    def is_similar(first: str, second: str) -> bool:
        return 2 * len(words[first] & words[second]) > len(words[first] | words[second])

    @cache
    def draw(query: str, right: str) -> Sequence[str]:
        shuffled = random.Random(repr((seed, query, right))).sample(queries, len(queries))
        others = (other for other in shuffled if other not in queries_of[right] and not is_similar(query, other))
        return tuple(islice(others, WRONG_QUERIES))

    return [draw(contrast.query, contrast.right) for contrast in contrasts]


def compare_snippets(searcher: Searcher, contrast_set: ContrastSet, progress: Progress) -> Outcomes:
    """Index all snippets, and compare the scores of right code and mutants under each query.

    A snippet that the searcher does not retrieve scores below all others. Snippets that are equal up to the model's
    limit are indexed once, so they tie in any precision.

    Raises:
        ExtraMissing, UsageError, StorageError, RunStopped: see `Searcher`.
    """
    contrasts, wrong_queries = contrast_set.contrasts, contrast_set.wrong_queries
    codes = list(dict.fromkeys(code for contrast in contrasts for code in (contrast.right, contrast.wrong)))
    beginnings = getattr(searcher, "truncate", lambda _: None)(codes)
    beginning_of = dict(zip(codes, beginnings or codes, strict=True))
    code_of = {beginning: code for code, beginning in beginning_of.items()}
    rows = {beginning: row for row, beginning in enumerate(code_of)}
    row_of = {code: rows[beginning] for code, beginning in beginning_of.items()}
    right, wrong = np.array([(row_of[contrast.right], row_of[contrast.wrong]) for contrast in contrasts]).T
    searcher.index(list(code_of.values()), progress)
    uses = defaultdict[str, tuple[list[int], list[int]]](lambda: ([], []))  # the contrasts under a right or wrong query
    for number, (contrast, others) in enumerate(zip(contrasts, wrong_queries, strict=True)):
        uses[contrast.query][0].append(number)
        for other in others:
            uses[other][1].append(number)
    values = np.zeros((len(contrasts), 2))
    results = searcher.search(list(uses), len(codes), progress)
    for done, (numbers, result) in enumerate(zip(uses.values(), results, strict=True), 1):
        scores = np.full(len(rows), -np.inf)
        scores[result.positions] = result.scores
        ties = np.isclose(scores[right], scores[wrong], rtol=0, atol=_TIE)
        outcomes = np.where(ties, 0.5, scores[right] > scores[wrong])
        for column in (0, 1):
            values[numbers[column], column] += outcomes[numbers[column]]
        progress("searching", done, len(uses))
    values[:, 1] /= list(map(len, wrong_queries))
    return Outcomes(values, None if beginnings is None else int((right == wrong).sum()))


def summarise_outcomes(
    contrasts: Sequence[Contrast], outcomes: Mapping[str, Outcomes], settings: BootstrapSettings
) -> Iterator[SearcherBlindness]:
    """Compute the figures of all searchers. Intervals are clustered by right code.

    Raises:
        ExtraMissing: NumPy is not installed.
    """
    bootstrap = ClusterBootstrap([contrast.right for contrast in contrasts], settings)

    def measure(column: np.ndarray[Any, Any]) -> MetricValue:
        return MetricValue(mean=float(column[0]), interval=bootstrap.percentile_interval(column[1:]))

    def summarise(used: Sequence[bool]) -> list[BlindnessFigures]:
        """Return the figures of each searcher for some contrasts. The first row of an array has the means."""
        mask = np.array(used, dtype=float)[:, None]
        table = mask * np.hstack([np.ones_like(mask), *(own.values for own in outcomes.values())])
        sums = np.vstack([table.sum(axis=0), bootstrap.resample_sums(list(table), table.shape[1])])
        right, wrong = divide(sums[:, 1::2], sums[:, :1]), divide(sums[:, 2::2], sums[:, :1])
        gaps = right - np.maximum(0.5, wrong)
        return [
            BlindnessFigures(
                contrasts=sum(used),
                functions=len({contrast.right for contrast, use in zip(contrasts, used, strict=True) if use}),
                accuracy=measure(right[:, i]),
                wrong_query_accuracy=measure(wrong[:, i]),
                gap=measure(gaps[:, i]),
                gap_difference=measure(gaps[:, i] - gaps[:, 0]) if i else None,
            )
            for i in range(len(outcomes))
        ]

    total = summarise([True] * len(contrasts))
    groups = {"all except crashes": [not contrast.mutant.crashes for contrast in contrasts]}
    for kind in sorted({contrast.mutant.kind for contrast in contrasts}):
        groups[kind] = [contrast.mutant.kind == kind for contrast in contrasts]
    by_group = {name: summarise(used) for name, used in groups.items() if any(used)}
    for i, (name, own) in enumerate(outcomes.items()):
        yield SearcherBlindness(
            searcher=name,
            ties=int((own.values[:, 0] == 0.5).sum()),
            truncated_ties=own.truncated_ties,
            total=total[i],
            groups={group: figures[i] for group, figures in by_group.items()},
        )


def restore_searcher(folder: RetrievalFolder, name: str, options: EmbedderOptions) -> Searcher:
    """Create the searcher that computed a ranking. `options` are those for access to models.

    `name` may have the folder of a known model, such as `minilm:FOLDER`, which rankings do not record.

    Raises:
        UsageError: the searcher is no longer the same, for example because its model has changed.
        ConfigError, ExtraMissing: see `make_searcher`.
    """
    recorded = folder.rankings[remove_folder(name)].settings
    options = replace(restore_options(options, recorded), embeddings=folder.path / EMBEDDINGS)
    searcher = make_searcher(name, options)
    # scores on different devices differ only by rounding errors
    before, now = ({**settings, "device": None} for settings in (recorded, as_json(searcher.settings)))
    if lines := list_differences(before, now):
        raise UsageError(
            f"{name} is not the searcher that ranked snippets in {folder.path} ({'; '.join(lines)}). Run it again with "
            "`agent retrieval run`, or name the searchers to measure with --searcher."
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
    """Measure the blindness of the searchers in a folder, or only of `searchers`, and write the result.

    Vectors are stored in the folder, so an interrupted command resumes. Imported rankings are skipped with a note. The
    caller must hold the lock.

    Raises:
        UsageError: a searcher is unknown or no longer the same, there is no searcher to run, or the file is not usable.
        ExtraMissing, StorageError, RunStopped: see `Searcher`.
    """
    selected = list(dict.fromkeys(searchers or folder.rankings))
    folder.check_searchers([*map(remove_folder, selected)])
    names = [name for name in selected if folder.rankings[remove_folder(name)].kind == "searched"]
    notes = [f"{name} was imported and cannot be run" for name in selected if name not in names]
    if not names:
        raise UsageError(f"{folder.path} has no searcher that can be run. Add one with: agent retrieval run")
    restored = [restore_searcher(folder, name, options or EmbedderOptions()) for name in names]
    contrast_set, outcomes = read_contrast_set(path, settings.seed), {}
    if few := sum(len(queries) < WRONG_QUERIES for queries in contrast_set.wrong_queries):
        notes.append(f"{plural(few, 'contrast')} with fewer than {WRONG_QUERIES} wrong queries")
    while restored:  # frees each model before the next one is loaded
        searcher = restored.pop(0)

        def report(step: str, done: int, total: int | None, name: str = searcher.name) -> None:
            progress(f"{name}: {step}", done, total)

        outcomes[searcher.name] = compare_snippets(searcher, contrast_set, report)
        notes += [f"{searcher.name}: {note}" for note in getattr(searcher, "notes", ())]
    blindness = Blindness(
        benchmark=folder.about["name"],
        queries=len({contrast.query for contrast in contrast_set.contrasts}),
        level=LEVEL,
        seed=settings.seed,
        resamples=settings.resamples,
        notes=tuple(notes),
        mutants=path.name,
        equivalent=contrast_set.equivalent,
        searchers=tuple(summarise_outcomes(contrast_set.contrasts, outcomes, settings)),
    )
    write_document(folder.path / BLINDNESS, blindness)
    return blindness
