"""Ranks snippets by the head of a siamese model (Huang et al. 2021, *CoSQA*, section 5.1).

q and c are the vectors of a query and a snippet, and ⊙ is the element-wise product:

    r = tanh(W1 · [q, c, q − c, q ⊙ c])    (equation 2)
    s = sigmoid(W2 · r)

The four columns of blocks of W1 are Wq, Wc, Wd and Wp. The linear part is computed once per text, because

    W1 · [q, c, q − c, q ⊙ c] = (Wq + Wd) · q + (Wc − Wd) · c + Wp · (q ⊙ c).

The last term costs (dimensions × size of r) multiplications for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from agent.errors import RunFolderError, UsageError
from agent.evaluation.lazy_numpy import np
from agent.retrieval.searchers.base import SearchResult, select_best_codes
from agent.retrieval.searchers.dense import Embedder, VectorSearcher
from agent.retrieval.searchers.unif import read_weights

_BLOCK_SIZE = 1 << 22  # numbers in the largest intermediate array


class Head(torch.nn.Module):  # type: ignore[misc]
    """The weights W1 (size of r × 4 dimensions) and W2 (1 × size of r). The size of r is the number of dimensions.

    In float64, identical vectors have the same score after rounding to float32, regardless of their position.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.w1 = torch.nn.Linear(4 * dimensions, dimensions, bias=False)
        self.w2 = torch.nn.Linear(dimensions, 1, bias=False)

    def forward(self, queries: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        """Return W2 · r, which ranks like s and does not saturate. s ≥ .5 if and only if W2 · r ≥ 0.

        Shapes broadcast: (n, dimensions) twice for n pairs, or (n, 1, dimensions) and (m, dimensions) for all pairs.
        """
        of_query, of_code, of_difference, of_product = self.w1.weight.T.chunk(4)
        linear = queries @ (of_query + of_difference) + codes @ (of_code - of_difference)
        scores: torch.Tensor = self.w2(torch.tanh(linear + (queries * codes) @ of_product)).squeeze(-1)
        return scores

    def score_all(self, queries: Any, codes: Any) -> torch.Tensor:
        """Return the scores (queries × snippets) without gradients. Vectors are arrays or tensors of any float type."""
        queries = torch.as_tensor(queries).to(self.w1.weight)
        size = max(1, _BLOCK_SIZE // queries.numel())
        # the sums are copies, because mapped vectors cannot be written
        blocks = (torch.as_tensor(codes[start : start + size] + 0) for start in range(0, len(codes), size))
        with torch.no_grad():
            return torch.cat([self(queries[:, None], block.to(queries)) for block in blocks], dim=1)


def load_head(path: Path) -> Head:
    """Read a head from a safetensors file with the float32 matrices `w1.weight` and `w2.weight`.

    Raises:
        RunFolderError: the file is missing, is a link, or does not contain the weights of a head.
    """
    weights = read_weights(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    size = shapes.get("w2.weight", (0,))[-1]
    if not size or shapes != {"w1.weight": (size, 4 * size), "w2.weight": (1, size)}:
        raise RunFolderError(f"{path}: is not the head of a siamese model: it contains {shapes!s:.300}")
    head = Head(size)
    head.load_state_dict(weights)
    head.double()
    return head


class SiameseSearcher(VectorSearcher):
    """Ranks snippets by the score of the head. The scores of the results are W2 · r (see the module docstring)."""

    def __init__(self, embedder: Embedder, head: Head, folder: Path) -> None:
        super().__init__(embedder, folder)
        self._head = head

    def _find_best(self, queries: np.ndarray[Any, Any], depth: int) -> Iterator[SearchResult]:
        self._check_dimensions(self._codes.shape[1])
        for row in self._head.score_all(queries, self._codes).float().numpy()[:, self._rows]:
            yield select_best_codes(row, depth)

    def _check_dimensions(self, dimensions: int) -> None:
        if dimensions != (expected := self._head.w1.out_features):
            raise UsageError(f"{self.name}: vectors have {dimensions} dimensions, not {expected}")
