"""Read CoSQA's search task and CoSQA+.

CoSQA is published at github.com/Jun-jie-Huang/CoCLR (data/search). `cosqa-retrieval-dev-500.json` and `-test-500.json`
are arrays of `{"idx", "doc", "code", "code_tokens", "docstring_tokens", "label", "retrieval_idx"}`. `retrieval_idx` is
the number of the relevant function. `code_idx_map.txt` is one JSON object that maps functions to numbers. JSON lines
are also accepted: `{"query-idx", "query", "code-idx", "label"}` for queries, and `{"code-idx", "code"}` for functions.

CoSQA+ is published at github.com/DeepSoftwareAnalytics/CoSQA_Plus (see the README). A release consists of queries
`{"query-idx", "query"}`, a codebase `{"code-idx", "code"}`, and pairs `{"pair-idx", "query-idx", "query", "code-idx",
"code", "label"}`. A second file of pairs contains only the pairs labelled 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.datasets.encoding import loads
from agent.datasets.sources import open_source, read_all
from agent.errors import InputError, UsageError

_GENERATED = "query.json", "{0}_codebase.json", "{0}_query_code_pairs.json", "{0}_query_code_pairs_for_search.json"
# The files of each release: queries, codebase, all pairs, and only the pairs labelled 1.
_RELEASES = (
    ("test_agent_query.json", "test_agent_codebase.json", "test_agent_pairs.json", "test_agent_pairs_true.json"),
    *(tuple(name.format(generator) for name in _GENERATED) for generator in ("gpt4o_augment", "final_augment")),
    ("query.json", "codebase.json", "pairs.json", "pairs_true.json"),
)


def read_search_task(builder: BenchmarkBuilder) -> None:
    """Read CoSQA's search task. Each query has one relevant function, and all other functions are unjudged.

    Raises:
        InputError: a file is malformed.
    """
    for file in builder.request.codes:
        for row in _read_code_map(file) if ".txt" in file.suffixes else read_rows(file):
            builder.add_code(row.get_id("code-idx"), row.get_text("code"), row)
    for row in read_rows(builder.path):
        query = row.get_id("query-idx", "idx")
        if query not in builder.queries or builder.queries[query] != row.get_text("query", "doc"):
            builder.add_query(query, row.get_text("query", "doc"), row)
        builder.add_grade(query, row.get_id("code-idx", "retrieval_idx"), row.get_grade("label"), row)


def _read_code_map(path: Path) -> Iterator[BenchmarkRow]:
    with open_source(path, regular=True) as file:
        data = read_all(file, path)
    try:
        codes = loads(data)
    except ValueError as error:
        raise InputError(f"expected a JSON object, as in code_idx_map.txt ({error})", path=path) from None
    if not isinstance(codes, dict):
        raise InputError("expected one object that maps functions to numbers, as in code_idx_map.txt", path=path)
    for number, (code, index) in enumerate(codes.items(), start=1):
        yield BenchmarkRow({"code": code, "code-idx": index}, path, number, f"code {number}: ")


def is_cosqa_plus(folder: Path) -> bool:
    """Return whether a folder contains a CoSQA+ release."""
    return any((folder / codebase).is_file() for _, codebase, _, _ in _RELEASES)


def read_cosqa_plus(builder: BenchmarkBuilder) -> None:
    """Read a CoSQA+ release. The code of a pair is relevant if the label is 1, and judged not relevant if it is 0.

    Raises:
        UsageError: the folder contains several releases.
        InputError: a file is missing or malformed.
    """
    folder = builder.path
    releases = [names for names in _RELEASES if (folder / names[1]).is_file()]
    if len(releases) > 1:
        codebases = ", ".join(names[1] for names in releases)
        raise UsageError(
            f"{folder}: contains several releases of CoSQA+ ({codebases}). Move each release to its own folder"
        )
    ((queries, codebase, pairs, matches),) = releases
    for row in read_rows(folder / codebase):
        builder.add_code(row.get_id("code-idx"), row.get_text("code"), row)
    for row in read_rows(folder / queries):
        builder.add_query(row.get_id("query-idx"), row.get_text("query"), row)
    if not (folder / pairs).is_file() and (folder / matches).is_file():
        builder.notes.append(f"all judgements are positive, because {pairs} is missing")
        pairs = matches
    for row in read_rows(folder / pairs):
        builder.add_grade(row.get_id("query-idx"), row.get_id("code-idx"), row.get_label("label"), row)
