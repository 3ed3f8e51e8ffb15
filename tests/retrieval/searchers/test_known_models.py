"""Models that are identified by the hashes of their files, with a tiny model in place of `minilm`."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.retrieval.blindness import restore_searcher
from agent.retrieval.folder import RetrievalFolder
from agent.retrieval.searchers.known_models import KNOWN_MODELS, KnownModel, open_model
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.training.base import load_base
from tests.retrieval.searchers.test_dense import silent
from tests.retrieval.searchers.tiny_models import publish, save_sentence_transformer
from tests.retrieval.test_search import add_searcher_ranking

pytestmark = pytest.mark.embed
CODES = ["def read(): pass", "def sort(items): return sorted(items)", "x = 1"]


@pytest.fixture
def tiny(hub: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model that is known as `tiny`."""
    folder = save_sentence_transformer(hub / "source" / "tiny")
    (folder / "README.md").unlink()
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files = {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()}
    model = KnownModel("someone/tiny", "mit", "trained on nothing", "tiny-weights==1", files)
    monkeypatch.setitem(KNOWN_MODELS, "tiny", model)  # type: ignore[arg-type]
    return folder


def install(folder: Path, site: Path) -> None:
    """Install a package that contains a model, and that cannot be imported."""
    shutil.copytree(folder, site / "tiny_weights/model")
    (site / "tiny_weights/__init__.py").write_text("raise SystemExit('imported')")
    weights = "tiny_weights/model/model.safetensors"
    (site / "tiny_weights-1.dist-info").mkdir()
    (site / "tiny_weights-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1\n")
    (site / "tiny_weights-1.dist-info/RECORD").write_text(f"{weights},,{(site / weights).stat().st_size}\n")


@pytest.mark.parametrize("place", ["a folder", "the Hub's cache", "a package"])
def test_a_known_model_is_found_and_does_not_depend_on_its_place(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    copy = Path(shutil.copytree(tiny, tmp_path / "copy" / "tiny"))
    (copy / "adapter_config.json").write_text("{")  # would change what is loaded
    if place == "the Hub's cache":
        assert publish(copy) == "someone/tiny"
    elif place == "a package":
        install(copy, tmp_path / "site")
        monkeypatch.syspath_prepend(tmp_path / "site")
    name = f"tiny:{copy}" if place == "a folder" else "tiny"
    searcher, plain = (make_searcher(each, EmbedderOptions(tmp_path / "e")) for each in (name, f"hf:{tiny}"))
    ranked = []
    for each in (searcher, plain):
        each.index(CODES, silent)
        ranked.append([(r.positions.tolist(), r.scores.tolist()) for r in each.search(["sort"], 3, silent)])
    assert ranked[0] == ranked[1]
    assert searcher.name == "tiny"
    known = KNOWN_MODELS["tiny"]
    assert (searcher.settings["model"], searcher.settings["weights"]) == (known.source, known.revision)
    assert searcher.settings["version"] == plain.settings["version"]
    add_searcher_ranking(make_searcher(name, EmbedderOptions(embeddings=tmp_path / "f")), tmp_path / "r")
    restored = restore_searcher(RetrievalFolder(tmp_path / "r"), name, EmbedderOptions())
    assert (restored.name, restored.settings) == ("tiny", searcher.settings)
    with open_model(name) as folder:
        assert {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.*")} == known.files.keys()
    assert not Path(folder).exists()
    card = load_base(name, pooling=None, max_tokens=None).model_card_data
    assert (card.base_model, card.base_model_revision, card.license) == (known.source, known.revision, "mit")


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
@pytest.mark.parametrize("change", [flip_byte, make_pipe, Path.unlink, lambda path: path.open("a").write(" ")])
def test_files_that_differ_are_refused(tiny: Path, change: Callable[[Path], object], name: str) -> None:
    change(tiny / name)
    with pytest.raises(UsageError, match=name):
        make_searcher(f"tiny:{tiny}")
    with pytest.raises(UsageError, match=name):
        load_base(f"tiny:{tiny}", pooling=None, max_tokens=None)


def test_an_intact_copy_is_used_next_to_a_damaged_one(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tiny, tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    flip_byte(tiny / "tokenizer.json")
    publish(tiny)
    assert make_searcher("tiny").name == "tiny"
    flip_byte(tmp_path / "site/tiny_weights/model/modules.json")
    with pytest.raises(UsageError, match=r"tokenizer\.json.*modules\.json"):
        make_searcher("tiny")


def test_a_missing_model_is_an_error_with_the_places_that_have_it(tiny: Path) -> None:
    with pytest.raises(UsageError, match=r"someone/tiny.*tiny-weights==1.*tiny:FOLDER"):
        make_searcher("tiny")
    with pytest.raises(UsageError, match=str(tiny.parent)):
        make_searcher(f"tiny:{tiny.parent}")
