"""A folder that `datasets.load_dataset` reads: Parquet, and a dataset card that says what the labels are worth."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from agent.evaluation.estimates import RunEstimates, estimate_run, read_review_data
from agent.evaluation.statistics import format_interval, format_number, krippendorff_alpha
from agent.exports.rows import INPUT_PREFIX, Export, Row, escape_surrogates, format_left_out
from agent.exports.tables import write_parquet_rows
from agent.store.run_view import get_criterion
from agent.wording import is_hidden, plural

SOURCE = ("source",)
LICENCE = ("license", "licence")
MISSING = "missing"
_LISTED = 20
_SIZES = ("0", "1K", "10K", "100K", "1M", "10M", "100M", "1B")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9.-]{1,40}")
_CRITERIA = {"exact": "the code completely answers the query", "half": "the code answers half of the query or more"}
_MEANINGS = {
    "id": "the pair's id in the input",
    "query": "what was searched for",
    "code": "the snippet",
    "language": "its programming language",
    "context": "further text that the annotator was shown",
    "label": "1 match, 0 no match, null undecided or error",
    "reason": "why, in the words of what decided",
    "decided_by": "the step that decided",
    "test_status": "how the last run of the test program ended; null: nothing was run",
    "confidence": "from 0 to 1, where it was rated",
    "error": "why there is no label, where annotating failed",
}


@dataclass
class Origins:
    """Counts the sources and licences that rows name in their own fields `source` and `license` (or `licence`)."""

    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield rows, and count them."""
        for row in rows:
            self.pairs[_named(row, SOURCE), _named(row, LICENCE)] += 1
            yield row

    def choose_licence(self) -> str:
        """Return the licence for the card's metadata: that of all pairs, `unknown` where none has any, or `other`."""
        licences = {licence for _, licence in self.pairs}
        only = next(iter(licences)).lower() if len(licences) == 1 else ""
        if only == MISSING:
            return "unknown"
        return only if _IDENTIFIER.fullmatch(only) else "other"


def write_dataset(export: Export, folder: Path) -> None:
    """Write `data/train.parquet` and, from what it holds and what the run knows, `README.md`.

    Raises:
        ExtraMissing: pyarrow is not installed, or NumPy while there are reviews to estimate from.
        OSError: a file cannot be written.
        RunFolderError: the run's reviews are damaged.
    """
    origins = Origins()
    (folder / "data").mkdir()
    write_parquet_rows(folder / "data" / "train.parquet", export.columns, origins.count_rows(export.iterate_rows()))
    (folder / "README.md").write_text(_card(export, origins), encoding="utf-8")


def _card(export: Export, origins: Origins) -> str:
    """Return the card of an export whose rows were gone through, as Markdown with YAML in front."""
    name, pairs = escape_surrogates(export.run.path.resolve().name), export.tally.annotations
    front = {
        "pretty_name": name,
        "license": origins.choose_licence(),
        "annotations_creators": ["machine-generated"],
        "size_categories": [_size(pairs)],
        "task_categories": ["text-retrieval"],
        "tags": ["code-search", "test-driven-annotator"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "data/*.parquet"}]}],
    }
    criterion = get_criterion(export.run.manifest)
    sections = {
        "Labels": _labels(export),
        "How they were made": _made(export.run.manifest, criterion, export.run.index.round_count),
        "Agreement": _agreement(export),
        "Estimated error": _error(export),
        "Sources and licences": _origins(origins),
        "Columns": _columns(export),
    }
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False, allow_unicode=True).rstrip(),
        "---",
        f"# {_plain(name)}",
        "",
        "Pairs of a search query and a code snippet, labelled by a program (test-driven-annotator), not by people. "
        f"Label 1: {_CRITERIA.get(criterion, _plain(criterion))}.",
    ]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    return "\n".join(lines) + "\n"


def _labels(export: Export) -> Iterator[str]:
    ended = export.tally.ended
    named = {"1": "1, match", "0": "0, no match", "undecided": "null, undecided", "error": "null, error"}
    rows = {text: ended[key] for key, text in named.items()}  # type: ignore[index]
    rows |= {f"decided by {name}": labels.total() for name, labels in export.tally.deciders.items()}
    rows |= {f"test {name}": count for name, count in export.tally.statuses.items()}
    yield from _table(("", "pairs"), [("all", ended.total()), *rows.items()])
    if export.left_out:
        yield f"\nLeft out of the run's pairs: {format_left_out(export.left_out)}."


def _made(manifest: Mapping[str, Any], criterion: str, rounds: int) -> Iterator[str]:
    identity, segments = manifest["identity"], manifest["segments"]
    served: dict[str, dict[str, None]] = {}
    for each in (each for segment in segments for each in segment["served"]):
        version = f" {each['fingerprint']}" if each["fingerprint"] else ""
        served.setdefault(f"{each['model']}{version}", {})[each["role"] or "all roles"] = None
    environments = [segment["environment"] for segment in segments]
    versions = {str(_within(each, "versions", "test-driven-annotator") or "not known") for each in environments}
    sandboxes = {str(_within(each, "sandbox", "backend") or "none") for each in environments}
    rows = {
        "variant": _within(identity, "variant", "name") or "not known",
        "criterion": criterion,
        "model requested": ", ".join(_requested(identity.get("model"))) or "not known",
        "model served": ", ".join(f"{name} ({', '.join(roles)})" for name, roles in served.items()) or "not known",
        "rounds": rounds,
        "version of the annotator": ", ".join(sorted(versions)),
        "sandbox": ", ".join(sorted(sandboxes)),
        "begun": segments[0].get("started") if segments else "not known",
        "SHA-256 of the input": identity.get("input_sha256", "not known"),
    }
    yield from _table(("", ""), rows.items())


def _requested(model: Any) -> Iterator[str]:
    """Yield the names of the models that were asked for, the default first, others with their roles."""
    if not isinstance(model, Mapping):
        return
    roles = model.get("roles") or {}
    for role, each in (("", model.get("default")), *roles.items()):
        if isinstance(each, Mapping):
            name = each.get("model") or each.get("kind")
            rules = " (simple rules and no model: a floor to compare with)" if name == "heuristic" else ""
            yield f"{name}{rules}{f' ({role})' if role else ''}"


def _agreement(export: Export) -> Iterator[str]:
    alike = [pair.agreement for pair in export.run.index.iterate_labels() if pair.agreement is not None]
    if not alike:
        yield "None: each pair was annotated once."
        return
    alpha = krippendorff_alpha(pair.votes for pair in export.run.index.iterate_labels())
    yield (
        f"Between the {export.run.index.round_count} rounds of the whole run: Krippendorff's alpha "
        f"{'is undefined' if alpha is None else f'{alpha:.3f}'}; two rounds of a pair end alike in "
        f"{sum(alike) / len(alike):.1%} of cases. Rounds of one annotator can agree on what is wrong."
    )


def _error(export: Export) -> Iterator[str]:
    reviewed = read_review_data(export.run)
    estimates = estimate_run({each.id: each.label for each in export.run.index.iterate_labels()}, reviewed)
    if estimates is not None and estimates.accuracy.value is not None:
        yield from _estimated(estimates, 1 - estimates.accuracy.value)
    elif not reviewed.reviewers:
        yield "None: nobody has reviewed a sample of these labels, and how many of them are wrong is not known."
    elif reviewed.is_stale:
        yield "None: the run has changed since the sample for review was drawn from it."
    elif estimates is None:
        yield "None: pairs were reviewed, but not a random sample of the run."
    else:
        yield f"None: too few of the {estimates.sampled:,} pairs of the sample are reviewed ({estimates.reviewed:,})."


def _estimated(estimates: RunEstimates, wrong: float) -> Iterator[str]:
    accuracy = estimates.accuracy.interval
    within = "" if accuracy is None else f" {1 - accuracy.high:.1%} to {1 - accuracy.low:.1%}"
    yield (
        f"{wrong:.1%} of all labels of the run ({estimates.level:.0%} interval{within}), "
        f"estimated from blind reviews of {plural(estimates.reviewed, 'pair')} of a random sample by "
        f"{plural(estimates.reviewers, 'reviewer')}. A pair without a label counts as wrong."
    )
    yield ""
    measures = {"accuracy": estimates.accuracy, "precision": estimates.precision, "recall": estimates.recall}
    rows = [(name, format_number(each.value), format_interval(each.interval)) for name, each in measures.items()]
    yield from _table(("", "estimate", f"{estimates.level:.0%} interval"), rows)


def _origins(origins: Origins) -> Iterator[str]:
    rows = [(source, licence, count) for (source, licence), count in origins.pairs.most_common()]
    yield from _table(("source", "licence", "pairs"), rows[:_LISTED])
    if len(rows) > _LISTED:
        others = plural(len(rows) - _LISTED, "more row")
        yield f"\nAnd {others} with {sum(row[2] for row in rows[_LISTED:]):,} pairs."
    for place, names in enumerate((SOURCE, LICENCE)):
        if missing := sum(count for *each, count in rows if each[place] == MISSING):
            fields = " or ".join(f"`{name}`" for name in names)
            yield f"\nMissing: {plural(missing, 'pair')} without a field {fields} in the input."


def _columns(export: Export) -> Iterator[str]:
    words = {"json": "JSON as text", "flag": "true or false"}
    rows = [(name, words.get(kind, kind), _meaning(name)) for name, kind in export.columns.items()]
    yield from _table(("column", "holds", ""), rows)


def _meaning(column: str) -> str:
    own = column.removeprefix(INPUT_PREFIX)
    other = f"the input's own {own}" if own in _MEANINGS else "from the input"
    return _MEANINGS.get(column, other)


def _named(row: Row, names: Sequence[str]) -> str:
    """Return what a row says in the first of the fields that it has; a field of ours has another name by now."""
    return str(next((row[name] for name in names if row.get(name) not in (None, "")), MISSING))


def _size(pairs: int) -> str:
    place = sum(pairs >= 1000 * 10**power for power in range(len(_SIZES) - 2))
    return f"{_SIZES[place]}<n<{_SIZES[place + 1]}" if place else "n<1K"


def _within(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(f'{each:,}' if isinstance(each, int) else _plain(str(each)) for each in row)} |"


def _plain(text: str) -> str:
    """Return text for one line of Markdown, which it cannot leave, and in which it is nothing but text."""
    shown = "".join(
        each.encode("unicode_escape").decode("ascii") if is_hidden(each) else each for each in " ".join(text.split())
    )
    return _SPECIAL.sub(r"\\\1", shown[:300])
