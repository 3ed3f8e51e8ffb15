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
    calibrate_run,
    certify_run,
    write_guarantee,
)
from agent.runs.store import files
from agent.runs.store.run_view import load_run
from agent.text import Figure


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
        raise UsageError("--certify, --until and --calibrate take one run, and no gold labels, --round or --mistakes.")
    if certify is not None and until is not None:
        raise UsageError("--certify and --until cannot be combined. Pass --until while reviews are pending.")
    if level is not None and not 0 < level < 1:
        raise UsageError(f"the level must be between 0 and 1, not {level:g}. To allow 5% wrong labels, pass 0.05.")
    document, figures = dict[str, Any](), list[Figure]()
    with load_run(folders[0]) as view, Console(stderr=True).status("reading the run"):
        if level is not None:
            guarantee = certify_run(view, level, "exact" if until is None else "anytime")
            write_guarantee(view.path / files.CERTIFICATE, guarantee)
            document |= guarantee.model_dump(mode="json")
            figures += build_guarantee_figures(guarantee)
        if calibrate:
            calibration, strata = calibrate_run(view)
            document["calibration"] = {
                **calibration.model_dump(mode="json"),
                "names": [stratum.name for stratum in strata],
            }
            figures += build_calibration_figures(calibration, strata)
    if as_json:
        print_json(document)
        return
    print_figures(Console(), figures)
    if level is not None:
        print_text(Console(stderr=True), f"Certificate written to {folders[0] / files.CERTIFICATE}")
