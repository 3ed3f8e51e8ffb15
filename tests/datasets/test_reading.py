"""Files of pairs: reading them, and errors about bad files and lines."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from agent.datasets.fields import parse_mapping
from agent.datasets.pair_store import group_by_query
from agent.datasets.reading import Dataset, read_pairs
from agent.errors import ConfigError, InputError
from agent.types import Pair

GOOD = {"id": "a", "query": "reverse a list", "code": "def f(x):\n    return x[::-1]"}


def write(path: Path, *records: object) -> Path:
    path.write_bytes(b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records))
    return path


def read(tmp_path: Path, *records: object, **options: object) -> Dataset:
    return read_pairs(write(tmp_path / "pairs.jsonl", *records), **options)  # type: ignore[arg-type]


def catch_message(tmp_path: Path, *records: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, *records, **options)
    return str(caught.value)


class TestFields:
    @pytest.mark.parametrize(
        ("record", "pair"),
        [
            (
                {**GOOD, "language": "sql", "context": "table t(x)", "meta": {"year": 2020}},
                Pair(**GOOD, language="sql", context="table t(x)", meta={"year": 2020}),
            ),
            (
                {**GOOD, "label": 1, "votes": [1, 0], "why": ["x"], "meta": {"k": 2}},
                Pair(**GOOD, meta={"label": 1, "votes": [1, 0], "why": ["x"], "k": 2}),
            ),
            ({"idx": "3", "doc": "q", "code": "c", "label": 1}, Pair(id="3", query="q", code="c", meta={"label": 1})),
            ({"pair-idx": 7, "query": "q", "code": "c"}, Pair(id="7", query="q", code="c")),
            (
                {"pair-index": 7, "query-idx": 1, "query": "q", "code": "c", "label": "yes"},
                Pair(id="7", query="q", code="c", meta={"query-idx": 1, "label": "yes"}),
            ),
        ],
        ids=["own names", "other fields go to meta", "CoSQA", "CoSQA+", "old CoSQA+"],
    )
    def test_known_fields_need_no_mapping(self, tmp_path: Path, record: dict[str, object], pair: Pair) -> None:
        assert list(read(tmp_path, record)) == [pair]

    def test_a_mapping_renames_fields(self, tmp_path: Path) -> None:
        mapping = parse_mapping("query=question, code=snippet, id=key, language=lang, context=schema")
        record = {"question": "q", "snippet": "c", "key": 5, "lang": "sql", "schema": "s", "query": "other"}
        pair = read(tmp_path, record, mapping=mapping)[0]
        assert pair == Pair(id="5", query="q", code="c", language="sql", context="s", meta={"query": "other"})

    def test_a_mapped_label_is_gold_and_its_field_stays_in_meta(self, tmp_path: Path) -> None:
        dataset = read(tmp_path, {**GOOD, "crowd": "1"}, mapping=parse_mapping("label=crowd"))
        assert dataset[0].meta == {"crowd": "1", "label": "1"}
        assert dataset.read_label(dataset[0]) == 1

    @pytest.mark.parametrize(
        ("fields", "option"),
        [
            ("question,answer", "--map query=question,code=answer "),
            ("pair_id,Question,snippet,docstring_tokens,label", "--map query=Question,code=snippet "),
            ("nl,pl", "--map query=FIELD,code=FIELD "),
            ("text,code", "--map query=FIELD "),
        ],
    )
    def test_an_error_suggests_a_mapping_by_field_names(self, tmp_path: Path, fields: str, option: str) -> None:
        row = dict.fromkeys(fields.split(","), "def f(): pass  # many words, and the longest text")
        assert option in catch_message(tmp_path, row)

    def test_a_pair_without_an_id_gets_its_line_number_with_blank_lines_counted(self, tmp_path: Path) -> None:
        bare = {"query": "q", "code": "c"}
        assert [pair.id for pair in read(tmp_path, bare, b"\n  \r\n", bare)] == ["1", "4"]

    def test_a_field_inside_and_outside_meta_must_have_one_value(self, tmp_path: Path) -> None:
        assert read(tmp_path, {**GOOD, "label": 1, "meta": {"label": 1}})[0].meta == {"label": 1}
        assert "'label'" in catch_message(tmp_path, {**GOOD, "label": 1, "meta": {"label": 0}})


class TestMapping:
    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("query", "NAME=FIELD"),
            ("query=a,query=b", "'query'"),
        ],
    )
    def test_a_malformed_mapping_is_rejected(self, text: str, cause: str) -> None:
        with pytest.raises(ConfigError, match=cause):
            parse_mapping(text)

    def test_an_error_about_an_unknown_field_lists_the_fields(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="'title'"):
            read(tmp_path, GOOD, mapping={"title": "a"})
        message = catch_message(tmp_path, GOOD, mapping={"query": "question"})
        assert all(repr(name) in message for name in ("question", "id", "query", "code"))

    def test_a_line_without_a_mapped_field_is_bad(self, tmp_path: Path) -> None:
        path = write(tmp_path / "p.jsonl", {"q": "x", "code": "c"}, {"query": "x", "code": "c"})
        with pytest.raises(InputError, match="'q'") as caught:
            read_pairs(path, mapping={"query": "q"})
        assert caught.value.line == 2


class TestContainers:
    @pytest.mark.parametrize("indent", [None, 1])
    def test_an_array_numbers_its_elements(self, tmp_path: Path, indent: int | None) -> None:
        path = tmp_path / "p.json"
        path.write_text(json.dumps([GOOD, {"query": "q", "code": "c\ud800"}], indent=indent))
        assert list(read_pairs(path)) == [Pair(**GOOD), Pair(id="2", query="q", code="c\ud800")]

    def test_a_json_file_may_contain_json_lines(self, tmp_path: Path) -> None:
        path = write(tmp_path / "p.json", GOOD, {**GOOD, "id": "b"})
        assert [pair.id for pair in read_pairs(path)] == ["a", "b"]

    def test_an_error_locates_a_bad_element_by_line_and_number(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        path.write_text(json.dumps([GOOD, {"query": "q"}], indent=1))
        with pytest.raises(InputError, match=r"p\.json:7: element 2: .*code") as caught:
            read_pairs(path)
        assert caught.value.line == 7
        path.write_text(json.dumps([GOOD, GOOD]))
        with pytest.raises(InputError, match=r"element 2: .*'a'"):
            read_pairs(path)

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ('[\n{"query": "q", "code": "c"}', ":2: invalid JSON"),
            ('[{"query": "q", "code": "c"},\n\n{"code": tru}]', ":3: element 2: invalid JSON"),
            ('[{"query": "q", "code": "c"}]\n]', ":2: invalid JSON"),
            ('[{"query": "q", "code": "c", "n": NaN}]', ":1: element 1: invalid JSON: NaN"),
            ("[" * 100_000, "nested"),
            ("[]", "no pairs"),
        ],
    )
    def test_an_error_locates_a_broken_array(self, tmp_path: Path, text: str, cause: str) -> None:
        path = tmp_path / "p.json"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_pairs(path, on_bad_line="skip")
        assert cause in str(caught.value)

    def test_an_error_locates_invalid_utf8_in_an_array(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        path.write_bytes(b'[\n{"query": "\xff"}]')
        with pytest.raises(InputError, match=r":2: .*0xff .*column 12"):
            read_pairs(path)


class TestBadFiles:
    @pytest.mark.parametrize(
        ("name", "content", "cause"),
        [
            ("p.jsonl", None, r"p\.jsonl: "),
            ("p.jsonl", b"", "empty"),
            ("p.jsonl", b"\n\n", "no pairs"),
            ("p.txt", b"{}", r"\.jsonl, \.json, \.csv, \.tsv, \.parquet,.* \.gz"),
            ("p.jsonl.gz", b"{}", "gzip"),
            ("p.jsonl", gzip.compress(b"{}", mtime=0), r"p\.jsonl\.gz"),
            ("p.jsonl", json.dumps(GOOD).encode("utf-16"), "UTF-16"),
        ],
    )
    def test_an_error_about_a_file_names_it_and_the_cause(
        self, tmp_path: Path, name: str, content: bytes | None, cause: str
    ) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=cause) as caught:
            read_pairs(tmp_path / name)
        assert caught.value.path == str(tmp_path / name)

    def test_a_path_with_nul_is_rejected(self) -> None:
        with pytest.raises(InputError, match="NUL"):
            read_pairs("p\0.jsonl")

    def test_a_file_without_permission_is_an_input_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(tmp_path / "p.jsonl", GOOD)

        def refuse(*_: object, **__: object) -> None:  # root can read everything
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match="permission"):
            read_pairs(path)

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
    def test_truncated_gzip_is_an_input_error(self, tmp_path: Path, share: float) -> None:
        body = b"".join(json.dumps({**GOOD, "id": os.urandom(8).hex()}).encode() + b"\n" for _ in range(500))
        compressed = gzip.compress(body)
        path = tmp_path / "p.jsonl.gz"
        path.write_bytes(compressed[: int(len(compressed) * share)])
        with pytest.raises(InputError, match="truncated"):
            read_pairs(path, on_bad_line="skip")


class TestBadLines:
    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            (b"{\n", "(column 2)"),
            (b'{"query": "q", "code": c}\n', "(column 24), found 'c}'"),
            (b"[1]\n", "list"),
            (b'{"query": "\xe9", "code": "c"}\n', "0xe9 (column 12)"),
            (b'{"id": "2", "query": "x"\r\n', "(column 25)"),
            (b'{"query": "q", "code": "c", "x": NaN}\n', "NaN"),
            (b'{"query": "q", "code": "c", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "nested"),
            (b'{"query": "q", "code": "c", "x": ' + b"[" * 200 + b"]" * 200 + b"}\n", "nested"),
            (b'{"query": "q", "code": "c", "id": ' + b"9" * 5000 + b"}\n", "limit"),
            ({"query": ["q"], "code": "c"}, "'query' is a list"),
            ({"query": "q", "code": 3}, "'code' is 3;"),
            ({"code": "c"}, "(available fields: 'code')"),
            ({"doc": None, "code": "c"}, "'doc' is empty"),
            ({"query": " \n", "code": "c"}, "empty (field 'query')"),
            ({"query": "q"}, "no code"),
            ({"query": "q", "code": "c", "language": 3}, "'language' is 3;"),
            ({"query": "q", "code": "c", "meta": []}, "'meta' is a list"),
            ({"query": "q", "code": "c", "id": 1.5}, "'id' is 1.5"),
            (GOOD, "line 1"),
        ],
    )
    def test_an_error_locates_a_bad_line_and_names_the_cause(self, tmp_path: Path, line: object, cause: str) -> None:
        message = catch_message(tmp_path, GOOD, line)
        assert message.startswith(f"{tmp_path / 'pairs.jsonl'}:2: ")
        assert cause in message

    def test_an_error_lists_five_causes_and_counts_all_bad_lines(self, tmp_path: Path) -> None:
        message = catch_message(tmp_path, GOOD, *(b" " * n + b"{\n" for n in range(8)))
        assert message.count("invalid JSON") == 5
        for part in ("3 more", "8 of 9", "--on-bad-line skip"):
            assert part in message

    def test_a_missing_column_of_a_table_is_reported_once(self, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        path.write_text("question,code\n" + "q,c\n" * 326)
        with pytest.raises(InputError) as caught:
            read_pairs(path)
        assert str(caught.value).count("'query' or 'doc'") == 1
        assert "325" in str(caught.value)
        assert caught.value.line == 2

    def test_skipped_lines_are_reported_and_good_lines_are_kept(self, tmp_path: Path) -> None:
        dataset = read(tmp_path, b"{\n", GOOD, {"query": "q"}, GOOD, on_bad_line="skip")
        assert list(dataset) == [Pair(**GOOD)]
        assert [bad.line for bad in dataset.bad_lines] == [1, 3, 4]
        assert "line 2" in dataset.bad_lines[2].cause
        message = catch_message(tmp_path, b"{\n", {"query": "q"}, on_bad_line="skip")
        assert "2 of 2" in message


def test_a_note_warns_about_snippets_that_lost_their_newlines(tmp_path: Path) -> None:
    one_liner = "def f ( x ) : y = x + 1 ; return y " + "; z = 1" * 10
    (note,) = read(tmp_path, *({**GOOD, "id": n, "code": one_liner if n < 3 else "x\ny"} for n in range(10))).notes
    assert "30%" in note
    assert "3 of 10" in note
    sql = {**GOOD, "id": "s", "language": "sql", "code": "select " + "a, " * 50 + "b from t"}
    assert read(tmp_path, {**GOOD, "code": "lambda x: x"}, sql).notes == ()


def test_grouping_makes_equal_queries_adjacent_in_order() -> None:
    pairs = [Pair(id=str(n), query=q, code="c") for n, q in enumerate("abacb")]
    assert [pair.id for pair in group_by_query(pairs)] == ["0", "2", "1", "4", "3"]
