"""A list of annotations that can be displayed in notebooks and converted to pandas."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from agent.errors import needs_extra
from agent.text import plural, render_html_cell
from agent.types import Annotation

if TYPE_CHECKING:
    import pandas

_MAX_ROWS = 20
_COLUMNS = ("id", "label", "decided_by", "test_status", "reason")


class Annotations(list[Annotation]):
    """A list of annotations. `Annotations(run.annotations())` creates one from a run."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per annotation and one column per field of `as_row`.

        Raises:
            ExtraMissing: pandas is not installed.
        """
        with needs_extra("io"):
            from pandas import DataFrame
        # Int64, because otherwise a missing label would turn the other labels into floats
        columns = list(as_row(Annotation(id="", input_sha256="")))
        return DataFrame([as_row(annotation) for annotation in self], columns=columns).astype({"label": "Int64"})

    def _repr_html_(self) -> str:
        return f"<p>{plural(len(self), 'annotation')}</p>{render_table(self)}"


def as_row(annotation: Annotation) -> dict[str, Any]:
    """Return an annotation as a flat row of numbers, strings and None. Lists are joined with commas."""
    test, error, usage = annotation.test, annotation.error, annotation.usage
    return {
        "id": annotation.id,
        "round": annotation.round,
        "label": annotation.label,
        "decided_by": annotation.decided_by,
        "reason": annotation.reason,
        "screen_verdict": annotation.screen_verdict and annotation.screen_verdict.value,
        "test_status": test and test.status.value,
        "test_cause": test and test.cause and test.cause.value,
        "cases_passed": test and test.passed,
        "cases_failed": test and test.failed,
        "cases_error": test and test.errors,
        "repairs": annotation.repairs,
        "installed": ", ".join(annotation.installed),
        "seconds": annotation.seconds,
        "calls": usage.calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "error": error and error.type,
        "error_message": error and error.message,
    }


def render_table(annotations: Iterable[Annotation]) -> str:
    """Render the first annotations as an HTML table."""
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    rows = (as_row(annotation) for annotation in islice(annotations, _MAX_ROWS))
    body = "".join(
        f"<tr>{''.join(f'<td>{render_html_cell(row[name])}</td>' for name in _COLUMNS)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
