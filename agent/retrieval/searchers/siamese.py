"""Ranks codes by the head of a siamese model (Huang et al. 2021, *CoSQA*, section 5.1), in NumPy.

q and c are the vectors of a query and a code, and ⊙ is the element-wise product:

    r = tanh(W1 · [q, c, q − c, q ⊙ c])    (equation 2)
    s = sigmoid(W2 · r)

The four columns of blocks of W1 are Wq, Wc, Wd and Wp. The linear part is computed once per text, because

    W1 · [q, c, q − c, q ⊙ c] = (Wq + Wd) · q + (Wc − Wd) · c + Wp · (q ⊙ c).

The last term costs (dimensions × size of r) multiplications for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from agent.errors import RunFolderError, UsageError
from agent.evaluation.statistics import import_numpy
from agent.retrieval.searchers.base import Progress, SearchResult, select_best_codes
from agent.retrieval.searchers.dense import Embedder, VectorSearcher
from agent.retrieval.searchers.recipes import Kind
from agent.store.files import check_run_file, reading

if TYPE_CHECKING:
    import numpy as np

_MAX_SIZE = 1 << 16  # rows and columns
_BLOCK_SIZE = 1 << 22  # numbers in the largest intermediate array


class Head:
    """The weights W1 (size of r × 4 dimensions) and W2 (1 × size of r). Computes in float64.

    Identical vectors therefore have the same score after rounding to float32, regardless of their position.
    """

    def __init__(self, w1: np.ndarray[Any, Any], w2: np.ndarray[Any, Any]) -> None:
        self.dimensions = w1.shape[1] // 4
        of_query, of_code, of_difference, of_product = import_numpy().split(w1.T.astype("float64"), 4)
        self._query, self._code, self._product = of_query + of_difference, of_code - of_difference, of_product
        self._w2 = w2[0].astype("float64")

    def score(self, queries: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return W2 · r, which ranks like s and does not saturate. s ≥ .5 if and only if W2 · r ≥ 0.

        Shapes broadcast: (n, dimensions) twice for n pairs, or (n, 1, dimensions) and (m, dimensions) for all pairs.
        """
        queries, codes = queries.astype("float64"), codes.astype("float64")
        relations = queries @ self._query + codes @ self._code + (queries * codes) @ self._product
        scores: np.ndarray[Any, Any] = import_numpy().tanh(relations, out=relations) @ self._w2
        return scores


def load_head(path: Path) -> Head:
    """Read a head from a safetensors file with the float32 matrices `w1.weight` and `w2.weight`.

    Raises:
        RunFolderError: the file is missing, is a link, or does not contain the weights of a head.
    """
    check_run_file(path)
    try:
        with reading(path), safe_open(str(path), "numpy") as file:
            parts = [(name, file.get_slice(name)) for name in sorted(file.keys())]
            match [(name, part.get_dtype(), part.get_shape()) for name, part in parts]:
                case [("w1.weight", "F32", [size, width]), ("w2.weight", "F32", [1, columns])] if (
                    size == columns and width % 4 == 0 and 0 < size <= _MAX_SIZE and 0 < width <= _MAX_SIZE
                ):
                    w1, w2 = (file.get_tensor(name) for name, _ in parts)
                case content:
                    raise RunFolderError(f"{path}: is not the head of a siamese model: it contains {content!s:.300}")
    except SafetensorError as error:
        raise RunFolderError(f"{path}: is damaged ({error}). Train the model again.") from None
    if not (import_numpy().isfinite(w1).all() and import_numpy().isfinite(w2).all()):
        raise RunFolderError(f"{path}: contains non-finite weights, such as NaN. Train the model again.")
    return Head(w1, w2)


class SiameseSearcher(VectorSearcher):
    """Ranks codes by the score of the head. The scores of the results are W2 · r (see the module docstring)."""

    def __init__(self, embedder: Embedder, head: Head, folder: Path) -> None:
        super().__init__(embedder, folder)
        self._head = head

    def answer(self, queries: Sequence[str], codes: Sequence[str], progress: Progress) -> list[bool]:
        """Return for each query whether the code at the same position answers it: s ≥ .5.

        This is code question answering (section 4), which is measured by accuracy.

        Raises:
            UsageError: the numbers of queries and codes differ. See also `index`.
            RunFolderError, StorageError, RunStopped: see `index`.
        """
        if len(queries) != len(codes):
            raise UsageError(f"there are {len(queries):,} queries and {len(codes):,} codes. Pass one code per query.")
        if not queries:
            return []
        scores = self._head.score(self._read(queries, "query", progress), self._read(codes, "code", progress))
        return [bool(score >= 0) for score in scores]

    def _read(self, texts: Sequence[str], kind: Kind, progress: Progress) -> np.ndarray[Any, Any]:
        file, order = self._embed_texts(texts, kind, progress)
        self._check_dimensions(file.dimensions)
        return file.read_vectors(import_numpy().argsort(order).tolist())

    def _find_best(self, queries: np.ndarray[Any, Any], depth: int) -> Iterator[SearchResult]:
        np = import_numpy()
        self._check_dimensions(self._codes.shape[1])
        size = max(1, _BLOCK_SIZE // queries.size)
        blocks = (self._codes[start : start + size] for start in range(0, len(self._codes), size))
        scores = [self._head.score(queries[:, None], block) for block in blocks]
        for row in np.concatenate(scores, axis=1, dtype=np.float32)[:, self._rows]:
            yield select_best_codes(row, depth)

    def _check_dimensions(self, dimensions: int) -> None:
        if dimensions != self._head.dimensions:
            raise UsageError(f"{self.name}: vectors have {dimensions} dimensions, not {self._head.dimensions}")
