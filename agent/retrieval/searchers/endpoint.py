"""Any server that speaks OpenAI's embeddings protocol, as an embedder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.errors import RunStopped
from agent.evaluation.statistics import numpy
from agent.llm.embeddings import EmbeddingsServer
from agent.retrieval.searchers.dense import EmbeddedTexts
from agent.retrieval.searchers.recipes import EmbedderOptions, Kind, prefixes


class EndpointEmbedder:
    """Has a server embed texts, several batches at a time, and makes the vectors of unit length.

    Prefixes that nobody gave are those of the model's family.

    Raises:
        ConfigError: the URL is none, or the key is missing (`EmbeddingsServer`).
    """

    at_once = 4

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = EmbeddingsServer(model, options.base_url)
        self._prefixes = prefixes(model, options)
        self.name = f"openai:{model}"
        self.about = f"cosine of the vectors that {self._server.url} gives for {model}"
        # the server counts: under one name (`default`), two servers may have two models
        self.settings: Mapping[str, Any] = {
            "model": model,
            "server": self._server.url,
            "similarity": "cosine",
            "prefixes": self._prefixes,
        }

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Ask for the vectors of one batch.

        Raises:
            AccountError, RunStopped: as `EmbeddingsServer.vectors`, or they are no vectors of one length.
        """
        np = numpy()
        given = self._server.vectors([self._prefixes[kind] + text for text in texts])
        try:
            vectors = np.array(given.values, dtype=np.float32).reshape(len(texts), -1)
        except (TypeError, ValueError, OverflowError):
            what = "gave something else than a vector of each text"
            raise RunStopped(f"{self.name}: {self._server.url} {what}") from None
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        counts = {"tokens": given.tokens, "cut": given.cut}
        return EmbeddedTexts(vectors / np.where(lengths > 0, lengths, 1), counts)
