"""Pairs from files, with all that is wrong found before anything is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from agent.checks import check_type
from agent.datasets.fields import MAPPING_EXAMPLE, Fields
from agent.datasets.formats import files_of, records
from agent.datasets.sources import STDIN, BadLine, shown
from agent.datasets.spool import Spool
from agent.errors import InputError
from agent.types import Pair
from agent.wording import plural

_LISTED_CAUSES = 5
# Of 6,500 real snippets none longer than this is a single line.
_LONG_ONE_LINER = 80
_LOST_NEWLINES_SHARE = 0.01


class Dataset(Spool):
    """The pairs of one or more files (`paths`), in their order.

    `bad_lines` were skipped.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        super().__init__()
        self.paths = tuple(paths)
        self.bad_lines: list[BadLine] = []
        self._python = self._lost = 0

    def put(self, pair: Pair, file: int = 0, line: int = 0) -> bool:
        """Add a pair as a spool does, and count snippets that seem to have lost their newlines."""
        if not super().put(pair, file, line):
            return False
        if pair.language == "python":
            code = pair.code.strip()
            self._python += 1
            self._lost += len(code) > _LONG_ONE_LINER and "\n" not in code and "\r" not in code
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the user."""
        share = self._lost / max(self._python, 1)
        if share < _LOST_NEWLINES_SHARE:
            return ()
        return (
            f"{share:.0%} of the snippets ({self._lost} of {self._python}) are a single line of more than "
            f"{_LONG_ONE_LINER} characters: their newlines were probably lost, and most of them will not parse",
        )

    def __repr__(self) -> str:
        return f"<Dataset of {plural(len(self), 'pair')} from {', '.join(map(str, self.paths))}>"


def read_pairs(
    paths: str | Path | Iterable[str | Path],
    *,
    mapping: Mapping[str, str] | str | None = None,
    on_bad_line: Literal["fail", "skip"] = "fail",
) -> Dataset:
    """Read files, or patterns (`*`, `?`, `[`, `**`) of their names: all of them are checked before this returns.

    A file is `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet`, also with `.gz`, or the folder of a Hugging Face dataset;
    `-` is standard input, of JSON lines. `mapping` names the fields of query, code, id, language and context where they
    are not ours or a known dataset's; as text it is what `parse_mapping` takes.

    Raises:
        InputError: a file cannot be read, holds no pairs, or (unless skipped) has bad lines; an id comes twice.
        ConfigError: the mapping names something a pair does not have.
        ExtraMissing: Parquet or a dataset's folder without the extra `io`.
    """
    check_type("paths", paths, (str, Path, Iterable), "a file, a pattern, or a list of them")
    check_type("mapping", mapping, (str, Mapping), MAPPING_EXAMPLE)
    files = files_of([paths] if isinstance(paths, str | Path) else paths)
    dataset, fields = Dataset(files), Fields(mapping)
    for number, path in enumerate(files):
        _read_file(dataset, number, path, fields)
    fields.check_mapping()
    if dataset.bad_lines and (on_bad_line == "fail" or not dataset):
        first = dataset.bad_lines[0]
        raise InputError(_list_causes(dataset), path=shown(first.path or STDIN), line=first.line)
    return dataset


def _read_file(dataset: Dataset, number: int, path: Path, fields: Fields) -> None:
    """Add the pairs and the bad lines of the file of this number.

    Raises:
        InputError: it cannot be read, or has none.
    """
    row = None
    for row in records(path):
        if isinstance(row, BadLine):
            dataset.bad_lines.append(dataclasses.replace(row, path=path))
            continue
        try:
            pair = fields.pair(row.value, row.number)
            if not dataset.put(pair, number, row.line):
                raise ValueError(_twice(dataset, pair.id, number))
        except ValueError as error:
            dataset.bad_lines.append(BadLine(row.line, str(error), path, row.prefix))
    if row is None and path.is_file() and path.stat().st_size == 0:
        raise InputError("the file is empty", path=path)
    if row is None:
        raise InputError(
            "holds no pairs; a JSON object per pair is expected, or a header and a row per pair", path=shown(path)
        )


def _twice(dataset: Dataset, pair_id: str, number: int) -> str:
    file, line = dataset.origin(pair_id)
    place = f"line {line}" if file == number else f"{shown(dataset.paths[file])}:{line}"
    shortened = pair_id if len(pair_id) <= 60 else pair_id[:60] + "…"
    return f"the id {shortened!r} is that of {place} too; ids must differ{'' if file == number else ' over all files'}"


def _list_causes(dataset: Dataset) -> str:
    """List the first bad line of each cause, at most five, and count the others."""
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
    remedy = "mend them, or leave them out with --on-bad-line skip" if dataset else "none holds a pair"
    lines.append(f"{bad_lines} of {bad_lines + len(dataset)} lines are bad: {remedy}")
    return "\n".join(lines)
