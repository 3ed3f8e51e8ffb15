"""Merges run folders, such as shards annotated on several machines, into a new one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.datasets.pair_store import PairStore
from agent.errors import RunFolderError
from agent.runs.store import files
from agent.runs.store.annotations import AnnotationLog, Key, write_labels
from agent.runs.store.batches import BatchStore
from agent.runs.store.evidence import EvidenceStore
from agent.runs.store.files import lock_folder, open_draft, sync_to_disk, writing
from agent.runs.store.manifest import Manifest, add_languages, list_differences
from agent.runs.store.run_folder import write_input
from agent.runs.store.run_view import RunView, load_run
from agent.types import Progress

_PROGRESS_INTERVAL = 500
_INPUT = "input_sha256"


@dataclass(frozen=True)
class MergeResult:
    """The result of merging runs. `left_out` lists the files that were not merged."""

    run: str
    pairs: int
    annotations: int
    left_out: tuple[str, ...]


def merge(runs: Sequence[Path], out: Path, progress: Progress = lambda _step, _done, _total: None) -> MergeResult:
    """Merge run folders into a new folder, which appears at `out` when it is complete.

    Pairs are in the order in which the runs are passed. If several runs annotated the same pair and round, annotations
    without an error take precedence over annotations with an error. Otherwise, later runs take precedence over earlier
    runs. Costs are added up. Reviews and samples are not merged.

    Raises:
        RunFolderError: a folder is not a run, is damaged, is in use or is passed twice. Also raised if the runs differ
            in a setting or a pair (the message names it), or if `out` exists.
        InputError: a run's input is damaged.
        StorageError: the new folder or the lock of a run cannot be written.
    """
    with ExitStack() as stack:
        views: list[RunView] = []
        for path in runs:
            if any(path.samefile(view.path) for view in views):
                raise RunFolderError(f"{path}: is listed twice. Pass each run once.")
            views.append(stack.enter_context(load_run(path)))
            stack.callback(os.close, lock_folder(path))
            batches = path / files.BATCHES
            if batches.exists() and stack.enter_context(BatchStore(batches, read_only=True)).list_batches():
                raise RunFolderError(
                    f"{batches}: batches are in progress, and their replies would be lost. Resume the run first."
                )
        identity = _merge_identities(views)
        pairs = _merge_pairs(views, progress)
        with _create_folder(out) as draft:
            identity[_INPUT] = write_input(draft, pairs)
            manifest = Manifest(draft / files.MANIFEST, identity)
            annotations = _merge_annotations(views, pairs, draft, progress)
            for part in ("segments", "changes"):
                manifest.document[part] = [entry for view in views for entry in view.manifest[part]]
            manifest.save()  # last, because without a manifest the folder is not a run
        left_out = (view.path / name for view in views for name in (files.REVIEWS, files.REVIEW_SAMPLE))
        return MergeResult(str(out), len(pairs), annotations, tuple(str(path) for path in left_out if path.exists()))


def _merge_identities(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the identity of the runs, with the languages of all runs."""
    first, *others = views
    identity = {**first.manifest["identity"], _INPUT: None}
    for number, view in enumerate(others, start=1):
        now = {**view.manifest["identity"], _INPUT: None}
        identity = add_languages(identity, now, (pair for earlier in views[:number] for pair in earlier.pairs()))
        now = add_languages(now, identity, view.pairs())
        if lines := list_differences(identity, now, f"in {first.path}", f"in {view.path}"):
            listing = "\n  ".join(lines)
            raise RunFolderError(
                f"{view.path} and {first.path} have different settings and cannot be merged:\n  {listing}"
            )
    return identity


def _merge_pairs(views: Sequence[RunView], progress: Progress) -> PairStore:
    pairs = PairStore()
    for number, view in enumerate(views):
        for done, pair in enumerate(view.pairs(), start=1):
            if not pairs.put(pair, number) and pairs[pairs.place(pair.id) or 0] != pair:
                first = views[pairs.origin(pair.id)[0]].path
                raise RunFolderError(
                    f"{view.path}: pair {pair.id[:60]!r} differs from the one in {first}, so the runs cannot be merged"
                )
            if done % _PROGRESS_INTERVAL == 0:
                progress(f"pairs in {view.path}", done, max(done, len(view.index)))
    return pairs


@contextmanager
def _create_folder(out: Path) -> Iterator[Path]:
    """Yield a hidden folder. It is renamed to `out` when the block ends, or removed if the block fails."""
    if os.path.lexists(out):
        raise RunFolderError(f"{out}: already exists. Choose a new folder (-o).")
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with open_draft(out, is_folder=True) as draft:
        yield draft
        sync_to_disk(draft)
        draft.rename(out)
        sync_to_disk(out.parent)


def _merge_annotations(views: Sequence[RunView], pairs: PairStore, out: Path, progress: Progress) -> int:
    def copy_annotations(view: RunView) -> Iterator[Key]:
        for done, annotation in enumerate(view.annotations(), start=1):
            key = (annotation.id, annotation.round)
            if pairs.place(annotation.id) is None:
                raise RunFolderError(f"{view.index.path}: pair {annotation.id[:60]!r} is not in the run's input")
            if annotation.error is None or not log.index.is_finished(key, retry_errors=True):
                log.append(annotation)  # supersedes an earlier one
                yield key
            if done % _PROGRESS_INTERVAL == 0:
                progress(f"annotations in {view.path}", done, len(view.index))

    segments = 0
    with closing(AnnotationLog(out / files.ANNOTATIONS)) as log, EvidenceStore(out / files.EVIDENCE) as store:
        for view in views:
            if view.has_evidence or len(view.index):
                with EvidenceStore(view.path / files.EVIDENCE, read_only=True) as evidence:
                    store.copy_from(evidence, copy_annotations(view), segments)
            segments += len(view.manifest["segments"])
        log.compact()
        write_labels(out / files.LABELS, filter(None, map(log.index.get_label, pairs.ids())))
        return len(log.index)
