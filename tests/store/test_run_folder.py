"""A run is a folder: made, resumed, refused, locked, read."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.datasets import Spool, iter_normalised
from agent.errors import InputError, Outage, RunFolderError
from agent.history import Exchange, History
from agent.llm.base import Reply
from agent.llm.gateway import MemoryReplyCache
from agent.store import load_run
from agent.types import Annotation, ErrorInfo, Usage
from tests.store.samples import commit, make_annotation, make_error, make_evidence, make_pair, open_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r"


def exchange(cost_usd: float | None, **fields: Any) -> Exchange:
    usage = Usage(calls=1, input_tokens=1000, output_tokens=10, cost_usd=cost_usd)
    return Exchange(role="screen", key="k", messages=(), reply="", model="m", usage=usage, **fields)


class TestCost:
    def test_a_run_cost_what_all_tries_cost_and_what_was_left_unfinished(self, path: Path) -> None:
        with open_folder(path) as folder:
            assert folder.spent_usd() == 0
            commit(folder, "0", usage=Usage(cost_usd=1.0), error=ErrorInfo(type="ModelError", message=""))
            commit(folder, "0", usage=Usage(cost_usd=0.5))
            folder.record_abandoned([exchange(0.25)])
            folder.record_abandoned([exchange(0.125)])
        with open_folder(path) as folder:
            assert folder.spent_usd() == 1.875
            folder.record_abandoned([exchange(2)])
        with load_run(path) as view:
            assert view.spent_usd() == 3.875

    @pytest.mark.parametrize("unfinished", [False, True])
    def test_it_is_unknown_when_one_of_them_is_until_there_is_a_price(self, path: Path, unfinished: bool) -> None:
        def price(role: str, model: str, usage: Usage) -> float | None:
            assert (role, model) == ("screen", "m" if unfinished else "")
            return usage.input_tokens / 500

        with open_folder(path) as folder:
            commit(folder, "0", usage=Usage(cost_usd=1.0))
            for _ in range(2):
                if unfinished:
                    folder.record_abandoned([exchange(None)])
                else:
                    commit(folder, "1", usage=Usage(calls=1, input_tokens=1000, cost_usd=None))
        with load_run(path) as view:
            assert view.spent_usd() is None
            assert view.spent_usd(lambda *_: None) is None
            assert view.spent_usd(price) == 5.0

    def test_tokens_are_those_of_all_tries_and_of_what_was_left_unfinished(self, path: Path) -> None:
        with open_folder(path) as folder:
            assert folder.spent_tokens() == 0
            commit(folder, "0", usage=Usage(input_tokens=30, cached_input_tokens=20, output_tokens=5, cost_usd=None))
            commit(folder, "0", usage=Usage(input_tokens=10, output_tokens=1))
            folder.record_abandoned([exchange(2)])
        with load_run(path) as view:
            assert view.spent_tokens() == 46 + 1010

    def test_it_is_not_known_of_a_run_whose_evidence_was_moved_away(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "0", usage=Usage(cost_usd=1.0))
        (path / "evidence.sqlite").unlink()
        with load_run(path) as view:
            assert view.spent_usd() is view.spent_tokens() is None
        with open_folder(path) as folder:
            assert "evidence.sqlite is gone" in "".join(folder.notes)
            commit(folder, "1", usage=Usage(cost_usd=1.0))
            assert folder.spent_usd() is folder.spent_tokens() is None


class TestMaking:
    def test_a_new_folder_holds_the_files_of_the_design(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / ".DS_Store").touch()
        with open_folder(path) as folder:
            commit(folder, "0")
        names = ".DS_Store .lock annotations.jsonl evidence.sqlite input.jsonl.gz labels.jsonl manifest.json"
        assert {entry.name for entry in path.iterdir()} == set(names.split())
        assert list(iter_normalised(path / "input.jsonl.gz")) == [make_pair(str(n)) for n in range(3)]
        document = json.loads((path / "manifest.json").read_text())
        assert (document["schema"], document["identity"]["model"]) == (1, "m")
        assert len(document["identity"]["input_sha256"]) == 64
        assert document["segments"][0]["environment"] == {"versions": {"agent": "0.1"}}

    def test_repeated_ids_are_refused_and_nothing_is_left(self, path: Path) -> None:
        with pytest.raises(InputError, match="'a' comes twice"):
            open_folder(path, pairs="aa")
        assert not path.exists()

    def test_what_a_killed_beginning_left_is_begun_anew(self, path: Path) -> None:
        open_folder(path).close()
        (path / "manifest.json").rename(path / ".manifest.json.0123456789abcdef.tmp")
        with open_folder(path, pairs="z") as folder:
            assert set(folder.index.iterate_keys()) == set()
        assert [pair.id for pair in iter_normalised(path / "input.jsonl.gz")] == ["z"]


class TestResuming:
    def test_what_is_done_is_known_and_kept(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=1)
            folder.commit(make_error("2"), make_evidence("2"))
        with open_folder(path) as folder:
            assert set(folder.index.iterate_keys()) == {("1", 0), ("2", 0)}
            assert set(folder.index.iterate_keys(failed=True)) == {("2", 0)}
            assert list(folder.annotations()) == [make_annotation("1", label=1), make_error("2")]
            assert folder.evidence("1") == make_evidence("1", segment=1)
            commit(folder, "2")
            assert not list(folder.index.iterate_keys(failed=True))
            assert folder.evidence("2") == make_evidence("2", segment=2)
        assert len(json.loads((path / "manifest.json").read_text())["segments"]) == 2

    def test_a_run_without_annotations_takes_another_identity_and_other_pairs_but_forgets_no_cost(
        self, path: Path
    ) -> None:
        with open_folder(path) as folder:
            folder.record_abandoned([exchange(0.5)])
        (path / "annotations.jsonl").write_bytes(b'{"torn": ')
        with open_folder(path, identity={"model": "n"}, pairs="z") as folder:
            assert folder.manifest["identity"]["model"] == "n"
            assert folder.spent_usd() == 0.5
        with load_run(path) as view:
            assert [pair.id for pair in view.pairs()] == ["z"]


class TestGrowing:
    def test_pairs_are_added_anywhere_and_the_run_goes_on_with_what_it_has(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=1)
        with open_folder(path, pairs="a120b") as folder:
            assert folder.notes == ("number of pairs changed since this run began: 3 before, 5 now",)
            assert set(folder.index.iterate_keys()) == {("1", 0)}
            commit(folder, "a", label=0)
        with load_run(path) as view:
            assert "".join(pair.id for pair in view.pairs()) == "a120b"
        labels = [json.loads(line)["id"] for line in (path / "labels.jsonl").read_bytes().splitlines()]
        assert labels == ["a", "1"]
        with open_folder(path, pairs="ab012") as folder:
            assert folder.notes == ()
        document = json.loads((path / "manifest.json").read_text())
        pairs = [make_pair(pair_id) for pair_id in "ab012"]
        assert document["identity"]["input_sha256"] == Spool(pairs).sha256
        assert [(each["before"], each["now"]) for each in document["changes"]] == [(3, 5)]

    def test_pairs_that_are_gone_or_changed_are_named_and_nothing_is_changed(self, path: Path) -> None:
        first = [make_pair(str(number), meta={"n": (number,)}) for number in range(9)]
        with open_folder(path, pairs=first) as folder:
            commit(folder, "8")
        before = {name: (path / name).read_bytes() for name in ("manifest.json", "input.jsonl.gz", "labels.jsonl")}
        changed = [
            first[7].model_copy(update={"code": "x", "meta": {}}),
            first[8].model_copy(update={"language": "sql"}),
            make_pair("new"),
        ]
        with pytest.raises(RunFolderError) as caught:
            open_folder(path, pairs=changed)
        assert str(caught.value).splitlines() == [
            f"{path}: holds a run with other pairs:",
            "  7 pairs gone: '0', '1', '2', '3', '4', '5', '6'",
            "  2 pairs changed: '7' (code, meta), '8' (language)",
            "Choose another folder (-o; in Python run_dir), or go on with the pairs of this one.",
        ]
        assert {name: (path / name).read_bytes() for name in before} == before
        open_folder(path, pairs=first).close()

    def test_who_is_killed_between_pairs_and_manifest_loses_nothing(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=1)
        with monkeypatch.context() as patch:
            patch.setattr("agent.store.manifest.Manifest.save", lambda _self: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                open_folder(path, pairs="0123")
        for pairs in ("0123", "01234"):
            with open_folder(path, pairs=pairs) as folder:
                assert set(folder.index.iterate_keys()) == {("1", 0)}
                assert [pair.id for pair in folder.pairs()] == [*pairs]


class TestRefusing:
    def test_a_folder_with_other_files_is_left_alone(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / "thesis.tex").write_text("x")
        with pytest.raises(RunFolderError, match=r"not the folder of a run \(it holds 'thesis\.tex'\)"):
            open_folder(path)
        assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]

    def test_annotations_without_manifest_are_left_alone(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "0")
        (path / "manifest.json").unlink()
        with pytest.raises(RunFolderError, match=r"annotations but no manifest\.json"):
            open_folder(path)

    def test_a_file_in_its_place_and_a_path_that_cannot_be(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_text("x")
        with pytest.raises(RunFolderError, match="is a file"):
            open_folder(path)
        with pytest.raises(RunFolderError, match="cannot hold NUL"):
            open_folder(Path("a\0b"))

    def test_a_damaged_line_frees_the_lock_again(self, path: Path) -> None:
        open_folder(path).close()
        (path / "annotations.jsonl").write_bytes(b"{\n")
        with pytest.raises(RunFolderError, match=r"annotations\.jsonl:1"):
            open_folder(path)
        (path / "annotations.jsonl").write_bytes(b"")
        open_folder(path).close()


HOLDER = """
import sys
from tests.store.samples import open_folder
from pathlib import Path
with open_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


class TestLocking:
    @pytest.fixture
    def holder(self, path: Path) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", HOLDER, str(path)]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
            process.kill()

    def test_a_folder_in_use_is_refused_naming_the_process_until_that_dies(
        self, path: Path, holder: subprocess.Popen[str]
    ) -> None:
        with pytest.raises(RunFolderError, match=f"is in use by process {holder.pid} on"):
            open_folder(path)
        holder.kill()
        holder.wait()
        open_folder(path).close()


class TestCommitting:
    def test_evidence_comes_first_and_the_annotation_last(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_folder(path) as folder:

            def killed(_self: object, _annotation: Annotation) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr("agent.store.annotations.AnnotationLog.append", killed)
                with pytest.raises(KeyboardInterrupt):
                    commit(folder, "0")
            assert folder.evidence("0") == make_evidence("0", segment=1)
            assert set(folder.index.iterate_keys()) == set()
            commit(folder, "0")
            assert set(folder.index.iterate_keys()) == {("0", 0)}


FAILED = make_annotation("failed", error=ErrorInfo(type="ModelUnavailable", message="HTTP 503"))


class TestErrorsOfTheServer:
    """A pair that the model's server failed is finished when all others are through, or many more have failed."""

    def test_it_waits_until_a_hundred_others_failed(self, path: Path) -> None:
        with open_folder(path) as folder:
            for number in range(102):
                name = f"failed {number}"
                folder.commit(FAILED.model_copy(update={"id": name}), make_evidence(name))
            commit(folder, "other", label=1)
            assert set(folder.index.iterate_keys()) == {("other", 0), ("failed 0", 0), ("failed 1", 0)}

    def test_it_is_an_error_when_all_others_are_through(self, path: Path) -> None:
        with open_folder(path) as folder:
            folder.commit(FAILED, make_evidence("failed", usage=Usage(cost_usd=0.25)))
        with load_run(path) as view:
            assert (list(view.annotations()), view.spent_usd()) == ([FAILED], 0.25)

    @pytest.mark.parametrize("end", [Outage("gone"), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
    def test_it_is_taken_again_when_the_run_ends_before_and_what_it_cost_is_kept(
        self, path: Path, end: BaseException
    ) -> None:
        def run() -> None:
            with open_folder(path) as folder:
                folder.commit(FAILED, make_evidence("failed", usage=Usage(cost_usd=0.25)))
                raise end

        with pytest.raises(type(end)):
            run()
        with load_run(path) as view:
            assert (list(view.annotations()), view.spent_usd()) == ([], 0.25)


class TestRetrying:
    def asked(self, *problems: str | None) -> History:
        """A question that was asked once more after each problem."""
        exchanges = [
            exchange(0.0, problem=problem).model_copy(update={"key": f"{number}", "attempt": number})
            for number, problem in enumerate(problems)
        ]
        return make_evidence("0", events=tuple(exchanges))

    @pytest.mark.parametrize(
        ("problems", "unusable"),
        [(["no", "no"], {"0", "1"}), (["no", None], set()), ([None], set()), (["no"], {"0"})],
    )
    def test_replies_are_unusable_where_their_question_had_no_usable_one(
        self, path: Path, problems: list[str | None], unusable: set[str]
    ) -> None:
        cache = MemoryReplyCache()
        for key in "01k":
            cache.put(key, Reply(""))
        with open_folder(path) as folder:
            folder.commit(make_error("0"), self.asked(*problems))
            commit(folder, "1")
            folder.discard_unusable(cache)
        assert {key for key in "01k" if cache.get(key) is None} == unusable

    def test_what_another_run_was_answered_since_is_kept(self, path: Path) -> None:
        cache = MemoryReplyCache()
        cache.put("0", Reply("a better one"))
        with open_folder(path) as folder:
            folder.commit(make_error("0"), self.asked("no"))
            folder.discard_unusable(cache)
        assert cache.get("0") == Reply("a better one")

    def test_when_the_run_closes_each_pair_and_round_stands_there_once(self, path: Path) -> None:
        with open_folder(path) as folder:
            for pair_id in "012":
                folder.commit(make_error(pair_id), make_evidence(pair_id))
            folder.commit(make_annotation("1", round=1), make_evidence("1"))
        with load_run(path) as reader, open_folder(path) as folder:
            before = list(reader.annotations())
            commit(folder, "0", label=1)
            commit(folder, "2", label=0)
            folder.close()
            assert list(reader.annotations()) == before
            assert reader.annotation("0") == make_error("0")
        expected = [
            make_error("1"),
            make_annotation("1", round=1),
            make_annotation("0", label=1),
            make_annotation("2", label=0),
        ]
        lines = (path / "annotations.jsonl").read_bytes().splitlines()
        assert [json.loads(line)["id"] for line in lines] == ["1", "1", "0", "2"]
        labels = (path / "labels.jsonl").read_bytes().splitlines()
        assert [json.loads(line)["label"] for line in labels] == [1, None, 0]
        with open_folder(path) as folder:
            assert list(folder.annotations()) == expected


class TestViewing:
    def test_a_finished_run_is_read_and_no_file_of_it_is_changed(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=0)
        before = {entry.name: entry.stat().st_mtime_ns for entry in path.iterdir()}
        with load_run(path) as run:
            assert run.manifest["identity"]["model"] == "m"
            assert run.annotation("1") == make_annotation("1", label=0)
            assert run.annotation("0") is None
            assert list(run.annotations()) == [make_annotation("1", label=0)]
            assert run.evidence("1") == make_evidence("1", segment=1)
            assert [pair.id for pair in run.pairs()] == ["0", "1", "2"]
        assert {name: (path / name).stat().st_mtime_ns for name in before} == before

    def test_a_run_is_read_while_it_goes_on(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1")
            with load_run(path) as run:
                assert (run.annotation("1"), run.evidence("1")) == (make_annotation("1"), folder.evidence("1"))
            commit(folder, "2")

    def test_missing_files_of_a_run_are_told(self, path: Path) -> None:
        open_folder(path).close()
        for name in ("annotations.jsonl", "evidence.sqlite", "input.jsonl.gz"):
            (path / name).unlink()
        with load_run(path) as run:
            with pytest.raises(RunFolderError, match=r"annotations\.jsonl: no such file"):
                run.annotation("1")
            with pytest.raises(RunFolderError, match=r"evidence\.sqlite: no such file"):
                run.evidence("1")
            with pytest.raises(InputError, match=r"input\.jsonl\.gz: no such file"):
                list(run.pairs())


def test_what_is_no_run_is_reported_and_of_many_runs_some_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such folder"):
        load_run(tmp_path / "missing")
    with pytest.raises(RunFolderError, match="not the folder of a run"):
        load_run(tmp_path)
    for number in range(23):
        (tmp_path / f"run{number:02}").mkdir()
        (tmp_path / f"run{number:02}/manifest.json").touch()
    with pytest.raises(RunFolderError, match=r"holds runs, and is none itself; .*run00, .*run19 and 3 more$"):
        load_run(tmp_path)
