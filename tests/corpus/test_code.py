"""Extraction of functions, filters, and merging of equal codes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.corpus.code import RECORD, CodeSummary, extract_codes
from agent.corpus.filters import UNSUPPORTED
from agent.corpus.output import get_removed_path, open_output
from agent.corpus.sources import list_sources
from agent.errors import InputError
from tests.corpus.test_provenance import install

ADD = "def add(a, b):\n    return a + b"
CLASS = """# SPDX-License-Identifier: MIT
class A:
    class B:
        @property
        def c(self):
            "C."
"""


@dataclass
class Corpus:
    """Extracts the codes of a folder, and reads the output."""

    folder: Path
    records: list[dict[str, Any]] = field(default_factory=list)
    removed: list[dict[str, Any]] = field(default_factory=list)
    steps: list[tuple[str, int, int | None]] = field(default_factory=list)

    def extract(self, *names: str, clusters: bool = False, jobs: int = 1, **options: Any) -> CodeSummary:
        out = self.folder.parent / f"{self.folder.name}-{jobs}.jsonl"
        sources, _ = list_sources([str(self.folder / name) for name in names or ("",)])
        with open_output(out) as writer:
            summary = extract_codes(
                sources, writer, lambda *step: self.steps.append(step), clusters=clusters, jobs=jobs, **options
            )
        self.records, self.removed = (
            [json.loads(line) for line in path.read_text().splitlines()] for path in (out, get_removed_path(out))
        )
        return summary

    def write(self, name: str, content: str | bytes | list[dict[str, Any]]) -> None:
        if isinstance(content, list):
            content = "".join(json.dumps(row) + "\n" for row in content)
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def write_notebook(self, name: str, *cells: str, language: str = "python") -> None:
        parts = [
            {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
            for cell in cells
        ]
        document = {
            "nbformat": 4,
            "nbformat_minor": 4,
            "metadata": {"language_info": {"name": language}},
            "cells": parts,
        }
        self.write(name, json.dumps(document))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    (tmp_path / "in").mkdir()
    return Corpus(tmp_path / "in")


def test_a_record_describes_a_function_and_its_place(corpus: Corpus) -> None:
    corpus.write("a.py", CLASS)
    summary = corpus.extract(clusters=True)
    (record,) = corpus.records
    digest = record.pop("sha256")
    assert record == {
        "id": digest[:16], "code": '@property\ndef c(self):\n    "C."', "language": "python", "docstring": "C.",
        "path": "a.py", "module": None, "lines": [4, 6], "cell": None, "name": "c", "class": "A.B",
        "repository": None, "commit": None, "licence": "MIT", "cluster": digest[:16], "other_places": [],
    }  # fmt: skip
    assert {*record, "sha256"} == set(RECORD)
    assert summary == CodeSummary(functions=1, kept=1, clusters=1)


@pytest.mark.parametrize("folder", ["site-packages", "site-packages/pack", "site-packages/pack/a.py"])
def test_an_installed_function_has_the_same_module_in_any_folder(tmp_path: Path, folder: str) -> None:
    install(tmp_path / "site-packages", "pack", "", "pack/__init__.py,,\npack/a.py,,\n")
    corpus = Corpus(tmp_path / "site-packages/pack")
    corpus.folder.mkdir()
    corpus.write("__init__.py", "")
    corpus.write("a.py", ADD)
    Corpus.extract(corpus, str(tmp_path / folder))
    places = [[record[name] for name in ("repository", "commit", "module", "name")] for record in corpus.records]
    assert places == [["pack", "1.0", "pack.a", "add"]]


def test_equal_codes_are_one_record_that_lists_all_places(corpus: Corpus) -> None:
    corpus.write("a.py", f"{ADD}\n\n\n{ADD}\n")
    corpus.write("b.jsonl", [{"code": ADD, "id": "own", "func_name": "A.plus", "license": "MIT"}])
    summary = corpus.extract("a.py", "b.jsonl")
    (record,) = corpus.records
    assert [record["lines"], *(place["lines"] for place in record["other_places"])] == [[1, 2], [5, 6], None]
    assert [(place["id"], place["class"], place["licence"]) for place in record["other_places"]] == [
        (record["id"], None, None), ("own", "A", "MIT")
    ]  # fmt: skip
    assert (summary.merged, summary.without_licence) == (2, 1)


def test_the_cluster_of_a_code_is_its_first_near_duplicate(corpus: Corpus) -> None:
    body = "".join(f"    a{number} = b{number} + c{number}\n" for number in range(20))
    corpus.write("a.py", f"def f():\n{body}\n\n{ADD}\n\n\ndef f():\n{body}    return\n")
    assert corpus.extract(clusters=True).clusters == 2
    first, other, near = corpus.records
    assert [record["cluster"] for record in corpus.records] == [first["id"], other["id"], first["id"]]
    assert near["id"] != first["id"]
    corpus.extract()
    assert [record["cluster"] for record in corpus.records] == [None] * 3


def test_a_row_is_described_by_its_fields_or_else_by_its_code(corpus: Corpus) -> None:
    documented = 'def f(x):\n    """Doc."""\n    return x'
    rows = [{"code": documented}, {"code": f"x = 1\n{documented}"}, {"code": documented + "\n", "name": "g"}]
    corpus.write("a.jsonl", [{"id": f"r{number}", **row} for number, row in enumerate(rows)])
    corpus.extract("a.jsonl")
    described = [(record["id"], record["name"], record["docstring"]) for record in corpus.records]
    assert described == [("r0", "f", "Doc."), ("r1", None, None), ("r2", "g", "Doc.")]
    assert [record["code"] for record in corpus.records] == [row["code"] for row in rows]


def test_progress_counts_the_rows_of_a_dataset(corpus: Corpus) -> None:
    corpus.write("a.jsonl", [{"code": f"x = {number}"} for number in range(120)])
    corpus.extract("a.jsonl")
    assert [step[1:] for step in corpus.steps[:3]] == [(50, None), (100, None), (120, None)]


def test_an_id_of_two_codes_is_an_error(corpus: Corpus) -> None:
    corpus.write("a.jsonl", [{"code": "x", "id": 1}, {"code": "x", "id": 2}, {"code": "y", "id": 2}])
    with pytest.raises(InputError) as error:
        corpus.extract("a.jsonl")
    assert (error.value.path, error.value.line) == ("a.jsonl", 3)


class TestNotebook:
    def test_cells_are_read_one_by_one_without_magics(self, corpus: Corpus) -> None:
        text = 'def g():\n    return """\n%d\n"""'
        corpus.write_notebook(
            "a.ipynb", "%%bash\ndef no(): pass", f"%%time\nfiles = !ls\nif 1:\n    %time x\n{ADD}", "def broken(:", text
        )
        corpus.extract()
        places = [(record["name"], record["cell"], record["lines"]) for record in corpus.records]
        assert places == [("add", 2, [5, 6]), ("g", 4, [1, 4])]
        assert corpus.records[1]["code"] == text
        assert [(item["removed_by"], item["cell"], item["line"]) for item in corpus.removed] == [
            ("cell does not parse", 3, 1)
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("before", "line"),
        [
            ("?str", 2), ("??str.join", 2), ("str?", 2), ("str.join??  # help", 2), ("%time?", 2), ("x[0]?", 2),
            ("!ls \\\n  -a \\\n  -b", 4), ("x = !ls \\\n  -a", 3), ("import os\n    %matplotlib inline", 3),
            ("if 1:\n    %time x", 3), ("  !ls", 2),
        ],
    )  # fmt: skip
    def test_magics_and_requests_for_help_do_not_lose_the_cell(self, corpus: Corpus, before: str, line: int) -> None:
        corpus.write_notebook("a.ipynb", f"{before}\n{ADD}")
        corpus.extract()
        assert [(record["name"], record["lines"][0]) for record in corpus.records] == [("add", line)]

    @pytest.mark.parametrize("cell", [{}, {"source": None}, {"source": []}, {"outputs": [float("nan")]}])
    @pytest.mark.parametrize("version", [3, 4])
    def test_a_cell_without_a_source_is_empty(self, corpus: Corpus, cell: dict[str, Any], version: int) -> None:
        cells = [{"cell_type": "code", **cell}, {"cell_type": "code", ("input", "source")[version - 3]: [ADD]}]
        document = {"nbformat": version, **({"cells": cells} if version == 4 else {"worksheets": [{"cells": cells}]})}
        corpus.write("a.ipynb", json.dumps(document))
        corpus.extract()
        assert [(record["name"], record["cell"]) for record in corpus.records] == [("add", 2)]

    @pytest.mark.parametrize(
        "content",
        ["", "[]", "{}", "[" * 100_000, '{"nbformat": 9}', '{"nbformat": 4, "cells": [1]}',
         '{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}'],
    )  # fmt: skip
    def test_a_broken_notebook_is_listed(self, corpus: Corpus, content: str, capfd: pytest.CaptureFixture[str]) -> None:
        corpus.write("a.ipynb", content)
        corpus.write("b.py", ADD)
        corpus.write_notebook("c.ipynb", "f <- function(x) x", language="R")
        corpus.extract()
        removed = [(item["removed_by"], item["path"]) for item in corpus.removed]
        assert removed == [("file cannot be read", "a.ipynb"), ("file cannot be read", "c.ipynb")]
        assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"def f(:\n", "file does not parse"),
        (b"x = " + b"(" * 500, "file does not parse"),
        (b"x = '\xe9'\n", "file cannot be read"),
        (b"# coding: none\n", "file cannot be read"),
        (b"# coding: rot13\n", "file cannot be read"),
        (b"#" * 1_000_001, "file is too large"),
    ],
)
def test_a_damaged_file_is_listed(corpus: Corpus, content: bytes, reason: str) -> None:
    corpus.write("a.py", content)
    with pytest.raises(InputError):
        corpus.extract()
    corpus.write("b.py", "# coding: latin-1\n\ndef f():\n    return '\xe9'\n".encode("latin-1"))
    summary = corpus.extract()
    assert [(item["removed_by"], item["path"]) for item in corpus.removed] == [(reason, "a.py")]
    assert (summary.damaged, summary.first_damaged[0]["path"]) == ({reason: 1}, "a.py")
    assert "'\xe9'" in corpus.records[0]["code"]


def test_filters_and_languages_remove_codes_with_a_reason(corpus: Corpus) -> None:
    rows = [{"code": ADD}, {"code": "def f(): pass"}, {"code": "int f() {}", "language": "c"}, {"code": ">>> f(1)\n1"}]
    corpus.write("a.jsonl", rows)
    corpus.extract("a.jsonl")
    assert [record["language"] for record in corpus.records] == ["python", "python", "c", "python"]
    corpus.extract("a.jsonl", language="python")
    assert ([len(corpus.records)], [item["line"] for item in corpus.removed]) == ([2], [3, 4])
    assert corpus.removed[0]["removed_by"] == "other language"
    summary = corpus.extract("a.jsonl", filters=["cosqa-plus"])
    assert [record["code"] for record in corpus.records] == [ADD]
    assert [item["line"] for item in corpus.removed] == [2, 3, 4]
    assert corpus.removed[1]["removed_by"] == UNSUPPORTED
    assert not summary.damaged
    assert not any("code" in item for item in corpus.removed)


OTHERS = {
    "a.mjs": "// SPDX-License-Identifier: MIT\n/**\n * Add.\n * @x\n */\nexport function add(a) {\n  return a;\n}\n",
    "b.tsx": "class A {\n  /** Show. */\n  show(b: B): JSX.Element {\n    return <b>{b.c}</b>;\n  }\n}\n",
    "c.sql": b"\xff\xfe" + "-- All.\nSELECT 1;\n".encode("utf-16-le"),
}


def test_functions_of_other_languages_have_their_place_and_documentation(corpus: Corpus) -> None:
    for name, content in OTHERS.items():
        corpus.write(name, content)
    corpus.extract()
    fields = ("language", "path", "name", "class", "docstring", "lines", "module", "licence")
    assert [[record[name] for name in fields] for record in corpus.records] == [
        ["javascript", "a.mjs", "add", None, "Add.\n@x", [6, 8], None, "MIT"],
        ["typescript", "b.tsx", "show", "A", "Show.", [3, 5], None, None],
        ["sql", "c.sql", "select", None, "All.", [2, 2], None, None],
    ]
    assert [record["code"].split("\n")[-1] for record in corpus.records] == ["}", "}", "SELECT 1;"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.js", "function (", "file does not parse"),
        ("a.ts", "x = 1" * 300_000, "file is too large"),
        ("a.sql", b"SELECT '\xe9'", "file cannot be read"),
        ("a.js", "/** @generated */\nfunction f() {}", "file is generated"),
        ("a.cjs", "function f(){return 1}" * 20, "file is generated"),
    ],
)
def test_a_file_without_source_code_is_listed(corpus: Corpus, name: str, content: str | bytes, reason: str) -> None:
    corpus.write("b.py", f"# Code generated by x. DO NOT EDIT.\n{ADD}")
    corpus.write(name, content)
    corpus.extract()
    assert [(item["removed_by"], item["path"]) for item in corpus.removed] == [(reason, name)]
    assert len(corpus.records) == 1


def test_the_language_of_unparsable_rows_is_recognised(corpus: Corpus) -> None:
    pytest.importorskip("magika")
    sql = "SELECT a, b FROM c WHERE d = 1 ORDER BY a;"
    corpus.write("a.jsonl", [{"code": ADD}, {"code": sql}, {"code": "int x;", "language": "c"}])
    summary = corpus.extract("a.jsonl", language="python")
    assert [item.get("recognised") for item in corpus.removed] == ["sql", None]
    assert summary.recognised == {"sql": 1}


def test_rows_of_other_languages_are_described_and_filtered(corpus: Corpus) -> None:
    codes = ["/** Add. */\nfunction add(a) {\n  return a;\n}", "() => 1"]
    corpus.write("a.jsonl", [{"code": codes[0]}, {"code": codes[1], "language": "js"}])
    corpus.extract("a.jsonl", filters=["cosqa-plus"], language="javascript")
    assert [(record["name"], record["docstring"]) for record in corpus.records] == [("add", "Add.")]
    assert [item["removed_by"] for item in corpus.removed] == ["no input parameter"]


def test_the_output_does_not_depend_on_the_number_of_processes(corpus: Corpus) -> None:
    for number in range(120):
        corpus.write(f"a{number}.py", f"def f{number % 50}():\n    return {number % 50}\n" if number % 7 else "def")
    corpus.write("b.jsonl", [{"code": f"x = {number % 90}"} for number in range(300)])
    outputs = []
    for jobs in (1, 3):
        summary = corpus.extract("", "b.jsonl", clusters=True, jobs=jobs)
        outputs.append((corpus.records, corpus.removed, summary))
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0]) == 140


@pytest.mark.real_data
def test_all_codes_of_cosqa_are_kept_unchanged(corpus: Corpus, real_data: Path) -> None:
    path = real_data / "cosqa_search_codes_6267.jsonl"
    summary = corpus.extract(str(path), jobs=2)
    codes = [json.loads(line)["code"] for line in path.read_text().splitlines()]
    assert [record["code"] for record in corpus.records] == list(dict.fromkeys(codes))
    assert len(corpus.records) + summary.merged == 6267
