"""Read pairs from files, and report all bad lines before a run calls a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from agent.datasets.fields import MAPPING_EXAMPLE, FieldMap, Fields
from agent.datasets.formats import expand_patterns, read_records
from agent.datasets.pair_store import PairStore
from agent.datasets.sources import STDIN, BadLine, display_name
from agent.datasets.values import parse_label
from agent.errors import InputError
from agent.text import plural
from agent.types import Pair, check_type

_LISTED_CAUSES = 5
# In characters. In a sample of 6,500 real snippets, every snippet longer than this has several lines.
_LONG_ONE_LINER = 80
_LOST_NEWLINES_SHARE = 0.01


class Dataset(PairStore):
    """The pairs from one or more files (`paths`), in order, and the `bad_lines` that were skipped."""

    def __init__(self, paths: Iterable[Path]) -> None:
        super().__init__()
        self.paths = tuple(paths)
        self.bad_lines: list[BadLine] = []
        self._python = self._one_liners = 0

    def put(self, pair: Pair, file: int = 0, line: int = 0) -> bool:
        """Add a pair unless its id is already present. Counts snippets that have probably lost their newlines."""
        if not super().put(pair, file, line):
            return False
        if pair.language == "python":
            code = pair.code.strip()
            self._python += 1
            self._one_liners += len(code) > _LONG_ONE_LINER and "\n" not in code and "\r" not in code
        return True

    def read_label(self, pair: Pair) -> int | None:
        """Return the label in the field `label` of a pair, as in `parse_label`.

        Raises:
            InputError: the value is not a label.
        """
        try:
            return parse_label(pair.meta.get("label"))
        except ValueError as error:
            file, line = self.origin(pair.id)
            cause = f"'label' is {error}. To read another field, pass --map label=FIELD"
            raise InputError(cause, path=display_name(self.paths[file]), line=line) from None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the user."""
        share = self._one_liners / max(self._python, 1)
        if share < _LOST_NEWLINES_SHARE:
            return ()
        return (
            f"{share:.0%} of the Python snippets ({self._one_liners} of {self._python}) consist of a single line of "
            f"more than {_LONG_ONE_LINER} characters. They have probably lost their newlines, and most will not parse",
        )

    def __repr__(self) -> str:
        return f"<Dataset of {plural(len(self), 'pair')} from {', '.join(map(str, self.paths))}>"


def read_pairs(
    paths: str | Path | Iterable[str | Path],
    *,
    mapping: Mapping[str, str] | str | None = None,
    on_bad_line: Literal["fail", "skip"] = "fail",
) -> Dataset:
    """Read and check all pairs in files or Hugging Face dataset folders.

    `paths` may contain patterns (`*`, `?`, `[`, `**`). The file formats are `.jsonl`, `.json`, `.csv`, `.tsv` and
    `.parquet`, each optionally compressed (`.gz`). `-` stands for JSON lines on standard input. `mapping` maps pair
    fields to field names in the files. The mapping is not needed if the files use the field names of this package or of
    a known dataset. If `mapping` is a string, it is parsed with `parse_mapping`.

    Raises:
        InputError: a file cannot be read or contains no pairs, or there are bad lines and `on_bad_line` is `fail`. A
            line with a duplicate id is a bad line.
        ConfigError: the mapping has an unknown pair field.
        ExtraMissing: a path is a Parquet file or a dataset folder, and the `io` extra is not installed.
    """
    check_type("paths", paths, (str, Path, Iterable), "a file, a pattern, or a list of them")
    check_type("mapping", mapping, (str, Mapping), MAPPING_EXAMPLE)
    files = expand_patterns([paths] if isinstance(paths, str | Path) else paths)
    return read_dataset(files, mapping, on_bad_line=on_bad_line)


def read_dataset(
    files: Iterable[Path],
    mapping: FieldMap = None,
    *,
    on_bad_line: Literal["fail", "skip"] | None = None,
    codes_alone: bool = False,
) -> Dataset:
    """Read the pairs in files, as in `read_pairs`. Commands without the option `--on-bad-line` pass None.

    With `codes_alone`, files without a field for the query may be read. The queries of their pairs are empty.

    Raises:
        InputError, ConfigError, ExtraMissing: see `read_pairs`.
    """
    dataset, fields = Dataset(files), Fields(mapping)
    for number, path in enumerate(dataset.paths):
        _read_file(dataset, number, path, fields, codes_alone=codes_alone)
    fields.check_mapping()
    if dataset.bad_lines and (on_bad_line != "skip" or not dataset):
        first, causes = dataset.bad_lines[0], _list_causes(dataset, has_option=on_bad_line is not None)
        raise InputError(causes, path=display_name(first.path or STDIN), line=first.line)
    return dataset


def _read_file(dataset: Dataset, number: int, path: Path, fields: Fields, *, codes_alone: bool) -> None:
    """Add the pairs and the bad lines of a file. `number` is the position of the file in `paths`.

    Raises:
        InputError: the file cannot be read or has no pairs.
    """
    row, needs_query = None, not codes_alone
    for row in read_records(path):
        if isinstance(row, BadLine):
            dataset.bad_lines.append(dataclasses.replace(row, path=path))
            continue
        try:
            needs_query = needs_query or (isinstance(row.value, dict) and fields.has("query", row.value))
            pair = fields.build_pair(row.value, row.number, needs_query=needs_query)
            if not dataset.put(pair, number, row.line):
                raise ValueError(_describe_duplicate(dataset, pair.id, number))
        except ValueError as error:
            dataset.bad_lines.append(BadLine(row.line, str(error), path, row.prefix))
    if row is None and path.is_file() and path.stat().st_size == 0:
        raise InputError("the file is empty", path=path)
    if row is None:
        raise InputError(
            "contains no pairs. Expected one JSON object per pair, or a header and one row per pair",
            path=display_name(path),
        )


def _describe_duplicate(dataset: Dataset, pair_id: str, number: int) -> str:
    file, line = dataset.origin(pair_id)
    place = f"line {line}" if file == number else f"{display_name(dataset.paths[file])}:{line}"
    short_id = pair_id if len(pair_id) <= 60 else pair_id[:60] + "…"
    return f"the id {short_id!r} is also used in {place}. Ids must be unique{'' if file == number else ' across files'}"


def _list_causes(dataset: Dataset, *, has_option: bool) -> str:
    """List the first bad line for each of at most five causes, and count the other bad lines."""
    by_cause: dict[str, list[BadLine]] = {}
    for bad in dataset.bad_lines:
        by_cause.setdefault(bad.cause, []).append(bad)
    lines: list[str] = []
    for first, *others in list(by_cause.values())[:_LISTED_CAUSES]:
        more = f" (and {plural(len(others), 'more line')} for the same reason)" if others else ""
        lines.append((f"  {first}" if lines else f"{first.prefix}{first.cause}") + more)
    hidden = sum(map(len, list(by_cause.values())[_LISTED_CAUSES:]))
    if hidden:
        lines.append(f"  and {plural(hidden, 'more bad line')}")
    bad_lines = len(dataset.bad_lines)
    total = plural(bad_lines + len(dataset), "line")
    verb, them = ("is", "it") if bad_lines == 1 else ("are", "them")
    option = ", or pass --on-bad-line skip" if has_option else ""
    remedy = f"Fix {them}{option}" if dataset else "No line is a valid pair"
    lines.append(f"{bad_lines:,} of {total} {verb} bad. {remedy}")
    return "\n".join(lines)
