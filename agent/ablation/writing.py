"""The ablation table as files: JSON for programs, CSV for spreadsheets, Markdown for papers and pull requests."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.ablation.sections import Section, remarks, sections
from agent.ablation.table import SCHEMA, AblationTable, Row
from agent.datasets.encoding import dumps
from agent.store.documents import flatten, replacing
from agent.store.files import ABLATION, ABLATION_CSV, ABLATION_MARKDOWN

JSON, CSV, MARKDOWN = ABLATION, ABLATION_CSV, ABLATION_MARKDOWN
_FORMULA = tuple("=+-@\t\r")


def write_table(folder: Path, table: AblationTable) -> None:
    """Write the three files, each replaced in one step.

    Raises:
        StorageError: one cannot be written; the old one is whole.
    """
    contents = {JSON: dumps(as_document(table), indent=True) + b"\n"}
    contents[CSV] = as_csv(table).encode("utf-8", "replace")
    contents[MARKDOWN] = as_markdown(table).encode("utf-8", "replace")
    for name, content in contents.items():
        with replacing(folder / name) as draft:
            draft.write_bytes(content)


def as_document(table: AblationTable) -> dict[str, Any]:
    """Return the table as JSON keeps it, with what has to be said of it."""
    return {"schema": SCHEMA, **table.model_dump(mode="json"), "remarks": remarks(table)}


def as_csv(table: AblationTable) -> str:
    """Return a line per variant; nested values have columns such as `accuracy.low`. No text is a formula."""
    lines = [_flat(row) for row in table.rows]
    names = dict.fromkeys(name for line in lines for name in line)
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, "note"], restval="")
    writer.writeheader()
    for line in lines:
        writer.writerow({**line, "note": _harmless(table.note or "")})
    return out.getvalue()


def as_markdown(table: AblationTable) -> str:
    """Return the table in its parts, what has to be said of it first."""
    told = "\n".join(f"- {_one_line(remark)}" for remark in remarks(table))
    parts = "\n\n".join("\n".join(_markdown(section, table)) for section in sections(table))
    return f"# Ablation, {_one_line(table.model)}\n\n{told}\n\n{parts}\n"


def _flat(row: Row) -> dict[str, Any]:
    # an absent group of values would be a column of its own
    given = {name: value for name, value in row.model_dump(mode="json").items() if name != "mcnemar" or value}
    leaves = flatten(given)
    return {name: _harmless(value) if isinstance(value, str) else value for name, value in leaves.items()}


def _harmless(text: str) -> str:
    """Keep spreadsheets from running a text as a formula (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _markdown(section: Section, table: AblationTable) -> Iterator[str]:
    yield f"## {_one_line(section.title)}\n"
    yield _line(column.heading for column in section.columns)
    yield _line("---" for _ in section.columns)
    for row in table.rows:
        yield _line(column.text(row) for column in section.columns)


def _line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(map(_one_line, cells)) + " |"


def _one_line(text: str) -> str:
    return re.sub(r"([\\|<>`*_\[\]#])", r"\\\1", " ".join(text.split()))
