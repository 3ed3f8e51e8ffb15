"""Every searcher by name. Its module, which imports the libraries, is imported when the searcher is asked for.

To add one: a class that meets `Searcher` (base.py), whose constructor takes `name`, `about` and the options of its
entry, and the entry in `SEARCHERS`. `MODELS` has the forms of names that say a model: `hf:intfloat/e5-base-v2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from agent.errors import ConfigError, ExtraMissing
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.recipes import EmbedderOptions


@dataclass(frozen=True)
class SearcherEntry:
    """A searcher: its class as `module:Class` of this package, a line about it, and what its class is called with."""

    class_path: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def create(self, *arguments: Any) -> Any:
        """Return an object of this entry's class.

        Raises:
            ExtraMissing: a library is not installed.
        """
        return _import_class(self.class_path)(*arguments, **self.options)


def _import_class(class_path: str) -> Any:
    module, _, name = class_path.partition(":")
    try:
        return getattr(import_module(f"agent.retrieval.searchers.{module}"), name)
    except ImportError as error:
        raise ExtraMissing("retrieval", error) from error


# Searchers that learn from the codes alone.
SEARCHERS: Mapping[str, SearcherEntry] = {
    "bow": SearcherEntry("lexical:VectorSpaceModel", "bag of words: the cosine of the words' counts"),
    "tfidf": SearcherEntry(
        "lexical:VectorSpaceModel", "the cosine of tf-idf as scikit-learn defines it", {"weights": "tf-idf"}
    ),
    "bm25": SearcherEntry("lexical:BM25", "BM25 with the parameters of bm25s (Lù 2024): k1 1.5, b 0.75", {"k1": 1.5}),
    "bm25-lucene": SearcherEntry("lexical:BM25", "BM25 with the parameters of Lucene: k1 1.2, b 0.75", {"k1": 1.2}),
    "lsa": SearcherEntry(
        "lexical:Lsa", "latent semantic analysis: tf-idf in 300 dimensions, by scikit-learn's TruncatedSVD"
    ),
    "ncs": SearcherEntry(
        "ncs:Ncs", "Neural Code Search (Sachdev et al. 2018): tf-idf-weighted means of fastText's vectors"
    ),
    "ncs-word2vec": SearcherEntry("ncs:Ncs", "ncs with word2vec in the place of fastText", {"model": "word2vec"}),
    "ncs-postrank": SearcherEntry(
        "ncs:NcsPostrank", "ncs, its best results re-ranked by the query's words that are in them"
    ),
}

# Forms of names: embedders, made with what follows the colon and the options of `make`.
MODELS: Mapping[str, SearcherEntry] = {
    "hf:": SearcherEntry(
        "models:HuggingFaceEmbedder", "hf:NAME-OR-FOLDER, a model of sentence-transformers or Hugging Face"
    ),
    "openai:": SearcherEntry(
        "models:EndpointEmbedder", "openai:MODEL, an OpenAI-compatible embeddings endpoint (--base-url)"
    ),
}


def make_searcher(name: str, options: EmbedderOptions | None = None) -> Searcher:
    """Return a searcher by its name; `options` are for those by a model, others have no use for them.

    Raises:
        ConfigError: no searcher has this name.
        ExtraMissing: a library is not installed.
        UsageError: a model cannot be used (`hf:`, `openai:`).
    """
    if name in SEARCHERS:
        return cast(Searcher, SEARCHERS[name].create(name, SEARCHERS[name].about))
    for form, entry in MODELS.items():
        if name.startswith(form) and name != form:
            options = options or EmbedderOptions()
            embedder = entry.create(name.removeprefix(form), options)
            return cast(Searcher, _import_class("dense:DenseSearcher")(embedder, options.embeddings))
    near = get_close_matches(name.lower(), SEARCHERS, n=3, cutoff=0.5)
    meant = f": {' or '.join(near)} may be meant" if near else ""
    raise ConfigError(
        f"no searcher {name!r}{meant}. There are {', '.join(SEARCHERS)}, {', '.join(f'{form}…' for form in MODELS)}"
    )
