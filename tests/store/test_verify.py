"""A run's folder is checked: what is missing, damaged or does not fit is named with its place and a remedy."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.history import Visit
from agent.store import files
from agent.store.verify import Findings, verify
from tests.store.samples import make_annotation, make_error, make_evidence, open_folder


def verdict(label: int | None) -> Visit:
    return Visit(node="screen", outcome="", seconds=0, label=label)  # type: ignore[arg-type]


def write(path: Path, *, pairs: str = "abc", labels: str = "10-", rounds: int = 1) -> Path:
    """Make a finished run of these pairs with these labels; `-` is an error."""
    with open_folder(path, pairs=pairs) as folder:
        for number in range(rounds):
            for pair_id, label in zip(pairs, labels, strict=False):
                value = None if label == "-" else int(label)
                make = make_error if value is None else make_annotation
                found = make(pair_id, label=value, round=number, input_sha256=SHA)
                folder.commit(found, make_evidence(pair_id, verdict(value)))
    return path


SHA = make_evidence().pair.input_sha256()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(tmp_path / "run")


def only(found: Findings) -> tuple[str, int | None, str | None]:
    (problem,) = found.problems
    assert problem.remedy
    return problem.file, problem.line, problem.pair


def lines(run: Path, change: Callable[[list[bytes]], list[bytes]], name: str = "annotations.jsonl") -> None:
    file = run / name
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def changed(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


def sql(run: Path, statement: str) -> None:
    with sqlite3.connect(run / "evidence.sqlite") as connection:
        connection.execute(statement)
    connection.close()


def test_a_finished_run_is_fine_and_counted(run: Path) -> None:
    found = verify(run)
    assert (found.problems, found.counts) == ([], {})
    assert (found.pairs, found.annotations, found.missing, found.closed) == (3, 3, 0, True)


def test_an_unfinished_run_is_fine_and_what_is_missing_is_counted(tmp_path: Path) -> None:
    found = verify(write(tmp_path / "run", labels="1", rounds=2))
    assert (found.problems, found.missing, found.closed) == ([], 4, True)


def test_a_run_in_progress_is_fine_and_not_closed_whatever_a_kill_may_leave(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run") as folder:
        for label in (None, 1):
            make = make_error if label is None else make_annotation
            folder.commit(make("0", label=label, input_sha256=SHA), make_evidence("0", verdict(label)))
        with (tmp_path / "run/annotations.jsonl").open("ab") as file:
            file.write(b'{"torn')
        found = verify(tmp_path / "run")
        assert (found.problems, found.closed, found.annotations, found.missing) == ([], False, 1, 2)


def test_hostile_ids_are_found_again(tmp_path: Path) -> None:
    assert verify(write(tmp_path / "run", pairs="\ud800\x00'")).problems == []


class TestInput:
    def test_other_pairs_than_the_manifest_names_are_told_by_their_hash(self, run: Path) -> None:
        file = run / "input.jsonl.gz"
        file.write_bytes(gzip.compress(b"".join(gzip.decompress(file.read_bytes()).splitlines(keepends=True)[::-1])))
        assert only(verify(run))[0] == "input.jsonl.gz"

    @pytest.mark.parametrize("damage", ["no gzip", "no pair", "twice"])
    def test_a_damaged_one_is_told(self, run: Path, damage: str) -> None:
        file = run / "input.jsonl.gz"
        whole = file.read_bytes()
        file.write_bytes({"no gzip": b"{}", "no pair": gzip.compress(b"{}\n"), "twice": whole + whole}[damage])
        assert only(verify(run))[0] == "input.jsonl.gz"


class TestHostile:
    @pytest.mark.parametrize(
        "name", ["manifest.json", "input.jsonl.gz", "annotations.jsonl", "evidence.sqlite", "labels.jsonl"]
    )
    def test_a_missing_file_or_a_link_to_itself(self, run: Path, name: str) -> None:
        (run / name).unlink()
        assert only(verify(run))[0] == name  # what cannot be compared with it is no problem
        (run / name).symlink_to(name)
        assert only(verify(run))[0] == name

    def test_a_line_that_does_not_end(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "LONGEST_LINE", 100_000)
        lines(run, lambda found: [*found, b"\0" * 100_001])
        (problem,) = verify(run).problems
        assert problem.what.endswith("annotations.jsonl:4: the line is longer than 0 MB")

    @pytest.mark.parametrize(
        "statement",
        ["DROP TABLE records", "CREATE TRIGGER t INSERT ON paid BEGIN SELECT 1; END", "UPDATE paid SET cost_usd = 'x'"],
    )
    def test_a_database_that_we_did_not_write(self, run: Path, statement: str) -> None:
        sql(run, statement)
        assert only(verify(run)) == ("evidence.sqlite", None, None)


class TestAnnotations:
    def test_of_an_unknown_pair(self, run: Path) -> None:
        lines(run, lambda found: [*found, changed(found[0], id="z")])
        first, *_ = verify(run).problems
        assert (first.file, first.line, first.pair) == ("annotations.jsonl", 4, "z")

    def test_of_another_pair_with_that_id(self, run: Path) -> None:
        lines(run, lambda found: [changed(found[0], input_sha256="0" * 64), *found[1:]])
        first, second = verify(run).problems
        assert (first.file, first.line, first.pair) == ("annotations.jsonl", 1, "a")
        assert second.file == "evidence.sqlite"

    @pytest.mark.parametrize("more", [b'{"id', None])
    def test_twice_or_torn_in_a_closed_run(self, run: Path, more: bytes | None) -> None:
        lines(run, lambda found: [*found, more or found[1]])
        assert only(verify(run)) == ("annotations.jsonl", None, None)

    def test_a_damaged_line(self, run: Path) -> None:
        lines(run, lambda found: [found[0], b"{\n", found[2]])
        assert only(verify(run))[0] == "annotations.jsonl"
        assert "annotations.jsonl:2: is not an annotation" in verify(run).problems[0].what


class TestLabels:
    @pytest.mark.parametrize(
        ("change", "places"),
        [
            (lambda found: [changed(found[0], label=0), found[1], changed(found[2], label=1)], [(1, "a"), (3, "c")]),
            (lambda found: [*found, found[0]], [(4, "a")]),
            (lambda found: [found[1]], [(None, "a"), (None, "c")]),
            (lambda found: [*found, b"[]\n", b"{\n", changed(found[0], id="z")], [(4, None), (5, None), (6, "z")]),
        ],
    )
    def test_every_label_that_differs_is_named_and_counted(
        self, run: Path, change: Callable[[list[bytes]], list[bytes]], places: list[tuple[int | None, str | None]]
    ) -> None:
        lines(run, change, "labels.jsonl")
        found = verify(run)
        assert [(problem.line, problem.pair) for problem in found.problems] == places
        assert found.counts == {"labels.jsonl": len(places)}


class TestEvidence:
    @pytest.mark.parametrize("statement", ["DELETE FROM records", "UPDATE records SET record = x'00'"])
    def test_a_pair_whose_evidence_is_missing_or_unreadable(self, run: Path, statement: str) -> None:
        sql(run, f"{statement} WHERE rowid = 2")
        found = verify(run)
        assert only(found) == ("evidence.sqlite", None, "b")
        assert "Delete line 2 of annotations.jsonl" in found.problems[0].remedy

    def test_a_system_message_that_pairs_share(self, run: Path) -> None:
        sql(run, "DELETE FROM texts")
        assert verify(run).counts == {"evidence.sqlite": 3}

    def test_of_another_pair_or_another_try(self, run: Path) -> None:
        sql(run, "UPDATE records SET record = (SELECT record FROM records WHERE rowid = 1) WHERE rowid = 3")
        assert only(verify(run))[2] == "c"
        lines(run, lambda found: [changed(found[0], label=0), *found[1:]])
        (what,) = (each.what for each in verify(run).problems if (each.file, each.pair) == ("evidence.sqlite", "a"))
        assert "another try" in what

    def test_a_damaged_page(self, tmp_path: Path) -> None:
        run = write(tmp_path / "run", pairs="abcdefghij", labels="1" * 10)
        file = run / "evidence.sqlite"
        content = bytearray(file.read_bytes())
        content[-4096:] = b"\xee" * 4096
        file.write_bytes(content)
        assert verify(run).counts["evidence.sqlite"] > 0


@pytest.mark.parametrize("content", [None, b"{", b'{"schema": 9}'])
def test_a_manifest_that_is_missing_or_damaged(run: Path, content: bytes | None) -> None:
    (run / "manifest.json").unlink()
    if content is not None:
        (run / "manifest.json").write_bytes(content)
    assert only(verify(run)) == ("manifest.json", None, None)
