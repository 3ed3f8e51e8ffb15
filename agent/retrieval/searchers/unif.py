"""Implements UNIF, which extends NCS by supervision: trained word vectors, and attention over the words of a snippet.

Source: Cambronero et al., *When Deep Learning Met Code Search* (arXiv:1905.03813). T_q and T_c are the tables of word
vectors for queries and for snippets, and a is the attention vector. With e_i = T_c(w_i):

    v(code)  = Σ_i α_i · e_i         α_i = exp(a · e_i) / Σ_j exp(a · e_j), over all words of the code
    v(query) = Σ_i T_q(w_i) / n      over all n words of the query
    score    = cos(v(query), v(code))

Words are those of NCS (`lexical.tokenise`). Words outside the vocabulary are skipped. A text without known words has
the zero vector, and its scores are 0. `agent/training/unif.py` trains the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel

from agent.datasets.encoding import dumps
from agent.errors import RunFolderError, needs_extra
from agent.retrieval.searchers.dense import EmbeddedTexts
from agent.retrieval.searchers.lexical import tokenise
from agent.retrieval.searchers.models import hash_folder
from agent.retrieval.searchers.presets import Kind
from agent.runs.store.files import check_run_file, read_document, reading
from agent.text import escape_hidden

with needs_extra("embed"):
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule

WEIGHTS, VOCABULARY = "model.safetensors", "vocabulary.json"
_REMEDY = "Train the model again, or pass another folder."
_MAX_SIZE = 8 << 30  # bytes


def read_weights(path: Path) -> dict[str, Any]:
    """Read tensors from a safetensors file, which is not trusted.

    Raises:
        RunFolderError: the file is missing, damaged, a link or too large, or has other values than finite float32.
    """
    check_run_file(path)
    with reading(path):
        if path.stat().st_size > _MAX_SIZE:
            raise RunFolderError(f"{path}: is too large. {_REMEDY}")
        try:
            weights: dict[str, Any] = load_file(path)  # compares shapes with the size of the file
        except SafetensorError as error:
            raise RunFolderError(f"{path}: damaged ({escape_hidden(str(error), limit=200)}). {_REMEDY}") from None
    if any(tensor.dtype != torch.float32 or not tensor.isfinite().all() for tensor in weights.values()):
        raise RunFolderError(f"{path}: contains other values than finite float32 numbers. {_REMEDY}")
    return weights


class _Vocabulary(BaseModel):
    """The content of `vocabulary.json`. The position of a word is its row in both tables."""

    words: list[str]


class UnifEncoder(InputModule):  # type: ignore[misc]
    """Computes the vectors of UNIF, as the only module of a `SentenceTransformer`.

    `queries` and `codes` are the tables T_q and T_c, with shape (words, dimensions). `attention` is the vector a. The
    task `query` or `document` selects the formula.
    """

    tokenizer = None

    def __init__(self, words: Sequence[str], queries: Any, codes: Any, attention: Any) -> None:
        super().__init__()
        self.words = words
        self.queries, self.codes, self.attention = map(torch.nn.Parameter, (queries, codes, attention))
        self._ids = {word: number for number, word in enumerate(words)}

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """Return the rows of the known words of all texts, the number of known words in each text, and the task."""
        words = (tokenise((prompt or "") + text) for text in inputs)
        texts = [[self._ids[word] for word in text if word in self._ids] for text in words]
        rows = torch.tensor([row for text in texts for row in text], dtype=torch.long)
        return {"input_ids": rows, "sizes": torch.tensor([len(text) for text in texts]), "task": options.get("task")}

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add `sentence_embedding` with shape (texts, dimensions).

        Raises:
            ValueError: the task is not `query` or `document`.
        """
        sizes, task = features["sizes"], features["task"]
        if task not in ("query", "document"):
            raise ValueError(f"UNIF embeds queries and documents, not {task}")
        vectors = torch.nn.functional.embedding(features["input_ids"], self.queries if task == "query" else self.codes)
        texts = torch.repeat_interleave(sizes)  # the text of each word
        # for queries, a softmax over equal scores yields the weights 1/n
        scores = (vectors * self.attention).sum(1) if task == "document" else vectors.new_zeros(len(texts))
        zeros = vectors.new_zeros(len(sizes), vectors.shape[1])
        highest = zeros[:, 0].scatter_reduce(0, texts, scores.detach(), "amax", include_self=False)
        exponentials = torch.exp(scores - highest[texts])
        weights = exponentials / zeros[:, 0].index_add(0, texts, exponentials)[texts]
        return {**features, "sentence_embedding": zeros.index_add(0, texts, weights[:, None] * vectors)}

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions."""
        return len(self.attention)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the weights and the vocabulary."""
        self.save_torch_weights(output_path)
        Path(output_path, VOCABULARY).write_bytes(dumps({"words": list(self.words)}))

    @classmethod
    def load(cls, model_name_or_path: str, **options: Any) -> Self:  # noqa: ARG003
        """Load the module from a folder, which is not trusted. The trainer calls this method when it resumes.

        Raises:
            RunFolderError: a file is missing, damaged, a link, or too large, or the files do not fit together.
        """
        path, vocabulary = Path(model_name_or_path, WEIGHTS), Path(model_name_or_path, VOCABULARY)
        check_run_file(vocabulary)
        words = read_document(vocabulary, _Vocabulary, expected="a vocabulary", remedy=_REMEDY).words
        weights = read_weights(path)
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        (*_, dimensions) = table = (len(words), *shapes.get("attention", ()))
        if shapes != {"queries": table, "codes": table, "attention": (dimensions,)} or not all(table):
            raise RunFolderError(f"{path}: does not have one row for each word of {VOCABULARY}. {_REMEDY}")
        return cls(words, **weights)


class UnifEmbedder:
    """Embeds texts with a trained UNIF model on the CPU, for `DenseSearcher`.

    Raises:
        RunFolderError: see `UnifEncoder.load`.
    """

    concurrency = 1

    def __init__(self, folder: Path) -> None:
        self._model = SentenceTransformer(modules=[UnifEncoder.load(str(folder))], device="cpu")
        self.name = f"model:{folder}"
        self.about = "UNIF (Cambronero et al. 2019): cosine similarity of trained word vectors, with attention on code"
        self.settings: Mapping[str, Any] = {"version": hash_folder(folder), "similarity": "cosine"}

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Embed one batch. Vectors have length 1. A text without known words has the zero vector."""
        encode = self._model.encode_query if kind == "query" else self._model.encode_document
        return EmbeddedTexts(encode(list(texts), show_progress_bar=False, normalize_embeddings=True))
