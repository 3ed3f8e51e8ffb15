"""CoSQA's search task and CoSQA+.

CoSQA: github.com/Jun-jie-Huang/CoCLR, data/search: `cosqa-retrieval-dev-500.json` and `-test-500.json` are arrays of
`{"idx", "doc", "code", "code_tokens", "docstring_tokens", "label", "retrieval_idx"}`, `code_idx_map.txt` is one JSON
object of codes to their numbers; `retrieval_idx` is that of the right code. The same as JSON lines: `{"query-idx",
"query", "code-idx", "label"}`, and the codes `{"code-idx", "code"}`.

CoSQA+: github.com/DeepSoftwareAnalytics/CoSQA_Plus, README: queries `{"query-idx", "query"}`, codebase `{"code-idx",
"code"}`, pairs `{"pair-idx", "query-idx", "query", "code-idx", "code", "label"}`, and the pairs labelled 1 once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.datasets.benchmarks.building import BenchmarkBuilder, BenchmarkRow, read_rows
from agent.datasets.encoding import loads
from agent.datasets.sources import opened, without_bom
from agent.errors import InputError, UsageError

_MADE = "query.json", "{0}_codebase.json", "{0}_query_code_pairs.json", "{0}_query_code_pairs_for_search.json"
# Of each release: its queries, its codebase, all of its pairs, and those labelled 1 alone.
_RELEASES = (
    ("test_agent_query.json", "test_agent_codebase.json", "test_agent_pairs.json", "test_agent_pairs_true.json"),
    *(tuple(name.format(by) for name in _MADE) for by in ("gpt4o_augment", "final_augment")),
    ("query.json", "codebase.json", "pairs.json", "pairs_true.json"),
)


def read_search_task(builder: BenchmarkBuilder) -> None:
    """Read CoSQA's search task. One code of each query is relevant, and no other was judged.

    Raises:
        InputError: a file is malformed.
    """
    for file in builder.request.codes:
        for row in _numbered(file) if ".txt" in file.suffixes else read_rows(file):
            builder.add_code(row.identifier("code-idx"), row.text("code"), row)
    for row in read_rows(builder.path):
        query = row.identifier("query-idx", "idx")
        if query not in builder.queries or builder.queries[query] != row.text("query", "doc"):
            builder.add_query(query, row.text("query", "doc"), row)
        builder.add_grade(query, row.identifier("code-idx", "retrieval_idx"), row.grade("label"), row)


def _numbered(path: Path) -> Iterator[BenchmarkRow]:
    """Yield the codes of `code_idx_map.txt`."""
    with opened(path, regular=True) as file:
        data = without_bom(file.read(), path)
    try:
        codes = loads(data)
    except ValueError as error:
        raise InputError(f"is not JSON, as code_idx_map.txt is ({error})", path=path) from None
    if not isinstance(codes, dict):
        raise InputError("one object of codes to numbers expected, as in code_idx_map.txt", path=path)
    for number, (code, index) in enumerate(codes.items(), start=1):
        yield BenchmarkRow({"code": code, "code-idx": index}, path, number, f"code {number}: ")


def is_plus(folder: Path) -> bool:
    """Return whether a folder holds a release of CoSQA+."""
    return any((folder / codebase).is_file() for _, codebase, _, _ in _RELEASES)


def read_plus(builder: BenchmarkBuilder) -> None:
    """Read a release of CoSQA+. Label 1 is relevant, 0 is judged not relevant.

    Raises:
        UsageError: the folder holds several releases.
        InputError: a file is missing or malformed.
    """
    folder = builder.path
    releases = [names for names in _RELEASES if (folder / names[1]).is_file()]
    if len(releases) > 1:
        listed = ", ".join(names[1] for names in releases)
        raise UsageError(f"{folder}: holds several releases of CoSQA+ ({listed}); put one in a folder of its own")
    ((queries, codebase, pairs, matches),) = releases
    for row in read_rows(folder / codebase):
        builder.add_code(row.identifier("code-idx"), row.text("code"), row)
    for row in read_rows(folder / queries):
        builder.add_query(row.identifier("query-idx"), row.text("query"), row)
    if not (folder / pairs).is_file() and (folder / matches).is_file():
        builder.notes.append(f"without {pairs} no code counts as judged not relevant")
        pairs = matches
    for row in read_rows(folder / pairs):
        builder.add_grade(row.identifier("query-idx"), row.identifier("code-idx"), row.grade("label"), row)
