"""The batch sampler and its dataset, used by PyTorch's data loader as the trainer uses them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.training.test_rows import PAIRS, make_data, make_rows

pytestmark = pytest.mark.embed


def test_a_data_loader_yields_the_texts_of_the_batches_of_its_epoch() -> None:
    from torch.utils.data import DataLoader

    from agent.training.trainer import Batches

    data = make_data(PAIRS, 40)
    rows = make_rows(data, batch_size=8, hard_negatives=2)
    dataset = rows.make_dataset()
    assert len(pickle.dumps(rows)) < 100  # `datasets` pickles them
    assert list(dataset[0]) == ["query", "code", "negative_1", "negative_2"]
    sampler = Batches(dataset, rows=rows, batch_size=8, drop_last=False, valid_label_columns=["label"], seed=1)
    loader: Any = DataLoader(dataset, batch_sampler=sampler, collate_fn=list)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        batches = [[list(row.values()) for row in batch] for batch in loader]
        drawn = rows.draw(epoch)
        assert batches == [[[data.queries[row[0]], *(data.codes[code] for code in row[1])] for row in b] for b in drawn]
        assert len(batches) == len(loader)
