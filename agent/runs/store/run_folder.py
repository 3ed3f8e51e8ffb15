"""Run folders. A run folder is created once, is resumed by the same command, and has only one writer at a time."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent.datasets.pair_store import PairStore, iter_normalised
from agent.errors import ModelTimeout, ModelUnavailable, RunFolderError
from agent.llm.base import Reply
from agent.llm.gateway import ReplyCache
from agent.pipeline.history import History, ModelCall
from agent.runs.store import files
from agent.runs.store.annotations import AnnotationIndex, AnnotationLog, write_labels
from agent.runs.store.database import Database
from agent.runs.store.evidence import EvidenceStore, iterate_unusable
from agent.runs.store.files import lock_folder, replacing, writing
from agent.runs.store.former import check_resumable
from agent.runs.store.manifest import Clock, Manifest, add_languages, format_value, utc_now
from agent.runs.store.run_view import RunView
from agent.text import plural, replace_surrogates
from agent.types import Annotation, Pair, Usage

# If the machine crashes, at most this much finished work is lost. If the process is killed, nothing is lost.
SECONDS_BETWEEN_SYNCS = 5.0
_SERVER_ERRORS = frozenset({ModelTimeout.__name__, ModelUnavailable.__name__})
_MAX_DEFERRED = 100
_MAX_LISTED = 1_000
_UNKNOWN = ModelCall(role="", key="", messages=(), reply="", usage=Usage(cost_usd=None))


class RunFolder(RunView):
    """A run folder that this process writes to. Close it with `close`, or use it as a context manager.

    Creates the folder if it is missing. Resumes the run in an existing folder if the identity is the same and `pairs`
    contains all pairs of the run unchanged. New pairs are added. A run without annotations starts over.

    If the latest annotations ended in a model server error, they are not written until all pairs are done. If the run
    stops before that, for example because of an outage, only the costs of these annotations are recorded. The resumed
    run then annotates their pairs again.

    Args:
        path: the folder.
        identity: everything that determines labels, apart from the pairs.
        pairs: the complete input, even if the run is limited to fewer pairs. The `input` attribute contains the stored
            pairs.
        environment: additional information to record about this session.
        cache: the reply cache, synced to disk before the evidence that relies on it.
        clock: returns the current time.

    Raises:
        RunFolderError: the folder belongs to another run (the message lists the differences), is in use, is damaged,
            or is not a run.
        InputError: two pairs have the same id, or `meta` is not JSON.
        StorageError: the folder cannot be written.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        identity: Mapping[str, Any],
        pairs: Iterable[Pair],
        environment: Mapping[str, Any],
        cache: Database | None = None,
        clock: Clock = utc_now,
    ) -> None:
        path = Path(path)
        self.input = pairs if isinstance(pairs, PairStore) else PairStore(pairs)
        self._must_finish = True  # until the folder is closed or the disk is full
        self._deferred: list[tuple[Annotation, History]] = []
        self._abandoned: list[ModelCall] = []
        _check_folder(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(os.close, lock_folder(path))
            # Check again: another process may have changed the folder before this one acquired the lock.
            _check_folder(path)
            self._manifest = _open_manifest(path, identity, self.input, clock)
            super().__init__(path, self._manifest.document)
            self._store = EvidenceStore(path / files.EVIDENCE)
            stack.callback(self._store.close)
            self._log = AnnotationLog(path / files.ANNOTATIONS)
            stack.callback(self._log.close)
            # The order matters, because evidence must be on disk before the annotation that relies on it.
            self._syncs = [*([cache.sync] if cache else []), self._store.sync, self._log.sync]
            self._last_sync = time.monotonic()
            removed = self._remove_annotations_without_evidence()
            self.index = self._log.index
            if len(self.index) and not self._store.has_records:
                self._store.add_costs([_UNKNOWN])
                self._manifest.notes.append(
                    f"{path / files.EVIDENCE} is missing, so the evidence and costs of earlier annotations are lost"
                )
            self._manifest.open_segment(environment)
            if removed:
                self._manifest.notes.append(
                    f"the evidence of {plural(removed, 'annotation')} was lost, probably in a machine crash. "
                    "The affected pairs will be annotated again."
                )
            stack.callback(self._manifest.close)
            self._stack = stack.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user, for example about changes to the environment since the run began."""
        return tuple(self._manifest.notes)

    def discard_unusable(self, cache: ReplyCache) -> None:
        """Remove from a cache the unusable replies that failed pairs received.

        Keeps a different reply that another run has since stored under the same key.
        """
        for key in self.index.iterate_keys(failed=True):
            history = self.evidence(*key)
            for model_call in () if history is None else iterate_unusable(history):
                reply = cache.get(model_call.key)
                if reply is not None and replace_surrogates(reply.text) == model_call.reply:
                    cache.forget(model_call.key)

    def find_shared_reply(self, key: str) -> Reply | None:
        """Return the reply to a call that several pairs share, as stored with a finished pair, or None."""
        return self._store.find_shared_reply(key)

    def record_reply(self, role: str, reply: Reply) -> None:
        """Record which server sent a role's reply and which model produced it."""
        self._manifest.record_reply(role, reply)

    def commit(self, annotation: Annotation, evidence: History) -> None:
        """Store a pair's evidence and then its annotation, which finishes the pair.

        Annotations with model server errors are written later. If the evidence has no segment number, the number of the
        current segment is used.

        Raises:
            StorageError: the disk is full or reports an error. The pair is not finished, but earlier pairs are safe.
            RunFolderError: the evidence file is damaged.
        """
        if annotation.error is None or annotation.error.type not in _SERVER_ERRORS:
            self._write(annotation, evidence)
            return
        self._deferred.append((annotation, evidence))
        if len(self._deferred) > _MAX_DEFERRED:
            self._write(*self._deferred.pop(0))

    def record_abandoned(self, model_calls: Iterable[ModelCall]) -> None:
        """Record the costs of an unfinished pair. A later session may find its replies in the cache."""
        self._abandoned += model_calls  # saved by `close`, because the run may be stopping due to a full disk

    def close(self) -> None:
        """Write deferred annotations and the labels, remove superseded annotations, and release the lock.

        Calling it again does nothing.

        Raises:
            StorageError: the disk is full or reports an error. The lock is still released.
        """
        with self._stack:
            while self._deferred:
                self._write(*self._deferred.pop(0))
            if self._abandoned:
                model_calls, self._abandoned = self._abandoned, []
                self._store.add_costs(model_calls)
            if self._must_finish:
                self._must_finish = False
                self._sync()
                self._log.compact()
                write_labels(self.path / files.LABELS, filter(None, map(self.index.get_label, self.input.ids())))

    def _write(self, annotation: Annotation, evidence: History) -> None:
        if evidence.segment is None:
            evidence = evidence.model_copy(update={"segment": self._manifest.segment})
        try:
            self._store.put(evidence, annotation.round)
            self._log.append(annotation)
            if time.monotonic() - self._last_sync >= SECONDS_BETWEEN_SYNCS:
                self._sync()
        except BaseException:
            self._must_finish = False
            raise

    def _sync(self) -> None:
        for sync in self._syncs:
            sync()
        self._last_sync = time.monotonic()

    def _remove_annotations_without_evidence(self) -> int:
        """Remove trailing annotations whose evidence was lost in a machine crash, and return how many were removed."""
        segments = self._manifest.document["segments"]
        if not segments or segments[-1]["ended"] is not None or not self._store.has_records:
            return 0
        return self._log.truncate(lambda key: self._store.contains(*key))

    def __exit__(self, *error: object) -> None:
        if any(error):
            self.record_abandoned(model_call for _, evidence in self._deferred for model_call in evidence.model_calls)
            self._deferred.clear()
        self.close()


def _open_manifest(path: Path, identity: Mapping[str, Any], pairs: PairStore, clock: Clock) -> Manifest:
    file = path / files.MANIFEST
    if file.exists():
        manifest = Manifest(file, clock=clock)
        recorded, earlier_pairs = manifest.document["identity"], iter_normalised(path / files.INPUT)
        manifest.document["identity"] = add_languages(recorded, identity, earlier_pairs)
        settings, is_same = manifest.compare_identity(identity), pairs.sha256 == manifest.input_sha256
        if is_same and not settings:
            return manifest
        if _has_annotations(path):
            check_resumable(path, manifest.document["identity"])
            before, lost = (len(pairs), []) if is_same else _compare_pairs(path, pairs)
            if settings or lost:
                different = "settings" if settings else "pairs"
                listing = "".join(f"  {line}\n" for line in (*settings, *lost))
                raise RunFolderError(
                    f"{path}: contains a run with different {different}:\n{listing}"
                    f"Choose another folder (-o; in Python run_dir), or resume the run with its original {different}."
                )
            # Write the pairs first. If the process is killed in between, the next session compares the pairs again.
            manifest.replace_input(write_input(path, pairs), before, len(pairs))
            return manifest
        with writing(file):
            file.unlink()
    # The manifest is saved with its first segment. Until then, the folder is not a run, and the next session recreates
    # it.
    return Manifest(file, {**identity, "input_sha256": write_input(path, pairs)}, clock)


def write_input(path: Path, pairs: PairStore) -> str:
    """Replace the input of a run folder atomically, and return its hash.

    Raises:
        StorageError: the file cannot be written. The old file is unchanged.
    """
    with replacing(path / files.INPUT) as draft:
        pairs.write(draft)
    return pairs.sha256


def _compare_pairs(path: Path, pairs: PairStore) -> tuple[int, list[str]]:
    """Return the number of pairs in the run, and lines for the user that list missing and changed pairs."""
    number, changes = 0, defaultdict[str, list[str]](list)
    for number, pair in enumerate(iter_normalised(path / files.INPUT), start=1):  # noqa: B007
        place = pairs.place(pair.id)
        if place is None:
            changes["missing"].append(format_value(pair.id))
        elif pairs[place] != pair:
            fields = type(pairs[place]).model_fields
            parts = [name for name in fields if getattr(pair, name, None) != getattr(pairs[place], name)]
            changes["changed"].append(f"{format_value(pair.id)} ({', '.join(parts)})")
    lines = []
    for change, names in sorted(changes.items(), reverse=True):
        more = ", …" if len(names) > _MAX_LISTED else ""
        lines.append(f"{plural(len(names), 'pair')} {change}: {', '.join(names[:_MAX_LISTED])}{more}")
    return number, lines


def _has_annotations(path: Path) -> bool:
    log = path / files.ANNOTATIONS
    return log.exists() and len(AnnotationIndex(log)) > 0


def _check_folder(path: Path) -> None:
    """Check that a folder is new, contains a run, or was left by a run that was killed while creating it."""
    if "\0" in str(path):
        raise RunFolderError(f"{str(path)!r}: a path cannot contain NUL. Choose another folder (-o).")
    try:
        if not path.exists():
            return
        names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    except NotADirectoryError:
        raise RunFolderError(f"{path}: is a file. Pass a folder (-o).") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be opened ({error.strerror}). Choose another folder (-o).") from None
    if files.MANIFEST in names or not names:
        return
    if others := sorted(names - files.UNFINISHED):
        raise RunFolderError(
            f"{path}: is not a run folder (it contains {', '.join(map(repr, others[:3]))}). Choose a new folder (-o)."
        )
    if _has_annotations(path):
        raise RunFolderError(f"{path}: contains annotations but no {files.MANIFEST}. Choose a new folder (-o).")
