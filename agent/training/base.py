"""Loads the base model of a training run."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from agent.errors import UsageError, needs_extra
from agent.retrieval.searchers.known_models import find_known_model, open_model
from agent.retrieval.searchers.models import (
    choose_device,
    has_custom_code,
    load_model,
    lower_token_limit,
    read_configuration,
    wrap_errors,
)
from agent.retrieval.searchers.presets import EmbedderOptions, ModelPreset, choose_prefixes, find_hub_preset

_NO_FAMILY = ModelPreset("no known family", "", "mean", "sentence-transformers' default", max_tokens=None)


def load_base(base: str, *, pooling: Literal["cls", "mean", "last"] | None, max_tokens: int | None) -> Any:
    """Load a base model as a `SentenceTransformer` in float32, with the prompts of its family.

    `base` is a known model, a local folder, or a name on the Hugging Face Hub. `pooling` replaces all modules after the
    transformer. Without it, the pooling comes from `modules.json`, from the preset for the model's family, or is
    `mean`. `max_tokens` lowers the model's own limit. The similarity is cosine. Custom code never runs.

    Raises:
        ExtraMissing: torch, transformers or sentence-transformers is not installed.
        UsageError: the model does not exist, cannot be loaded, or contains custom code.
    """
    device, known = choose_device(), find_known_model(base)
    with open_model(base) as source, wrap_errors(f"base model {base}", "the model cannot be loaded"):
        check_exists(source)
        config, modules, texts, revision = read_configuration(source)
        family = find_hub_preset(source)
        if has_custom_code(config, modules, family):
            raise UsageError("the model contains Python code, which `agent train` does not run. Choose another model")
        preset = family or _NO_FAMILY
        preset = replace(preset, pooling=pooling or preset.pooling)
        model = load_model(source, preset if modules is None or pooling else None, device=device)
        lower_token_limit(model, max_tokens)
        prefixes = choose_prefixes(family, EmbedderOptions(), texts.get("prompts"))
        model.prompts.update(query=prefixes["query"], document=prefixes["code"])
        model.similarity_fn_name = "cosine"
        card = model.model_card_data
        card.base_model = known.source if known else base
        card.base_model_revision = known.revision if known else revision
        card.license = known.licence if known else _find_licence(base)
    return model


def check_exists(base: str) -> None:
    """Ask the Hub once whether a model exists. The client of the Hub would retry each file for a minute.

    Raises:
        ExtraMissing: huggingface_hub is not installed.
        UsageError: the model is neither known nor a folder nor cached nor on the Hub. See also `open_model`.
    """
    with open_model(base) as source:
        if Path(source).is_dir():
            return
    if base[:1] in "./~":
        raise UsageError(f"{base}: the folder does not exist")
    with needs_extra("train"):
        from huggingface_hub import HfApi, constants, try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    try:
        HfApi().model_info(base, timeout=10)
    except Exception as error:
        is_name = not isinstance(error, HFValidationError)
        if not (is_name and isinstance(try_to_load_from_cache(base, "config.json"), str)):
            problem = f"neither a folder nor a model on the Hugging Face Hub ({type(error).__name__})"
            raise UsageError(f"{base}: {problem}. Check the name and the connection") from error
        constants.HF_HUB_OFFLINE = True


def _find_licence(base: str) -> str | None:
    from transformers.utils import cached_file

    path = cached_file(base, "README.md", _raise_exceptions_for_missing_entries=False)
    text = Path(path).read_text(encoding="utf-8", errors="replace")[:10_000] if path else ""
    match = re.match(r"""---\n(?:(?!---).*\n)*?license:\s*(?:- *)?["']?([\w.+-]{1,60})["'\s]""", text)
    return match[1] if match else None
