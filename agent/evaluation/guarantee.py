"""Certifies a run's labels with the reviews of its sample, and records the result (`certificate.json`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from pydantic import Field

from agent.datasets.encoding import dumps
from agent.errors import UsageError
from agent.evaluation.certificate import (
    ALPHA,
    Bound,
    Calibration,
    Certificate,
    ErrorBound,
    ReviewedStrata,
    bound_anytime,
    bound_exactly,
    bound_prefix,
    calibrate,
    certify,
    combine_reviews,
    count_needed_reviews,
)
from agent.runs.store import files
from agent.runs.store.files import read_document, replacing
from agent.runs.store.reviews import iterate_reviews, read_reviews
from agent.runs.store.run_view import RunView
from agent.runs.store.samples import CERTIFIABLE, EVIDENCE, Draw, ReviewSample, is_stale, read_sample
from agent.runs.store.strata import Stratum, assign_cells, stratify
from agent.text import Figure, build_figure, build_table, plural
from agent.types import Frozen, majority

Method = Literal["exact", "anytime"]
_BOUNDS: Mapping[Method, Bound] = {"exact": bound_exactly, "anytime": bound_anytime}
MISSED = (0.1, 0.2, 0.3)
"""Shares of the errors that reviewers might miss, for which a bound is corrected."""
ASSUMPTIONS = (
    "The reviewed pairs are a simple random sample of the labelled pairs, in the order of the sample.",
    "The reviewers' labels are right.",
    "A pair without a verdict (undecided, tied or not reviewed blind) counts as wrong.",
    "The level was chosen before the reviews, and no other level was tested on this sample.",
    "The labels of the run are those that were reviewed (`strata_sha256`).",
)


@dataclass(frozen=True)
class ReviewedSample:
    """A sample with strata by evidence, and the reviews of a prefix of its order. `pending` pairs have no review."""

    sample: ReviewSample
    strata: tuple[Stratum, ...]
    reviewed: ReviewedStrata
    reviewers: tuple[str, ...]
    pending: int

    @property
    def alpha(self) -> float:
        """The error probability of this sample: each sample that was drawn earlier halves it."""
        return ALPHA / 2.0 ** (len(self.sample.draws) - 1)


class CertifiedStratum(Frozen):
    """The name of a stratum, its number of labels 0 and 1, and whether it is in the certified set."""

    name: str
    sizes: tuple[int, int]
    certified: bool


class Guarantee(Frozen):
    """A certificate, with all that is needed to check it.

    `certificate` bounds the wrong labels in the certified strata with the error probability `certificate.alpha`. All
    samples that were drawn so far have the error probability `alpha_of_all_draws` together.

    `exact` is the exact bound for the certified labels, if the method is another one and the sample is complete.

    `if_missed` contains the bound of the share of wrong labels if the reviewers miss the share of the errors in its
    key: U / (1 - m). `files` contains the SHA-256 of each exported file.
    """

    method: Method
    certificate: Certificate
    exact: ErrorBound | None
    alpha_of_all_draws: float
    strata: tuple[CertifiedStratum, ...]
    strata_sha256: str
    seed: int
    draws: tuple[Draw, ...]
    reviewers: tuple[str, ...]
    if_missed: dict[str, float]
    assumptions: tuple[str, ...] = ASSUMPTIONS
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def summary(self) -> str:
        """One sentence that says what is certified."""
        result, total = self.certificate, self.certificate.total
        if not result.strata:
            return f"No labels are certified at {result.level:.3g}."
        return (
            f"At most {total.share:.2%} of the {total.size:,} certified labels are wrong, with {1 - result.alpha:.4g} "
            f"confidence ({self.method} bound from {plural(total.reviewed, 'review')}, {total.wrong} wrong)."
        )


def read_reviewed_sample(run: RunView) -> ReviewedSample:
    """Read a run's sample with strata by evidence, and the verdicts on it.

    The verdict on a pair is the majority of the reviewers' first blind reviews. The verdicts end before the first pair
    in the sample's order that has no review.

    Raises:
        UsageError: the run has no such sample, or the sample, its reviews or the run were changed.
        RunFolderError: the reviews or the sample are damaged.
    """
    path = run.path / files.REVIEWS
    sample = read_sample(run.path / files.REVIEW_SAMPLE)
    if sample is None or sample.by != (EVIDENCE,):
        command = f"agent review {run.path} --sample 200 --stratify {EVIDENCE}{' --new-sample' * (sample is not None)}"
        raise UsageError(f"{run.path}: has no sample that can be certified. Draw one and review it: {command}")
    seen = {review.sample for review in iterate_reviews(path) if (review.sample or "").startswith(CERTIFIABLE)}
    listed = {draw.fingerprint for draw in sample.draws}
    if is_stale(sample, run.annotations()) or sample.fingerprint not in listed or seen - listed:
        raise UsageError(
            f"{run.path}: labels were added or changed since the sample was drawn, or the sample was edited. Nothing "
            f"can be certified. Restore {files.REVIEW_SAMPLE}, or draw another sample (agent review --new-sample)."
        )
    votes: dict[str, list[int | None]] = {review.id: [] for review in read_reviews(path)}
    blind = read_reviews(path, blind=True)
    for review in blind:
        votes[review.id].append(review.label)
    order = sample.shuffle_ids()
    verdicts = {pair_id: majority(votes[pair_id]) for pair_id in takewhile(votes.__contains__, order)}
    strata = stratify(assign_cells(run.annotations()))
    return ReviewedSample(
        sample=sample,
        strata=strata,
        reviewed=combine_reviews(strata, verdicts),
        reviewers=tuple(sorted({review.reviewer for review in blind if review.id in verdicts})),
        pending=sum(pair_id not in votes for pair_id in order),
    )


def require_complete(run: RunView, sample: ReviewedSample) -> None:
    """Raise UsageError if pairs of the sample are pending."""
    if sample.pending:
        raise UsageError(
            f"{run.path}: {plural(sample.pending, 'pair')} of the sample of {sample.sample.size:,} not reviewed yet. "
            "An exact bound is valid only for the planned sample. Review them, or use --until, which is always valid."
        )


def certify_run(run: RunView, level: float, method: Method) -> Guarantee:
    """Certify the labels of a run.

    Raises:
        UsageError: see `read_reviewed_sample`. Also raised if another level was tested on this sample, or if an exact
            bound is requested and pairs are pending.
        ExtraMissing: SciPy is not installed.
    """
    sample = read_reviewed_sample(run)
    if method == "exact":
        require_complete(run, sample)
    earlier = read_guarantee(run.path / files.CERTIFICATE)
    if earlier is not None and earlier.draws == sample.sample.draws and earlier.certificate.level != level:
        raise UsageError(
            f"{run.path}: this sample was tested at the level {earlier.certificate.level:g}. Another level would be a "
            "second test of it. Pass that level, or draw another sample (agent review --new-sample)."
        )
    result = certify(sample.reviewed, sample.sample.size, level, sample.alpha, _BOUNDS[method])
    complete = method != "exact" and not sample.pending and result.strata > 0
    return Guarantee(
        method=method,
        certificate=result,
        exact=bound_prefix(sample.reviewed, result.strata, None, sample.alpha / 3, bound_exactly) if complete else None,
        alpha_of_all_draws=2 * ALPHA - sample.alpha,
        strata=tuple(
            CertifiedStratum(name=stratum.name, sizes=sizes, certified=number < result.strata)
            for number, (stratum, sizes) in enumerate(zip(sample.strata, sample.reviewed.sizes, strict=True))
        ),
        strata_sha256=sample.sample.strata_sha256 or "",
        seed=sample.sample.seed,
        draws=sample.sample.draws,
        reviewers=sample.reviewers,
        if_missed={f"{share:g}": min(1.0, result.total.share / (1 - share)) for share in MISSED},
    )


def read_guarantee(path: Path) -> Guarantee | None:
    """Read a certificate, or return None if there is none.

    Raises:
        RunFolderError: the file cannot be read or is not a certificate.
    """
    if not path.exists():
        return None
    return read_document(path, Guarantee, expected="a certificate", remedy="Delete it, and run agent score --certify.")


def select_certified(run: RunView) -> tuple[Guarantee, frozenset[str]]:
    """Certify a run again with the level and the method of its certificate. Also return the ids of the certified pairs.

    Raises:
        UsageError: the run has no certificate, or no labels are certified. Otherwise as `certify_run`.
        ExtraMissing: SciPy is not installed.
    """
    earlier = read_guarantee(run.path / files.CERTIFICATE)
    if earlier is None:
        raise UsageError(f"{run.path}: has no certificate. Run: agent score {run.path} --certify 0.05")
    guarantee = certify_run(run, earlier.certificate.level, earlier.method)
    if not guarantee.certificate.strata:
        raise UsageError(f"{run.path}: {guarantee.summary}")
    strata = stratify(assign_cells(run.annotations()))[: guarantee.certificate.strata]
    return guarantee, frozenset(pair_id for stratum in strata for pair_id in stratum.labels)


def write_guarantee(path: Path, guarantee: Guarantee) -> None:
    """Write a certificate atomically.

    Raises:
        StorageError: the file cannot be written. An earlier file is unchanged.
    """
    with replacing(path) as draft:
        draft.write_bytes(dumps(guarantee.model_dump(mode="json"), indent=True) + b"\n")


def calibrate_run(run: RunView) -> tuple[Calibration, tuple[Stratum, ...]]:
    """Estimate probabilities that labels are right. Also return the strata.

    Raises:
        UsageError: see `read_reviewed_sample`. Also raised if pairs are pending.
        ExtraMissing: SciPy is not installed.
    """
    sample = read_reviewed_sample(run)
    require_complete(run, sample)
    return calibrate(sample.reviewed, sample.alpha), sample.strata


def hash_file(path: Path) -> str:
    """Return the SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_guarantee_figures(guarantee: Guarantee) -> list[Figure]:
    """Return what is certified, the composition by label and the tested prefixes, as text and tables."""
    result = guarantee.certificate
    before = (sum(result.sizes), *result.sizes)
    bounds = {"all labels": result.total, "label 0": result.zeros, "label 1": result.ones}
    rows = [
        (name, size, bound.size, bound.reviewed, bound.wrong, bound.share if bound.size else None)
        for (name, bound), size in zip(bounds.items(), before, strict=True)
    ]
    strata = [
        (stratum.name, sum(stratum.sizes), stratum.sizes[1], "yes" if stratum.certified else "no")
        for stratum in guarantee.strata
    ]
    return [
        build_figure(
            "Certificate",
            "\n".join(_describe(guarantee)),
            tables=[
                build_table(("", "labels", "certified", "reviewed", "wrong", "share wrong at most"), rows),
                build_table(
                    ("", "before", "certified"), [("estimated recall", result.recall, result.certified_recall)]
                ),
                build_table(("stratum", "labels", "label 1", "certified"), strata),
            ],
        )
    ]


def _describe(guarantee: Guarantee) -> Iterator[str]:
    result = guarantee.certificate
    yield guarantee.summary
    if result.strata:
        yield f"The bounds below hold together, with {1 - result.alpha:.4g} confidence."
    if guarantee.exact is not None:
        yield f"Exact bound of the complete sample: {guarantee.exact.share:.2%}. Publish only one of the two bounds."
    if result.prefixes and (last := result.prefixes[-1]) and result.strata < len(guarantee.strata):
        yield _describe_failure(last, result.level)
    if not result.prefixes:
        needed = count_needed_reviews(result.level, result.alpha)
        yield f"The sample is too small. The first strata need {needed} planned reviews, and half of the sample."
    if len(guarantee.draws) > 1:
        yield (
            f"This is sample {len(guarantee.draws)} of the run. All certificates together are wrong with a probability "
            f"of at most {guarantee.alpha_of_all_draws:.3g}."
        )
    missed = ", ".join(f"{float(share):.0%} missed, {bound:.2%}" for share, bound in guarantee.if_missed.items())
    if result.strata:
        yield f"If the reviewers missed a share of the wrong labels, the bound is higher: {missed}."


def _describe_failure(last: ErrorBound, level: float) -> str:
    return (
        f"The next prefix of {last.size:,} labels failed. {last.wrong} of {plural(last.reviewed, 'reviewed label')} "
        f"are wrong, so up to {last.share:.2%} may be wrong (level {level:g})."
    )


def build_calibration_figures(calibration: Calibration, strata: tuple[Stratum, ...]) -> list[Figure]:
    """Return the probabilities by stratum, and how well they predict the reviews."""
    rows = [
        (stratum.name, rate.size, rate.reviewed, rate.right, rate.p_correct, rate.p_low)
        for stratum, rate in zip(strata, calibration.strata, strict=True)
    ]
    scores = {"by stratum": calibration.by_stratum, "pooled rate": calibration.by_pooled_rate}
    return [
        build_figure(
            "Probability that a label is right",
            f"Rates are shrunk to the pooled rate {calibration.pooled:.3f}. The lower bounds hold together.",
            tables=[
                build_table(("stratum", "labels", "reviewed", "right", "p_correct", "p_low"), rows),
                build_table(
                    ("", "Brier score", "log loss", "reliability"),
                    [(name, s.brier, s.log_loss, s.reliability) for name, s in scores.items() if s is not None],
                ),
            ],
        )
    ]
