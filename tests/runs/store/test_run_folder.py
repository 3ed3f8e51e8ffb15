"""Run folders: created, resumed, refused, locked and read."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.datasets.pair_store import PairStore, iter_normalised
from agent.errors import InputError, Outage, RunFolderError
from agent.llm.base import Reply
from agent.llm.gateway import MemoryReplyCache
from agent.pipeline.history import History, ModelCall
from agent.runs.store.run_view import load_run
from agent.types import Annotation, ErrorInfo, Origin, Usage
from tests.runs.store.samples import commit, make_annotation, make_error, make_evidence, make_pair, open_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "r"


def make_model_call(cost_usd: float | None, **fields: Any) -> ModelCall:
    usage = Usage(calls=1, input_tokens=1000, output_tokens=10, cost_usd=cost_usd)
    return ModelCall(role="screen", key="k", messages=(), reply="", model="m", usage=usage, **fields)


class TestCost:
    def test_costs_include_all_attempts_and_unfinished_pairs(self, path: Path) -> None:
        with open_folder(path) as folder:
            assert folder.spent_usd() == 0
            commit(folder, "0", usage=Usage(cost_usd=1.0), error=ErrorInfo(type="ModelError", message=""))
            commit(folder, "0", usage=Usage(cost_usd=0.5))
            folder.record_abandoned([make_model_call(0.25)])
            folder.record_abandoned([make_model_call(0.125)])
        with open_folder(path) as folder:
            assert folder.spent_usd() == 1.875
            folder.record_abandoned([make_model_call(2)])
        with load_run(path) as view:
            assert view.spent_usd() == 3.875

    @pytest.mark.parametrize("unfinished", [False, True])
    def test_costs_with_an_unpriced_part_are_unknown_without_a_price(self, path: Path, unfinished: bool) -> None:
        def price(role: str, model: str, usage: Usage) -> float | None:
            assert (role, model) == ("screen", "m" if unfinished else "")
            return usage.input_tokens / 500

        with open_folder(path) as folder:
            commit(folder, "0", usage=Usage(cost_usd=1.0))
            for _ in range(2):
                if unfinished:
                    folder.record_abandoned([make_model_call(None)])
                else:
                    commit(folder, "1", usage=Usage(calls=1, input_tokens=1000, cost_usd=None))
        with load_run(path) as view:
            assert view.spent_usd() is None
            assert view.spent_usd(lambda *_: None) is None
            assert view.spent_usd(price) == 5.0

    def test_tokens_include_all_attempts_and_unfinished_pairs(self, path: Path) -> None:
        with open_folder(path) as folder:
            assert folder.spent_tokens() == 0
            commit(folder, "0", usage=Usage(input_tokens=30, cached_input_tokens=20, output_tokens=5, cost_usd=None))
            commit(folder, "0", usage=Usage(input_tokens=10, output_tokens=1))
            folder.record_abandoned([make_model_call(2)])
        with load_run(path) as view:
            assert view.spent_tokens() == 46 + 1010

    def test_costs_are_unknown_without_the_evidence_file(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "0", usage=Usage(cost_usd=1.0))
        (path / "evidence.sqlite").unlink()
        with load_run(path) as view:
            assert view.spent_usd() is view.spent_tokens() is None
        with open_folder(path) as folder:
            assert any("evidence.sqlite" in note for note in folder.notes)
            commit(folder, "1", usage=Usage(cost_usd=1.0))
            assert folder.spent_usd() is folder.spent_tokens() is None


class TestCreating:
    def test_a_new_folder_has_the_documented_files(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / ".DS_Store").touch()
        with open_folder(path) as folder:
            commit(folder, "0")
        names = ".DS_Store .lock annotations.jsonl evidence.sqlite input.jsonl.gz labels.jsonl manifest.json"
        assert {entry.name for entry in path.iterdir()} == set(names.split())
        assert list(iter_normalised(path / "input.jsonl.gz")) == [make_pair(str(n)) for n in range(3)]
        document = json.loads((path / "manifest.json").read_text())
        assert (document["schema"], document["identity"]["model"]) == (2, "m")
        assert len(document["identity"]["input_sha256"]) == 64
        assert document["segments"][0]["environment"] == {"versions": {"agent": "0.1"}}

    def test_duplicate_ids_are_refused_before_anything_is_written(self, path: Path) -> None:
        with pytest.raises(InputError, match="'a'"):
            open_folder(path, pairs="aa")
        assert not path.exists()

    def test_a_folder_without_a_manifest_starts_over(self, path: Path) -> None:
        open_folder(path).close()
        (path / "manifest.json").rename(path / ".manifest.json.0123456789abcdef.tmp")
        with open_folder(path, pairs="z") as folder:
            assert set(folder.index.iterate_keys()) == set()
        assert [pair.id for pair in iter_normalised(path / "input.jsonl.gz")] == ["z"]


class TestResuming:
    def test_finished_pairs_are_kept(self, path: Path) -> None:
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

    def test_a_run_without_annotations_accepts_changes_and_keeps_its_costs(self, path: Path) -> None:
        with open_folder(path) as folder:
            folder.record_abandoned([make_model_call(0.5)])
        (path / "annotations.jsonl").write_bytes(b'{"torn": ')
        with open_folder(path, identity={"model": "n"}, pairs="z") as folder:
            assert folder.manifest["identity"]["model"] == "n"
            assert folder.spent_usd() == 0.5
        with load_run(path) as view:
            assert [pair.id for pair in view.pairs()] == ["z"]


class TestGrowing:
    def test_pairs_can_be_added_at_any_position(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=1)
        with open_folder(path, pairs="a120b") as folder:
            assert [re.findall(r"\d+", note) for note in folder.notes] == [["3", "5"]]
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
        assert document["identity"]["input_sha256"] == PairStore(pairs).sha256
        assert [(change["before"], change["now"]) for change in document["changes"]] == [(3, 5)]

    def test_missing_and_changed_pairs_are_listed_and_refused(self, path: Path) -> None:
        first = [make_pair(str(number), meta={"n": (number,)}) for number in range(9)]
        origins = [Origin(repository="pack", commit=version, name="f") for version in ("1.0", "1.1")]
        first[7:] = [pair.model_copy(update={"origin": origins[0]}) for pair in first[7:]]
        with open_folder(path, pairs=first) as folder:
            commit(folder, "8")
        before = {name: (path / name).read_bytes() for name in ("manifest.json", "input.jsonl.gz", "labels.jsonl")}
        changed = [
            first[7].model_copy(update={"code": "x", "meta": {}}),
            first[8].model_copy(update={"language": "sql", "origin": origins[1]}),
            make_pair("new"),
        ]
        with pytest.raises(RunFolderError) as caught:
            open_folder(path, pairs=changed)
        first_line, missing, different, remedy = str(caught.value).splitlines()
        assert (first_line.startswith(f"{path}: "), "run_dir" in remedy) == (True, True)
        assert re.fullmatch(r"  7 .*: '0', '1', '2', '3', '4', '5', '6'", missing)
        assert re.fullmatch(r"  2 .*: '7' \(code, meta\), '8' \(language, origin\)", different)
        assert {name: (path / name).read_bytes() for name in before} == before
        open_folder(path, pairs=first).close()

    def test_a_kill_between_writing_pairs_and_manifest_loses_nothing(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_folder(path) as folder:
            commit(folder, "1", label=1)
        with monkeypatch.context() as patch:
            patch.setattr(
                "agent.runs.store.manifest.Manifest.save", lambda _self: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                open_folder(path, pairs="0123")
        for pairs in ("0123", "01234"):
            with open_folder(path, pairs=pairs) as folder:
                assert set(folder.index.iterate_keys()) == {("1", 0)}
                assert [pair.id for pair in folder.pairs()] == [*pairs]


class TestRefusing:
    def test_a_folder_with_other_files_is_refused(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / "thesis.tex").write_text("x")
        with pytest.raises(RunFolderError, match=r"'thesis\.tex'"):
            open_folder(path)
        assert [entry.name for entry in path.iterdir()] == ["thesis.tex"]

    def test_annotations_without_a_manifest_are_refused(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "0")
        (path / "manifest.json").unlink()
        with pytest.raises(RunFolderError, match=r"manifest\.json"):
            open_folder(path)

    def test_a_file_and_an_invalid_path_are_refused(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_text("x")
        with pytest.raises(RunFolderError, match="a file"):
            open_folder(path)
        with pytest.raises(RunFolderError, match="NUL"):
            open_folder(Path("a\0b"))

    def test_a_damaged_line_releases_the_lock(self, path: Path) -> None:
        open_folder(path).close()
        (path / "annotations.jsonl").write_bytes(b"{\n")
        with pytest.raises(RunFolderError, match=r"annotations\.jsonl:1"):
            open_folder(path)
        (path / "annotations.jsonl").write_bytes(b"")
        open_folder(path).close()


LOCKER = """
import sys
from tests.runs.store.samples import open_folder
from pathlib import Path
with open_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


class TestLocking:
    @pytest.fixture
    def locker(self, path: Path) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", LOCKER, str(path)]
        root = Path(__file__).parents[3]
        with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "locked\n"
            yield process
            process.kill()

    def test_a_folder_in_use_is_refused_until_its_process_dies(self, path: Path, locker: subprocess.Popen[str]) -> None:
        with pytest.raises(RunFolderError, match=rf"\b{locker.pid}\b"):
            open_folder(path)
        locker.kill()
        locker.wait()
        open_folder(path).close()


class TestCommitting:
    def test_evidence_is_written_before_the_annotation(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with open_folder(path) as folder:

            def interrupt(_self: object, _annotation: Annotation) -> None:
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr("agent.runs.store.annotations.AnnotationLog.append", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    commit(folder, "0")
            assert folder.evidence("0") == make_evidence("0", segment=1)
            assert set(folder.index.iterate_keys()) == set()
            commit(folder, "0")
            assert set(folder.index.iterate_keys()) == {("0", 0)}


FAILED = make_annotation("failed", error=ErrorInfo(type="ModelUnavailable", message="HTTP 503"))


class TestServerErrors:
    """An annotation with a model server error is deferred until all other pairs are done or many more have failed."""

    def test_an_error_is_deferred_until_a_hundred_others_have_failed(self, path: Path) -> None:
        with open_folder(path) as folder:
            for number in range(102):
                name = f"failed {number}"
                folder.commit(FAILED.model_copy(update={"id": name}), make_evidence(name))
            commit(folder, "other", label=1)
            assert set(folder.index.iterate_keys()) == {("other", 0), ("failed 0", 0), ("failed 1", 0)}

    def test_an_error_is_written_when_all_other_pairs_are_done(self, path: Path) -> None:
        with open_folder(path) as folder:
            folder.commit(FAILED, make_evidence("failed", usage=Usage(cost_usd=0.25)))
        with load_run(path) as view:
            assert (list(view.annotations()), view.spent_usd()) == ([FAILED], 0.25)

    @pytest.mark.parametrize("end", [Outage("gone"), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
    def test_an_error_is_discarded_but_its_cost_recorded_when_the_run_ends_early(
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
    def make_history(self, *problems: str | None) -> History:
        """Return the history of a call with one attempt per item of `problems`."""
        model_calls = [
            make_model_call(0.0, problem=problem).model_copy(update={"key": f"{number}", "attempt": number})
            for number, problem in enumerate(problems)
        ]
        return make_evidence("0", events=tuple(model_calls))

    @pytest.mark.parametrize(
        ("problems", "unusable"),
        [(["no", "no"], {"0", "1"}), (["no", None], set()), ([None], set()), (["no"], {"0"})],
    )
    def test_replies_of_calls_without_a_usable_reply_are_discarded(
        self, path: Path, problems: list[str | None], unusable: set[str]
    ) -> None:
        cache = MemoryReplyCache()
        for key in "01k":
            cache.put(key, Reply(""))
        with open_folder(path) as folder:
            folder.commit(make_error("0"), self.make_history(*problems))
            commit(folder, "1")
            folder.discard_unusable(cache)
        assert {key for key in "01k" if cache.get(key) is None} == unusable

    def test_newer_replies_of_other_runs_are_kept(self, path: Path) -> None:
        cache = MemoryReplyCache()
        cache.put("0", Reply("a better one"))
        with open_folder(path) as folder:
            folder.commit(make_error("0"), self.make_history("no"))
            folder.discard_unusable(cache)
        assert cache.get("0") == Reply("a better one")

    def test_a_closed_run_has_one_line_per_pair_and_round(self, path: Path) -> None:
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
    def test_reading_a_finished_run_changes_no_file(self, path: Path) -> None:
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

    def test_a_run_in_progress_can_be_read(self, path: Path) -> None:
        with open_folder(path) as folder:
            commit(folder, "1")
            with load_run(path) as run:
                assert (run.annotation("1"), run.evidence("1")) == (make_annotation("1"), folder.evidence("1"))
            commit(folder, "2")

    def test_missing_files_are_reported(self, path: Path) -> None:
        open_folder(path).close()
        for name in ("annotations.jsonl", "evidence.sqlite", "input.jsonl.gz"):
            (path / name).unlink()
        with load_run(path) as run:
            with pytest.raises(RunFolderError, match=r"annotations\.jsonl: "):
                run.annotation("1")
            with pytest.raises(RunFolderError, match=r"evidence\.sqlite: "):
                run.evidence("1")
            with pytest.raises(InputError, match=r"input\.jsonl\.gz: "):
                list(run.pairs())


def test_a_path_that_is_not_a_run_is_refused_and_its_runs_are_listed(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="missing: "):
        load_run(tmp_path / "missing")
    with pytest.raises(RunFolderError, match=r"manifest\.json"):
        load_run(tmp_path)
    for number in range(23):
        (tmp_path / f"run{number:02}").mkdir()
        (tmp_path / f"run{number:02}/manifest.json").touch()
    with pytest.raises(RunFolderError, match=r"run00, .*run19 and 3 more$"):
        load_run(tmp_path)
