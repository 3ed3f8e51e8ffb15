"""evidence.sqlite: histories round-trip, and texts that pairs share are stored once."""

from __future__ import annotations

import tracemalloc
import zlib
from pathlib import Path

import pytest

from agent.errors import RunFolderError, StorageError
from agent.llm.base import Reply
from agent.pipeline.history import ModelCall
from agent.runs.store import evidence
from agent.runs.store.evidence import EvidenceStore
from agent.types import Usage
from tests.runs.store.samples import execute_sql, make_command, make_evidence, make_pair


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evidence.sqlite"


@pytest.mark.parametrize("pair_id", ["a", "", "../../x", "a\x00b", "\ud800", "x" * 100_000, "'; DROP TABLE records"])
def test_evidence_round_trips_for_any_id(path: Path, pair_id: str) -> None:
    store = EvidenceStore(path)
    store.put(make_evidence(pair_id))
    assert store.get(pair_id) == make_evidence(pair_id)
    store.close()
    assert EvidenceStore(path, read_only=True).get(pair_id) == make_evidence(pair_id)


def test_rounds_are_separate_and_a_second_put_replaces_the_first(path: Path) -> None:
    store = EvidenceStore(path)
    store.put(make_evidence("a", make_command("old")))
    store.put(make_evidence("a", make_command("new")))
    store.put(make_evidence("a", make_command("other round")), round=1)
    assert (store.get("a", 2), store.get("b", 1)) == (None, None)
    first, second = store.get("a", 0), store.get("a", 1)
    assert (first.commands[-1].output, second.commands[-1].output) == ("new", "other round")
    store.close()
    assert execute_sql(path, "SELECT count(*) FROM records") == [(2,)]


def make_shared_exchange(
    key: str, reply: str, problem: str | None = None, *, attempt: int = 0, cached: bool = False
) -> ModelCall:
    cost = {"saved" if cached else "usage": Usage(calls=1, input_tokens=5)}
    return ModelCall(
        role="judge_intent", key=key, messages=(), reply=reply, model="m", problem=problem, attempt=attempt,
        shared=True, cached=cached,
        **cost,
    )  # fmt: skip


def test_shared_replies_have_the_key_of_the_first_attempt_and_are_not_replaced(path: Path) -> None:
    store = EvidenceStore(path)
    store.put(
        make_evidence(
            "a",
            events=(
                make_shared_exchange("one", "no json", "it is no JSON"),
                make_shared_exchange("again", "answer", attempt=1),
            ),
        )
    )
    store.put(
        make_evidence(
            "b",
            events=(make_shared_exchange("two", "other", cached=True), make_shared_exchange("three", "no json", "no")),
        )
    )
    assert store.find_shared_reply("one") == Reply("answer", usage=Usage(calls=2, input_tokens=10), model="m")
    store.put(make_evidence("c", events=(make_shared_exchange("one", "later"),)))
    assert store.find_shared_reply("one") == Reply("answer", usage=Usage(calls=2, input_tokens=10), model="m")
    assert store.find_shared_reply("two") == Reply("other", usage=Usage(calls=1, input_tokens=5), model="m")
    assert [store.find_shared_reply(key) for key in ("again", "three", "k" * 64)] == [None, None, None]


@pytest.mark.parametrize("values", ["('', '', 1, -1, 0, 0, 0)", "('', '', 1, 0, 0, 0, 'much')"])
def test_damaged_costs_raise(path: Path, values: str) -> None:
    store = EvidenceStore(path)
    execute_sql(path, f"INSERT INTO paid VALUES {values}")
    with pytest.raises(RunFolderError, match=r"evidence\.sqlite: .*damaged"):
        store.spent_usd()


@pytest.mark.parametrize(
    "content", [b"\x00", zlib.compress(b"[]"), zlib.compress(b"{}"), zlib.compress(b"{}" * 99)[:-4]]
)
def test_a_damaged_shared_reply_raises(path: Path, content: bytes) -> None:
    store = EvidenceStore(path)
    store.put(make_evidence("a", events=(make_shared_exchange("one", "first"),)))
    execute_sql(path, "UPDATE answers SET reply = ?", content)
    with pytest.raises(RunFolderError, match="unreadable"):
        store.find_shared_reply("one")


def test_json_that_pydantic_would_change_or_reject_round_trips(path: Path) -> None:
    deep: dict[str, object] = {}
    for _ in range(400):
        deep = {"x": deep}
    evidence = make_evidence("a")
    model_call = evidence.model_calls[0].model_copy(update={"raw": deep})
    pair = make_pair("a", meta={"\ud800": {"\udfff": "\ud800"}})
    store = EvidenceStore(path)
    store.put(evidence.model_copy(update={"pair": pair, "events": (model_call,)}))
    stored = store.get("a")
    assert (stored.pair, stored.model_calls[0].raw) == (pair, deep)


def test_files_of_other_programs_are_refused(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(RunFolderError, match=r"evidence\.sqlite: .*damaged"):
        EvidenceStore(path)
    execute_sql(tmp_path / "other", "CREATE TABLE mine (x)")
    with pytest.raises(RunFolderError, match="another program"):
        EvidenceStore(tmp_path / "other")


@pytest.mark.parametrize(
    ("record", "cause"), [("x'00'", ""), ("substr(record, 1, length(record) - 6)", "truncated"), ("'text'", "")]
)
def test_damaged_evidence_of_a_pair_raises(path: Path, record: str, cause: str) -> None:
    store = EvidenceStore(path)
    store.put(make_evidence("a"))
    execute_sql(path, f"UPDATE records SET record = {record}")
    with pytest.raises(RunFolderError, match=rf"'a' is damaged .*{cause}"):
        store.get("a")


def test_an_oversized_blob_is_refused_without_loading_it(path: Path) -> None:
    EvidenceStore(path).put(make_evidence("a"))
    execute_sql(path, "UPDATE records SET record = zeroblob(300000000)")
    tracemalloc.start()
    try:
        for read in (lambda: EvidenceStore(path).get("a"), lambda: EvidenceStore(path, read_only=True).get("a")):
            with pytest.raises(RunFolderError, match="256 MB"):
                read()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_the_texts_of_a_history_share_one_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = make_evidence("a")
    messages = [({"role": "system", "content": letter * 900},) for letter in "abc"]
    model_calls = [history.model_calls[0].model_copy(update={"messages": texts}) for texts in (*messages, messages[0])]
    with EvidenceStore(path) as store:
        store.put(history.model_copy(update={"events": tuple(model_calls)}))
        monkeypatch.setattr(evidence, "MAX_TEXT_BYTES", 3_000)
        assert store.get("a") is not None
        monkeypatch.setattr(evidence, "MAX_TEXT_BYTES", 2_600)
        with pytest.raises(RunFolderError, match="'a' is damaged"):
            store.get("a")


@pytest.mark.parametrize("column", ["records SET record", "texts SET text"])
def test_evidence_that_decompresses_beyond_the_limit_is_damaged(path: Path, column: str) -> None:
    store = EvidenceStore(path)
    store.put(make_evidence("a"))
    store.close()
    execute_sql(path, f"UPDATE {column} = ?", zlib.compress(bytes(64 << 20)))
    tracemalloc.start()
    try:
        with pytest.raises(RunFolderError, match=r"'a' is damaged .*20 MB"):
            EvidenceStore(path).get("a")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


def test_a_read_only_store_needs_a_file_and_cannot_write(path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"evidence\.sqlite: "):
        EvidenceStore(path, read_only=True)
    EvidenceStore(path).close()
    with pytest.raises(StorageError, match="read-only"):
        EvidenceStore(path, read_only=True).put(make_evidence())
