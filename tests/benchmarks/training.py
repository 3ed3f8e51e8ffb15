"""Trains searchers from random weights on docstrings of CoSQA's functions, and measures them on its 500 dev queries.

Needs the extra `train` and the folder of real data in AGENT_REAL_DATA. The training data exclude the functions that
answer a query and their near duplicates. `--recipes` selects rows of the table; finished rows are kept in the
folder, so a repeated command resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, product
from pathlib import Path

from agent.corpus.near_duplicates import NearDuplicateIndex, shingle_code
from agent.datasets.encoding import dumps
from agent.languages.python.spans import extract_view

TOKENS, BATCH = 96, 64
_CONTRASTIVE = ("--pooling", "mean", "--epochs", "3", "--learning-rate", "5e-4")
_SIAMESE = ("--epochs", "8", "--learning-rate", "1e-3")
RECIPES: dict[str, tuple[str, ...]] = {
    "biencoder": ("biencoder", *_CONTRASTIVE),
    "biencoder-.01": ("biencoder", *_CONTRASTIVE, "--softmax-temperature", ".01"),
    "macp": ("macp", *_CONTRASTIVE, "--hard-negatives", "none"),
    "unif": ("unif", "--epochs", "5"),
    "unif-untrained": ("unif", "--epochs", "0"),
    "siamese-cls": ("siamese", "--pooling", "cls", *_SIAMESE),
    "coclr-cls": ("coclr", "--pooling", "cls", *_SIAMESE),
    # the eight rows of Table 6 of the CoSQA paper
    **{
        "-".join(["siamese", *in_batch, rewrite]): (
            "siamese", "--pooling", "mean", *_SIAMESE, *(f"--{name}" for name in in_batch), "--rewrite", rewrite)
        for in_batch, rewrite in product(((), ("in-batch",)), ("none", "delete", "copy", "switch"))
    },
}  # fmt: skip


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Iterate over the rows of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write_training_codes(data: Path, out: Path) -> int:
    """Write the functions that no test query names and that are no near duplicate of one. Return their number.

    Functions are compared with and without docstrings, because training uses them without.
    """
    codes = {row["code-idx"]: row["code"] for row in read_rows(data / "cosqa_search_codes_6267.jsonl")}
    named = {row["code-idx"] for row in read_rows(data / "cosqa_search_dev_500.jsonl")}
    views = {name: {code, extract_view(code, "no-docstring") or code} for name, code in codes.items()}
    index = NearDuplicateIndex()
    for view in sorted(chain.from_iterable(views[name] for name in named)):
        index.add(shingle_code(view))
    kept = [codes[name] for name in codes if all(index.find(shingle_code(view)) is None for view in views[name])]
    out.write_bytes(b"".join(dumps({"code": code}) + b"\n" for code in kept))
    return len(kept)


def make_base(folder: Path, texts: Sequence[str], *, layers: int = 2, dimensions: int = 128, seed: int = 0) -> None:
    """Write a transformer with random weights, and a tokenizer for `texts` that splits identifiers into words.

    Vectors of positions and token types start from zero. Random ones are as long as those of words, and hide them.
    """
    import torch
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words = normalizers.Replace(Regex("(?<=[a-z0-9])(?=[A-Z])"), " "), normalizers.Replace("_", " ")
    tokenizer.normalizer = normalizers.Sequence([*words, normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=8_000, special_tokens=list(special.values()), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=TOKENS, **special)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=dimensions,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * dimensions,
        max_position_embeddings=TOKENS,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    model = BertModel(config)
    for table in (model.embeddings.position_embeddings, model.embeddings.token_type_embeddings):
        torch.nn.init.zeros_(table.weight)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)


def run(*command: str | Path) -> float:
    """Run `agent`, and return its CPU time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **os.environ}
    subprocess.run([sys.executable, "-m", "agent", *map(str, command)], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Parse the command line, train, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.training", description=__doc__)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES), choices=RECIPES, metavar="NAME")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--code-view", default="no-docstring")
    parser.add_argument("--out", type=Path, default=Path("runs/training"))
    options = parser.parse_args()
    out, data = options.out, Path(os.environ["AGENT_REAL_DATA"])
    out.mkdir(parents=True, exist_ok=True)
    codes, base, times = out / "codes.jsonl", out / "base", out / "seconds.json"
    print(f"{write_training_codes(data, codes):,} functions to train on", flush=True)
    if not base.exists():
        make_base(base, [row["code"] for row in read_rows(codes)])
    seconds = json.loads(times.read_text()) if times.exists() else {}
    for name, seed in product(options.recipes, range(options.seeds)):
        recipe, *more = RECIPES[name]
        more += ["--batch-size", str(BATCH), "--seed", str(seed)]
        more += [] if recipe == "unif" else ["--base", str(base), "--text-tokens", str(TOKENS)]
        if (model := f"{name}-{seed}") not in seconds:
            command = ("train", codes, "--pairs", "docstrings", "--recipe", recipe, *more, "-o", out / model)
            seconds[model] = run(*command)
            times.write_text(json.dumps(seconds))
    models = [f"--searcher=model:{out / name}" for name in seconds]
    queries, corpus = data / "cosqa_search_dev_500.jsonl", data / "cosqa_search_codes_6267.jsonl"
    folder, untrained = out / f"retrieval-{options.code_view}", f"hf:{base}"
    common = ["--codes", corpus, "--code-view", options.code_view, "-o", folder]
    run("retrieval", "run", queries, "--searcher", "bm25", *models, *common)
    empty = ["--pooling", "mean", "--query-prefix", "", "--code-prefix", ""]
    run("retrieval", "run", queries, "--searcher", untrained, *empty, *common)
    run("retrieval", "score", folder, "--metric", "RR")
    run("retrieval", "compare", folder, "--metric", "RR", "--against", untrained)
    print(json.dumps({name: round(value) for name, value in seconds.items()}, indent=2))


if __name__ == "__main__":
    main()
