"""Certifies a run's labels with the reviews of its sample, and records the result (`certificate.json`)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from pydantic import Field

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
from agent.runs.store.files import read_document
from agent.runs.store.reviews import iterate_reviews, read_votes
from agent.runs.store.run_view import RunView
from agent.runs.store.samples import CERTIFIABLE, EVIDENCE, Draw, ReviewSample, draw_from_strata, read_sample
from agent.runs.store.strata import Stratum, assign_cells, hash_strata, stratify
from agent.text import Figure, build_figure, build_table, plural
from agent.types import Frozen

Method = Literal["exact", "anytime"]
_BOUNDS: Mapping[Method, Bound] = {"exact": bound_exactly, "anytime": bound_anytime}
MISSED = (0.1, 0.2, 0.3)
"""Shares of the errors that reviewers might miss, for which a bound is corrected."""
ASSUMPTIONS = (
    "The reviewed pairs are a simple random sample of the labelled pairs, in the order of the sample.",
    "The reviewers' labels are right.",
    "A pair without a verdict (undecided, tied or not reviewed blind) counts as wrong.",
    "The seed, the size of the sample and the level were chosen before the reviews, and no other level was tested.",
    "The labels of the run are those that were reviewed (`strata_sha256`).",
)


@dataclass(frozen=True)
class ReviewedSample:
    """A sample with strata by evidence, and the verdicts on a prefix of its order.

    `pending` pairs of the sample have no review. `without_verdict` pairs of the prefix count as wrong although nobody
    called them wrong. The votes of the reviewers in `ignored` do not count. `run` is the path of the run.
    """

    run: Path
    sample: ReviewSample
    strata: tuple[Stratum, ...]
    reviewed: ReviewedStrata
    reviewers: tuple[str, ...]
    ignored: tuple[str, ...]
    pending: int
    without_verdict: int
    unlisted: int

    @property
    def alpha(self) -> float:
        """The error probability of this sample: each sample that was drawn earlier halves it."""
        return ALPHA / 2.0 ** (len({draw.fingerprint for draw in self.sample.draws}) + self.unlisted - 1)

    def require_complete(self) -> None:
        """Raise UsageError if pairs are pending."""
        if self.pending:
            raise UsageError(
                f"{self.run}: {plural(self.pending, 'pair')} of the sample of {self.sample.size:,} not reviewed yet. "
                "An exact bound is valid only for the planned sample. Review them, or use --until."
            )


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
    key: U / (1 - m). `without_verdict` and `ignored` are those of `ReviewedSample`. `files` contains the SHA-256 of
    each exported file.
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
    ignored: tuple[str, ...]
    without_verdict: int
    if_missed: dict[str, float]
    assumptions: tuple[str, ...] = ASSUMPTIONS
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What is certified, with the bound of the last prefix that passed."""
        result = self.certificate
        if not result.strata:
            return f"No labels are certified at a level of {result.level:.4g}."
        passed = next(prefix for prefix in result.prefixes if prefix.size == result.total.size)
        return (
            f"At most {100 * result.level:.4g}% of the {passed.size:,} certified labels are wrong, with "
            f"{100 * (1 - result.alpha):.4g}% confidence. The {self.method} bound is {_format_bound(passed.share)} "
            f"({plural(passed.reviewed, 'review')}, {passed.wrong} wrong)."
        )


def read_reviewed_sample(run: RunView) -> ReviewedSample:
    """Read a run's sample with strata by evidence, and the verdicts on it.

    The verdicts (see `Votes.decide`) end before the first pair in the sample's order that has no review. An earlier
    sample that the file does not list, but that has reviews, counts as a draw.

    Raises:
        UsageError: the run has no such sample, or its labels or the sample were changed.
        RunFolderError: the reviews or the sample are damaged.
    """
    sample = read_sample(run.path / files.REVIEW_SAMPLE)
    if sample is None or sample.by != (EVIDENCE,):
        command = f"agent review {run.path} --sample 200 --stratify {EVIDENCE}{' --new-sample' * (sample is not None)}"
        raise UsageError(f"{run.path}: has no sample that can be certified. Draw one and review it: {command}")
    strata = stratify(assign_cells(run.annotations()))
    if hash_strata(strata) != sample.strata_sha256:
        raise UsageError(
            f"{run.path}: labels were added or changed since the sample was drawn. Draw another sample "
            "(agent review --new-sample)."
        )
    drawn = draw_from_strata(strata, sample.size, sample.seed)
    listed = {draw.fingerprint for draw in sample.draws}
    if drawn.strata != sample.strata or sample.fingerprint not in listed:
        raise UsageError(f"{run.path}: {files.REVIEW_SAMPLE} was edited. Restore it, or draw another (--new-sample).")
    votes, order = read_votes(run.path / files.REVIEWS), sample.shuffle_ids()
    verdicts = votes.decide(list(takewhile(votes.first.__contains__, order)))
    fingerprints = {review.sample for review in iterate_reviews(run.path / files.REVIEWS)}
    unlisted = fingerprints - listed
    return ReviewedSample(
        run=run.path,
        sample=sample,
        strata=strata,
        reviewed=combine_reviews(strata, verdicts.labels),
        reviewers=verdicts.reviewers,
        ignored=verdicts.ignored,
        pending=sum(pair_id not in votes.first for pair_id in order),
        without_verdict=list(verdicts.labels.values()).count(None),
        unlisted=sum((name or "").startswith(CERTIFIABLE) for name in unlisted),
    )


def certify_sample(sample: ReviewedSample, level: float, method: Method) -> Guarantee:
    """Certify the labels of a run.

    Raises:
        UsageError: another level was tested on this sample, or an exact bound is requested and pairs are pending.
        RunFolderError: the run's certificate is damaged.
        ExtraMissing: SciPy is not installed.
    """
    if method == "exact":
        sample.require_complete()
    earlier = read_guarantee(sample.run / files.CERTIFICATE)
    if earlier is not None and earlier.draws == sample.sample.draws and earlier.certificate.level != level:
        raise UsageError(
            f"{sample.run}: this sample was tested at the level {earlier.certificate.level:g}. Another level would be "
            "a second test of it. Pass that level, or draw another sample (agent review --new-sample)."
        )
    result = certify(sample.reviewed, sample.sample.size, level, sample.alpha, _BOUNDS[method])
    complete = method != "exact" and not sample.pending and result.strata > 0
    return Guarantee(
        method=method,
        certificate=result,
        exact=bound_prefix(sample.reviewed, result.strata, None, sample.alpha, bound_exactly) if complete else None,
        alpha_of_all_draws=2 * ALPHA - sample.alpha,
        strata=tuple(
            CertifiedStratum(name=stratum.name, sizes=sizes, certified=number < result.strata)
            for number, (stratum, sizes) in enumerate(zip(sample.strata, sample.reviewed.sizes, strict=True))
        ),
        strata_sha256=hash_strata(sample.strata),
        seed=sample.sample.seed,
        draws=sample.sample.draws,
        reviewers=sample.reviewers,
        ignored=sample.ignored,
        without_verdict=sample.without_verdict,
        if_missed={f"{share:g}": min(1.0, result.total.share / (1 - share)) for share in MISSED},
    )


def certify_again(run: RunView) -> tuple[Guarantee, frozenset[str]]:
    """Certify a run with the level and the method of its certificate. Also return the ids of the certified pairs.

    Raises:
        UsageError: the run has no certificate. Otherwise as `read_reviewed_sample` and `certify_sample`.
        ExtraMissing: SciPy is not installed.
    """
    earlier = read_guarantee(run.path / files.CERTIFICATE)
    if earlier is None:
        raise UsageError(f"{run.path}: has no certificate. Run: agent score {run.path} --certify 0.05")
    sample = read_reviewed_sample(run)
    guarantee = certify_sample(sample, earlier.certificate.level, earlier.method)
    strata = sample.strata[: guarantee.certificate.strata]
    return guarantee, frozenset(pair_id for stratum in strata for pair_id in stratum.labels)


def read_guarantee(path: Path) -> Guarantee | None:
    """Read a certificate, or return None if there is none.

    Raises:
        RunFolderError: the file cannot be read or is not a certificate.
    """
    if not path.exists():
        return None
    return read_document(path, Guarantee, expected="a certificate", remedy="Delete it, and run agent score --certify.")


def calibrate_sample(sample: ReviewedSample) -> Calibration:
    """Estimate probabilities that labels are right, for the strata of a completely reviewed sample.

    Raises:
        UsageError: pairs are pending.
        ExtraMissing: SciPy is not installed.
    """
    sample.require_complete()
    return calibrate(sample.reviewed, sample.alpha)


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
        bounds = {"all labels": result.total, "labels 0": result.zeros, "labels 1": result.ones}
        listed = ", ".join(f"{name} {_format_bound(bound.share)}" for name, bound in bounds.items() if bound.size)
        yield f"Bounds that hold together, with {100 * (1 - result.alpha):.4g}% confidence: {listed}."
        missed = ", ".join(f"{float(m):.0%} missed, {_format_bound(bound)}" for m, bound in guarantee.if_missed.items())
        yield f"If the reviewers missed a share of the wrong labels, the bound for all labels is higher: {missed}."
    if guarantee.exact is not None:
        share = _format_bound(guarantee.exact.share)
        yield f"Exact bound of the complete sample: {share}. Publish only one of the two bounds."
    if result.prefixes and result.strata < len(guarantee.strata):
        last = result.prefixes[-1]
        yield (
            f"The next prefix of {last.size:,} labels failed. {last.wrong} of {last.reviewed:,} reviewed labels in it "
            f"count as wrong, so up to {_format_bound(last.share)} may be wrong."
        )
    if not result.prefixes:
        needed = count_needed_reviews(result.level, result.alpha)
        yield f"The sample is too small. Draw a larger one: the first strata need at least {needed} planned reviews."
    if guarantee.without_verdict:
        yield (
            f"{plural(guarantee.without_verdict, 'reviewed label has', 'reviewed labels have')} no verdict (undecided, "
            "tied or not blind) and count as wrong."
        )
    if guarantee.ignored:
        yield f"Not counted, because they did not review all pairs: {', '.join(guarantee.ignored)}."
    if known := guarantee.draws[-1].reviewed_before:
        yield f"{plural(known, 'pair')} of the sample had been reviewed before the sample was drawn."
    if result.alpha < ALPHA:
        yield (
            "Earlier samples of this run reduce the confidence of each sample. All certificates of the run together "
            f"are wrong with a probability of at most {guarantee.alpha_of_all_draws:.3g}."
        )


def _format_bound(share: float) -> str:
    """Format a share as a percentage, rounded up."""
    return f"{math.ceil(share * 10_000 - 1e-9) / 100:.2f}%"


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
