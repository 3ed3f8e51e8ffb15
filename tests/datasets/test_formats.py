"""Every format gives the same pairs, and what is wrong with a file is named with its row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets as huggingface
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.datasets import read_pairs
from agent.errors import ExtraMissing, InputError
from agent.types import Pair

ROWS = [
    {"id": "a", "query": "reverse a list", "code": 'def f(x):\r\n    return "a, b"\n', "stars": "3"},
    {"id": "b", "query": 'say "hi"; now', "code": "x = 'é'\t# tab", "stars": None},
]
Rows = Sequence[dict[str, Any]]


def separated(delimiter: str, quoting: Any = csv.QUOTE_MINIMAL) -> Callable[[Rows], bytes]:
    def written(rows: Rows) -> bytes:
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=quoting)
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode()

    return written


def read_json_lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(rows: Rows) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
    return file.getvalue()


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    "p.jsonl": read_json_lines,
    "p.json": lambda rows: json.dumps(rows).encode(),
    "p.csv": separated(","),
    "quoted.csv": separated(",", csv.QUOTE_ALL),
    "semicolons.CSV": separated(";"),
    "marked.csv": lambda rows: b"\xef\xbb\xbf" + separated(",")(rows),
    "p.tsv": separated("\t"),
    "p.parquet": parquet,
}


def written(folder: Path, name: str, rows: Rows) -> Path:
    """Write rows in the format that the name says."""
    content = WRITERS[name.removesuffix(".gz")](rows)
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def outcome(path: Path) -> str:
    try:
        return f"pairs: {list(read_pairs(path))}"
    except InputError as error:
        return str(error)


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_pairs(path)
    return str(caught.value)


# What tables have in common with JSON: text without lone surrogates, and no distinction of empty text and null.
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
filled = text.filter(lambda value: bool(value.strip()))
read_table = st.lists(
    st.fixed_dictionaries(
        {"id": filled, "query": filled, "code": filled, "language": st.sampled_from(["python", "sql"])}
        | {"context": text, "meta": text, "note": text}
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row["id"],
)


@pytest.mark.parametrize("name", [*WRITERS, "p.jsonl.gz", "p.csv.gz", "p.parquet.gz"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=read_table)
def test_any_text_comes_back_from_every_format(tmp_path: Path, name: str, rows: list[dict[str, str]]) -> None:
    cells = [{field: value or None for field, value in row.items()} for row in rows]
    expected = [
        Pair(**{field: row.pop(field) for field in ("id", "query", "code", "language", "context")}, meta=row)
        for row in ({**cell} for cell in cells)
    ]
    for pair in expected:
        if pair.meta["meta"] is None:
            del pair.meta["meta"]
    assert list(read_pairs(written(tmp_path, name, cells))) == expected


class TestTables:
    def test_a_row_without_id_has_its_number_and_empty_rows_and_columns_are_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        path.write_text('query,code,,label\n\n"q\nq",c,0,1\n,,,\nr,d,1,\n')
        assert list(read_pairs(path)) == [
            Pair(id="1", query="q\nq", code="c", meta={"label": "1"}),
            Pair(id="2", query="r", code="d", meta={"label": None}),
        ]

    def test_cells_may_be_longer_than_the_library_takes_by_itself(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.csv", [{"query": "q", "code": "x = 1\n" * 100_000}])
        assert len(read_pairs(path)[0].code) == 600_000

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"query,code\nq,c\nq,c,d\n", ":3: row 2: 3 cells, where the header has 2 columns; the last is 'd'"),
            (b'query,code\n"a\nb",c\nq\n', ":4: row 2: 1 cell, where the header has 2 columns"),
            (
                b"query,code\nq,c\ncaf\xe9,c\n",
                ":3: row 2: column 1 ('query'): byte 0xe9 is not UTF-8",
            ),
            (b"query,code\nq,c\n,c\n", ":3: row 2: no query: field 'query' is empty or null"),
            (b"query,code\nq,c\nq,  \n", ":3: row 2: the code is empty (field 'code')"),
            (b'query,code\nq,c\nq,"c\nd\n', ":3: row 2: a cell begins with a quote, and no quote ends it"),
            (b'query,code\nq,c\nq,"c"d\n', ":3: row 2: text follows the quote that ends a cell"),
            (b"query,code\rq,c\r", ":1: row 1: a carriage return stands alone"),
            (b"query,code,query\nq,c,q\n", ":1: the header names the column 'query' twice"),
            (b"query,c\xe9\nq,c\n", ":1: the header is not UTF-8 (byte 0xe9)"),
            (b"query,code\n", ": holds no pairs; a JSON object per pair is expected, or a header and a row per pair"),
            ("query,code\nq,c\n".encode("utf-16"), ": is UTF-16"),
        ],
    )
    def test_what_is_wrong_is_named_with_line_row_and_column(
        self, tmp_path: Path, content: bytes, message: str
    ) -> None:
        path = tmp_path / "p.csv"
        path.write_bytes(content)
        assert complaint(path).startswith(f"{path}{message}")


class TestParquet:
    def test_types_that_json_lacks_become_null_or_text(self, tmp_path: Path) -> None:
        row = {
            "query": "q",
            "code": b"caf\xc3\xa9",
            "at": datetime(2024, 2, 29, 12),
            "score": float("nan"),
            "price": Decimal("1.50"),
            "tags": [{"name": "x", "weight": 0.5}],
        }
        assert list(read_pairs(written(tmp_path, "p.parquet", [row]))) == [
            Pair(
                id="1",
                query="q",
                code="café",
                meta={
                    "at": "2024-02-29T12:00:00",
                    "score": None,
                    "price": "1.50",
                    "tags": [{"name": "x", "weight": 0.5}],
                },
            )
        ]

    def test_what_is_wrong_is_named_with_its_row(self, tmp_path: Path) -> None:
        path = written(tmp_path, "p.parquet", [{"query": "q", "code": b"c"}, {"query": "q", "code": b"\xe9"}])
        assert f"{path}:2: row 2: 'utf-8' codec can't decode byte 0xe9" in complaint(path)
        (tmp_path / "p.parquet").write_bytes(b"PAR1 or not")
        assert complaint(path).startswith(f"{path}: cannot be read as Parquet (")
        names = pyarrow.schema([("query", pyarrow.string()), ("query", pyarrow.string())])
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays([["q"], ["r"]], schema=names), path)
        assert "has two columns named 'query'" in complaint(path)


class TestFolders:
    @pytest.fixture
    def rows(self) -> Any:
        return huggingface.Dataset.from_list(ROWS)

    def test_what_datasets_has_saved_is_read(self, tmp_path: Path, rows: Any) -> None:
        rows.save_to_disk(str(tmp_path / "saved"))
        assert [pair.code for pair in read_pairs(tmp_path / "saved")] == [row["code"] for row in ROWS]

    def test_a_folder_as_the_hub_has_it_is_read_and_nothing_is_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(huggingface.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        folder = tmp_path / "hub"
        (folder / "data").mkdir(parents=True)
        (folder / "README.md").write_text("---\nlicense: mit\n---\n# A dataset\n")
        written(folder / "data", "p.parquet", ROWS).rename(folder / "data" / "train-00000-of-00001.parquet")
        assert [pair.code for pair in read_pairs(folder)] == [row["code"] for row in ROWS]
        assert not (tmp_path / "cache").exists()

    def test_of_several_splits_one_is_to_be_named(self, tmp_path: Path, rows: Any) -> None:
        huggingface.DatasetDict(train=rows, test=rows).save_to_disk(str(tmp_path / "saved"))
        message = complaint(tmp_path / "saved")
        assert "holds the splits 'train', 'test'; give one of them: its folder, as in" in message
        assert len(read_pairs(tmp_path / "saved" / "test")) == 2
        for split in ("train", "test"):
            written(tmp_path, "p.jsonl", ROWS).rename(tmp_path / f"{split}.jsonl")
        (tmp_path / "README.md").touch()
        assert f"give one of them: its files, as in '{tmp_path}/**/train*'" in complaint(tmp_path)
        assert len(read_pairs(tmp_path / "**" / "train*.jsonl")) == 2

    @pytest.mark.parametrize("place", ["http://127.0.0.1:9/x.parquet", "../p.parquet", "/etc/*"])
    def test_a_description_cannot_have_files_elsewhere_read(self, tmp_path: Path, place: str) -> None:
        files = json.dumps([{"config_name": "default", "data_files": [{"split": "train", "path": place}]}])
        written(tmp_path, "p.parquet", ROWS)
        (tmp_path / "hub").mkdir()
        (tmp_path / "hub" / "README.md").write_text(f"---\nconfigs: {files}\n---\n")
        assert f"its README.md names files outside of the folder ({place!r})" in complaint(tmp_path / "hub")

    @pytest.mark.parametrize(
        ("file", "named"),
        [
            ("dataset_dict.json", {"splits": ["../private"]}),
            ("dataset_dict.json", {"splits": ["file:///private"]}),
            ("train/state.json", {"_data_files": [{"filename": "../../private/data-00000-of-00001.arrow"}]}),
        ],
    )
    def test_a_saved_dataset_cannot_have_another_one_read(
        self, tmp_path: Path, file: str, named: dict[str, object]
    ) -> None:
        rows = huggingface.Dataset.from_list(ROWS)
        rows.save_to_disk(tmp_path / "private")
        huggingface.DatasetDict(train=rows).save_to_disk(tmp_path / "saved")
        assert len(read_pairs(tmp_path / "saved")) == 2
        described = tmp_path / "saved" / file
        described.write_text(json.dumps({**json.loads(described.read_text()), **named}))
        with pytest.raises(InputError, match="outside of the folder"):
            read_pairs(tmp_path / "saved")

    @pytest.mark.parametrize("name", ["train", "train/data-00000-of-00001.arrow", "data/train.jsonl"])
    def test_a_link_to_outside_of_a_dataset_is_not_followed(self, tmp_path: Path, name: str) -> None:
        saved, private = tmp_path / "saved", tmp_path / "private"
        huggingface.DatasetDict(train=huggingface.Dataset.from_list(ROWS)).save_to_disk(saved)
        (saved / "data").mkdir()
        (saved / "data" / "train.jsonl").touch()
        (saved / name).rename(private)
        (saved / name).symlink_to(private)
        with pytest.raises(InputError) as caught:
            read_pairs(saved)
        assert caught.value.path == str(saved / name)

    def test_what_is_no_dataset_is_an_error_of_the_input(self, tmp_path: Path) -> None:
        assert "is a folder; give the files of pairs in it" in complaint(tmp_path)
        for content in ("", "---\nlicense: [mit\n---\n"):
            (tmp_path / "README.md").write_text(content)
            assert "cannot be read as a Hugging Face dataset" in complaint(tmp_path)


def test_a_time_beyond_what_python_has_is_an_error_of_the_input(tmp_path: Path) -> None:
    late = pyarrow.array([300_000_000_000], pyarrow.timestamp("s"))
    pyarrow.parquet.write_table(
        pyarrow.table({"query": ["q"], "code": ["c"], "at": late}), tmp_path / "p.parquet", version="2.6"
    )
    assert "cannot be read as Parquet" in complaint(tmp_path / "p.parquet")


@pytest.mark.parametrize(("library", "name"), [("pyarrow", "p.parquet"), ("datasets", "")])
def test_without_the_extra_the_message_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    path = written(tmp_path, "p.parquet", ROWS)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ExtraMissing, match=r"pip install 'test-driven-annotator\[io\]'"):
        read_pairs(path if name else tmp_path)


class TestSeveralFiles:
    def test_files_and_patterns_are_read_in_their_order(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        for name, pair_id in (("z.jsonl", "1"), ("more/b.csv", "3"), ("more/a.csv", "2"), ("more/[c].csv", "4")):
            rows = [{"id": pair_id, "query": "q", "code": "c"}]
            (tmp_path / name).write_bytes((read_json_lines if name == "z.jsonl" else separated(","))(rows))
        found = read_pairs([tmp_path / "z.jsonl", f"{tmp_path}/more/[ab].csv", tmp_path / "more" / "[c].csv"])
        assert [pair.id for pair in found] == ["1", "2", "3", "4"]
        assert [path.name for path in found.paths] == ["z.jsonl", "a.csv", "b.csv", "[c].csv"]

    def test_an_id_that_two_files_have_is_named_with_both_places(self, tmp_path: Path) -> None:
        first, second = written(tmp_path, "p.jsonl", ROWS), written(tmp_path, "p.csv", ROWS[1:])
        with pytest.raises(InputError) as caught:
            read_pairs([first, second])
        assert str(caught.value).startswith(
            f"{second}:2: row 1: the id 'b' is that of {first}:2 too; ids must differ over all files"
        )

    def test_a_pattern_without_files_and_a_file_given_twice_are_refused(self, tmp_path: Path) -> None:
        assert "no file has a name of this pattern" in complaint(tmp_path / "*.jsonl")
        path = written(tmp_path, "p.jsonl", ROWS)
        with pytest.raises(InputError, match="is given twice"):
            read_pairs([path, f"{tmp_path}/*"])


def test_standard_input_is_json_lines() -> None:
    command = [sys.executable, "-c", "from agent import read_pairs; print([pair.id for pair in read_pairs('-')])"]
    good = subprocess.run(command, input=read_json_lines(ROWS), capture_output=True, check=True)
    assert good.stdout == b"['a', 'b']\n"
    bad = subprocess.run(command, input=b'{"query": "q"}\n', capture_output=True, check=False)
    assert b"InputError: standard input:1: no code" in bad.stderr


pieces = st.sampled_from(
    [b'"', b",", b";", b"\t", b"\n", b"\r", b"{", b"}", b"[", b"]", b"\xff", b"\x00", b"PAR1", b"1e999"]
)
broken = st.lists(pieces | st.sampled_from([b"id", b"query,code", b'{"query": "q", "code": "c"}']), max_size=12).map(
    b"".join
)


@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.csv", "p.tsv", "p.parquet", "p.csv.gz", "p.parquet.gz"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=broken | st.binary(max_size=60), packed=st.booleans())
def test_whatever_a_file_holds_it_is_pairs_or_an_error_that_names_it(
    tmp_path: Path, name: str, content: bytes, packed: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if packed else content)
    assert outcome(path).startswith(("pairs", f"{path}:"))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1), length=st.integers(1, 40), byte=st.integers(0, 255))
def test_a_damaged_parquet_file_is_pairs_or_an_error(tmp_path: Path, place: float, length: int, byte: int) -> None:
    content = bytearray(parquet(ROWS))
    start = int(place * len(content))
    content[start : start + length] = bytes([byte]) * len(content[start : start + length])
    path = tmp_path / "p.parquet"
    path.write_bytes(content)
    assert outcome(path).startswith(("pairs", f"{path}:"))
