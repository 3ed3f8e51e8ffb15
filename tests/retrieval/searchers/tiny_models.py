"""Tiny models with random weights in local folders. The libraries of the extra `embed` are imported when used."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Any

CUSTOM_CONFIG = """
from transformers import PretrainedConfig


class Config(PretrainedConfig):
    model_type = "projecting"

    def __init__(self, vocab_size=300, d_model=16, embed_dim=8, **rest):
        self.vocab_size, self.d_model, self.embed_dim = vocab_size, d_model, embed_dim
        super().__init__(**rest)
"""
CUSTOM_MODEL = """
import torch
from transformers import PreTrainedModel
from .configuration_projecting import Config


class Model(PreTrainedModel):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.d_model)
        self.proj = torch.nn.Linear(config.d_model, config.embed_dim)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, return_dict=None):
        states = self.embeddings(input_ids) * attention_mask.unsqueeze(-1)
        return torch.nn.functional.normalize(self.proj(states.sum(1)), dim=-1)
"""


def make_tokenizer() -> Any:
    """Create a byte-level tokenizer like RoBERTa's, with 256 bytes and the special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<encoder-only>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {name: index for index, name in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = {"bos": "<s>", "cls": "<s>", "pad": "<pad>", "eos": "</s>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    tokens = {f"{name}_token": token for name, token in names.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


def publish(folder: Path, owner: str = "someone") -> str:
    """Copy a folder into the cache of the Hugging Face Hub (see the fixture `hub`), and return the model's name."""
    from huggingface_hub import constants

    entry = Path(constants.HF_HUB_CACHE, f"models--{owner}--{folder.name}")
    (entry / "refs").mkdir(parents=True, exist_ok=True)
    commit = secrets.token_hex(20)  # transformers caches custom code by commit
    (entry / "refs" / "main").write_text(commit)
    shutil.copytree(folder, entry / "snapshots" / commit)
    return f"{owner}/{folder.name}"


def save_roberta(folder: Path, *, safe: bool = True, **changes: Any) -> Path:
    """Save a RoBERTa model with 2 layers, 16 dimensions and 512 tokens, and its tokenizer."""
    import torch
    from transformers import RobertaConfig, RobertaModel

    torch.manual_seed(1)
    config = RobertaConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=514,
        pad_token_id=1,
        initializer_range=1.0,
        **changes,
    )
    model = RobertaModel(config)
    model.save_pretrained(folder)
    if not safe:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    make_tokenizer().save_pretrained(folder)
    return folder


def save_sentence_transformer(folder: Path, **options: Any) -> Path:
    """Save a model with a modules.json: RoBERTa, max pooling and normalisation. `options` may have prompts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    transformer = Transformer(str(save_roberta(folder.with_name(f"{folder.name}-words"))), max_seq_length=64)
    modules = [transformer, Pooling(16, pooling_mode="max"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu", **options).save_pretrained(str(folder))
    return folder


def save_custom_model(folder: Path) -> Path:
    """Save a model with custom code that projects the sum of its token embeddings, like CodeT5+."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "configuration_projecting.py").write_text(CUSTOM_CONFIG)
    (folder / "modeling_projecting.py").write_text(CUSTOM_MODEL)
    auto_map = {"AutoConfig": "configuration_projecting.Config", "AutoModel": "modeling_projecting.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "projecting", "auto_map": auto_map}))
    torch.manual_seed(1)
    shapes = {"embeddings.weight": (300, 16), "proj.weight": (8, 16), "proj.bias": (8,)}
    save_file(
        {name: torch.randn(shape) for name, shape in shapes.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    make_tokenizer().save_pretrained(folder)
    return folder
