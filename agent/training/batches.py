"""The batch sampler of the trainer. The rows of a batch come from `agent.training.rows`, which needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sentence_transformers.base.sampler import DefaultBatchSampler

from agent.training.rows import EpochRows, Row

__all__ = ["Batches", "EpochRows", "Row"]


class Batches(DefaultBatchSampler):  # type: ignore[misc]
    """Yields the batches of the current epoch, as indices of `rows.make_dataset()`.

    Build it in the trainer's `get_batch_sampler`, with its `options`. The training arguments are part of every
    checkpoint, so a sampler in them would save the texts.
    """

    def __init__(self, dataset: Any, *, rows: EpochRows, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._rows = rows

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for batch in self._rows.draw(self.epoch):
            yield list(range(start, start + len(batch)))
            start += len(batch)

    def __len__(self) -> int:
        return self._rows.batches
