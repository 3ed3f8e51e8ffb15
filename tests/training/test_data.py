"""What is read from runs, files, split folders and benchmarks to train on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import InputError, UsageError
from agent.retrieval.code_views import find_first_sentence
from agent.training.data import TrainingData, read_training_data
from agent.types import Pair, Status, TestReport
from tests.exports.runs import make_run
from tests.retrieval.test_blindness import write_mutants

FUNCTION = 'def f(a):\n    """Return {}."""\n    return a + {}\n'


def read(path: Path, **options: Any) -> TrainingData:
    return read_training_data(path, progress=lambda *_: None, **options)


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_pairs(path: Path, *pairs: tuple[str, str, int | None], **fields: Any) -> Path:
    return write(path, [{"query": query, "code": code, "label": label, **fields} for query, code, label in pairs])


def write_split(folder: Path, **parts: Sequence[tuple[str, str, int | None]]) -> Path:
    folder.mkdir()
    for part, pairs in parts.items():
        write_pairs(folder / f"{part}.jsonl", *pairs)
    (folder / "split.json").write_text("{}")
    return folder


def list_pairs(data: TrainingData) -> list[tuple[str, str, int]]:
    return [(data.queries[pair.query], data.codes[pair.code], pair.label) for pair in data.pairs]


def test_a_run_trains_on_the_majority_labels_without_undecided_pairs(tmp_path: Path) -> None:
    rows = {"a": ("sort", "one"), "b": ("sort", "two"), "c": ("join", "three")}
    pairs = [Pair(id=name, query=query, code=code) for name, (query, code) in rows.items()]
    rounds = [{"a": {"label": 1}, "b": {"label": int(number == 0)}, "c": {"label": None}} for number in range(3)]
    data = read(make_run(tmp_path / "run", pairs, *rounds))
    assert (list_pairs(data), data.queries) == ([("sort", "one", 1), ("sort", "two", 0)], ["sort"])
    assert (data.name, data.labels) == ("run", {"1": 1, "0": 1, "undecided": 1})


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from([0, 1, None])), max_size=12))
def test_equal_pairs_are_merged_and_contradicting_ones_are_undecided(rows: list[tuple[str, str, int | None]]) -> None:
    labels = defaultdict[tuple[str, str], set[int]](set)
    for query, code, label in rows:
        labels[query, code] |= set() if label is None else {label}
    expected = [(*pair, *values) for pair, values in labels.items() if len(values) == 1]
    with TemporaryDirectory() as folder:
        data = read(write_pairs(Path(folder, "pairs.jsonl"), *rows, ("c", "z", 1)))
    assert list_pairs(data) == [*expected, ("c", "z", 1)]
    assert data.labels["undecided"] == len(labels) - len(expected)
    assert sorted(data.codes) == sorted({code for _, code, _ in expected} | {"z"})


def test_data_without_positives_are_an_error(tmp_path: Path) -> None:
    file = write_pairs(tmp_path / "pairs.jsonl", ("sort", "one", 0), ("sort", "two", None))
    with pytest.raises(UsageError, match=r"label 1.*undecided: 1"):
        read(file)


def test_near_duplicates_have_equal_numbers(tmp_path: Path) -> None:
    code = "def f(a, b, c): return a + b * c"
    rows = [("Sort a list", code, 1), ("sort  a list", code.replace(" ", "  "), 1), ("read a file", "g()", 1)]
    data = read(write_pairs(tmp_path / "pairs.jsonl", *rows))
    for numbers in (data.query_groups, data.code_clusters):
        assert numbers[0] == numbers[1] != numbers[2]


def test_a_language_selects_pairs(tmp_path: Path) -> None:
    rows = [{"doc": "q", "code": f"c{name}", "label": 1, "language": name} for name in ("Python", "java", "py")]
    file = write(tmp_path / "pairs.jsonl", rows)
    assert read(file).languages == ["python", "java", "python"]
    assert read(file, language="PY").codes == ["cPython", "cpy"]
    with pytest.raises(UsageError):
        read(file, language="go")


def test_a_language_selects_held_out_pairs(tmp_path: Path) -> None:
    rows = [{"query": f"q{name}", "code": f"c{name}", "label": 1, "language": name} for name in ("python", "java")]
    (folder := tmp_path / "split").mkdir()
    for part in ("train", "validation", "test"):
        write(folder / f"{part}.jsonl", [{**row, "query": row["query"] + part} for row in rows])
    (folder / "split.json").write_text("{}")
    data = read(folder, language="java", tests=[folder / "train.jsonl"])
    held_out = [own for own in (data.validation, *data.tests) if own]
    assert [(list(own.queries), list(own.codes.values())) for own in held_out] == [(["2"], ["cjava"])] * 3


def test_triples_in_several_languages_train_together(tmp_path: Path) -> None:
    for part in ("train", "validation", "test"):
        rows = [{"id": f"{part} {name}", "query": part, "code": name, "language": name} for name in ("c", "go")]
        write(tmp_path / f"{part}.jsonl", [{**row, "answer_id": row["id"], "label": 1} for row in rows])
    (tmp_path / "stackexchange.json").write_text("{}")
    data = read(tmp_path)
    assert (data.languages, [len(own.codes) for own in (data.validation, *data.tests) if own]) == (["c", "go"], [2, 2])
    assert read(tmp_path, language="go").codes == ["go"]


@pytest.mark.parametrize("option", ["validation", "tests"])
def test_held_out_data_without_positives_are_an_error(tmp_path: Path, option: str) -> None:
    train, other = (write_pairs(tmp_path / f"{n}.jsonl", (f"q{n}", f"c{n}", n)) for n in (1, 0))
    with pytest.raises(UsageError, match="label 1"):
        read(train, **{option: other if option == "validation" else [other]})


def test_sources_and_licences_are_counted(tmp_path: Path) -> None:
    rows = [{"query": str(n), "code": "c", "label": 1, "source": name} for n, name in enumerate(["a", "b", "b"])]
    undecided = {"query": "undecided", "code": "c", "license": "GPL"}
    data = read(write(tmp_path / "pairs.jsonl", [*rows, undecided, {**rows[0], "query": "a", "license": "MIT"}]))
    assert (data.sources, data.licences) == ({"a": 2, "b": 2}, {"missing": 3, "MIT": 1})


def test_label_0_is_proved_by_mutants_and_failed_tests(tmp_path: Path) -> None:
    labels = {"a": (1, None), "b": (0, {"of": "a"}), "c": (0, None), "d": (1, {})}
    rows = [{"query": "q", "code": code, "label": label, "mutant": own} for code, (label, own) in labels.items()]
    pairs = [Pair(id=name, query="q", code=name) for name in "abcd"]
    failed, passed = (TestReport(status=status) for status in (Status.FAILED, Status.PASSED))
    run = make_run(tmp_path / "run", pairs, {"b": {"label": 0, "test": failed}, "c": {"label": 0, "test": passed}})
    for data in (read(write(tmp_path / "pairs.jsonl", rows)), read(run)):
        assert {(data.queries[query], data.codes[code]) for query, code in data.proved} == {("q", "b")}


def test_contrasts_are_read_into_families_and_change_the_hash(tmp_path: Path) -> None:
    long = "def f(a, b, c): return a + b * c"
    functions = [("add one", "r0", "w0"), ("Add  one", long, "w1"), ("sort", long.replace(" ", "  "), "w2"),
                 ("join it", "r3", "w3")]  # fmt: skip
    pairs, mutants = write_pairs(tmp_path / "p.jsonl", ("x", "y", 1)), write_mutants(tmp_path / "m.jsonl", *functions)
    plain, data = read(pairs), read(pairs, contrast=mutants)
    assert data.contrasts is not None
    first, second, third, other = data.contrasts.families
    assert first == second == third != other
    record = data.contrasts.record
    assert (record.name, record.count, record.functions, data.codes) == ("m.jsonl", 4, 4, ["y"])
    fewer = read(pairs, contrast=mutants, excluded={"w1"})
    assert fewer.contrasts is not None
    assert [row.wrong for row in fewer.contrasts.rows] == ["w0", "w2", "w3"]
    assert len({plain.sha256, data.sha256, fewer.sha256}) == 3
    for options in ({"excluded": {"w0", "w1", "w2", "r3"}}, {"language": "java"}):
        with pytest.raises(UsageError, match=r"m\.jsonl"):
            read(write_pairs(tmp_path / "p.jsonl", ("x", "y", 1), language="java"), contrast=mutants, **options)


def test_the_hash_depends_on_the_pairs_only(tmp_path: Path) -> None:
    rows = [("sort", "one", 1), ("sort", "two", 0)]
    variants = [rows, [*rows, rows[0]], [*rows, ("join", "one", None)], rows[::-1], [rows[0], ("sort", "two", 1)]]
    hashes = [read(write_pairs(tmp_path / f"{number}.jsonl", *own)).sha256 for number, own in enumerate(variants)]
    assert [name == hashes[0] for name in hashes] == [True, True, True, False, False]
    assert read(write_pairs(tmp_path / "java.jsonl", *rows, language="java")).sha256 != hashes[0]


def test_a_split_folder_holds_out_its_validation_and_test_parts(tmp_path: Path) -> None:
    parts = {part: [(f"query {part}", f"code {part}", 1)] for part in ("train", "validation", "test")}
    folder, other = write_split(tmp_path / "s", **parts), write_pairs(tmp_path / "other.jsonl", ("o", "c", 1))
    data = read(folder, tests=[other])
    assert (data.name, data.queries) == ("s", ["query train"])
    others = read(folder, validation=other), read(other, validation=folder, tests=[folder]), read(other)
    names = [[own.name for own in (each.validation, *each.tests) if own] for each in (data, *others)]
    assert names == [["s-validation", "s-test", "other"], ["other", "s-test"], ["s-validation", "s-test"], []]


def test_a_split_folder_without_a_training_part_is_an_error(tmp_path: Path) -> None:
    folder = write_split(tmp_path / "split", test=[("q", "c", 1)])
    (folder / "train.jsonl").symlink_to(write_pairs(tmp_path / "elsewhere.jsonl", ("q", "c", 1)))
    with pytest.raises(UsageError, match="train"):
        read(folder)


def test_a_benchmark_trains_on_graded_codes_and_codes_are_for_benchmarks_that_need_them(tmp_path: Path) -> None:
    codes = [str(write(tmp_path / "codes.jsonl", [{"code-idx": n, "code": f"c{n}"} for n in range(4)]))]
    rows = [{"query-idx": 7, "query": "q", "code-idx": code, "label": grade} for code, grade in ((2, 3), (1, 0))]
    queries, pairs = write(tmp_path / "queries.jsonl", rows), write_pairs(tmp_path / "pairs.jsonl", ("q", "c", 1))
    data = read(queries, codes=codes, tests=[pairs])
    assert (list_pairs(data), data.codes) == ([("q", "c2", 1), ("q", "c1", 0)], ["c2", "c1"])
    assert [len(test.codes) for test in read(pairs, codes=codes, tests=[pairs, queries]).tests] == [1, 4]
    for path, options in ((pairs, {"codes": codes}), (queries, {})):
        with pytest.raises(UsageError, match="--codes"):
            read(path, **options)


def test_unknown_formats_are_errors(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (write(tmp_path / "rows.jsonl", [{"text": "a"}]), tmp_path / "folder", tmp_path / "none.jsonl"):
        with pytest.raises(InputError):
            read(path)


def test_docstrings_become_queries_and_leave_the_code(tmp_path: Path) -> None:
    nested = 'def g():\n    """Outer. Second."""\n    def h():\n        "inner"\n        return 1\n    return h\n'
    rows = [{"code": FUNCTION.format("it", 1), "licence": "MIT"}, {"code": nested, "language": "py"}]
    data = read(write(tmp_path / "codes.jsonl", rows), pairs="docstrings")
    inner = "def g():\n    def h():\n        return 1\n    return h"
    assert list_pairs(data) == [("Return it.", "def f(a):\n    return a + 1", 1), ("Outer.", inner, 1)]
    assert (data.licences, data.notes) == ({"MIT": 1, "missing": 1}, [])


def test_docstrings_of_other_languages_become_queries(tmp_path: Path) -> None:
    rows = [
        {"code": "/** Add. @x */\nfunction f(a) {\n  return a;\n}", "language": "js"},
        {"code": "f(a: A) {\n  return a;\n}", "language": "typescript", "docstring": "Get it.\nSecond."},
        {"code": "SELECT 1", "language": "sql", "docstring": "Get one."},
        {"code": "SELECT 2; SELECT 3", "language": "sql"},
        {"code": "f(", "language": "js"},
        {"code": "int x;", "language": "java", "docstring": "Get."},
    ]
    data = read(write(tmp_path / "codes.jsonl", rows), pairs="docstrings")
    assert list_pairs(data) == [
        ("Add.", "function f(a) {\n  return a;\n}", 1),
        ("Get it.", "f(a: A) {\n  return a;\n}", 1),
        ("Get one.", "SELECT 1", 1),
    ]
    assert (data.languages, len(data.notes)) == (["javascript", "typescript", "sql"], 3)


def test_codes_without_a_docstring_are_skipped_and_counted(tmp_path: Path) -> None:
    codes = ["def f(): pass", "print 1", '"module"\nx = 1', FUNCTION.format(1, 1) * 2]
    rows = [*({"code": code} for code in codes), {"code": "f()", "language": "go"}]
    with pytest.raises(UsageError, match="label 1"):
        read(write(tmp_path / "codes.jsonl", rows), pairs="docstrings")
    data = read(write(tmp_path / "codes.jsonl", [*rows, {"code": FUNCTION.format(1, 1)}]), pairs="docstrings")
    assert (data.queries, [note.split()[1] for note in data.notes]) == (["Return 1."], ["3", "1", "1"])


def test_codes_without_queries_need_the_option_for_docstrings(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--pairs docstrings"):
        read(write(tmp_path / "codes.jsonl", [{"code": "f()"}]))


def test_docstring_pairs_come_from_any_data(tmp_path: Path) -> None:
    code, expected = FUNCTION.format("it", 1), [("Return it.", "def f(a):\n    return a + 1", 1)]
    split = write_split(tmp_path / "split", train=[("q", code, 0)], test=[("q", FUNCTION.format("x", 2), 1)])
    run = make_run(tmp_path / "run", [Pair(id="a", query="q", code=code)], {"a": {"label": 0}})
    for name, fields in {"query": {"query": "q"}, "codebase": {"code": code}, "pairs": {"label": 0}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps([{"query-idx": 1, "code-idx": 1, **fields}]))
    for path in (split, run, split / "train.jsonl", tmp_path):
        assert list_pairs(read(path, pairs="docstrings")) == expected


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("\n    Sort, e.g. by v1.5 names,\n    a list?\n    In place.", "Sort, e.g. by v1.5 names, a list?"),
        ("First\n\n    second", "First"),
        ("Add\n    @return a number", "Add"),
        ("Add\n    >>> add(1)", "Add"),
        ("Add\n    Args:\n        x: a number", "Add"),
        ("Add\n    Parameters\n    ----------\n    x : int", "Add"),
        (":param x: a number", ""),
        ("0. ---", ""),
    ],
)
def test_the_first_sentence_ends_before_fields_and_headings(docstring: str, sentence: str) -> None:
    assert find_first_sentence(f'def f():\n    """{docstring}"""') == sentence
