"""All formats yield the same pairs, and errors locate the row."""

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

from agent.datasets.reading import read_pairs
from agent.errors import ExtraMissing, InputError
from agent.types import Pair

ROWS = [
    {"id": "a", "query": "reverse a list", "code": 'def f(x):\r\n    return "a, b"\n', "stars": "3"},
    {"id": "b", "query": 'say "hi"; now', "code": "x = 'é'\t# tab", "stars": None},
]
Rows = Sequence[dict[str, Any]]


def make_writer(delimiter: str, quoting: Any = csv.QUOTE_MINIMAL) -> Callable[[Rows], bytes]:
    def write_rows(rows: Rows) -> bytes:
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=quoting)
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().encode()

    return write_rows


def format_json_lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def format_parquet(rows: Rows) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), file)
    return file.getvalue()


WRITERS: dict[str, Callable[[Rows], bytes]] = {
    "p.jsonl": format_json_lines,
    "p.json": lambda rows: json.dumps(rows).encode(),
    "p.csv": make_writer(","),
    "quoted.csv": make_writer(",", csv.QUOTE_ALL),
    "semicolons.CSV": make_writer(";"),
    "marked.csv": lambda rows: b"\xef\xbb\xbf" + make_writer(",")(rows),
    "p.tsv": make_writer("\t"),
    "p.parquet": format_parquet,
}


def write_file(folder: Path, name: str, rows: Rows) -> Path:
    """Write rows in the format of the file name."""
    content = WRITERS[name.removesuffix(".gz")](rows)
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def read_or_report(path: Path) -> str:
    try:
        return f"pairs: {list(read_pairs(path))}"
    except InputError as error:
        return str(error)


def catch_message(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_pairs(path)
    return str(caught.value)


# Text that tables and JSON share: no lone surrogates, and no distinction between empty text and null.
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
filled_text = text.filter(lambda value: bool(value.strip()))
table_rows = st.lists(
    st.fixed_dictionaries(
        {"id": filled_text, "query": filled_text, "code": filled_text, "language": st.sampled_from(["python", "sql"])}
        | {"context": text, "meta": text, "note": text}
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row["id"],
)


@pytest.mark.parametrize("name", [*WRITERS, "p.jsonl.gz", "p.csv.gz", "p.parquet.gz"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=table_rows)
def test_any_text_survives_every_format(tmp_path: Path, name: str, rows: list[dict[str, str]]) -> None:
    cells = [{field: value or None for field, value in row.items()} for row in rows]
    expected = [
        Pair(**{field: row.pop(field) for field in ("id", "query", "code", "language", "context")}, meta=row)
        for row in ({**cell} for cell in cells)
    ]
    for pair in expected:
        if pair.meta["meta"] is None:
            del pair.meta["meta"]
    assert list(read_pairs(write_file(tmp_path, name, cells))) == expected


class TestTables:
    def test_a_row_without_id_is_numbered_and_empty_rows_and_columns_are_skipped(self, tmp_path: Path) -> None:
        path = tmp_path / "p.csv"
        path.write_text('query,code,,label\n\n"q\nq",c,0,1\n,,,\nr,d,1,\n')
        assert list(read_pairs(path)) == [
            Pair(id="1", query="q\nq", code="c", meta={"label": "1"}),
            Pair(id="2", query="r", code="d", meta={"label": None}),
        ]

    def test_cells_may_exceed_the_default_limit_of_csv(self, tmp_path: Path) -> None:
        path = write_file(tmp_path, "p.csv", [{"query": "q", "code": "x = 1\n" * 100_000}])
        assert len(read_pairs(path)[0].code) == 600_000

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"query,code\nq,c\nq,c,d\n", ":3: row 2: 3 cells"),
            (b'query,code\n"a\nb",c\nq\n', ":4: row 2: 1 cell"),
            (b"query,code\nq,c\ncaf\xe9,c\n", ":3: row 2: column 1 ('query'): byte 0xe9"),
            (b"query,code\nq,c\n,c\n", ":3: row 2: no query"),
            (b"query,code\nq,c\nq,  \n", ":3: row 2: "),
            (b'query,code\nq,c\nq,"c\nd\n', ":3: row 2: "),
            (b'query,code\nq,c\nq,"c"d\n', ":3: row 2: "),
            (b"query,code\rq,c\r", ":1: row 1: "),
            (b"query,code,query\nq,c,q\n", ":1: "),
            (b"query,c\xe9\nq,c\n", ":1: the header is not UTF-8 (byte 0xe9)"),
            (b"query,code\n", ": "),
            ("query,code\nq,c\n".encode("utf-16"), ": is UTF-16"),
        ],
    )
    def test_an_error_locates_the_line_and_row_of_a_table(self, tmp_path: Path, content: bytes, message: str) -> None:
        path = tmp_path / "p.csv"
        path.write_bytes(content)
        assert catch_message(path).startswith(f"{path}{message}")


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
        assert list(read_pairs(write_file(tmp_path, "p.parquet", [row]))) == [
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

    def test_an_error_locates_the_row_of_a_parquet_file(self, tmp_path: Path) -> None:
        path = write_file(tmp_path, "p.parquet", [{"query": "q", "code": b"c"}, {"query": "q", "code": b"\xe9"}])
        assert catch_message(path).startswith(f"{path}:2: row 2: ")
        (tmp_path / "p.parquet").write_bytes(b"PAR1 or not")
        assert catch_message(path).startswith(f"{path}: ")
        names = pyarrow.schema([("query", pyarrow.string()), ("query", pyarrow.string())])
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays([["q"], ["r"]], schema=names), path)
        assert "'query'" in catch_message(path)


class TestFolders:
    @pytest.fixture
    def rows(self) -> Any:
        return huggingface.Dataset.from_list(ROWS)

    def test_the_output_of_save_to_disk_is_read(self, tmp_path: Path, rows: Any) -> None:
        rows.save_to_disk(str(tmp_path / "saved"))
        assert [pair.code for pair in read_pairs(tmp_path / "saved")] == [row["code"] for row in ROWS]

    def test_a_clone_of_a_hub_dataset_is_read_in_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        folder = tmp_path / "hub"
        (folder / "data").mkdir(parents=True)
        (folder / "README.md").write_text("---\nlicense: mit\n---\n# A dataset\n")
        write_file(folder / "data", "p.parquet", ROWS).rename(folder / "data" / "train-00000-of-00001.parquet")
        assert [pair.code for pair in read_pairs(folder)] == [row["code"] for row in ROWS]
        assert not (tmp_path / "cache").exists()

    def test_an_error_about_several_splits_says_how_to_choose_one(self, tmp_path: Path, rows: Any) -> None:
        huggingface.DatasetDict(train=rows, test=rows).save_to_disk(str(tmp_path / "saved"))
        message = catch_message(tmp_path / "saved")
        assert f"{tmp_path}/saved/train" in message
        assert len(read_pairs(tmp_path / "saved" / "test")) == 2
        for split in ("train", "test"):
            write_file(tmp_path, "p.jsonl", ROWS).rename(tmp_path / f"{split}.jsonl")
        (tmp_path / "README.md").touch()
        assert f"'{tmp_path}/**/train*'" in catch_message(tmp_path)
        assert len(read_pairs(tmp_path / "**" / "train*.jsonl")) == 2

    @pytest.mark.parametrize("location", ["http://127.0.0.1:9/x.parquet", "../p.parquet", "/etc/*"])
    def test_a_dataset_card_cannot_name_files_outside_the_folder(self, tmp_path: Path, location: str) -> None:
        files = json.dumps([{"config_name": "default", "data_files": [{"split": "train", "path": location}]}])
        write_file(tmp_path, "p.parquet", ROWS)
        (tmp_path / "hub").mkdir()
        (tmp_path / "hub" / "README.md").write_text(f"---\nconfigs: {files}\n---\n")
        message = catch_message(tmp_path / "hub")
        assert "README.md" in message
        assert repr(location) in message

    @pytest.mark.parametrize(
        ("file", "entries"),
        [
            ("dataset_dict.json", {"splits": ["../private"]}),
            ("dataset_dict.json", {"splits": ["file:///private"]}),
            ("train/state.json", {"_data_files": [{"filename": "../../private/data-00000-of-00001.arrow"}]}),
        ],
    )
    def test_a_saved_dataset_cannot_name_files_outside_the_folder(
        self, tmp_path: Path, file: str, entries: dict[str, object]
    ) -> None:
        rows = huggingface.Dataset.from_list(ROWS)
        rows.save_to_disk(tmp_path / "private")
        huggingface.DatasetDict(train=rows).save_to_disk(tmp_path / "saved")
        assert len(read_pairs(tmp_path / "saved")) == 2
        description = tmp_path / "saved" / file
        description.write_text(json.dumps({**json.loads(description.read_text()), **entries}))
        with pytest.raises(InputError, match="outside"):
            read_pairs(tmp_path / "saved")

    @pytest.mark.parametrize("name", ["train", "train/data-00000-of-00001.arrow", "data/train.jsonl"])
    def test_a_link_to_a_file_outside_the_dataset_is_rejected(self, tmp_path: Path, name: str) -> None:
        saved, private = tmp_path / "saved", tmp_path / "private"
        huggingface.DatasetDict(train=huggingface.Dataset.from_list(ROWS)).save_to_disk(saved)
        (saved / "data").mkdir()
        (saved / "data" / "train.jsonl").touch()
        (saved / name).rename(private)
        (saved / name).symlink_to(private)
        with pytest.raises(InputError) as caught:
            read_pairs(saved)
        assert caught.value.path == str(saved / name)

    def test_a_folder_that_is_not_a_dataset_is_an_input_error(self, tmp_path: Path) -> None:
        assert "folder" in catch_message(tmp_path)
        for content in ("", "---\nlicense: [mit\n---\n"):
            (tmp_path / "README.md").write_text(content)
            assert "Hugging Face" in catch_message(tmp_path)


@pytest.mark.parametrize(
    ("kind", "late"),
    [
        (pyarrow.timestamp("s"), 300_000_000_000),
        (pyarrow.duration("s"), 2**62),
        (pyarrow.timestamp("s", "No/Zone"), 5),
    ],
)
def test_a_cell_that_python_cannot_represent_becomes_text(tmp_path: Path, kind: Any, late: int) -> None:
    cells = {"query": ["q", "q"], "code": ["c", "d"], "at": pyarrow.array([late, None], kind)}
    pyarrow.parquet.write_table(pyarrow.table(cells), tmp_path / "p.parquet", version="2.6")
    first, second = read_pairs(tmp_path / "p.parquet")
    assert str(late) in first.meta["at"]
    assert (second.code, second.meta["at"]) == ("d", None)


def test_a_nested_time_out_of_range_makes_one_bad_row_that_names_the_column(tmp_path: Path) -> None:
    late = pyarrow.array([[300_000_000_000], [5]], pyarrow.list_(pyarrow.timestamp("s")))
    pyarrow.parquet.write_table(
        pyarrow.table({"query": ["q", "q"], "code": ["c", "d"], "times": late}), tmp_path / "p.parquet", version="2.6"
    )
    assert [pair.code for pair in read_pairs(tmp_path / "p.parquet", on_bad_line="skip")] == ["d"]
    assert "p.parquet:1: row 1: column 'times'" in catch_message(tmp_path / "p.parquet")


@pytest.mark.parametrize(("library", "name"), [("pyarrow", "p.parquet"), ("datasets", "")])
def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    path = write_file(tmp_path, "p.parquet", ROWS)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ExtraMissing, match=r"pip install 'test-driven-annotator\[io\]'"):
        read_pairs(path if name else tmp_path)


class TestSeveralFiles:
    def test_files_and_patterns_are_read_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        for name, pair_id in (("z.jsonl", "1"), ("more/b.csv", "3"), ("more/a.csv", "2"), ("more/[c].csv", "4")):
            rows = [{"id": pair_id, "query": "q", "code": "c"}]
            (tmp_path / name).write_bytes((format_json_lines if name == "z.jsonl" else make_writer(","))(rows))
        dataset = read_pairs([tmp_path / "z.jsonl", f"{tmp_path}/more/[ab].csv", tmp_path / "more" / "[c].csv"])
        assert [pair.id for pair in dataset] == ["1", "2", "3", "4"]
        assert [path.name for path in dataset.paths] == ["z.jsonl", "a.csv", "b.csv", "[c].csv"]

    def test_an_error_about_a_duplicate_id_has_both_locations(self, tmp_path: Path) -> None:
        first, second = write_file(tmp_path, "p.jsonl", ROWS), write_file(tmp_path, "p.csv", ROWS[1:])
        with pytest.raises(InputError) as caught:
            read_pairs([first, second])
        assert str(caught.value).startswith(f"{second}:2: row 1: ")
        assert f"{first}:2" in str(caught.value)

    def test_a_pattern_without_files_and_a_duplicate_file_are_rejected(self, tmp_path: Path) -> None:
        assert "pattern" in catch_message(tmp_path / "*.jsonl")
        path = write_file(tmp_path, "p.jsonl", ROWS)
        with pytest.raises(InputError, match="twice") as caught:
            read_pairs([path, f"{tmp_path}/*"])
        assert caught.value.path == str(path)


def test_standard_input_is_json_lines() -> None:
    command = [sys.executable, "-c", "from agent import read_pairs; print([pair.id for pair in read_pairs('-')])"]
    good = subprocess.run(command, input=format_json_lines(ROWS), capture_output=True, check=True)
    assert good.stdout == b"['a', 'b']\n"
    bad = subprocess.run(command, input=b'{"query": "q"}\n', capture_output=True, check=False)
    assert b"InputError: standard input:1: " in bad.stderr


pieces = st.sampled_from(
    [b'"', b",", b";", b"\t", b"\n", b"\r", b"{", b"}", b"[", b"]", b"\xff", b"\x00", b"PAR1", b"1e999"]
)
broken = st.lists(pieces | st.sampled_from([b"id", b"query,code", b'{"query": "q", "code": "c"}']), max_size=12).map(
    b"".join
)


@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.csv", "p.tsv", "p.parquet", "p.csv.gz", "p.parquet.gz"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=broken | st.binary(max_size=60), compressed=st.booleans())
def test_any_file_yields_pairs_or_an_error_that_names_it(
    tmp_path: Path, name: str, content: bytes, compressed: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if compressed else content)
    assert read_or_report(path).startswith(("pairs", f"{path}:"))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset=st.floats(0, 1), length=st.integers(1, 40), byte=st.integers(0, 255))
def test_a_damaged_parquet_file_yields_pairs_or_an_error(tmp_path: Path, offset: float, length: int, byte: int) -> None:
    content = bytearray(format_parquet(ROWS))
    start = int(offset * len(content))
    content[start : start + length] = bytes([byte]) * len(content[start : start + length])
    path = tmp_path / "p.parquet"
    path.write_bytes(content)
    assert read_or_report(path).startswith(("pairs", f"{path}:"))
