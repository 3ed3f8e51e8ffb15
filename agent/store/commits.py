"""Takes what is finished of a run to its folder; pairs that a model's server failed wait for its next answer."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from agent.errors import ModelTimeout, ModelUnavailable
from agent.evidence import Evidence
from agent.store.run_folder import RunFolder
from agent.types import Annotation

_OF_THE_SERVER = frozenset({ModelTimeout.__name__, ModelUnavailable.__name__})


class Commits:
    """Writes annotations with their evidence; a context manager that closes the folder.

    Errors of a model's server are held until all servers answer or all pairs are through. Where the run ends before,
    as by an outage, they are dropped, and only what they cost is kept: the run that goes on takes those pairs again.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._held: list[tuple[Annotation, Evidence]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.answered()
            for annotation, _ in self._held:
                self._folder.abandoned(annotation.usage)
        finally:
            self._folder.close()

    def add(self, annotation: Annotation, evidence: Evidence) -> None:
        """Write a finished pair, or hold it.

        Raises:
            StorageError: it cannot be written.
        """
        if annotation.error is not None and annotation.error.type in _OF_THE_SERVER:
            self._held.append((annotation, evidence))
        else:
            self._folder.commit(annotation, evidence)

    def answered(self) -> None:
        """Write what is held: the servers are there, so that these are errors of their pairs.

        Raises:
            StorageError: it cannot be written.
        """
        while self._held:
            self._folder.commit(*self._held.pop(0))
