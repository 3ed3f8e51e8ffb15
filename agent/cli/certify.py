"""`agent score --certify`, `--until` and `--calibrate`: bounds and probabilities from the reviews of a run's sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.cli.text import Console, print_figures, print_json, print_text
from agent.errors import UsageError
from agent.evaluation.guarantee import (
    build_calibration_figures,
    build_guarantee_figures,
    calibrate_sample,
    certify_sample,
    read_reviewed_sample,
)
from agent.runs.store import files
from agent.runs.store.files import write_document
from agent.runs.store.run_view import load_run
from agent.text import Figure

MIN_LEVEL, MAX_LEVEL = 0.001, 0.5


def run(
    folders: Sequence[Path],
    certify: float | None,
    until: float | None,
    *,
    calibrate: bool,
    with_others: bool,
    as_json: bool,
) -> None:
    """Print a certificate, which is also written to the run folder, and calibrated probabilities.

    Raises:
        UsageError: the options contradict each other, or the run's sample cannot be used.
        StorageError: the certificate cannot be written.
    """
    level = until if certify is None else certify
    if len(folders) != 1 or with_others:
        raise UsageError(
            "--certify, --until and --calibrate take one run, and no --gold, --map, --round, --reviews, --mistakes or "
            "--min-agreement."
        )
    if certify is not None and until is not None:
        raise UsageError("--certify and --until cannot be combined. Pass --until while reviews are pending.")
    if level is not None and not MIN_LEVEL <= level <= MAX_LEVEL:
        raise UsageError(
            f"the level must be between {MIN_LEVEL} and {MAX_LEVEL}, not {level:g}. For 5% wrong labels, pass 0.05."
        )
    document, figures, written = dict[str, Any](), list[Figure](), False
    with load_run(folders[0]) as view, Console(stderr=True).status("reading the run"):
        sample = read_reviewed_sample(view)
        if level is not None:
            guarantee = certify_sample(sample, level, "exact" if until is None else "anytime")
            # without a test, another level may still be tested
            if written := bool(guarantee.certificate.prefixes):
                write_document(view.path / files.CERTIFICATE, guarantee)
            document |= guarantee.model_dump(mode="json")
            figures += build_guarantee_figures(guarantee)
        if calibrate:
            calibration = calibrate_sample(sample)
            names = [stratum.name for stratum in sample.strata]
            document["calibration"] = {**calibration.model_dump(mode="json"), "names": names}
            figures += build_calibration_figures(calibration, sample.strata)
    if as_json:
        print_json(document)
        return
    print_figures(Console(), figures)
    if written:
        print_text(Console(stderr=True), f"Certificate written to {folders[0] / files.CERTIFICATE}")
