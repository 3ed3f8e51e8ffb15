"""`agent export`: writes a run's labels in formats for other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.summary import describe_no_intent
from agent.cli.text import Console, print_json, print_text
from agent.errors import UsageError
from agent.evaluation.guarantee import (
    Guarantee,
    calibrate_sample,
    certify_again,
    hash_file,
    read_guarantee,
    read_reviewed_sample,
)
from agent.exports.registry import FORMATS
from agent.exports.rows import Export, ExportFilter, format_left_out
from agent.exports.target import open_target
from agent.runs.store import files
from agent.runs.store.files import write_document
from agent.runs.store.run_view import RunView, load_run
from agent.text import plural

_LABELS = {"0": 0, "1": 1, "null": None}


def run(
    folder: Path,
    to: str,
    *,
    out: Path | None,
    labels: Sequence[str],
    filters: Mapping[str, Any],
    certified: bool,
    calibrated: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write a run's labels, then print the path and the numbers of exported and excluded pairs.

    Raises:
        UsageError: the folder is not a run, the run has too few rounds, no pair passes the filters, the path exists,
            or an extra is missing.
        StorageError: the files cannot be written. Files that were already written are removed.
    """
    if unknown := [label for label in labels if label not in _LABELS]:
        raise UsageError(f"--label {unknown[0]}: not a label. Pass 0, 1 or null.")
    export_filter = ExportFilter(labels=[_LABELS[label] for label in labels], **filters)
    form, notes = FORMATS[to], Console(stderr=True)
    target = out or folder / form.default
    if (certified or calibrated) and to in ("beir", "cosqa-plus"):
        raise UsageError(f"--certified and --with cannot be combined with --to {to}, which combines and drops labels.")
    if certified and (any(filters.values()) or filters["errors"] is False or (labels and not {"0", "1"} <= {*labels})):
        raise UsageError(
            "--certified cannot be combined with filters, because a certificate covers all certified labels. You can "
            "drop pairs without a label: --label 0 --label 1"
        )
    with load_run(folder) as view, Steps(notes) as steps:
        if export_filter.min_agreement and view.index.round_count < 2:
            raise UsageError(f"--min-agreement: {folder} has only one round. Annotate the pairs again with --rounds 3.")
        export = Export(view, export_filter, steps, **_read_guarantees(view, certified, calibrated))
        guarantee, place = export.guarantee, target.with_name(files.CERTIFICATE)
        hashes = {} if guarantee is None or form.files or force else _check_certificate(place, folder, guarantee)
        with open_target(target, form.entries | ({files.CERTIFICATE} if form.files else set()), force=force) as draft:
            form.write(export, draft)
            if guarantee is not None and form.files:
                certificate = guarantee.model_copy(update={"files": _hash_files(draft)})
                write_document(draft / files.CERTIFICATE, certificate)
        if guarantee is not None and not form.files:
            write_document(place, guarantee.model_copy(update={"files": hashes | _hash_files(target)}))
    if uncertified := export.uncertified:
        export.notes.append(
            f"{plural(uncertified.total(), 'label is', 'labels are')} not certified and became undecided: "
            f"{uncertified[1]:,} match · {uncertified[0]:,} no match"
        )
    statuses = export.tally.pair_statuses
    if as_json:
        print_json(
            {
                "path": str(target),
                "to": to,
                "pairs": export.tally.annotations,
                "labels": {
                    "1": statuses["1"],
                    "0": statuses["0"],
                    "null": statuses.total() - statuses["1"] - statuses["0"],
                },
                "no_intent": statuses["no_intent"],
                "left_out": dict(export.left_out),
                "uncertified": {str(label): count for label, count in sorted(export.uncertified.items())},
                "notes": export.notes,
            }
        )
        return
    console = Console()
    print_text(console, f"{target}: {plural(export.tally.annotations, 'pair')}")
    print_text(
        console,
        f"labels: {statuses['1']:,} match · {statuses['0']:,} no match · {statuses['undecided']:,} undecided · "
        f"{plural(statuses['error'], 'error')}{describe_no_intent(statuses)}",
    )
    for note in export.notes:
        print_text(console, note)
    if export.left_out:
        print_text(console, "left out: " + format_left_out(export.left_out))


def _read_guarantees(view: RunView, certified: bool, calibrated: bool) -> dict[str, Any]:
    """Return the arguments of `Export` for certified labels and for probabilities."""
    arguments = dict[str, Any]()
    if certified:
        guarantee, arguments["certified"] = certify_again(view)
        if not guarantee.certificate.strata:
            raise UsageError(f"{view.path}: {guarantee.summary}")
        arguments["guarantee"] = guarantee
    if calibrated:
        sample = read_reviewed_sample(view)
        rates = zip(sample.strata, calibrate_sample(sample).strata, strict=True)
        arguments["rates"] = {pair_id: rate for stratum, rate in rates for pair_id in stratum.labels}
    return arguments


def _check_certificate(place: Path, folder: Path, guarantee: Guarantee) -> dict[str, str]:
    """Return the hashes in the certificate of an earlier export with the same labels.

    Raises:
        UsageError: the certificate belongs to another run or sample.
    """
    earlier = read_guarantee(place)
    if earlier is None:
        return {}
    if (earlier.strata_sha256, earlier.certificate) == (guarantee.strata_sha256, guarantee.certificate):
        return earlier.files
    if place.resolve() != (folder / files.CERTIFICATE).resolve():
        raise UsageError(f"{place}: is another certificate. Choose another folder (-o), or replace it with --force.")
    return {}


def _hash_files(path: Path) -> dict[str, str]:
    exported = sorted(path.rglob("*")) if path.is_dir() else [path]
    parent = path if path.is_dir() else path.parent
    return {str(file.relative_to(parent)): hash_file(file) for file in exported if file.is_file()}
