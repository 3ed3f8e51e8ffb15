"""What a run keeps when the machine goes down, by a loss of power or of its kernel.

What a process wrote is the system's, and outlives the process. When the machine goes down, whatever had not come to the
disk is lost, of each file another part. So at least every few seconds of work, and at the end, everything is brought
to the disk: the cached replies first, then the evidence that came of them, then the annotations. What the system
brought there before its turn is found when the run goes on: of annotations whose evidence is lost the pairs are
annotated again.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from agent.store.annotations import Key, annotation_key
from agent.store.files import open_own, writing

SECONDS_BETWEEN = 5.0
"""Of work, at most, that a crash of the machine may lose."""


class Barrier:
    """Takes steps, each of which brings a file to the disk, in their order. `clock` gives seconds."""

    def __init__(self, *steps: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = steps
        self._clock = clock
        self._last = clock()

    def passed(self) -> None:
        """Take note that something was finished; the steps are taken when it is time.

        Raises:
            StorageError: the disk fails.
        """
        if self._clock() - self._last >= SECONDS_BETWEEN:
            self.now()

    def now(self) -> None:
        """Take the steps.

        Raises:
            StorageError: the disk fails.
        """
        for step in self._steps:
            step()
        self._last = self._clock()


def cut_unproven(path: Path, proven: Callable[[Key], bool]) -> int:
    """Cut the annotations off the end of a file that nothing is kept of, and return how many; a torn end goes with it.

    Evidence is committed in the order of the annotations, and a crash of the machine loses its last commits alone. So
    what lacks evidence is the end of the file.

    Raises:
        RunFolderError: a line there is not an annotation.
        StorageError: the file cannot be written.
    """
    descriptor = open_own(path)
    try:
        size = end = os.fstat(descriptor).st_size
        cut = 0
        if size:
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
                end = content.rfind(b"\n") + 1
                while end and not proven(annotation_key(content[(start := _start(content, end)) : end], str(path))):
                    end, cut = start, cut + 1
        if cut:
            with writing(path):
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
        return cut
    finally:
        os.close(descriptor)


def _start(content: mmap.mmap, end: int) -> int:
    """Return where the line begins that ends before `end`."""
    return content.rfind(b"\n", 0, end - 1) + 1
