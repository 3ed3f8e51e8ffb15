"""`agent report`: writes a report on a run as a single HTML file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.cli.progress import Steps
from agent.cli.text import Console, print_json, print_text
from agent.datasets.sources import open_regular
from agent.errors import UsageError
from agent.evaluation.guarantee import build_guarantee_figures, certify_again
from agent.exports.target import check_target
from agent.retrieval.folder import RETRIEVAL_FOLDER, RetrievalFolder, is_retrieval_folder
from agent.runs.store.files import CERTIFICATE
from agent.runs.store.run_view import RunView, load_run
from agent.text import Figure, build_figure, plural
from agent.views.archive import EvidenceScope
from agent.views.report import MEGABYTE, SEARCHERS, Report, find_run, write_section
from agent.views.searchers import build_searcher_cards, build_searcher_figures

_PAGE = b"<!doctype html>"


def run(
    folder: Path,
    *,
    out: Path | None,
    gold: Path | None,
    field_map: str | None,
    evidence: EvidenceScope,
    max_mb: float,
    as_json: bool,
) -> None:
    """Write a report on a run, and print the path of the report.

    Raises:
        UsageError: the folder contains no run, the gold labels cannot be read, or `out` is a file that is
            not a report.
        StorageError: the file cannot be written.
    """
    notes, target = Console(stderr=True), out or folder / "report.html"
    if is_retrieval_folder(folder):
        _report_searchers(folder, target, gold, as_json=as_json)
        return
    source = find_run(folder)
    with load_run(source.run) as view, Steps(notes) as steps:
        _check_target(target)
        report_options = {
            "title": source.title,
            "ablation": source.ablation,
            **_compare_with_gold(source.run, gold, field_map),
        }
        if (source.run / CERTIFICATE).exists():
            report_options["guarantee"] = _build_guarantee(view)
        if is_retrieval_folder(source.run / RETRIEVAL_FOLDER):
            report_options["searchers"] = build_searcher_figures(RetrievalFolder(source.run / RETRIEVAL_FOLDER))
        page = Report(view, evidence=evidence, max_bytes=round(max_mb * MEGABYTE), **report_options)
        written = page.write(target, steps)
    if as_json:
        print_json(
            {
                **asdict(written),
                "notes": list(written.notes),
                "path": str(written.path),
                "run": str(source.run),
                "ablation": source.ablation is not None,
            }
        )
        return
    if source.run != folder:
        print_text(
            notes,
            f"note: the page lists the pairs of {source.run}. To list the pairs of another variant, pass its folder.",
        )
    for note in written.notes:
        print_text(notes, note)
    print_text(
        Console(), f"{written.path} ({written.bytes / MEGABYTE:.1f} MB, {plural(written.annotations, 'annotation')})"
    )


def _report_searchers(folder: Path, target: Path, gold: Path | None, *, as_json: bool) -> None:
    """Write a report on the searchers of a benchmark. This report does not need a run."""
    if gold is not None:
        raise UsageError(f"--gold: {folder} is a retrieval folder, which has no labels to score. Remove --gold.")
    _check_target(target)
    retrieval_folder = RetrievalFolder(folder)
    written = write_section(
        target,
        str(retrieval_folder.about["name"]),
        build_searcher_cards(retrieval_folder),
        SEARCHERS,
        build_searcher_figures(retrieval_folder),
    )
    if as_json:
        print_json({**asdict(written), "path": str(target), "notes": [], "run": None, "ablation": False})
        return
    print_text(
        Console(),
        f"{target} ({written.bytes / MEGABYTE:.1f} MB, {plural(len(retrieval_folder.rankings), 'searcher')})",
    )


def _build_guarantee(view: RunView) -> list[Figure]:
    """Certify the run again, because labels or reviews may have changed."""
    try:
        return build_guarantee_figures(certify_again(view)[0])
    except UsageError as error:
        return [build_figure("Certificate", f"The certificate is not valid. {error}")]


def _check_target(target: Path) -> None:
    check_target(target, frozenset(), force=True)
    try:
        with open_regular(target) as file:
            beginning = file.read(len(_PAGE))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror or error}). Pass another file (-o).") from error
    if beginning.lower() != _PAGE:
        raise UsageError(f"{target}: exists and is not an HTML page. Remove it, or pass another file (-o).")


def _compare_with_gold(folder: Path, gold: Path | None, field_map: str | None) -> dict[str, Any]:
    """Return the comparison with gold labels for the report. Return an empty dict if `gold` is None."""
    if gold is None:
        return {}
    # needs the `stats` extra
    from agent.datasets.fields import Fields
    from agent.evaluation.labels import read_gold
    from agent.evaluation.scoring import build_report
    from agent.views.comparison import build_score_figures

    scores = build_report([folder], gold, mapping=field_map)
    return {"gold": read_gold(gold, Fields(field_map)).labels, "against_gold": build_score_figures(scores)}
