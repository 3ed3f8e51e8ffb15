"""Embedding models: OpenAI-compatible endpoints and Hugging Face models, used according to their recipes."""

from __future__ import annotations

import hashlib
import json
import re
import timeit
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from agent.errors import RunStopped, UsageError, needs_extra
from agent.evaluation.lazy_numpy import np
from agent.llm.embeddings import EmbeddingsServer
from agent.retrieval.searchers.dense import EmbeddedTexts
from agent.retrieval.searchers.known_models import find_known_model, open_model
from agent.retrieval.searchers.presets import (
    AS_ASKED,
    PRESETS,
    EmbedderOptions,
    Kind,
    ModelPreset,
    Precision,
    choose_prefixes,
    find_hub_preset,
    find_preset,
)
from agent.retrieval.searchers.trained import WITHOUT_HEAD, read_record
from agent.text import one_line

_FILES = ("config.json", "modules.json", "config_sentence_transformers.json")
_MODEL_SUFFIXES = frozenset({".bin", ".json", ".model", ".pt", ".py", ".safetensors", ".txt"})
_CUSTOM_OUTPUT = {"modality_config": {"text": {"method": "forward", "method_output_name": None}}}
_MIN_SPEEDUP = 1.5  # of bfloat16 over float32, so that a noisy measurement does not change the choice
POOLING_MODES = {"cls": "cls", "mean": "mean", "last": "lasttoken"}
"""Names of poolings in sentence-transformers."""
_CUSTOM_CODE = (
    "the model contains Python code, which would run with your permissions. Review the code, and then pass "
    "--trust-remote-code"
)
_NO_RECIPE = (
    "there is no preset for this model, and the wrong pooling or prefix silently yields wrong vectors. Models with a "
    "modules.json (sentence-transformers) do not need a preset, and models on the Hub have one if they belong to "
    f"{', '.join(preset.family for preset in PRESETS)}. For other models and for folders, pass what was used in "
    "training: --pooling mean (or cls, last), --query-prefix and --code-prefix ('' for none)"
)


class EndpointEmbedder:
    """Embeds texts with an OpenAI-compatible server and scales the vectors to length 1.

    The default prefixes come from the preset for the model's family, if there is one.

    Raises:
        ConfigError: the URL is invalid, or the API key is missing (see `EmbeddingsServer`).
    """

    concurrency = 4

    def __init__(self, model: str, options: EmbedderOptions) -> None:
        self._server = EmbeddingsServer(model, options.base_url)
        self._prefixes = choose_prefixes(find_preset(model), options)
        self.name = f"openai:{model}"
        self.about = f"cosine similarity of vectors from {model} at {self._server.url}"
        # the URL is included because two servers may serve different models under the same name, such as `default`
        self.settings: Mapping[str, Any] = {
            "model": model,
            "server": self._server.url,
            "similarity": "cosine",
            "prefixes": self._prefixes,
        }

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Request the vectors for one batch.

        Raises:
            AccountError: see `EmbeddingsServer.embed`.
            RunStopped: see `EmbeddingsServer.embed`. Also raised if the vectors differ in length.
        """
        response = self._server.embed([self._prefixes[kind] + text for text in texts])
        try:
            vectors = np.array(response.values, dtype=np.float32).reshape(len(texts), -1)
        except (TypeError, ValueError, OverflowError):
            raise RunStopped(f"{self.name}: {self._server.url} did not return one vector per text") from None
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        counts = {"tokens": response.tokens, "cut": response.truncated}
        return EmbeddedTexts(vectors / np.where(lengths > 0, lengths, 1), counts)


class HuggingFaceEmbedder:
    """Embeds texts with a model from the Hugging Face Hub or a local folder. Loads the weights on first use.

    The pooling comes from the model's `modules.json` if there is one. Otherwise, it comes from the preset for its
    family, for names on the Hub only, or from `options.pooling`. The model runs on a GPU (CUDA or MPS) if torch finds
    one. `name` replaces the searcher's name `hf:MODEL`, for folders that `agent train` wrote.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
        UsageError: the model does not exist, its similarity is not supported, or its custom code is not trusted. Also
            raised if the pooling is unknown, or is passed although the model defines it, and for a folder of
            `agent train` whose vectors are not compared by their inner product.
    """

    concurrency = 1

    def __init__(self, model: str, options: EmbedderOptions, name: str | None = None) -> None:
        self.name = name or f"hf:{model}"
        self._model, self._trust_remote_code = model, options.trust_remote_code
        self._device, self._max_tokens = choose_device(), options.max_tokens
        self._precision = choose_precision(options.precision, self._device)
        with wrap_errors(self.name, "the configuration cannot be loaded"):
            record = read_record(Path(model)) if name is None else None
            if record is not None and record.recipe not in WITHOUT_HEAD:
                raise UsageError(f"its scores depend on the recipe {record.recipe}. Pass --searcher model:{model}")
            config, modules, texts, version = read_configuration(model)
            preset = find_hub_preset(model)
            self._prefixes = choose_prefixes(preset, options, texts.get("prompts"))
            similarity = texts.get("similarity_fn_name") or "cosine"
            if options.pooling and (preset or modules is not None):
                source = f"the preset for {preset.family}" if preset and modules is None else "its modules.json"
                raise UsageError(f"{source} determines the pooling. Remove --pooling")
            if options.pooling:
                preset = ModelPreset(AS_ASKED, "", options.pooling, "--pooling")
            if not self._trust_remote_code and has_custom_code(config, modules, preset):
                raise UsageError(_CUSTOM_CODE)
            lacks_prefixes = Path(model).is_dir() and None in (options.query_prefix, options.code_prefix)
            if modules is None and (preset is None or lacks_prefixes):
                raise UsageError(_NO_RECIPE)
            if similarity not in ("cosine", "dot"):
                raise UsageError(f"similarity {similarity!r:.40} is not supported. Supported: cosine and dot")
        self._by_modules, self._preset = (
            modules is not None,
            preset or ModelPreset("modules.json", "", "own", "its own"),
        )
        self._loaded: Any = None
        pooling = "modules.json" if self._by_modules else self._preset.pooling
        score = "dot product" if similarity == "dot" else "cosine similarity"
        self.about = f"{score} of vectors from {model} ({self._preset.family}, {pooling})"
        self.settings: Mapping[str, Any] = {
            "model": model,
            "version": version,
            **{name: getattr(self._preset, name) for name in ("family", "max_tokens", "mode", "tasks")},
            "pooling": pooling,
            "similarity": similarity,
            "prefixes": self._prefixes,
            "device": self._device,
            # absent by default, so that rankings of earlier versions are not computed again
            **({} if self._precision == "float32" else {"precision": self._precision}),
            **({} if self._max_tokens is None else {"token_limit": self._max_tokens}),
        }

    def embed(self, texts: Sequence[str], kind: Kind) -> EmbeddedTexts:
        """Embed one batch. Texts that exceed the model's limit are truncated and counted.

        Raises:
            UsageError: the model cannot be loaded, or cannot embed the texts.
        """
        self._load()
        torch, _, _ = _import_libraries()
        precision = torch.autocast(self._device, torch.bfloat16, enabled=self._precision == "bfloat16")
        with wrap_errors(self.name, "embedding failed"), precision:
            vectors = self._loaded.encode(
                list(texts),
                prompt=self._prefixes[kind],
                task=self._preset.tasks[kind == "code"],
                batch_size=len(texts),
                show_progress_bar=False,
                normalize_embeddings=self.settings["similarity"] == "cosine",
            )
            limit, cut = self._loaded.max_seq_length, 0
            if isinstance(limit, int):  # bag-of-words models have no limit
                prompts = [self._prefixes[kind] + text for text in texts]
                cut = sum(len(ids) > limit for ids in self._loaded.tokenizer(prompts, verbose=False)["input_ids"])
        return EmbeddedTexts(vectors.astype(np.float32), {"cut": cut})

    def truncate(self, codes: Sequence[str]) -> Sequence[str]:
        """Return the beginning of each snippet, up to the last token that the model reads.

        Models without a limit, and tokenizers that do not report where tokens end, return the snippets unchanged.

        Raises:
            UsageError: the model cannot be loaded, or its tokenizer fails.
        """
        self._load()
        limit, tokenizer, prefix = self._loaded.max_seq_length, self._loaded.tokenizer, self._prefixes["code"]
        if not (isinstance(limit, int) and getattr(tokenizer, "is_fast", False)):
            return codes
        options = {"truncation": True, "max_length": limit, "return_offsets_mapping": True}
        with wrap_errors(self.name, "tokenization failed"):
            texts = (prefix + code for code in codes)
            return [text[: max(end for _, end in tokenizer(text, **options)["offset_mapping"])] for text in texts]

    def _load(self) -> None:
        if self._loaded is not None:
            return
        with wrap_errors(self.name, "the model cannot be loaded"):
            self._loaded = load_model(
                self._model,
                None if self._by_modules else self._preset,
                device=self._device,
                trust_remote_code=self._trust_remote_code,
            )
            lower_token_limit(self._loaded, self._max_tokens)
            if not self._by_modules:
                self._register_modes()

    def _register_modes(self) -> None:
        """Register tokens such as `<encoder-only>` in prefixes, which the tokenizer would otherwise split."""
        tokenizer = self._loaded.tokenizer
        tokens = re.findall(r"<[^<>\s]+>", "".join(self._prefixes.values()))
        tokenizer.add_tokens(sorted(tokenizer.get_vocab().keys() & tokens), special_tokens=True)


class KnownModelEmbedder(HuggingFaceEmbedder):
    """Embeds texts with a known model, such as `minilm` or `minilm:FOLDER`.

    Raises:
        UsageError: the files of the model were not found, or a file has another hash.
        ExtraMissing, StorageError: see `open_model`.
    """

    def __init__(self, name: str, options: EmbedderOptions) -> None:
        model = find_known_model(name)
        assert model is not None
        with open_model(name) as folder:
            super().__init__(folder, options, name.partition(":")[0])
        self._name = name
        self.settings = {**self.settings, "model": model.source, "weights": model.revision}
        self.about = f"cosine similarity of vectors from {model.source}, {model.training_data}"

    def _load(self) -> None:
        if self._loaded is None:
            with open_model(self._name) as self._model:
                super()._load()


def choose_device() -> str:
    """Return `cuda` or `mps` if torch finds such a GPU, otherwise `cpu`.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
    """
    torch, _, _ = _import_libraries()
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def choose_precision(precision: Precision, device: str) -> Literal["float32", "bfloat16"]:
    """Replace `auto` by bfloat16 where a device computes with it faster than with float32, otherwise by float32."""
    if precision != "auto":
        return precision
    torch, _, _ = _import_libraries()
    is_fast = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if is_fast or (device == "cpu" and measure_bfloat16_speedup() > _MIN_SPEEDUP) else "float32"


@cache
def measure_bfloat16_speedup() -> float:
    """Return how many times faster this CPU multiplies matrices in bfloat16 than in float32.

    The instructions of the CPU do not tell: some Intel processors multiply faster in float32 than with AVX512-BF16.
    """
    torch, _, _ = _import_libraries()
    threads, seconds = torch.get_num_threads(), list[float]()
    torch.set_num_threads(1)
    for kind in (torch.float32, torch.bfloat16):
        left, right = torch.ones(256, 384, dtype=kind), torch.ones(384, 1536, dtype=kind)
        seconds.append(min(timeit.repeat(partial(torch.mm, left, right), number=1, repeat=5)))
    torch.set_num_threads(threads)
    return seconds[0] / seconds[1]


def lower_token_limit(model: Any, max_tokens: int | None) -> None:
    """Truncate texts to `max_tokens`, if this is less than the limit of the model."""
    if max_tokens is not None:
        limit = model.max_seq_length
        model.max_seq_length = min(max_tokens, limit) if isinstance(limit, int) else max_tokens


def load_model(model: str, preset: ModelPreset | None, *, device: str, trust_remote_code: bool = False) -> Any:
    """Load a model in float32 as a `SentenceTransformer`, built from the preset, or from `modules.json` without one.

    Raises:
        UsageError: the model does not belong to the preset's family.
    """
    torch, _, library = _import_libraries()
    trust, weights = {"trust_remote_code": trust_remote_code}, {"dtype": torch.float32}
    if preset is None:
        return library.SentenceTransformer(model, device=device, model_kwargs=weights, **trust)
    modules, pools_itself = library.sentence_transformer.modules, preset.pooling == "own"
    transformer = modules.Transformer(
        model,
        max_seq_length=preset.max_tokens,
        model_kwargs={**trust, **weights},
        processor_kwargs=trust,
        config_kwargs=trust,
        **({**_CUSTOM_OUTPUT, "module_output_name": "sentence_embedding"} if pools_itself else {}),
    )
    # sentence-transformers does not compare an explicit length with the model's
    positions = getattr(transformer.config, "max_position_embeddings", 0)
    if preset.max_tokens is not None and 0 < positions < preset.max_tokens:
        transformer.max_seq_length = positions
    if preset.mode is not None:
        if preset.mode not in transformer.tokenizer.get_vocab():
            raise UsageError(
                f"this is not a {preset.family} model, because its tokenizer does not contain {preset.mode}"
            )
        transformer.tokenizer.add_tokens([preset.mode], special_tokens=True)
    parts = [transformer]
    if not pools_itself:
        parts.append(modules.Pooling(transformer.get_embedding_dimension(), POOLING_MODES[preset.pooling]))
    return library.SentenceTransformer(modules=parts, device=device)


def read_configuration(model: str) -> tuple[dict[str, Any], list[Any] | None, dict[str, Any], str]:
    """Read `config.json`, `modules.json`, the file with prompts, and the version of a model.

    Raises:
        UsageError: the folder does not exist, or is not a model.
    """
    _, transformers, _ = _import_libraries()
    folder = Path(model)
    if model[:1] in "./~" and not folder.is_dir():
        raise UsageError("the folder does not exist")
    find = partial(transformers.utils.cached_file, model, _raise_exceptions_for_missing_entries=False)
    paths = [find(name) for name in _FILES]
    config, modules, texts = (path and json.loads(Path(path).read_bytes()) for path in paths)
    if config is None and modules is None:
        raise UsageError(f"not a model: {' and '.join(_FILES[:2])} are missing")
    version = hash_folder(folder) if folder.is_dir() else _extract_commit(next(filter(None, paths), ""))
    return config or {}, modules, texts or {}, version


@contextmanager
def wrap_errors(name: str, problem: str) -> Iterator[None]:
    """Convert all errors to UsageError, because third-party files and code can cause any exception."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    except Exception as error:
        cause = one_line(f"{type(error).__name__}: {error}", 300)
        raise UsageError(f"{name}: {problem}: {cause}") from error


def has_custom_code(config: Mapping[str, Any], modules: Sequence[Any] | None, preset: ModelPreset | None) -> bool:
    """Return whether a model has custom classes.

    If custom code is not trusted, transformers may silently load other classes instead.
    """
    types = [str(module.get("type") if isinstance(module, dict) else module) for module in modules or ()]
    is_custom = bool(config.get("auto_map")) or any(not name.startswith("sentence_transformers.") for name in types)
    return is_custom or (preset is not None and preset.custom_code)


def hash_folder(folder: Path) -> str:
    """Hash all files that determine a local model's vectors. Copies of a model have the same hash."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.suffix in _MODEL_SUFFIXES and not any(part.startswith(".") for part in name.parts) and path.is_file():
            with path.open("rb") as file:
                digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0".encode())
    return f"sha256:{digest.hexdigest()}"


def _extract_commit(path: str) -> str:
    """Extract the commit from a path in the Hub's cache, such as `.../snapshots/COMMIT/config.json`."""
    parts = Path(path).parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else "unknown"


def _import_libraries() -> tuple[Any, Any, Any]:
    """Import torch, transformers and sentence_transformers.

    The libraries print warnings to standard error, for example about missing weights.

    Raises:
        ExtraMissing: a library is not installed.
    """
    with needs_extra("embed"):
        import sentence_transformers
        import torch
        import transformers
    logging: Any = transformers.utils.logging
    logging.disable_progress_bar()
    return torch, transformers, sentence_transformers
