"""Files in folders, and rows of datasets."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.corpus.provenance import UNKNOWN
from agent.corpus.sources import MAX_CODE_SIZE, SKIPPED, TESTS, Found, SourceFile, iterate_rows, list_sources
from agent.errors import InputError


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")


def list_names(*paths: Path | str) -> list[str]:
    sources, _ = list_sources([str(path) for path in paths])
    return [source.name for source in sources if isinstance(source, SourceFile)]


def read(path: Path) -> list[Found]:
    return list(iterate_rows(SourceFile(path, path.name, 0, UNKNOWN)))


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class TestFolder:
    def test_python_files_and_notebooks_are_listed_in_order(self, tmp_path: Path) -> None:
        write(tmp_path, "b.py", "a.ipynb", "B.PY", "z/a.py", "a/z.py", "a/b/c.py", "README.md", "rows.jsonl", "a.pyc")
        assert list_names(tmp_path) == ["B.PY", "a.ipynb", "b.py", "a/z.py", "a/b/c.py", "z/a.py"]

    def test_hidden_entries_caches_and_links_are_skipped(self, tmp_path: Path) -> None:
        write(tmp_path / "in", "a.py", ".git/hooks/a.py", ".hidden.py", "__pycache__/a.py", ".venv/lib/b.py")
        write(tmp_path / "outside", "secret.py")
        (tmp_path / "in/link.py").symlink_to(tmp_path / "outside/secret.py")
        (tmp_path / "in/folder").symlink_to(tmp_path / "outside")
        os.mkfifo(tmp_path / "in/pipe.py")
        assert list_names(tmp_path / "in") == ["a.py"]

    def test_files_are_left_out_by_pattern_and_counted(self, tmp_path: Path) -> None:
        tests = ("tests/a.py", "a/test/b.py", "test_c.py", "a/d_test.py", "conftest.py")
        write(tmp_path, *tests, "a/testing.py", "contest.py", "docs/conf.py", "a/docs/x.py", "b/gen_pb2.py")
        patterns = {"docs": "excluded", "*_pb2.py": "excluded", **TESTS}
        sources, left_out = list_sources([str(tmp_path), str(tmp_path / "test_c.py")], patterns)
        names = [source.name for source in sources if isinstance(source, SourceFile)]
        assert (names, left_out) == (["contest.py", "a/testing.py", "test_c.py"], {"test": 5, "excluded": 3})

    def test_packages_and_minified_files_are_left_out(self, tmp_path: Path) -> None:
        code = ("a.js", "a.jsx", "a.mjs", "a.cjs", "a.ts", "a.tsx", "a.sql")
        write(tmp_path, *code, "node_modules/b/c.js", "x/b.min.js", "a.test.js", "a.spec.tsx", "__tests__/a.js", "a.c")
        sources, left_out = list_sources([str(tmp_path)], SKIPPED | TESTS)
        names = [source.name for source in sources if isinstance(source, SourceFile)]
        assert (names, left_out) == (sorted(code), {"package": 1, "minified": 1, "test": 3})
        assert list_names(tmp_path / "node_modules/b") == ["c.js"]

    def test_a_named_folder_may_be_hidden_or_a_link(self, tmp_path: Path) -> None:
        write(tmp_path, ".venv/lib/a.py")
        (tmp_path / "link").symlink_to(tmp_path / ".venv")
        assert list_names(tmp_path / "link") == ["lib/a.py"]

    def test_a_repository_with_a_readme_is_not_a_dataset(self, tmp_path: Path) -> None:
        write(tmp_path, "code/README.md", "code/data/a.py", "rows/README.md", "rows/data/a.jsonl")
        assert list_names(tmp_path / "code") == ["data/a.py"]
        assert list_names(tmp_path / "rows") == ["rows"]


class TestNamedFile:
    def test_a_file_that_is_named_twice_is_listed_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "p/a.py", "p/q/b.py")
        monkeypatch.chdir(tmp_path)
        assert list_names("p/q/b.py", "p") == ["p/q/b.py", "a.py"]
        assert list_names("p/**") == ["a.py", "q/b.py"]

    def test_a_name_does_not_reveal_folders_of_the_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "p/a.py", "p/rows.jsonl")
        monkeypatch.chdir(tmp_path / "p")
        names = ("a.py", "../p/a.py", tmp_path / "p/a.py", tmp_path / "p/rows.jsonl", tmp_path / "p/*.jsonl")
        assert [list_names(name) for name in names] == [["a.py"]] * 3 + [["rows.jsonl"]] * 2

    @pytest.mark.parametrize("name", ["none", "none.py", "none/*.py"])
    def test_a_missing_path_is_an_error(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InputError) as error:
            list_sources([str(tmp_path / name)])
        assert error.value.path == str(tmp_path / name)


class TestRow:
    def test_fields_of_codesearchnet_are_read(self, tmp_path: Path) -> None:
        row = {"repo": "o/r", "path": "a/b.py", "func_name": "A.b", "code": "def b(self): pass", "docstring": "Do.",
               "language": "Python", "sha": "c0", "code_tokens": ["def"], "url": "https://example.org"}  # fmt: skip
        path = tmp_path / "rows.jsonl.gz"
        path.write_bytes(gzip.compress(json.dumps(row).encode()))
        (found,) = read(path)
        assert (found.code, found.place) == (row["code"], {"path": "rows.jsonl.gz", "line": 1})
        assert found.fields == {
            "id": None, "language": "python", "name": "b", "class": "A", "docstring": "Do.", "path": "a/b.py",
            "module": None, "lines": None, "repository": "o/r", "commit": "c0", "licence": None,
        }  # fmt: skip

    def test_missing_places_are_read_from_the_url_of_the_code(self, tmp_path: Path) -> None:
        url = f"https://github.com/o/r/blob/{'c' * 40}/a%20b/c.py#L3-L12"
        rows = [{"code": "x", "func_code_url": url}, {"code": "x", "url": url, "sha": "own", "lines": [1, 2]}]
        rows += [{"code": "x", "url": f"{url}x", "lines": lines} for lines in ([1], ["1", 2], "1-2")]
        first, second, *others = (found.fields for found in read(write_rows(tmp_path / "rows.jsonl", *rows)))
        names = ("repository", "commit", "path", "lines")
        assert [first[name] for name in names] == ["o/r", "c" * 40, "a b/c.py", [3, 12]]
        assert [second[name] for name in names] == ["o/r", "own", "a b/c.py", [1, 2]]
        assert [[fields[name] for name in names] for fields in others] == [[None] * 4] * 3

    @pytest.mark.parametrize(
        ("field", "value", "name", "expected"),
        [
            ("idx", 7, "id", "7"),
            ("code-idx", 0, "id", "0"),
            ("_id", "a", "id", "a"),
            ("nwo", "o/r", "repository", "o/r"),
            ("license", "MIT", "licence", "MIT"),
            ("path", {"not": "text"}, "path", None),
            ("repository_name", "o/r", "repository", "o/r"),
            ("func_path_in_repository", "a.py", "path", "a.py"),
            ("module", "a.b", "module", "a.b"),
        ],
    )
    def test_fields_have_alternative_names(
        self, tmp_path: Path, field: str, value: Any, name: str, expected: str | None
    ) -> None:
        (found,) = read(write_rows(tmp_path / "rows.jsonl", {"code": "x", field: value}))
        assert found.fields[name] == expected

    @pytest.mark.parametrize(
        "row", [{}, {"code": " "}, {"code": 1}, {"code": "x", "id": 1.5}, 7, {"code": "x" * (MAX_CODE_SIZE + 1)}]
    )
    def test_an_unusable_row_is_listed(self, tmp_path: Path, row: Any) -> None:
        bad, good = read(write_rows(tmp_path / "rows.jsonl", row, {"code": "x"}))
        assert (bad.code, bad.removed_by, bad.place["line"]) == (None, "row is not valid", 1)
        assert (good.code, good.removed_by, good.place["line"]) == ("x", None, 2)

    def test_rows_before_the_end_of_a_truncated_file_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl.gz"
        lines = (json.dumps({"code": os.urandom(50).hex()}) + "\n" for _ in range(20_000))
        path.write_bytes(gzip.compress("".join(lines).encode())[:-5000])
        *rows, last = read(path)
        assert len(rows) > 1000
        assert all(row.removed_by is None for row in rows)
        assert (last.removed_by, last.place["path"]) == ("file cannot be read", "rows.jsonl.gz")

    @pytest.mark.parametrize("name", ["notes.txt", "array.json", "table.parquet"])
    def test_a_file_that_is_no_dataset_is_listed(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text('[{"code": "x"},')
        assert read(tmp_path / name)[-1].removed_by == "file cannot be read"
