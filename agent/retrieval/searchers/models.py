"""Models of Hugging Face and sentence-transformers, from the hub or a local folder, each used by its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agent.errors import ExtraMissing, UsageError
from agent.retrieval.searchers.base import numpy
from agent.retrieval.searchers.dense import Embedded
from agent.retrieval.searchers.recipes import RECIPES, Kind, ModelOptions, Pooling, Recipe, prefixes, recipe_of
from agent.wording import plain

_OF_A_MODEL = frozenset({".bin", ".json", ".model", ".pt", ".py", ".safetensors", ".txt"})
_FILES = ("config.json", "modules.json", "config_sentence_transformers.json")
_UNUSED_WEIGHTS = ("pooler.", "embed_tokens.", "position_ids")
_OWN_CODE = (
    "the model comes with Python code of its own, which would run here as you: read it, and give --trust-remote-code "
    "if you trust it"
)
_NO_RECIPE = (
    "it is not known how this model makes one vector of a text, and another way gives wrong vectors without any error. "
    f"There are recipes for {', '.join(recipe.family for recipe in RECIPES)}, and for every model with a modules.json "
    "(sentence-transformers). If you know it: --pooling mean (or cls, last), --query-prefix and --code-prefix"
)


class HuggingFaceEmbedder:
    """Embeds by a model of the Hugging Face hub or of a local folder; the weights are loaded when they are needed.

    A `modules.json` says how its model makes vectors, and is used through sentence-transformers; else the recipe of
    the model's family is used, through transformers, else `options.pooling`. Prefixes are those of the options, else
    the prompts of the folder, else those of the family. Runs on a GPU (CUDA, or Apple's) where torch sees one, in
    float32.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
        UsageError: there is no such model, its recipe is not known, or it runs code of its own that nobody trusted.
    """

    at_once = 1

    def __init__(self, model: str, options: ModelOptions) -> None:
        self.name, self.notes = f"hf:{model}", list[str]()
        self._model, self._trusted = model, options.trust_remote_code
        torch, _, _ = _libraries()
        config, modules, texts, version = self._read()
        recipe = recipe_of(model) or (options.pooling and Recipe("as asked for", "", options.pooling, "--pooling"))
        if not self._trusted and _runs_own_code(config, modules, recipe):
            raise UsageError(f"{self.name}: {_OWN_CODE}")
        if modules is None and recipe is None:
            raise UsageError(f"{self.name}: {_NO_RECIPE}")
        similarity = texts.get("similarity_fn_name") or "cosine"
        if similarity not in ("cosine", "dot"):
            raise UsageError(f"{self.name}: compares by {similarity!r:.40}; only cosine and dot are searched here")
        self._by_modules, self._recipe = modules is not None, recipe or Recipe("modules.json", "", "own", "its own")
        self._prefixes = prefixes(model, options, texts.get("prompts"))
        pooling = "modules.json" if self._by_modules else self._recipe.pooling
        self._device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        self.about = f"{similarity} of the vectors of {model} ({self._recipe.family}, {pooling})"
        self.settings: Mapping[str, Any] = {
            "model": model,
            "version": version,
            "family": self._recipe.family,
            "pooling": pooling,
            "similarity": similarity,
            "query_prefix": self._prefixes["query"],
            "code_prefix": self._prefixes["code"],
            "device": self._device,
        }
        self._vectors: Callable[[Sequence[str], Kind], Embedded] | None = None

    def embed(self, texts: Sequence[str], kind: Kind) -> Embedded:
        """Embed one batch; texts that are longer than the model takes are cut, and counted.

        Raises:
            UsageError: the model cannot be loaded, or fails.
        """
        torch, _, _ = _libraries()
        if self._vectors is None:
            with self._guarded("cannot be loaded"):
                self._vectors = self._sentence_transformer() if self._by_modules else self._transformer()
        with self._guarded("fails"), torch.inference_mode():
            return self._vectors(texts, kind)

    def stop(self) -> None:
        """Nothing: a batch ends by itself."""

    def _read(self) -> tuple[dict[str, Any], list[Any] | None, dict[str, Any], str]:
        """Return what the files of `_FILES` hold, and the model's version."""
        _, transformers, _ = _libraries()
        folder = Path(self._model)
        if self._model[:1] in "./~" and not folder.is_dir():
            raise UsageError(f"{self.name}: there is no such folder")
        with self._guarded("cannot be had"):
            find = partial(transformers.utils.cached_file, self._model, _raise_exceptions_for_missing_entries=False)
            paths = [find(name) for name in _FILES]
            config, modules, texts = (path and json.loads(Path(path).read_bytes()) for path in paths)
            version = _digest(folder) if folder.is_dir() else _commit(next(filter(None, paths), ""))
        if config is None and modules is None:
            raise UsageError(f"{self.name}: holds no model ({' and '.join(_FILES[:2])} are missing)")
        return config or {}, modules, texts or {}, version

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Turn errors into words: files of strangers, and the code of some, may fail in any way."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}") from error
        except Exception as error:
            if "OutOfMemory" in type(error).__name__:
                what = "takes more memory than the GPU has (CUDA_VISIBLE_DEVICES= before the command runs it without)"
            cause = plain(f"{type(error).__name__}: {' '.join(str(error).split())}", limit=300)
            raise UsageError(f"{self.name}: {what}: {cause}") from error

    def _sentence_transformer(self) -> Callable[[Sequence[str], Kind], Embedded]:
        torch, _, library = _libraries()
        load = partial(library.SentenceTransformer, self._model, device=self._device, trust_remote_code=self._trusted)
        model = self._safely(lambda safe: load(model_kwargs={"use_safetensors": safe, "dtype": torch.float32}))
        tasks: dict[Kind, str] = dict(zip(self._prefixes, self._recipe.tasks, strict=True))

        def vectors(texts: Sequence[str], kind: Kind) -> Embedded:
            found = model.encode(
                list(texts),
                prompt=self._prefixes[kind],
                task=tasks[kind],
                batch_size=len(texts),
                show_progress_bar=False,
                normalize_embeddings=self.settings["similarity"] == "cosine",
            )
            most, ids = model.max_seq_length, list[list[int]]()
            if isinstance(most, int):  # models of words alone have none
                ids = _ids(model.tokenizer, [self._prefixes[kind] + text for text in texts])
            return Embedded(found.astype(numpy().float32), {"cut": sum(len(each) > most for each in ids)})

        return vectors

    def _transformer(self) -> Callable[[Sequence[str], Kind], Embedded]:
        torch, transformers, _ = _libraries()
        trusted = {"trust_remote_code": self._trusted}
        tokenizer = transformers.AutoTokenizer.from_pretrained(self._model, **trusted)
        load = partial(transformers.AutoModel.from_pretrained, self._model, dtype=torch.float32, **trusted)
        model, about = self._safely(lambda safe: load(use_safetensors=safe, output_loading_info=True))
        missing = sorted(name for name in about["missing_keys"] if not any(each in name for each in _UNUSED_WEIGHTS))
        if missing:
            raise UsageError(f"its files lack weights, in whose place chance would stand: {', '.join(missing[:3])}")
        model = model.to(self._device).eval()
        most = min(self._recipe.max_tokens, tokenizer.model_max_length)

        def vectors(texts: Sequence[str], kind: Kind) -> Embedded:
            ids, cut = token_ids(tokenizer, [self._prefixes[kind] + text for text in texts], self._recipe.mode, most)
            padded = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self._device)
            output = model(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"])
            pooled = _pooled(torch, output, padded["attention_mask"], self._recipe.pooling)
            return Embedded(torch.nn.functional.normalize(pooled, dim=-1).float().cpu().numpy(), {"cut": cut})

        return vectors

    def _safely(self, load: Callable[[bool], Any]) -> Any:
        """Load weights as safetensors, else, and with a note, as a pickle that torch reads as tensors alone."""
        try:
            return load(True)
        except OSError:
            found = load(False)
        self.notes = [f"the weights of {self._model} are a pickle file, of which torch reads nothing but tensors"]
        return found


def token_ids(tokenizer: Any, texts: Sequence[str], mode: str | None, most: int) -> tuple[list[list[int]], int]:
    """Return the ids of each text, with special tokens at most `most`, and how many texts were cut for it.

    Raises:
        UsageError: the tokenizer does not know the mode.
    """
    if mode is None:
        ids = _ids(tokenizer, texts)
        cut = [at for at, each in enumerate(ids) if len(each) > most]
        for at in cut:
            ids[at] = tokenizer(texts[at], truncation=True, max_length=most)["input_ids"]
        return ids, len(cut)
    head: list[int] = tokenizer.convert_tokens_to_ids([tokenizer.cls_token, mode, tokenizer.sep_token])
    if tokenizer.unk_token_id in head or None in head:
        raise UsageError(f"the tokenizer does not know {mode}: it is not of this family")
    bodies, end = _ids(tokenizer, texts, add_special_tokens=False), tokenizer.sep_token_id
    room = most - len(head) - 1
    return [[*head, *body[:room], end] for body in bodies], sum(len(body) > room for body in bodies)


def _ids(tokenizer: Any, texts: Sequence[str], **options: Any) -> list[list[int]]:
    found: list[list[int]] = tokenizer(list(texts), truncation=False, verbose=False, **options)["input_ids"]
    return found


def _pooled(torch: Any, output: Any, mask: Any, pooling: Pooling) -> Any:
    """Return one vector (texts, dimensions) for each text, from hidden states (texts, tokens, dimensions)."""
    if pooling == "own":
        if not torch.is_tensor(output) or output.ndim != 2:
            raise UsageError("its code does not return one vector for each text")
        return output
    hidden = output.last_hidden_state
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)
    # whichever side is padded
    place = mask * (torch.arange(mask.shape[1], device=mask.device) + 1)
    at = place.argmax(1) if pooling == "last" else mask.argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), at]


def _runs_own_code(config: Mapping[str, Any], modules: Sequence[Any] | None, recipe: Recipe | None) -> bool:
    """Say whether a model brings classes of its own, in whose place transformers may silently take others."""
    types = [str(each.get("type") if isinstance(each, dict) else each) for each in modules or ()]
    own = bool(config.get("auto_map")) or any(not each.startswith("sentence_transformers.") for each in types)
    return own or (recipe is not None and recipe.own_code)


def _digest(folder: Path) -> str:
    """Return a hash of all that decides a local model's vectors, by content: copies have other times."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _OF_A_MODEL and not any(part.startswith(".") for part in name.parts) and path.is_file():
            with path.open("rb") as file:
                digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return f"sha256:{digest.hexdigest()}"


def _commit(path: str) -> str:
    """Return the commit of a file in the hub's cache: `.../snapshots/COMMIT/config.json`."""
    parts = Path(path).parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else "unknown"


def _libraries() -> tuple[Any, Any, Any]:
    """Return torch, transformers and sentence_transformers, which then keep quiet.

    Raises:
        ExtraMissing: one is not installed.
    """
    try:
        import sentence_transformers
        import torch
        import transformers
    except ImportError as error:
        raise ExtraMissing("embed", error) from error
    quiet: Any = transformers.utils.logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    return torch, transformers, sentence_transformers
