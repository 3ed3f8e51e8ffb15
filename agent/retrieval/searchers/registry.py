"""Defines all searchers, keyed by name. The module and the libraries of a searcher are imported on first use.

To add a searcher, write a class that implements `Searcher` (base.py) and add an entry to `SEARCHERS`. The constructor
receives `name`, `about` and the options of the entry. `MODELS` maps name prefixes to embedders. For example, `hf:` is
the prefix of `hf:intfloat/e5-base-v2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from agent.errors import ConfigError, RunFolderError, UsageError, needs_extra
from agent.retrieval.searchers.base import Searcher
from agent.retrieval.searchers.known_models import KNOWN_MODELS, find_known_model
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.trained import HEAD, RECORD, WITHOUT_HEAD, read_record


@dataclass(frozen=True)
class SearcherEntry:
    """A searcher: its class as `module:Class` in this package, a short description, and options for the constructor."""

    class_path: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def create(self, *arguments: Any) -> Any:
        """Create an instance of this entry's class.

        Raises:
            ExtraMissing: a library is not installed.
        """
        return _import_class(self.class_path)(*arguments, **self.options)


def _import_class(class_path: str) -> Any:
    module, _, name = class_path.partition(":")
    with needs_extra("retrieval"):
        return getattr(import_module(f"agent.retrieval.searchers.{module}"), name)


# Searchers that need no pretrained model, only the snippets.
SEARCHERS: Mapping[str, SearcherEntry] = {
    "bow": SearcherEntry("lexical:VectorSpaceModel", "bag of words: cosine similarity of word counts"),
    "tfidf": SearcherEntry(
        "lexical:VectorSpaceModel",
        "cosine similarity of tf-idf vectors, as defined by scikit-learn",
        {"weights": "tf-idf"},
    ),
    "bm25": SearcherEntry("lexical:BM25", "BM25 with the defaults of bm25s (Lù 2024): k1 1.5, b 0.75", {"k1": 1.5}),
    "bm25-lucene": SearcherEntry("lexical:BM25", "BM25 with the defaults of Lucene: k1 1.2, b 0.75", {"k1": 1.2}),
    "lsa": SearcherEntry(
        "lexical:Lsa",
        "latent semantic analysis: tf-idf vectors reduced to 300 dimensions by scikit-learn's TruncatedSVD",
    ),
    "ncs": SearcherEntry(
        "ncs:Ncs", "Neural Code Search (Sachdev et al. 2018): tf-idf-weighted means of fastText vectors"
    ),
    "ncs-word2vec": SearcherEntry("ncs:Ncs", "ncs with word2vec instead of fastText", {"model": "word2vec"}),
    "ncs-postrank": SearcherEntry(
        "ncs:NcsPostrank", "ncs with its top results re-ranked by the query words that they contain"
    ),
}

# Embedders, keyed by name prefix. `make_searcher` passes the rest of the name and its options to the constructor.
MODELS: Mapping[str, SearcherEntry] = {
    "hf:": SearcherEntry(
        "models:HuggingFaceEmbedder", "hf:NAME-OR-FOLDER, a sentence-transformers or Hugging Face model"
    ),
    "openai:": SearcherEntry(
        "models:EndpointEmbedder", "openai:MODEL, an OpenAI-compatible embeddings endpoint (--base-url)"
    ),
}
TRAINED = "model:"
"""The name prefix of searchers that `agent train` wrote."""
_PICKLED = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
_TRAINER_STATE = frozenset({"optimizer.pt", "rng_state.pth", "scaler.pt", "scheduler.pt", "training_args.bin"})
"""Pickled files of checkpoints. Only an interrupted training has them, and no model loads them."""


def make_searcher(name: str, options: EmbedderOptions | None = None) -> Searcher:
    """Create the searcher with this name. `options` apply to embedding models only.

    Raises:
        ConfigError: no searcher has this name, or an option does not apply to the searcher.
        ExtraMissing: a library is not installed.
        UsageError, StorageError: the model cannot be used (only for embedding models).
    """
    options = options or EmbedderOptions()
    if name in SEARCHERS:
        _check_no_local_options(name, options)
        return cast(Searcher, SEARCHERS[name].create(name, SEARCHERS[name].about))
    if find_known_model(name) is not None:
        embedder = SearcherEntry("models:KnownModelEmbedder", "").create(name, options)
        return cast(Searcher, _import_class("dense:DenseSearcher")(embedder, options.embeddings))
    for prefix, entry in MODELS.items():
        if name.startswith(prefix) and name != prefix:
            if prefix == "openai:":
                _check_no_local_options(name, options)
            embedder = entry.create(name.removeprefix(prefix), options)
            return cast(Searcher, _import_class("dense:DenseSearcher")(embedder, options.embeddings))
    if name.startswith(TRAINED) and name != TRAINED:
        return _make_trained_searcher(Path(name.removeprefix(TRAINED)), options)
    matches = get_close_matches(name.lower(), [*SEARCHERS, *KNOWN_MODELS], n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(matches)}?" if matches else ""
    names = ", ".join([*SEARCHERS, *KNOWN_MODELS, *(f"{prefix}…" for prefix in (*MODELS, TRAINED))])
    raise ConfigError(f"unknown searcher {name!r}.{hint} Available: {names}.")


def _check_no_local_options(name: str, options: EmbedderOptions) -> None:
    given = {"--max-tokens": options.max_tokens is not None, "--precision": options.precision == "bfloat16"}
    if flags := " and ".join(flag for flag, is_given in given.items() if is_given):
        raise ConfigError(f"{name}: {flags} applies only to models that run on this machine. Run {name} separately.")


def _make_trained_searcher(folder: Path, options: EmbedderOptions) -> Searcher:
    """Create the searcher `model:FOLDER`. The recipe in the folder determines how snippets are scored.

    The folder defines the pooling, and custom code never runs, so these options are ignored.

    Raises:
        ExtraMissing: a library is not installed.
        UsageError: the folder was not written by `agent train`, is damaged, or contains links or pickled weights.
    """
    name, record = f"model:{folder}", read_record(folder)
    if record is None:
        raise UsageError(f"{name}: {folder / RECORD} does not exist. For a model of another tool, use hf:{folder}")
    for path in folder.rglob("*"):
        is_state = path.match(".training/checkpoint-*/*") and path.name in _TRAINER_STATE
        if path.is_symlink() or (_PICKLED & set(path.suffixes) and not is_state):
            raise RunFolderError(f"{name}: {path} is a link or pickled weights. Remove it.")
    with needs_extra("embed"):
        from agent.retrieval.searchers import dense, models, siamese, unif
    searcher: dense.VectorSearcher
    if record.recipe == "unif":
        _check_no_local_options(name, options)
        searcher = dense.DenseSearcher(unif.UnifEmbedder(folder), options.embeddings)
    else:
        options = replace(options, pooling=None, trust_remote_code=False)
        embedder = models.HuggingFaceEmbedder(str(folder), options, name)
        if record.recipe in WITHOUT_HEAD:
            searcher = dense.DenseSearcher(embedder, options.embeddings)
        else:
            searcher = siamese.SiameseSearcher(embedder, siamese.load_head(folder / HEAD), options.embeddings)
    searcher.training = record
    return searcher
