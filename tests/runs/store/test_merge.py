"""Run folders can be merged in any order, and incompatible runs are refused."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.datasets.pair_store import iter_normalised
from agent.errors import InputError, RunFolderError
from agent.pipeline.history import ModelCall, NodeRun
from agent.runs.store.batches import Batch, BatchStore
from agent.runs.store.manifest import Manifest
from agent.runs.store.merge import merge
from agent.runs.store.run_view import load_run
from agent.runs.store.verify import verify
from agent.types import Pair, Usage
from tests.evaluation.runs import add_reviews, draw_review_sample
from tests.runs.store.samples import make_annotation, make_error, make_evidence, open_folder

COST = 0.25


def make_pair(name: str, **fields: Any) -> Pair:
    return Pair(id=name, query=f"query {name}", code="pass", meta={"of": name}, **fields)


def commit(folder: Any, name: str, round: int = 0, *, error: bool = False, label: int = 1) -> None:
    """Annotate a pair, at a fixed cost and with its own shared reply."""
    usage = Usage(calls=1, input_tokens=7, cost_usd=COST)
    model_call = ModelCall(role="r", key=name, messages=(), reply=f"answer {name}", usage=usage, shared=True)
    verdict = NodeRun(node="screen", outcome="", seconds=0, label=None if error else label)  # type: ignore[arg-type]
    make = make_error if error else make_annotation
    annotation = make(name, round=round, label=None if error else label, input_sha256=make_pair(name).input_sha256())
    evidence = make_evidence(name, model_call, verdict).model_copy(update={"pair": make_pair(name)})
    folder.commit(annotation, evidence)


def write(path: Path, names: Sequence[str], *, rounds: int = 1, failed: Sequence[str] = (), **options: Any) -> Path:
    """Create a run with annotations of all these pairs."""
    with open_folder(path, pairs=[make_pair(name) for name in names], **options) as folder:
        for name in names:
            for number in range(rounds):
                commit(folder, name, number, error=name in failed)
    return path


def read_content(run: Path) -> dict[str, Any]:
    """Return the content of a run, independent of the order of its pairs."""
    with load_run(run) as view:
        annotations = {(annotation.id, annotation.round): annotation for annotation in view.annotations()}
        evidence = {key: view.evidence(*key) for key in annotations}
        replies = {name: view._store.find_shared_reply(name) for name, _ in annotations}
        segments = len(view.manifest["segments"])
        assert all(history and history.segment and history.segment <= segments for history in evidence.values())
        labels = [json.loads(line) for line in (run / "labels.jsonl").read_bytes().splitlines()]
        return {
            "pairs": {pair.id: pair for pair in view.pairs()},
            "annotations": annotations,
            "evidence": {key: item and item.model_copy(update={"segment": None}) for key, item in evidence.items()},
            "replies": replies,
            "labels": {label["id"]: label for label in labels},
            "spent": view.spent_usd(),
        }


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_merged_shards_equal_the_unsplit_run_in_any_order(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.text(max_size=3), min_size=1, max_size=8, unique=True), "names")
    rounds = data.draw(st.integers(1, 2), "rounds")
    place = st.integers(0, 2)
    shards: list[list[str]] = [[], [], []]
    for name in names:
        shards[data.draw(place)].append(name)
    order = data.draw(st.permutations([shard for shard in shards if shard]), "shards")
    with tempfile.TemporaryDirectory() as folder:
        unsplit = write(Path(folder, "unsplit"), names, rounds=rounds)
        parts = [write(Path(folder, f"part{n}"), shard, rounds=rounds) for n, shard in enumerate(order)]
        out = Path(folder, "new", "merged")
        merge(parts, out)
        assert read_content(out) == read_content(unsplit)
        assert [pair.id for pair in iter_normalised(out / "input.jsonl.gz")] == [
            name for shard in order for name in shard
        ]
        findings = verify(out)
        assert (findings.problems, findings.missing, findings.closed) == ([], 0, True)


class TestMerging:
    def test_a_merged_run_can_be_resumed_with_the_merged_input(self, tmp_path: Path) -> None:
        parts = [write(tmp_path / name, name) for name in ("ab", "cd")]
        with open_folder(parts[0], pairs=map(make_pair, "abx")):
            pass
        merge(parts, tmp_path / "new")
        with open_folder(tmp_path / "new", pairs=map(make_pair, "dcbax")) as folder:
            assert {annotation.id for annotation in folder.annotations()} == set("abcd")
            commit(folder, "x")
            assert folder.spent_usd() == 5 * COST
        findings = verify(tmp_path / "new")
        assert (findings.problems, findings.missing) == ([], 0)

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_an_annotation_without_error_wins_over_one_with_error(self, tmp_path: Path, order: tuple[int, int]) -> None:
        parts = [write(tmp_path / "one", "ab", failed="a"), write(tmp_path / "two", "abc", failed="b")]
        merge([parts[i] for i in order], tmp_path / "new")
        with load_run(tmp_path / "new") as view:
            assert {annotation.id: annotation.label for annotation in view.annotations()} == dict.fromkeys("abc", 1)
        assert verify(tmp_path / "new").problems == []

    def test_the_last_run_wins_for_the_same_pair_and_round(self, tmp_path: Path) -> None:
        parts = []
        for label in (0, 1):
            with open_folder(tmp_path / str(label), pairs=[make_pair("a")]) as folder:
                commit(folder, "a", label=label)
            parts.append(tmp_path / str(label))
        for runs, label in ((parts, 1), (parts[::-1], 0)):
            merge(runs, tmp_path / f"new{label}")
            with load_run(tmp_path / f"new{label}") as view:
                assert [annotation.label for annotation in view.annotations()] == [label]
            assert verify(tmp_path / f"new{label}").problems == []

    def test_segments_are_in_the_order_of_the_runs_and_evidence_refers_to_its_segment(self, tmp_path: Path) -> None:
        def with_image(image: str) -> dict[str, Any]:
            return {"environment": {"image": image}}

        one, two = write(tmp_path / "one", "a", **with_image("x")), write(tmp_path / "two", "b", **with_image("y"))
        with open_folder(one, pairs=[make_pair("a")], **with_image("z")):
            pass
        merge([one, two], tmp_path / "new")
        with load_run(tmp_path / "new") as view:
            assert [segment["environment"]["image"] for segment in view.manifest["segments"]] == ["x", "z", "y"]
            assert [change["what"] for change in view.manifest["changes"]] == ["image"]
            evidence = [view.evidence(name) for name in "ab"]
            assert [history and history.segment for history in evidence] == [1, 3]

    def test_the_finished_part_of_a_killed_run_is_merged(self, tmp_path: Path) -> None:
        with open_folder(tmp_path / "one", pairs=map(make_pair, "ab")) as folder:
            commit(folder, "a", error=True)
            commit(folder, "a")
            shutil.copytree(tmp_path / "one", tmp_path / "killed")
        with (tmp_path / "killed/annotations.jsonl").open("ab") as file:
            file.write(b'{"torn')
        merge([tmp_path / "killed", write(tmp_path / "two", "c")], tmp_path / "new")
        findings = verify(tmp_path / "new")
        assert (findings.problems, findings.annotations, findings.missing) == ([], 2, 1)

    def test_reviews_are_left_out_and_listed(self, tmp_path: Path) -> None:
        parts = [write(tmp_path / name, name) for name in "ab"]
        with load_run(parts[1]) as view:
            draw_review_sample(parts[1], list(view.annotations()), ["label"], 1)
        for part in parts:
            add_reviews(part, "ada", {part.name: 1})
        merged = merge(parts, tmp_path / "new")
        names = [tmp_path / name for name in ("a/reviews.jsonl", "b/reviews.jsonl", "b/review_sample.json")]
        assert merged.left_out == tuple(map(str, names))


class TestRefusing:
    def test_different_settings_are_listed_and_refused(self, tmp_path: Path) -> None:
        parts = [write(tmp_path / name, name, identity={"model": name}) for name in "ab"]
        with pytest.raises(RunFolderError, match=r"model: 'a' in .*a, 'b' in .*b$"):
            merge(parts, tmp_path / "new")
        assert not (tmp_path / "new").exists()

    def test_different_pairs_with_the_same_id_are_refused(self, tmp_path: Path) -> None:
        run = write(tmp_path / "one", "a")
        with open_folder(tmp_path / "two", pairs=[make_pair("a", context="more")]):
            pass
        with pytest.raises(RunFolderError, match=r"two: .*'a' .*one\b"):
            merge([run, tmp_path / "two"], tmp_path / "new")
        assert {entry.name for entry in tmp_path.iterdir()} == {"one", "two"}

    def test_a_run_in_progress_is_refused(self, tmp_path: Path) -> None:
        run = write(tmp_path / "one", "a")
        with open_folder(tmp_path / "two"), pytest.raises(RunFolderError, match=rf"two: .*\b{os.getpid()}\b"):
            merge([run, tmp_path / "two"], tmp_path / "new")

    def test_a_run_with_batches_in_progress_is_refused(self, tmp_path: Path) -> None:
        parts = [write(tmp_path / name, name) for name in "ab"]
        with BatchStore(parts[1] / "batches.sqlite") as store:
            store.create(Batch("token", "m at http://host/v1", None, 0.0, 1, Usage()), 1)
        with pytest.raises(RunFolderError, match=r"batches\.sqlite: "):
            merge(parts, tmp_path / "new")
        with BatchStore(parts[1] / "batches.sqlite") as store:
            store.end("token")
        merge(parts, tmp_path / "new")

    def test_a_repeated_run_is_refused(self, tmp_path: Path) -> None:
        run = write(tmp_path / "one", "a")
        (tmp_path / "link").symlink_to(run)
        with pytest.raises(RunFolderError, match=r"link: .*twice"):
            merge([run, tmp_path / "link"], tmp_path / "new")

    def test_a_killed_merge_leaves_no_folder_and_the_next_merge_removes_its_draft(self, tmp_path: Path) -> None:
        parts = [write(tmp_path / name, name) for name in "ab"]
        if (child := os.fork()) == 0:
            Manifest.save = lambda _: os._exit(9)  # type: ignore[method-assign]
            merge(parts, tmp_path / "new")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert not (tmp_path / "new").exists()
        assert len(list(tmp_path.iterdir())) == 3
        merge(parts, tmp_path / "new")
        assert {entry.name for entry in tmp_path.iterdir()} == {"a", "b", "new"}

    @pytest.mark.parametrize(
        ("name", "error"),
        [("manifest.json", RunFolderError), ("input.jsonl.gz", InputError), ("evidence.sqlite", RunFolderError)],
    )
    def test_a_damaged_run_is_refused(self, tmp_path: Path, name: str, error: type[Exception]) -> None:
        parts = [write(tmp_path / shard, shard) for shard in "ab"]
        (parts[1] / name).unlink()
        with pytest.raises(error, match=str(parts[1])):
            merge(parts, tmp_path / "new")
        assert {entry.name for entry in tmp_path.iterdir()} == {"a", "b"}
