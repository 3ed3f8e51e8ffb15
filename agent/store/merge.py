"""Joins the folders of one run, such as shards of its pairs that several machines annotated, into a new one."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent.datasets.encoding import dumps
from agent.datasets.spool import Spool
from agent.errors import RunFolderError
from agent.store import files
from agent.store.annotations import AnnotationIndex, Key, annotation_key, write_labels
from agent.store.batches import BatchStore
from agent.store.evidence import EvidenceStore
from agent.store.files import to_disk, unchanging, writing
from agent.store.manifest import Manifest, differences
from agent.store.reviews import iter_reviews
from agent.store.run_view import RunView, load_run

Progress = Callable[[str, int, int], None]

_EACH = 500
_INPUT = "input_sha256"


@dataclass(frozen=True)
class Merged:
    """What came of joining runs; `left_out` are files that were not taken over."""

    run: str
    pairs: int
    annotations: int
    left_out: tuple[str, ...]


def merge(runs: Sequence[Path], out: Path, progress: Progress = lambda _what, _done, _total: None) -> Merged:
    """Join the folders of runs into a new one: whole, or nothing.

    Pairs come in the order of the runs. Of a pair and round that several have, the annotation without an error stays,
    and of equals that of the run given last. What was paid is added up.

    Raises:
        RunFolderError: a folder is no run, damaged or in use; they differ in what decides labels, or in a pair (what
            differs is listed); or something is at `out` already.
        InputError: a run's input is damaged.
        StorageError: the new folder cannot be written.
    """
    with ExitStack() as stack:
        views = []
        for path in {path.resolve(): path for path in runs}.values():
            views.append(stack.enter_context(load_run(path)))
            stack.enter_context(unchanging(path))
            _check_batches(path / files.BATCHES)
        _check_identities(views)
        with _placed(out) as draft:
            joined = _Join(views, draft, progress)
            joined.write()
        return Merged(str(out), len(joined.pairs), joined.annotations, joined.left_out)


def _check_batches(path: Path) -> None:
    if not path.exists():
        return
    with BatchStore(path, read_only=True) as store:
        if store.open():
            what = "has batches in progress, whose replies would be lost; give the run's command again first"
            raise RunFolderError(f"{path}: {what}")


def _check_identities(views: Sequence[RunView]) -> None:
    first, *others = views
    for view in others:
        was, now = ({**each.manifest["identity"], _INPUT: None} for each in (first, view))
        if found := differences(was, now, f"in {first.path}", f"in {view.path}"):
            listed = "".join(f"\n  {line}" for line in found)
            raise RunFolderError(f"{view.path} and {first.path} are of other settings, and not joined:{listed}")


@contextmanager
def _placed(out: Path) -> Iterator[Path]:
    """Give a folder to write to; it becomes `out` once it is whole."""
    with writing(out):
        if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
            raise RunFolderError(f"{out}: is there already; give a new folder (-o)")
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = out.with_name(f".{out.name[:40]}.{secrets.token_hex(8)}.tmp")
        draft.mkdir()
        try:
            yield draft
            to_disk(draft)
            draft.rename(out)
            to_disk(out.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


class _Join:
    def __init__(self, views: Sequence[RunView], draft: Path, progress: Progress) -> None:
        self._views = views
        self._draft = draft
        self._progress = progress
        self.pairs = Spool()
        self.annotations = 0
        self.left_out: tuple[str, ...] = ()

    def write(self) -> None:
        """Write all files of the new folder; the manifest comes last."""
        self._write_input()
        self._write_annotations()
        self._write_reviews()
        manifest = Manifest(
            self._draft / files.MANIFEST, {**self._views[0].manifest["identity"], _INPUT: self.pairs.sha256}
        )
        for part in ("segments", "changes"):
            manifest.document[part] = [each for view in self._views for each in view.manifest[part]]
        manifest.save()

    def _write_input(self) -> None:
        for number, view in enumerate(self._views):
            for pair in view.pairs():
                if not self.pairs.put(pair, number) and self.pairs[self.pairs.place(pair.id) or 0] != pair:
                    first = self._views[self.pairs.origin(pair.id)[0]].path
                    what = f"{view.path}: pair {pair.id[:60]!r} is another than in {first}"
                    raise RunFolderError(f"{what}; they cannot be joined")
                self._step("pairs", len(self.pairs))
        self.pairs.write(self._draft / files.INPUT)
        to_disk(self._draft / files.INPUT)

    def _write_annotations(self) -> None:
        path, segments = self._draft / files.ANNOTATIONS, 0
        with EvidenceStore(self._draft / files.EVIDENCE) as store, path.open("wb") as file:
            for number, view in enumerate(self._views):
                if view.has_evidence or len(view.index):
                    with EvidenceStore(view.path / files.EVIDENCE, read_only=True) as evidence:
                        store.take(evidence, self._written(number, file), segments)
                segments += len(view.manifest["segments"])
            file.flush()
            os.fsync(file.fileno())
        write_labels(self._draft / files.LABELS, filter(None, map(AnnotationIndex(path).label, self.pairs.ids())))

    def _written(self, number: int, file: IO[bytes]) -> Iterator[Key]:
        """Write what stays of a run's annotations, and yield which pairs and rounds they are of."""
        index = self._views[number].index
        for line, content in index.lines():
            place = f"{index.path}:{line}"
            key = annotation_key(content, place)
            if self.pairs.place(key[0]) is None:
                raise RunFolderError(f"{place}: pair {key[0][:60]!r} is none of the run's input")
            if self._stays(number, key):
                file.write(content)
                self.annotations += 1
                self._step("annotations", self.annotations)
                yield key

    def _stays(self, number: int, key: Key) -> bool:
        """Say whether of all annotations of a pair and round that of this run is the one that stays."""
        succeeded = self._views[number].index.finished(key, retry_errors=True)
        for other, view in enumerate(self._views):
            better = view.index.finished(key, retry_errors=True)
            if (better and not succeeded) or (other > number and key in view.index and better == succeeded):
                return False
        return True

    def _write_reviews(self) -> None:
        reviews = [review for view in self._views for review in iter_reviews(view.path / files.REVIEWS)]
        if reviews:
            lines = (dumps(each.model_dump(mode="json", by_alias=True)) for each in sorted(reviews, key=lambda r: r.at))
            (self._draft / files.REVIEWS).write_bytes(b"".join(line + b"\n" for line in lines))
        samples = (view.path / files.REVIEW_SAMPLE for view in self._views)
        self.left_out = tuple(str(path) for path in samples if path.exists())

    def _step(self, what: str, done: int) -> None:
        if done % _EACH == 0:
            self._progress(what, done, max(done, sum(len(view.index) for view in self._views)))
