"""The batch sampler, used by PyTorch's data loader as the trainer uses it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.training.recipe import Hyperparameters
from tests.training.test_rows import PAIRS, make_data

pytestmark = pytest.mark.embed


def test_a_data_loader_yields_the_batches_of_its_epoch() -> None:
    from torch.utils.data import DataLoader

    from agent.training.batches import Batches, EpochRows

    data = make_data(PAIRS, 40)
    rows = EpochRows(data, "ranking", Hyperparameters(batch_size=8, hard_negatives=1), True)
    dataset = rows.make_dataset()
    sampler = Batches(dataset, rows=rows, batch_size=8, drop_last=False, valid_label_columns=["label"], seed=1)
    loader: Any = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        batches = [[row["query"] for row in batch] for batch in loader]
        assert batches == [[data.queries[row.query] for row in batch] for batch in rows.draw(epoch)]
        assert len(batches) == len(loader)
