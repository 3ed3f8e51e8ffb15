"""annotations.jsonl: lines are complete or absent, and the last line of a pair and round counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import RunFolderError
from agent.runs.store.annotations import (
    AnnotationIndex,
    AnnotationLog,
    Key,
    combine_rounds,
    decode_annotation,
    encode_annotation,
    get_status,
)
from agent.types import Annotation
from tests.runs.store.samples import make_annotation, make_error, make_full_annotation


def write(path: Path, *annotations: Annotation) -> None:
    log = AnnotationLog(path)
    for annotation in annotations:
        log.append(annotation)
    log.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "annotations.jsonl"


def test_annotations_round_trip(path: Path) -> None:
    write(path, make_full_annotation(), make_annotation("b"))
    assert list(AnnotationIndex(path)) == [make_full_annotation(), make_annotation("b")]
    assert path.read_bytes().decode("utf-8").count("\n") == 2


def test_a_line_has_the_documented_fields(path: Path) -> None:
    write(path, make_full_annotation())
    record = json.loads(path.read_text())
    documented = (
        "schema id input_sha256 round label decided_by reason screen_verdict test simulated stand_ins reading audited "
        " repairs installed seconds usage error meta"
    )
    assert set(record) == set(documented.split())
    counts = {"passed": 1, "failed": 1, "errors": 1}
    assert record["test"].items() >= {"status": "failed", "cause": None, **counts}.items()
    assert record["test"]["cases"][1] == {
        "name": "test_b",
        "outcome": "failed",
        "message": "1 != 2",
        "cause": "snippet",
    }
    tokens = "calls input_tokens cached_input_tokens output_tokens reasoning_tokens cost_usd"
    assert set(record["usage"]) == set(tokens.split())


KEYS = st.tuples(st.sampled_from(["", "a", "b", "ä\ud800", "\ud800", "\x00", "\U0001f600"]), st.integers(0, 3))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(results=st.lists(st.tuples(KEYS, st.sampled_from([0, 1, None, "error"])), max_size=12), at=st.integers(0, 12))
def test_the_index_equals_a_dict_of_the_annotations(path: Path, results: list[tuple[Key, Any]], at: int) -> None:
    path.unlink(missing_ok=True)
    annotations = [
        make_error(pair_id, round=number) if label == "error" else make_annotation(pair_id, label=label, round=number)
        for (pair_id, number), label in results
    ]
    write(path, *annotations[:at])
    log = AnnotationLog(path)
    for annotation in annotations[at:]:
        log.append(annotation)
    log.close()
    last = {(annotation.id, annotation.round): annotation for annotation in annotations}
    ids = sorted({pair_id for pair_id, _ in last})
    by_pair = [[last[key] for key in sorted(last) if key[0] == pair_id] for pair_id in ids]
    for index in (log.index, AnnotationIndex(path)):
        assert {(annotation.id, annotation.round): annotation for annotation in index} == last
        assert (len(index), index.pair_count) == (len(last), len(ids))
        assert index.superseded_lines == len(annotations) - len(last)
        assert index.round_count == 1 + max((number for _, number in last), default=-1)
        assert list(index.iterate_keys()) == sorted(last)
        assert list(index.iterate_keys(failed=True)) == sorted(key for key in last if last[key].error is not None)
        assert list(index.group_by_pair()) == by_pair
        labels = [combine_rounds(rounds[0].id, list(map(get_status, rounds))) for rounds in by_pair]
        assert list(index.iterate_labels()) == [index.get_label(pair_id) for pair_id in ids] == labels
        assert [index.list_rounds(pair_id) for pair_id in ids] == [[a.round for a in rounds] for rounds in by_pair]
        for key, annotation in last.items():
            assert (index.is_finished(key), index.get(key)) == (True, annotation)
            assert index.is_finished(key, retry_errors=True) == (annotation.error is None)
        assert not index.is_finished(("other", 0))
        assert index.get_label("other") is index.get(("other", 0)) is None
    assert path.read_bytes().splitlines() == [encode_annotation(annotation) for annotation in annotations]


@pytest.mark.parametrize("length", range(1, 40, 3))
def test_a_truncated_last_line_is_removed_before_the_next_append(path: Path, length: int) -> None:
    write(path, make_annotation("a"))
    content = path.read_bytes()
    path.write_bytes(content + content[:length])
    write(path, make_annotation("b"))
    assert [annotation.id for annotation in AnnotationIndex(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"{", ""),
        (b'{"schema":9,"id":"a","round":0,"error":null}', "schema 9"),
        *(
            (json.dumps({"schema": 1, "id": "a", "round": 0, "error": None, "label": 1, **fields}).encode(), cause)
            for fields, cause in (
                ({"id": 3}, "id: "),
                ({"round": 10**25}, "round: "),
                ({"error": "no"}, "error: "),
                *(({"label": label}, "label: ") for label in ([1], "1", 7)),
            )
        ),
        (b'{"schema":1,"id":"a","round":0,"error":null}', "label: "),
    ],
)
def test_a_damaged_complete_line_is_located_and_the_file_is_unchanged(path: Path, line: bytes, cause: str) -> None:
    write(path, make_annotation("a"))
    path.write_bytes(path.read_bytes() + line + b"\n" + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(RunFolderError, match=rf"annotations\.jsonl:2: .*{cause}"):
        AnnotationLog(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "field",
    [
        {"seconds": -1},
        {"repairs": 10**400},
        {"usage": {"calls": 10**300}},
        {"usage": {"cost_usd": 1e308}},
    ],
)
def test_a_number_out_of_range_is_rejected(field: dict[str, Any]) -> None:
    record = {**json.loads(encode_annotation(make_annotation("a"))), **field}
    with pytest.raises(RunFolderError, match=rf"^there: [^\n]*\({next(iter(field))}[^\n]*$"):
        decode_annotation(json.dumps(record).encode(), "there")
