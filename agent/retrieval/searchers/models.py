"""Embedding models: any server that speaks OpenAI's protocol, and models of Hugging Face, each used by its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agent.errors import ExtraMissing, RunStopped, UsageError
from agent.evaluation.statistics import import_numpy
from agent.llm.embeddings import EmbeddingsServer
from agent.retrieval.searchers.dense import EmbeddedTexts
from agent.retrieval.searchers.recipes import RECIPES, EmbedderOptions, Kind, Recipe, choose_prefixes, find_recipe
from agent.wording import escape_hidden

_FILES = ("config.json", "modules.json", "config_sentence_transformers.json")
_MODEL_SUFFIXES = frozenset({".bin", ".json", ".model", ".pt", ".py", ".safetensors", ".txt"})
_CUSTOM_OUTPUT = {"modality_config": {"text": {"method": "forward", "method_output_name": None}}}
_CUSTOM_CODE = (
    "it has Python code of its own, which would run as you: read it; --trust-remote-code says that you trust it"
)
_NO_RECIPE = (
    "it is not known how this model makes one vector of a text, and another way gives wrong vectors without any error. "
    f"There are recipes for {', '.join(recipe.family for recipe in RECIPES)}, and for every model with a modules.json "
    "(sentence-transformers). If you know it: --pooling mean (or cls, last), --query-prefix and --code-prefix"
)


class EndpointEmbedder:
    """Has a server embed texts, several batches at a time, and makes the vectors of unit length.

    Prefixes that nobody gave are those of the model's family.

    Raises:
        ConfigError: the URL is none, or the key is missing (`EmbeddingsServer`).
    """

    concurrency = 4

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = EmbeddingsServer(model, options.base_url)
        self._prefixes = choose_prefixes(model, options)
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
            AccountError, RunStopped: as `EmbeddingsServer.embed`, or they are no vectors of one length.
        """
        np = import_numpy()
        given = self._server.embed([self._prefixes[kind] + text for text in texts])
        try:
            vectors = np.array(given.values, dtype=np.float32).reshape(len(texts), -1)
        except (TypeError, ValueError, OverflowError):
            what = "gave something else than a vector of each text"
            raise RunStopped(f"{self.name}: {self._server.url} {what}") from None
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        counts = {"tokens": given.tokens, "cut": given.truncated}
        return EmbeddedTexts(vectors / np.where(lengths > 0, lengths, 1), counts)


class HuggingFaceEmbedder:
    """Embeds by a model of the Hugging Face hub or of a local folder; the weights are loaded when they are needed.

    A `modules.json` says how its model makes vectors; else the recipe of its family does, else `options.pooling`.
    Runs on a GPU (CUDA, or Apple's) where torch sees one, in float32.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
        UsageError: there is no such model, its recipe is not known, or it runs code of its own that nobody trusted.
    """

    concurrency = 1

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self.name = f"hf:{model}"
        self._model, self._trust_remote_code = model, options.trust_remote_code
        torch, _, _ = _import_libraries()
        with self._wrap_errors("cannot be had"):
            config, modules, texts, version = self._read_configuration()
            self._prefixes = choose_prefixes(model, options, texts.get("prompts"))
            similarity = texts.get("similarity_fn_name") or "cosine"
            recipe = find_recipe(model)
            if options.pooling and (recipe or modules is not None):
                whose = f"the recipe of {recipe.family}" if recipe and modules is None else "its modules.json"
                raise UsageError(f"{whose} says how it makes one vector of a text: leave --pooling out")
            if options.pooling:
                recipe = Recipe("as asked for", "", options.pooling, "--pooling")
            if not self._trust_remote_code and _has_custom_code(config, modules, recipe):
                raise UsageError(_CUSTOM_CODE)
            if modules is None and recipe is None:
                raise UsageError(_NO_RECIPE)
            if similarity not in ("cosine", "dot"):
                raise UsageError(f"compares by {similarity!r:.40}; only cosine and dot are searched here")
        self._by_modules, self._recipe = modules is not None, recipe or Recipe("modules.json", "", "own", "its own")
        self._device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        self._loaded: Any = None
        pooling = "modules.json" if self._by_modules else self._recipe.pooling
        self.about = f"{similarity} of the vectors of {model} ({self._recipe.family}, {pooling})"
        self.settings: Mapping[str, Any] = {
            "model": model,
            "version": version,
            **{name: getattr(self._recipe, name) for name in ("family", "max_tokens", "mode", "tasks")},
            "pooling": pooling,
            "similarity": similarity,
            "prefixes": self._prefixes,
            "device": self._device,
        }

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Embed one batch; texts that are longer than the model takes are cut, and counted.

        Raises:
            UsageError: the model cannot be loaded, or fails.
        """
        if self._loaded is None:
            with self._wrap_errors("cannot be loaded"):
                self._loaded = self._load_model()
        with self._wrap_errors("fails"):
            vectors = self._loaded.encode(
                list(texts),
                prompt=self._prefixes[kind],
                task=self._recipe.tasks[kind == "code"],
                batch_size=len(texts),
                show_progress_bar=False,
                normalize_embeddings=self.settings["similarity"] == "cosine",
            )
            most, cut = self._loaded.max_seq_length, 0
            if isinstance(most, int):  # models of words alone have none
                whole = [self._prefixes[kind] + text for text in texts]
                cut = sum(len(ids) > most for ids in self._loaded.tokenizer(whole, verbose=False)["input_ids"])
        return EmbeddedTexts(vectors.astype(import_numpy().float32), {"cut": cut})

    def _load_model(self) -> Any:
        """Return the model as a `SentenceTransformer`: as its modules.json has it, or put together by its recipe."""
        torch, _, library = _import_libraries()
        recipe, trust, weights = self._recipe, {"trust_remote_code": self._trust_remote_code}, {"dtype": torch.float32}
        if self._by_modules:
            return library.SentenceTransformer(self._model, device=self._device, model_kwargs=weights, **trust)
        modules, own = library.sentence_transformer.modules, recipe.pooling == "own"
        words = modules.Transformer(
            self._model,
            max_seq_length=recipe.max_tokens,
            model_kwargs={**trust, **weights},
            processor_kwargs=trust,
            config_kwargs=trust,
            **({**_CUSTOM_OUTPUT, "module_output_name": "sentence_embedding"} if own else {}),
        )
        if recipe.mode is not None:
            if recipe.mode not in words.tokenizer.get_vocab():
                raise UsageError(f"its tokenizer does not know {recipe.mode}: it is not of the family {recipe.family}")
            words.tokenizer.add_tokens([recipe.mode], special_tokens=True)
        pooling = {"last": "lasttoken"}.get(recipe.pooling, recipe.pooling)
        parts = [words] if own else [words, modules.Pooling(words.get_embedding_dimension(), pooling)]
        return library.SentenceTransformer(modules=parts, device=self._device)

    def _read_configuration(self) -> tuple[dict[str, Any], list[Any] | None, dict[str, Any], str]:
        """Return what the files of `_FILES` hold, and the model's version."""
        _, transformers, _ = _import_libraries()
        folder = Path(self._model)
        if self._model[:1] in "./~" and not folder.is_dir():
            raise UsageError("there is no such folder")
        find = partial(transformers.utils.cached_file, self._model, _raise_exceptions_for_missing_entries=False)
        paths = [find(name) for name in _FILES]
        config, modules, texts = (path and json.loads(Path(path).read_bytes()) for path in paths)
        if config is None and modules is None:
            raise UsageError(f"holds no model ({' and '.join(_FILES[:2])} are missing)")
        version = _hash_folder(folder) if folder.is_dir() else _extract_commit(next(filter(None, paths), ""))
        return config or {}, modules, texts or {}, version

    @contextmanager
    def _wrap_errors(self, what: str) -> Iterator[None]:
        """Turn errors into words: files of strangers, and the code of some, may fail in any way."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from error
        except Exception as error:
            cause = escape_hidden(f"{type(error).__name__}: {' '.join(str(error).split())}", limit=300)
            raise UsageError(f"{self.name}: {what}: {cause}") from error


def _has_custom_code(config: Mapping[str, Any], modules: Sequence[Any] | None, recipe: Recipe | None) -> bool:
    """Say whether a model brings classes of its own, in whose place transformers may silently take others."""
    types = [str(each.get("type") if isinstance(each, dict) else each) for each in modules or ()]
    own = bool(config.get("auto_map")) or any(not each.startswith("sentence_transformers.") for each in types)
    return own or (recipe is not None and recipe.custom_code)


def _hash_folder(folder: Path) -> str:
    """Return a hash of all that decides a local model's vectors, by content: copies have other times."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _MODEL_SUFFIXES and not any(part.startswith(".") for part in name.parts) and path.is_file():
            with path.open("rb") as file:
                digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return f"sha256:{digest.hexdigest()}"


def _extract_commit(path: str) -> str:
    """Return the commit of a file in the hub's cache: `.../snapshots/COMMIT/config.json`."""
    parts = Path(path).parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else "unknown"


def _import_libraries() -> tuple[Any, Any, Any]:
    """Return torch, transformers and sentence_transformers; what these say of missing weights goes to standard error.

    Raises:
        ExtraMissing: one is not installed.
    """
    try:
        import sentence_transformers
        import torch
        import transformers
    except ImportError as error:
        raise ExtraMissing("embed", error) from error
    logging: Any = transformers.utils.logging
    logging.disable_progress_bar()
    return torch, transformers, sentence_transformers
