"""A run is a folder: made once, resumed by the same command, written by one process at a time."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agent.datasets import Spool, iter_normalised
from agent.errors import ModelTimeout, ModelUnavailable, RunFolderError
from agent.history import Exchange, History
from agent.llm.base import Reply
from agent.llm.gateway import ReplyCache
from agent.prompt_text import replace_surrogates
from agent.store import files
from agent.store.annotations import AnnotationIndex, AnnotationLog, write_labels
from agent.store.database import Database
from agent.store.evidence import EvidenceStore, iterate_unusable
from agent.store.files import lock_folder, remove_drafts, replacing, writing
from agent.store.manifest import Clock, Manifest, format_value, utc_now
from agent.store.run_view import RunView
from agent.types import Annotation, Pair, Usage
from agent.wording import plural

# A crash of the machine, such as a loss of power, loses at most this much finished work; a killed process nothing.
SECONDS_BETWEEN_SYNCS = 5.0
_OF_THE_SERVER = frozenset({ModelTimeout.__name__, ModelUnavailable.__name__})
_MOST_HELD = 100
_MOST_NAMED = 1_000
_UNKNOWN = Exchange(role="", key="", messages=(), reply="", usage=Usage(cost_usd=None))


class RunFolder(RunView):
    """The folder of a run that this process writes to; closed by `close` or `with`.

    Made where there is none. Where there is one, the run in it goes on when its identity is equal and all of its pairs
    are among those given, as they were; others may be added. One without annotations is begun anew. The latest errors
    of a model's server are held until all pairs are through. Where the run ends before, as by an outage, they are
    dropped, and only what they cost is kept: the run that goes on takes those pairs again.

    Args:
        path: the folder.
        identity: everything besides the pairs that decides labels.
        pairs: all of the input, also under a limit; `input` has them as they are kept.
        environment: what else is to be recorded of this start.
        cache: where the replies are kept that its evidence comes of.
        clock: gives the time.

    Raises:
        RunFolderError: the folder is of another run (the differences are listed), in use, damaged, or no run.
        InputError: two pairs have one id, or `meta` is not JSON.
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
        self.input = pairs if isinstance(pairs, Spool) else Spool(pairs)
        self._to_finish = True  # until it is closed, or the disk is full
        self._held: list[tuple[Annotation, History]] = []
        self._abandoned: list[Exchange] = []
        _check_folder(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(os.close, lock_folder(path))
            # Again: another process may have been here before the lock was ours.
            _check_folder(path)
            remove_drafts(path, (files.INPUT, files.MANIFEST, files.ANNOTATIONS, files.LABELS))
            self._manifest = _open_manifest(path, identity, self.input, clock)
            super().__init__(path, self._manifest.document)
            self._store = EvidenceStore(path / files.EVIDENCE)
            stack.callback(self._store.close)
            self._log = AnnotationLog(path / files.ANNOTATIONS)
            stack.callback(self._log.close)
            # In this order: what an annotation was made from is on the disk before it.
            self._synced = [*([cache.sync] if cache else []), self._store.sync, self._log.sync]
            self._last_sync = time.monotonic()
            cut = self._cut_without_evidence()
            self.index = self._log.index
            if len(self.index) and not self._store.has_records:
                self._store.add_costs([_UNKNOWN])
                self._manifest.notes.append(
                    f"{path / files.EVIDENCE} is gone, and with it what earlier annotations were made from, and what "
                    "they cost"
                )
            self._manifest.open_segment(environment)
            if cut:
                self._manifest.notes.append(
                    f"the evidence of the last {plural(cut, 'annotation')} was lost, as by a crash of the machine: "
                    "their pairs are annotated again"
                )
            stack.callback(self._manifest.close)
            self._stack = stack.pop_all()

    @property
    def notes(self) -> tuple[str, ...]:
        """What changed in the environment since the run began, for the user."""
        return tuple(self._manifest.notes)

    def discard_unusable(self, cache: ReplyCache) -> None:
        """Drop from a cache the replies of which pairs that ended in errors could make nothing.

        Where another run has had a reply to the same question since, that one stays.
        """
        for key in self.index.iterate_keys(failed=True):
            history = self.evidence(*key)
            for exchange in () if history is None else iterate_unusable(history):
                stored = cache.get(exchange.key)
                if stored is not None and replace_surrogates(stored.text) == exchange.reply:
                    cache.forget(exchange.key)

    def find_shared_reply(self, key: str) -> Reply | None:
        """Return what finished pairs were answered to a question that pairs share, None when there is none."""
        return self._store.find_shared_reply(key)

    def record_reply(self, role: str, reply: Reply) -> None:
        """Record where a role's reply came from, and by which model it was served."""
        self._manifest.record_reply(role, reply)

    def commit(self, annotation: Annotation, evidence: History) -> None:
        """Keep a pair's evidence and then its annotation, or hold both; from then on the pair is done.

        Evidence without a segment was made in this one.

        Raises:
            StorageError: the disk is full or fails; the pair is not done, everything before it is kept.
            RunFolderError: the evidence file is damaged.
        """
        if annotation.error is None or annotation.error.type not in _OF_THE_SERVER:
            self._write(annotation, evidence)
            return
        self._held.append((annotation, evidence))
        if len(self._held) > _MOST_HELD:
            self._write(*self._held.pop(0))

    def record_abandoned(self, exchanges: Iterable[Exchange]) -> None:
        """Count what was paid for a pair that is left unfinished; a later start may find its replies in the cache."""
        self._abandoned += exchanges  # written when the folder is closed: it may be the disk that ends the run

    def close(self) -> None:
        """Write what is held and the pairs' labels, leave one line of each pair and round, and release the lock.

        Closing twice does nothing.

        Raises:
            StorageError: the disk is full or fails; the lock is released all the same.
        """
        with self._stack:
            while self._held:
                self._write(*self._held.pop(0))
            if self._abandoned:
                exchanges, self._abandoned = self._abandoned, []
                self._store.add_costs(exchanges)
            if self._to_finish:
                self._to_finish = False
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
            self._to_finish = False
            raise

    def _sync(self) -> None:
        for sync in self._synced:
            sync()
        self._last_sync = time.monotonic()

    def _cut_without_evidence(self) -> int:
        """Cut off the annotations whose evidence a crash of the machine lost: of both it loses what was last."""
        segments = self._manifest.document["segments"]
        if not segments or segments[-1]["ended"] is not None or not self._store.has_records:
            return 0
        return self._log.truncate(lambda key: self._store.contains(*key))

    def __exit__(self, *ended: object) -> None:
        if any(ended):
            self.record_abandoned(exchange for _, evidence in self._held for exchange in evidence.exchanges)
            self._held.clear()
        self.close()


def _open_manifest(path: Path, identity: Mapping[str, Any], pairs: Spool, clock: Clock) -> Manifest:
    file = path / files.MANIFEST
    if file.exists():
        manifest = Manifest(file, clock=clock)
        settings, is_same = manifest.compare_identity(identity), pairs.sha256 == manifest.input_sha256
        if is_same and not settings:
            return manifest
        if _has_annotations(path):
            before, lost = (len(pairs), []) if is_same else _compare_pairs(path, pairs)
            if settings or lost:
                what = "settings" if settings else "pairs"
                listed = "".join(f"  {line}\n" for line in (*settings, *lost))
                raise RunFolderError(
                    f"{path}: holds a run with other {what}:\n{listed}"
                    f"Choose another folder (-o; in Python run_dir), or go on with the {what} of this one."
                )
            # First the pairs: whoever is killed in between has them compared again.
            manifest.replace_input(write_input(path, pairs), before, len(pairs))
            return manifest
        with writing(file):
            file.unlink()
    # Saved with its first segment; a folder without manifest is no run yet and is begun anew.
    return Manifest(file, {**identity, "input_sha256": write_input(path, pairs)}, clock)


def write_input(path: Path, pairs: Spool) -> str:
    """Replace the input of a run's folder in one step, and return its hash.

    Raises:
        StorageError: it cannot be written; the old one is whole.
    """
    with replacing(path / files.INPUT) as draft:
        pairs.write(draft)
    return pairs.sha256


def _compare_pairs(path: Path, pairs: Spool) -> tuple[int, list[str]]:
    """Return how many pairs the run has, and which of them are gone or changed, in lines for the user."""
    number, changes = 0, defaultdict[str, list[str]](list)
    for number, kept in enumerate(iter_normalised(path / files.INPUT), start=1):  # noqa: B007
        place = pairs.place(kept.id)
        if place is None:
            changes["gone"].append(format_value(kept.id))
        elif pairs[place] != kept:
            parts = [name for name in Pair.model_fields if getattr(kept, name) != getattr(pairs[place], name)]
            changes["changed"].append(f"{format_value(kept.id)} ({', '.join(parts)})")
    lines = []
    for what, names in sorted(changes.items(), reverse=True):
        more = ", …" if len(names) > _MOST_NAMED else ""
        lines.append(f"{plural(len(names), 'pair')} {what}: {', '.join(names[:_MOST_NAMED])}{more}")
    return number, lines


def _has_annotations(path: Path) -> bool:
    log = path / files.ANNOTATIONS
    return log.exists() and len(AnnotationIndex(log)) > 0


def _check_folder(path: Path) -> None:
    """Refuse what is neither new, nor a run, nor a run that was killed while it was made."""
    if "\0" in str(path):
        raise RunFolderError(f"{str(path)!r}: a path cannot hold NUL; give another folder (-o)")
    try:
        if not path.exists():
            return
        names = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    except NotADirectoryError:
        raise RunFolderError(f"{path}: is a file; give a folder (-o)") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be opened ({error.strerror}); give another folder (-o)") from None
    if files.MANIFEST in names or not names:
        return
    if others := sorted(names - files.UNFINISHED):
        raise RunFolderError(
            f"{path}: is not the folder of a run (it holds {', '.join(map(repr, others[:3]))}); give a new one (-o)"
        )
    if _has_annotations(path):
        raise RunFolderError(f"{path}: holds annotations but no {files.MANIFEST}; give a new folder (-o)")
