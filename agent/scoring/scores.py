"""How labels compare with gold, with intervals that count queries rather than pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from agent.scoring.measures import CELLS, FORMULAS, Confusion, cell, measures, wilson_intervals
from agent.stats.bootstrap import ClusterBootstrap
from agent.stats.intervals import Interval
from agent.types import Frozen


class Scores(Frozen):
    """What labels are worth, on the pairs that have gold and were given to the annotator.

    A value that is undefined (precision where nothing was labelled 1) is None. A label of null is wrong in `accuracy`,
    missed in `recall` and `f1` where gold is 1, and left out of `selective_accuracy`, `kappa` and `alpha`.

    `wilson` has an interval for each share that is defined (it takes pairs for independent), `bootstrap` one over
    queries for each measure: None where resampling tells nothing (`ClusterBootstrap.percentiles`).

    `queries` counts clusters; each of the `without_query` pairs whose query is not known is a cluster of its own.
    `gold_only` pairs have gold and no line in the labels, `predicted_only` the other way round; both are left out.
    """

    pairs: int
    labelled: int
    confusion: Confusion
    coverage: float | None
    accuracy: float | None
    selective_accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    kappa: float | None
    alpha: float | None
    wilson: dict[str, Interval]
    bootstrap: dict[str, Interval | None]
    queries: int
    without_query: int
    gold_only: int
    predicted_only: int
    seed: int
    resamples: int
    level: float


def score(
    predicted: Mapping[str, int | None],
    gold: Mapping[str, int],
    queries: Mapping[str, str],
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
) -> Scores:
    """Compare labels (0, 1 or None) with gold (0 or 1), both by id; `queries` tells which pairs belong together.

    Raises:
        ValueError: a label that is neither 0 nor 1, no resample, or a level outside 0 to 1.
        ExtraMissing: NumPy or SciPy is not installed.
    """
    ids = [pair for pair in gold if pair in predicted]
    cells = [cell(predicted[pair], gold[pair]) for pair in ids]
    resampling = ClusterBootstrap(cluster_names(ids, queries), seed=seed, resamples=resamples, level=level)
    confusion = Confusion(**Counter(cells))
    return Scores(
        pairs=confusion.pairs,
        labelled=confusion.labelled,
        confusion=confusion,
        **measures(confusion),
        wilson=wilson_intervals(confusion, level),
        bootstrap=_bootstrap(cells, resampling),
        queries=resampling.clusters,
        without_query=sum(pair not in queries for pair in ids),
        gold_only=len(gold) - len(ids),
        predicted_only=sum(pair not in gold for pair in predicted),
        seed=seed,
        resamples=resamples,
        level=level,
    )


def cluster_names(ids: Iterable[str], queries: Mapping[str, str]) -> list[str]:
    """Return the cluster of each pair: its query, or the pair alone where that is not known."""
    # two kinds of names that cannot meet, so that an id which is also a query's text joins no cluster
    return [f"query {queries[pair]}" if pair in queries else f"pair {pair}" for pair in ids]


def _bootstrap(cells: list[str], resampling: ClusterBootstrap) -> dict[str, Interval | None]:
    if not cells:
        return dict.fromkeys(FORMULAS)
    sums = resampling.sums([[int(name == each) for name in CELLS] for each in cells])
    counts = Confusion(**{name: sums[:, column] for column, name in enumerate(CELLS)})
    return {name: resampling.percentiles(formula(counts)) for name, formula in FORMULAS.items()}
