"""Models of Hugging Face and sentence-transformers, from the hub or a local folder, each used by its recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.errors import ExtraMissing, UsageError
from agent.retrieval.searchers.base import numpy
from agent.retrieval.searchers.dense import DenseSearcher, Embedded, Kind
from agent.retrieval.searchers.recipes import RECIPES, ModelOptions, Recipe, recipe_of
from agent.wording import plain

_OF_A_MODEL = frozenset({".bin", ".json", ".model", ".pt", ".py", ".safetensors", ".txt"})
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_BUILT_IN = "sentence_transformers."
_FILES = ("config.json", "modules.json", "config_sentence_transformers.json")
_UNUSED_WEIGHTS = ("pooler.", "embed_tokens.", "position_ids")


def searcher(model: str, options: ModelOptions) -> DenseSearcher:
    """Return the searcher `hf:NAME-OR-FOLDER`.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
        UsageError: there is no such model, its recipe is not known, or it runs code of its own that nobody trusted.
    """
    return DenseSearcher(HuggingFaceEmbedder(model, options), options.embeddings)


class HuggingFaceEmbedder:
    """Embeds by a model of the Hugging Face hub or of a local folder; the weights are loaded when they are needed.

    A `modules.json` says how its model makes vectors, and is used through sentence-transformers; else the recipe of
    the model's family is used, through transformers, else `options.pooling`. Prefixes are those of the options, else
    the prompts of the folder, else those of the family. Runs on a GPU (CUDA, or Apple's) where torch sees one, in
    float32.

    Raises:
        ExtraMissing, UsageError: as `searcher`.
    """

    at_once = 1

    def __init__(self, model: str, options: ModelOptions) -> None:
        self.name = f"hf:{model}"
        self.notes: Sequence[str] = ()
        torch, _, _ = _libraries()
        self._model, self._trusted = model, options.trust_remote_code
        version, config, modules, prompts = self._files()
        recipe = recipe_of(model)
        if not self._trusted and _runs_own_code(config, modules, recipe):
            raise UsageError(
                f"{self.name}: the model comes with Python code of its own, which would run here as you: read it, and "
                "give --trust-remote-code if you trust it"
            )
        if modules is None:
            recipe = recipe or _given(options)
            if recipe is None:
                raise UsageError(f"{self.name}: {_NO_RECIPE}")
        self._recipe, self._by_modules = recipe, modules is not None
        family = recipe or Recipe("", "", "own", "")
        query = _first(options.query_prefix, _prompt(prompts, "query") or family.query_prefix)
        code = _first(options.code_prefix, _prompt(prompts, *_DOCUMENT_PROMPTS) or family.code_prefix)
        self._prefixes: Mapping[Kind, str] = {"query": query, "code": code}
        self._device = _device(torch)
        self._similarity = self._similarity_of(prompts)
        pooling = "modules.json" if self._by_modules or recipe is None else recipe.pooling
        self.about = f"{self._similarity} of the vectors of {model} ({pooling})"
        self.settings: Mapping[str, Any] = {
            "model": model,
            "version": version,
            "family": recipe.family if recipe else None,
            "pooling": pooling,
            "similarity": self._similarity,
            "query_prefix": query,
            "code_prefix": code,
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

    def _files(self) -> tuple[str, dict[str, Any], list[Any] | None, dict[str, Any]]:
        """Return the model's version, its `config.json`, its `modules.json` if there is one, and its prompts."""
        _, transformers, _ = _libraries()
        if self._model[:1] in "./~" and not Path(self._model).is_dir():
            raise UsageError(f"{self.name}: there is no such folder")

        folder, place = Path(self._model), ""

        def read(name: str) -> Any:
            nonlocal place
            path = transformers.utils.cached_file(self._model, name, _raise_exceptions_for_missing_entries=False)
            place = path or place
            return None if path is None else json.loads(Path(path).read_bytes())

        with self._guarded("cannot be had"):
            config, modules, prompts = map(read, _FILES)
            version = _digest(folder) if folder.is_dir() else _commit(place)
        if config is None and modules is None:
            raise UsageError(f"{self.name}: holds no model ({' and '.join(_FILES[:2])} are missing)")
        return version, config or {}, modules, prompts or {}

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
            lines = " ".join(str(error).split())
            raise UsageError(f"{self.name}: {what}: {plain(f'{type(error).__name__}: {lines}', limit=300)}") from error

    def _similarity_of(self, config: Mapping[str, Any]) -> str:
        found = (config.get("similarity_fn_name") if self._by_modules else None) or "cosine"
        if found not in ("cosine", "dot"):
            raise UsageError(f"{self.name}: compares by {found!r:.40}; only cosine and dot are searched here")
        return str(found)

    def _sentence_transformer(self) -> Callable[[Sequence[str], Kind], Embedded]:
        torch, _, library = _libraries()

        def load(safe: bool) -> Any:
            weights = {"use_safetensors": safe, "dtype": torch.float32}
            return library.SentenceTransformer(
                self._model, device=self._device, trust_remote_code=self._trusted, model_kwargs=weights
            )

        model = self._safely(load)
        tasks = dict(zip(("query", "code"), self._recipe.tasks if self._recipe else ("query", "document"), strict=True))
        normalise = self._similarity == "cosine"

        def vectors(texts: Sequence[str], kind: Kind) -> Embedded:
            found = model.encode(
                list(texts),
                prompt=self._prefixes[kind],
                task=tasks[kind],
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_numpy=True,
                normalize_embeddings=normalise,
            )
            most = model.max_seq_length
            cut = 0
            if isinstance(most, int):
                lengths = map(len, _ids(model.tokenizer, [self._prefixes[kind] + text for text in texts]))
                cut = sum(length > most for length in lengths)
            return Embedded(found.astype(numpy().float32), {"cut": cut})

        return vectors

    def _transformer(self) -> Callable[[Sequence[str], Kind], Embedded]:
        torch, transformers, _ = _libraries()
        recipe = self._recipe
        assert recipe is not None
        tokenizer = transformers.AutoTokenizer.from_pretrained(self._model, trust_remote_code=self._trusted)

        def load(safe: bool) -> Any:
            return transformers.AutoModel.from_pretrained(
                self._model,
                trust_remote_code=self._trusted,
                use_safetensors=safe,
                dtype=torch.float32,
                output_loading_info=True,
            )

        model, info = self._safely(load)
        missing = [name for name in info["missing_keys"] if not any(each in name for each in _UNUSED_WEIGHTS)]
        if missing:
            raise UsageError(
                f"{self.name}: its files lack weights ({', '.join(sorted(missing)[:3])}): vectors of noise"
            )
        model = model.to(self._device).eval()
        most = min(recipe.max_tokens, tokenizer.model_max_length)

        def vectors(texts: Sequence[str], kind: Kind) -> Embedded:
            ids, cut = token_ids(tokenizer, [self._prefixes[kind] + text for text in texts], recipe.mode, most)
            inputs = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self._device)
            output = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
            pooled = _pooled(torch, output, inputs["attention_mask"], recipe)
            normalised = torch.nn.functional.normalize(pooled, dim=-1)
            return Embedded(normalised.float().cpu().numpy(), {"cut": cut})

        return vectors

    def _safely(self, load: Callable[[bool], Any]) -> Any:
        """Load weights as safetensors, else, and with a note, as a pickle that torch reads as tensors alone."""
        try:
            return load(True)
        except OSError:
            found = load(False)
        self.notes = (f"the weights of {self._model} are a pickle file, of which torch reads nothing but tensors",)
        return found


_NO_RECIPE = (
    "it is not known how this model makes one vector of a text, and another way gives wrong vectors without any error. "
    f"There are recipes for {', '.join(recipe.family for recipe in RECIPES)}, and for every model with a modules.json "
    "(sentence-transformers). If you know it: --pooling mean (or cls, last), --query-prefix and --code-prefix"
)


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


def _pooled(torch: Any, output: Any, mask: Any, recipe: Recipe) -> Any:
    """Return one vector (texts, dimensions) for each text of hidden states (texts, tokens, dimensions)."""
    if recipe.pooling == "own":
        if not torch.is_tensor(output) or output.ndim != 2:
            raise UsageError(f"the model does not return one vector for each text, as those of {recipe.family} do")
        return output
    hidden = output.last_hidden_state
    if recipe.pooling == "mean":
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weights).sum(1) / weights.sum(1)
    # whichever side is padded
    place = torch.arange(mask.shape[1], device=mask.device) + 1
    at = (mask * place).argmax(1) if recipe.pooling == "last" else mask.argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), at]


def _given(options: ModelOptions) -> Recipe | None:
    return options.pooling and Recipe("as asked for", "", options.pooling, "options")


def _runs_own_code(config: Mapping[str, Any], modules: Sequence[Any] | None, recipe: Recipe | None) -> bool:
    """Say whether a model brings classes of its own, which transformers may silently replace by others."""
    types = [str(each.get("type") if isinstance(each, dict) else each) for each in modules or ()]
    own = bool(config.get("auto_map")) or any(not each.startswith(_BUILT_IN) for each in types)
    return own or (recipe is not None and recipe.own_code)


def _first(given: str | None, else_: str) -> str:
    return else_ if given is None else given


def _prompt(config: Mapping[str, Any], *names: str) -> str:
    prompts = config.get("prompts")
    found = prompts if isinstance(prompts, dict) else {}
    return next((str(found[name]) for name in names if found.get(name)), "")


def _device(torch: Any) -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _digest(folder: Path) -> str:
    """Return a hash of all that decides a local model's vectors, by content: copies have other times."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _OF_A_MODEL and not any(part.startswith(".") for part in name.parts) and path.is_file():
            with path.open("rb") as file:
                digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return f"sha256:{digest.hexdigest()}"


def _commit(path: str | None) -> str:
    """Return the commit of a file in the hub's cache: `.../snapshots/COMMIT/config.json`."""
    parts = Path(path or "").parts
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
