"""Checks of run folders: every problem is reported with its location and a remedy."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.pipeline.history import NodeRun
from agent.runs.store import files
from agent.runs.store.verify import Findings, verify
from tests.runs.store.samples import execute_sql, make_annotation, make_error, make_evidence, open_folder


def make_visit(label: int | None) -> NodeRun:
    return NodeRun(node="screen", outcome="", seconds=0, label=label)  # type: ignore[arg-type]


def write(path: Path, *, pairs: str = "abc", labels: str = "10-", rounds: int = 1) -> Path:
    """Create a finished run. `labels` has one character per pair; `-` is an error."""
    with open_folder(path, pairs=pairs) as folder:
        for number in range(rounds):
            for pair_id, label in zip(pairs, labels, strict=False):
                value = None if label == "-" else int(label)
                make = make_error if value is None else make_annotation
                annotation = make(pair_id, label=value, round=number, input_sha256=SHA)
                folder.commit(annotation, make_evidence(pair_id, make_visit(value)))
    return path


SHA = make_evidence().pair.input_sha256()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(tmp_path / "run")


def locate_only_problem(findings: Findings) -> tuple[str, int | None, str | None]:
    (problem,) = findings.problems
    assert problem.remedy
    return problem.file, problem.line, problem.pair


def change_lines(run: Path, change: Callable[[list[bytes]], list[bytes]], name: str = "annotations.jsonl") -> None:
    file = run / name
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def edit(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


def test_a_finished_run_has_no_problems(run: Path) -> None:
    findings = verify(run)
    assert (findings.problems, findings.counts) == ([], {})
    assert (findings.pairs, findings.annotations, findings.missing, findings.closed) == (3, 3, 0, True)


def test_missing_annotations_are_counted_but_are_not_a_problem(tmp_path: Path) -> None:
    findings = verify(write(tmp_path / "run", labels="1", rounds=2))
    assert (findings.problems, findings.missing, findings.closed) == ([], 4, True)


def test_a_run_in_progress_has_no_problems_and_is_not_closed(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run") as folder:
        for label in (None, 1):
            make = make_error if label is None else make_annotation
            folder.commit(make("0", label=label, input_sha256=SHA), make_evidence("0", make_visit(label)))
        with (tmp_path / "run/annotations.jsonl").open("ab") as file:
            file.write(b'{"torn')
        findings = verify(tmp_path / "run")
        assert (findings.problems, findings.closed, findings.annotations, findings.missing) == ([], False, 1, 2)


def test_hostile_ids_cause_no_problems(tmp_path: Path) -> None:
    assert verify(write(tmp_path / "run", pairs="\ud800\x00'")).problems == []


class TestInput:
    def test_pairs_with_another_hash_are_reported(self, run: Path) -> None:
        file = run / "input.jsonl.gz"
        file.write_bytes(gzip.compress(b"".join(gzip.decompress(file.read_bytes()).splitlines(keepends=True)[::-1])))
        assert locate_only_problem(verify(run))[0] == "input.jsonl.gz"

    @pytest.mark.parametrize("damage", ["not gzip", "not a pair", "duplicated"])
    def test_damaged_input_is_reported(self, run: Path, damage: str) -> None:
        file = run / "input.jsonl.gz"
        content = file.read_bytes()
        file.write_bytes({"not gzip": b"{}", "not a pair": gzip.compress(b"{}\n"), "duplicated": content * 2}[damage])
        assert locate_only_problem(verify(run))[0] == "input.jsonl.gz"


class TestHostile:
    @pytest.mark.parametrize(
        "name", ["manifest.json", "input.jsonl.gz", "annotations.jsonl", "evidence.sqlite", "labels.jsonl"]
    )
    def test_a_missing_file_and_a_link_to_itself_are_reported(self, run: Path, name: str) -> None:
        (run / name).unlink()
        assert locate_only_problem(verify(run))[0] == name  # but no problem in files that cannot be compared with it
        (run / name).symlink_to(name)
        assert locate_only_problem(verify(run))[0] == name

    def test_an_endless_line_is_located(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "LONGEST_LINE", 100_000)
        change_lines(run, lambda lines: [*lines, b"\0" * 100_001])
        (problem,) = verify(run).problems
        assert "annotations.jsonl:4: " in problem.what

    @pytest.mark.parametrize(
        "statement",
        ["DROP TABLE records", "CREATE TRIGGER t INSERT ON paid BEGIN SELECT 1; END", "UPDATE paid SET cost_usd = 'x'"],
    )
    def test_a_database_of_another_program_is_reported(self, run: Path, statement: str) -> None:
        execute_sql(run / files.EVIDENCE, statement)
        assert locate_only_problem(verify(run)) == ("evidence.sqlite", None, None)


class TestAnnotations:
    def test_an_annotation_of_an_unknown_pair_is_located(self, run: Path) -> None:
        change_lines(run, lambda lines: [*lines, edit(lines[0], id="z")])
        first, *_ = verify(run).problems
        assert (first.file, first.line, first.pair) == ("annotations.jsonl", 4, "z")

    def test_an_annotation_of_another_pair_with_the_same_id_is_located(self, run: Path) -> None:
        change_lines(run, lambda lines: [edit(lines[0], input_sha256="0" * 64), *lines[1:]])
        first, second = verify(run).problems
        assert (first.file, first.line, first.pair) == ("annotations.jsonl", 1, "a")
        assert second.file == "evidence.sqlite"

    @pytest.mark.parametrize("more", [b'{"id', None])
    def test_a_duplicate_or_truncated_line_in_a_closed_run_is_reported(self, run: Path, more: bytes | None) -> None:
        change_lines(run, lambda lines: [*lines, more or lines[1]])
        assert locate_only_problem(verify(run)) == ("annotations.jsonl", None, None)

    def test_a_damaged_line_is_located(self, run: Path) -> None:
        change_lines(run, lambda lines: [lines[0], b"{\n", lines[2]])
        assert locate_only_problem(verify(run))[0] == "annotations.jsonl"
        assert "annotations.jsonl:2: " in verify(run).problems[0].what


class TestLabels:
    @pytest.mark.parametrize(
        ("change", "places"),
        [
            (lambda lines: [edit(lines[0], label=0), lines[1], edit(lines[2], label=1)], [(1, "a"), (3, "c")]),
            (lambda lines: [*lines, lines[0]], [(4, "a")]),
            (lambda lines: [lines[1]], [(None, "a"), (None, "c")]),
            (lambda lines: [*lines, b"[]\n", b"{\n", edit(lines[0], id="z")], [(4, None), (5, None), (6, "z")]),
        ],
    )
    def test_every_differing_label_is_reported_and_counted(
        self, run: Path, change: Callable[[list[bytes]], list[bytes]], places: list[tuple[int | None, str | None]]
    ) -> None:
        change_lines(run, change, "labels.jsonl")
        findings = verify(run)
        assert [(problem.line, problem.pair) for problem in findings.problems] == places
        assert findings.counts == {"labels.jsonl": len(places)}


class TestEvidence:
    @pytest.mark.parametrize("statement", ["DELETE FROM records", "UPDATE records SET record = x'00'"])
    def test_missing_or_unreadable_evidence_is_reported_for_its_pair(self, run: Path, statement: str) -> None:
        execute_sql(run / files.EVIDENCE, f"{statement} WHERE rowid = 2")
        findings = verify(run)
        assert locate_only_problem(findings) == ("evidence.sqlite", None, "b")
        assert re.search(r"\b2\b.*annotations\.jsonl", findings.problems[0].remedy)

    def test_a_missing_system_message_is_reported_for_every_pair(self, run: Path) -> None:
        execute_sql(run / files.EVIDENCE, "DELETE FROM texts")
        assert verify(run).counts == {"evidence.sqlite": 3}

    def test_evidence_of_another_pair_or_attempt_is_reported(self, run: Path) -> None:
        first = "SELECT record FROM records WHERE rowid = 1"
        execute_sql(run / files.EVIDENCE, f"UPDATE records SET record = ({first}) WHERE rowid = 3")
        assert locate_only_problem(verify(run))[2] == "c"
        change_lines(run, lambda lines: [edit(lines[0], label=0), *lines[1:]])
        places = [(problem.file, problem.pair) for problem in verify(run).problems]
        assert places.count(("evidence.sqlite", "a")) == 1

    def test_a_damaged_page_is_reported(self, tmp_path: Path) -> None:
        run = write(tmp_path / "run", pairs="abcdefghij", labels="1" * 10)
        file = run / "evidence.sqlite"
        content = bytearray(file.read_bytes())
        content[-4096:] = b"\xee" * 4096
        file.write_bytes(content)
        assert verify(run).counts["evidence.sqlite"] > 0


@pytest.mark.parametrize("content", [None, b"{", b'{"schema": 9}'])
def test_a_missing_or_damaged_manifest_is_reported(run: Path, content: bytes | None) -> None:
    (run / "manifest.json").unlink()
    if content is not None:
        (run / "manifest.json").write_bytes(content)
    assert locate_only_problem(verify(run)) == ("manifest.json", None, None)
