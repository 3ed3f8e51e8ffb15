"""Files of pairs: what is read, and what is said of files that cannot be."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from agent.datasets import Dataset, group_by_query, parse_mapping, read_pairs
from agent.errors import ConfigError, InputError
from agent.evaluation.labels import gold_from_pairs
from agent.types import Pair

GOOD = {"id": "a", "query": "reverse a list", "code": "def f(x):\n    return x[::-1]"}


def write(path: Path, *records: object) -> Path:
    path.write_bytes(b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in records))
    return path


def read(tmp_path: Path, *records: object, **options: object) -> Dataset:
    return read_pairs(write(tmp_path / "pairs.jsonl", *records), **options)  # type: ignore[arg-type]


def complaint(tmp_path: Path, *records: object, **options: object) -> str:
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
        ids=["ours", "the rest is meta", "CoSQA", "CoSQA+", "CoSQA+ of old"],
    )
    def test_known_fields_need_no_mapping(self, tmp_path: Path, record: dict[str, object], pair: Pair) -> None:
        assert list(read(tmp_path, record)) == [pair]

    def test_a_mapping_names_the_fields_of_other_datasets(self, tmp_path: Path) -> None:
        mapping = parse_mapping("query=question, code=snippet, id=key, language=lang, context=schema")
        record = {"question": "q", "snippet": "c", "key": 5, "lang": "sql", "schema": "s", "query": "other"}
        pair = read(tmp_path, record, mapping=mapping)[0]
        assert pair == Pair(id="5", query="q", code="c", language="sql", context="s", meta={"query": "other"})

    def test_a_mapping_may_name_labels_which_are_kept_beside_the_field(self, tmp_path: Path) -> None:
        pair = read(tmp_path, {**GOOD, "crowd": "1"}, mapping=parse_mapping("label=crowd"))[0]
        assert pair.meta == {"crowd": "1", "label": "1"}
        assert gold_from_pairs([pair]) == {pair.id: 1}

    @pytest.mark.parametrize(
        ("fields", "option"),
        [
            ("question,answer", "--map query=question,code=answer "),
            ("pair_id,Question,snippet,docstring_tokens,label", "--map query=Question,code=snippet "),
            ("nl,pl", "--map query=FIELD,code=FIELD "),
            ("text,code", "--map query=FIELD "),
        ],
    )
    def test_the_mapping_that_is_proposed_goes_by_names(self, tmp_path: Path, fields: str, option: str) -> None:
        row = dict.fromkeys(fields.split(","), "def f(): pass  # of many words, and the longest text")
        assert option in complaint(tmp_path, row)

    def test_a_pair_without_id_takes_its_line_number_blank_lines_counted(self, tmp_path: Path) -> None:
        bare = {"query": "q", "code": "c"}
        assert [pair.id for pair in read(tmp_path, bare, b"\n  \r\n", bare)] == ["1", "4"]

    def test_the_same_field_beside_and_inside_meta_must_agree(self, tmp_path: Path) -> None:
        assert read(tmp_path, {**GOOD, "label": 1, "meta": {"label": 1}})[0].meta == {"label": 1}
        assert "'label' stands both" in complaint(tmp_path, {**GOOD, "label": 1, "meta": {"label": 0}})


class TestMapping:
    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("query", "is not NAME=FIELD"),
            ("query=a,query=b", "given twice"),
        ],
    )
    def test_what_is_not_a_mapping_is_refused(self, text: str, cause: str) -> None:
        with pytest.raises(ConfigError, match=cause):
            parse_mapping(text)

    def test_a_field_that_no_line_has_is_named_with_those_there_are(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="a pair has no 'title'"):
            read(tmp_path, GOOD, mapping={"title": "a"})
        message = complaint(tmp_path, GOOD, mapping={"query": "question"})
        assert "no line has a field 'question'" in message
        assert "'id', 'query', 'code'" in message

    def test_a_field_that_some_lines_lack_is_a_bad_line(self, tmp_path: Path) -> None:
        path = write(tmp_path / "p.jsonl", {"q": "x", "code": "c"}, {"query": "x", "code": "c"})
        with pytest.raises(InputError, match="field 'q' is missing") as caught:
            read_pairs(path, mapping={"query": "q"})
        assert caught.value.line == 2


class TestContainers:
    @pytest.mark.parametrize("indent", [None, 1])
    def test_an_array_numbers_its_elements(self, tmp_path: Path, indent: int | None) -> None:
        path = tmp_path / "p.json"
        path.write_text(json.dumps([GOOD, {"query": "q", "code": "c\ud800"}], indent=indent))
        assert list(read_pairs(path)) == [Pair(**GOOD), Pair(id="2", query="q", code="c\ud800")]

    def test_json_lines_in_a_file_called_json(self, tmp_path: Path) -> None:
        path = write(tmp_path / "p.json", GOOD, {**GOOD, "id": "b"})
        assert [pair.id for pair in read_pairs(path)] == ["a", "b"]

    def test_a_bad_element_of_an_array_is_found_by_line_and_number(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        path.write_text(json.dumps([GOOD, {"query": "q"}], indent=1))
        with pytest.raises(InputError, match=r"p\.json:7: element 2: no code") as caught:
            read_pairs(path)
        assert caught.value.line == 7
        path.write_text(json.dumps([GOOD, GOOD]))
        with pytest.raises(InputError, match="element 2: the id 'a'"):
            read_pairs(path)

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ('[\n{"query": "q", "code": "c"}', ":2: invalid JSON: the array is cut off after element 1"),
            (
                '[{"query": "q", "code": "c"},\n\n{"code": tru}]',
                ":3: element 2: invalid JSON: Expecting value",
            ),
            ('[{"query": "q", "code": "c"}]\n]', ":2: invalid JSON: text after the end"),
            ('[{"query": "q", "code": "c", "n": NaN}]', ":1: element 1: invalid JSON: NaN is not JSON"),
            ("[" * 100_000, "nested"),
            ("[]", "holds no pairs"),
        ],
    )
    def test_a_broken_array_is_refused_with_its_line(self, tmp_path: Path, text: str, cause: str) -> None:
        path = tmp_path / "p.json"
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            read_pairs(path, on_bad_line="skip")
        assert cause in str(caught.value)

    def test_invalid_utf8_in_an_array_is_found_by_line_and_column(self, tmp_path: Path) -> None:
        path = tmp_path / "p.json"
        path.write_bytes(b'[\n{"query": "\xff"}]')
        with pytest.raises(InputError, match=r":2: byte 0xff \(column 12\) is not UTF-8"):
            read_pairs(path)


class TestBadFiles:
    @pytest.mark.parametrize(
        ("name", "content", "cause"),
        [
            ("p.jsonl", None, r"p\.jsonl: no such file"),
            ("p.jsonl", b"", "the file is empty"),
            ("p.jsonl", b"\n\n", "holds no pairs"),
            ("p.txt", b"{}", r"ends in none of \.jsonl, \.json, \.csv, \.tsv, \.parquet, also with \.gz"),
            ("p.jsonl.gz", b"{}", "is not a gzip file"),
            ("p.jsonl", gzip.compress(b"{}", mtime=0), r"name it p\.jsonl\.gz"),
            ("p.jsonl", json.dumps(GOOD).encode("utf-16"), "UTF-16"),
        ],
    )
    def test_the_file_is_named_with_the_cause(
        self, tmp_path: Path, name: str, content: bytes | None, cause: str
    ) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=cause):
            read_pairs(tmp_path / name)

    def test_a_path_that_cannot_be(self) -> None:
        with pytest.raises(InputError, match="NUL"):
            read_pairs("p\0.jsonl")

    def test_no_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write(tmp_path / "p.jsonl", GOOD)

        def refuse(*_: object, **__: object) -> None:  # the system lets root read everything
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
        with pytest.raises(InputError, match="may not be read by this user"):
            read_pairs(path)

    @pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
    def test_gzip_that_is_cut_off(self, tmp_path: Path, kept: float) -> None:
        body = b"".join(json.dumps({**GOOD, "id": os.urandom(8).hex()}).encode() + b"\n" for _ in range(500))
        compressed = gzip.compress(body)
        path = tmp_path / "p.jsonl.gz"
        path.write_bytes(compressed[: int(len(compressed) * kept)])
        with pytest.raises(InputError, match="cut off or damaged"):
            read_pairs(path, on_bad_line="skip")


class TestBadLines:
    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            (b"{\n", "invalid JSON: Expecting property name enclosed in double quotes (column 2), found the end"),
            (b'{"query": "q", "code": c}\n', "Expecting value (column 24), found 'c}'"),
            (b"[1]\n", "a list, where one object per line"),
            (b'{"query": "\xe9", "code": "c"}\n', "byte 0xe9 (column 12) is not UTF-8"),
            (b'{"id": "2", "query": "x"\r\n', "(column 25)"),
            (b'{"query": "q", "code": "c", "x": NaN}\n', "NaN is not JSON"),
            (b'{"query": "q", "code": "c", "x": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "nested"),
            (b'{"query": "q", "code": "c", "x": ' + b"[" * 200 + b"]" * 200 + b"}\n", "nested more than"),
            (b'{"query": "q", "code": "c", "id": ' + b"9" * 5000 + b"}\n", "limit"),
            ({"query": ["q"], "code": "c"}, "'query' is a list; the query must be text"),
            ({"query": "q", "code": 3}, "'code' is a number; the code must be text"),
            ({"code": "c"}, "no query: field 'query' or 'doc' is missing (fields here: 'code')"),
            ({"doc": None, "code": "c"}, "no query: field 'doc' is empty or null"),
            ({"query": " \n", "code": "c"}, "the query is empty (field 'query')"),
            ({"query": "q"}, "no code"),
            ({"query": "q", "code": "c", "language": 3}, "'language' is a number"),
            ({"query": "q", "code": "c", "meta": []}, "'meta' is a list"),
            ({"query": "q", "code": "c", "id": 1.5}, "'id' is a number; an id must be text or a whole number"),
            (GOOD, "the id 'a' is that of line 1 too"),
        ],
    )
    def test_each_is_named_with_file_line_and_cause(self, tmp_path: Path, line: object, cause: str) -> None:
        message = complaint(tmp_path, GOOD, line)
        assert message.startswith(f"{tmp_path / 'pairs.jsonl'}:2: ")
        assert cause in message

    def test_five_causes_are_listed_and_all_lines_are_counted(self, tmp_path: Path) -> None:
        message = complaint(tmp_path, GOOD, *(b" " * n + b"{\n" for n in range(8)))
        assert message.count("invalid JSON") == 5
        for part in ("and 3 more bad lines", "8 of 9 lines are bad", "--on-bad-line skip"):
            assert part in message

    def test_a_column_that_a_table_lacks_is_said_once(self, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        path.write_text("question,code\n" + "q,c\n" * 326)
        with pytest.raises(InputError) as caught:
            read_pairs(path)
        assert str(caught.value).count("no query") == 1
        assert "325" in str(caught.value)
        assert caught.value.line == 2

    def test_skipping_keeps_the_good_lines_and_reports_the_bad(self, tmp_path: Path) -> None:
        dataset = read(tmp_path, b"{\n", GOOD, {"query": "q"}, GOOD, on_bad_line="skip")
        assert list(dataset) == [Pair(**GOOD)]
        assert [bad.line for bad in dataset.bad_lines] == [1, 3, 4]
        assert "line 2 too" in dataset.bad_lines[2].cause
        message = complaint(tmp_path, b"{\n", {"query": "q"}, on_bad_line="skip")
        assert "2 of 2 lines are bad: none holds a pair" in message


def test_the_share_of_snippets_that_lost_their_newlines_is_noted(tmp_path: Path) -> None:
    lost = "def f ( x ) : y = x + 1 ; return y " + "; z = 1" * 10
    (note,) = read(tmp_path, *({**GOOD, "id": n, "code": lost if n < 3 else "x\ny"} for n in range(10))).notes
    assert "30% of the snippets (3 of 10)" in note
    sql = {**GOOD, "id": "s", "language": "sql", "code": "select " + "a, " * 50 + "b from t"}
    assert read(tmp_path, {**GOOD, "code": "lambda x: x"}, sql).notes == ()


def test_grouping_brings_equal_queries_together_in_their_order() -> None:
    pairs = [Pair(id=str(n), query=q, code="c") for n, q in enumerate("abacb")]
    assert [pair.id for pair in group_by_query(pairs)] == ["0", "2", "1", "4", "3"]
