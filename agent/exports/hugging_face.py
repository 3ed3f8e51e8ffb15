"""Exports a dataset for `datasets.load_dataset`, with a dataset card that documents the quality of the labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.corpus.describe import LICENCE, MISSING, SOURCE, get_name
from agent.evaluation.estimates import RunEstimates, estimate_run, read_review_data
from agent.evaluation.guarantee import Guarantee, build_guarantee_figures, hash_file
from agent.evaluation.statistics import krippendorff_alpha
from agent.exports.rows import INPUT_PREFIX, Export, Row, escape_surrogates, format_left_out
from agent.exports.tables import write_parquet_rows
from agent.runs.store.files import CERTIFICATE
from agent.runs.store.run_view import RunView, get_criterion
from agent.runs.store.samples import EVIDENCE
from agent.text import build_table, escape_markdown, plural, render_markdown_table

TAGS = ["code-search", "test-driven-annotator"]
_MAX_LISTED = 20
_UNLABELLED = " A pair without a label counts as wrong."
_SIZES = ("0", "1K", "10K", "100K", "1M", "10M", "100M", "1B")
_HUB_LICENCE = re.compile(  # ids of the Hugging Face Hub
    r"mit|isc|zlib|ncsa|pddl|odbl|odc-by|gfdl|wtfpl|unlicense|postgresql|c-uda|ms-pl|mpl-2\.0|apache-2\.0|artistic-2\.0"
    r"|bsd(?:-[23]-clause|-3-clause-clear)?|bsl-1\.0|(?:agpl|gpl|lgpl)-3\.0|gpl-2\.0|lgpl-2\.1|epl-[12]\.0|eupl-1\.[12]"
    r"|cc0-1\.0|cc-by-(?:2\.0|2\.5|3\.0|4\.0)|cc-by-sa-[34]\.0|cc-by-nc(?:-sa)?-[234]\.0|cc-by-nc-nd-[34]\.0|cc-by-nd-4\.0"
    r"|cdla-(?:sharing-1|permissive-[12])\.0"
)
_CRITERIA = {"exact": "the code completely answers the query", "half": "the code answers at least half of the query"}
_DESCRIPTIONS = {
    "id": "id of the pair in the input",
    "query": "search query",
    "code": "code snippet",
    "language": "programming language of the snippet",
    "context": "additional text that was shown to the annotator",
    "label": "1: match; 0: no match; null: undecided, failed or no search intent",
    "reason": "explanation from the step that decided the label",
    "decided_by": "step that decided the label",
    "test_status": "status of the last execution of the test program; null if nothing was executed",
    "error": "error type if the annotation failed, otherwise null",
    "test_module": "import path of the module in which the snippet was tested, otherwise null",
    "p_correct": "estimated probability that the label is right",
    "p_low": "lower bound of the share of right labels in the pair's stratum",
    "test_alone": "why the snippet was not tested in its module, otherwise null",
}


def write_dataset(export: Export, folder: Path) -> None:
    """Write `data/train.parquet`, or a file for each part of the export, and the dataset card `README.md`.

    Raises:
        ExtraMissing: pyarrow is not installed, or the run has reviews and NumPy is not installed.
        OSError: a file cannot be written.
        RunFolderError: the reviews of the run are damaged.
    """
    origins = Counter[tuple[str, str]]()
    (folder / "data").mkdir()
    for name, part in export.iterate_parts("train"):
        path = folder / "data" / f"{name}.parquet"
        write_parquet_rows(path, export.columns, _count_origins(part.iterate_rows(), origins))
    (folder / "README.md").write_text(_render_card(export, origins, folder), encoding="utf-8")


def render_front_matter(fields: Mapping[str, Any], folder: Path, configs: Mapping[str, Mapping[str, str]]) -> str:
    """Return the front matter of a dataset card. `configs` maps configurations to their files in `folder`, by split."""

    # `load_dataset` caches by the name of the folder and the config, so the config must depend on the data
    rows = [
        {
            "config_name": name,
            "description": f"SHA-256 of the data: {', '.join(hash_file(folder / path) for path in files.values())}",
            "data_files": [{"split": split, "path": path} for split, path in files.items()],
        }
        for name, files in configs.items()
    ]
    return f"---\n{yaml.safe_dump({**fields, 'configs': rows}, sort_keys=False, allow_unicode=True)}---\n"


def _count_origins(rows: Iterable[Row], origins: Counter[tuple[str, str]]) -> Iterator[Row]:
    """Count the rows by their source and their licence, and yield them unchanged."""
    for row in rows:
        origins[get_name(row, SOURCE), get_name(row, LICENCE)] += 1
        yield row


def choose_licence(licences: Iterable[str]) -> str:
    """Return the id of the licence that all pairs have in common, `unknown` if none has one, and `other` otherwise."""
    common, *others = {re.sub(r"\s+", "-", licence.lower().removesuffix(" license")) for licence in licences}
    if common == MISSING and not others:
        return "unknown"
    return "other" if others or not _HUB_LICENCE.fullmatch(common) else common


def _render_card(export: Export, origins: Counter[tuple[str, str]], folder: Path) -> str:
    """Return the dataset card as Markdown with YAML front matter. Call it after writing the rows."""
    name, pairs = escape_surrogates(export.run.path.resolve().name), export.tally.annotations
    fields = {
        "pretty_name": name,
        "license": choose_licence(licence for _, licence in origins),
        **({"annotations_creators": ["machine-generated"]} if isinstance(export.run, RunView) else {}),
        "size_categories": [_choose_size_category(pairs)],
        "task_categories": ["text-retrieval"],
        "tags": TAGS,
    }
    files = {part: f"data/{part}.parquet" for part in export.parts or ("train",)}
    about = "This dataset contains pairs of a search query and a code snippet."
    sections = {"Labels": _render_labels(export)}
    if export.parts:
        sections["Splits"] = _render_splits(export)
    if isinstance(export.run, RunView):
        criterion = get_criterion(export.run.manifest)
        about += (
            " The labels were assigned by a program (test-driven-annotator), not by people. "
            f"Label 1 means: {_CRITERIA.get(criterion, escape_markdown(criterion, 300))}."
        )
        sections["Annotation process"] = _render_process(export.run.manifest, criterion, export.run.index.round_count)
        sections["Agreement between rounds"] = _render_agreement(export.run)
        sections["Estimated error rate"] = _render_error(export.run)
        if export.guarantee is not None:
            sections["Guarantee"] = _render_guarantee(export.guarantee)
    sections |= {"Sources and licences": _render_origins(origins), "Columns": _render_columns(export)}
    lines = [f"# {escape_markdown(name, 300)}", "", about]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    return render_front_matter(fields, folder, {"default": files}) + "\n".join(lines) + "\n"


def _render_labels(export: Export) -> Iterator[str]:
    outcomes = export.tally.pair_statuses
    descriptions = {"1": "1, match", "0": "0, no match", "undecided": "null, undecided", "error": "null, failed"}
    descriptions |= {"no_intent": "null, no search intent"} if outcomes["no_intent"] else {}
    rows = {text: outcomes[key] for key, text in descriptions.items()}  # type: ignore[index]
    rows |= {f"decided by {name}": labels.total() for name, labels in export.tally.deciders.items()}
    rows |= {f"test status {name}": count for name, count in export.tally.statuses.items()}
    rows |= {f"tested {place}": labels.total() for place, labels in export.tally.modules.items()}
    yield render_markdown_table(build_table(("", "pairs"), [("all", outcomes.total()), *rows.items()]))
    if export.left_out:
        yield f"\nPairs that are not in this dataset: {format_left_out(export.left_out)}."


def _render_splits(export: Export) -> Iterator[str]:
    yield render_markdown_table(
        build_table(("split", "pairs"), [(name, len(ids)) for name, ids in export.parts.items()])
    )
    yield "\nThe file `split.json` contains the rule that separates the splits, the seed and counts of dropped pairs."


def _render_process(manifest: Mapping[str, Any], criterion: str, rounds: int) -> Iterator[str]:
    identity, segments = manifest["identity"], manifest["segments"]
    served: dict[str, dict[str, None]] = {}
    for entry in (entry for segment in segments for entry in segment["served"]):
        version = f" {entry['fingerprint']}" if entry["fingerprint"] else ""
        served.setdefault(f"{entry['model']}{version}", {})[entry["role"] or "all roles"] = None
    environments = [segment["environment"] for segment in segments]
    versions = {str(_get_nested(values, "versions", "test-driven-annotator") or "unknown") for values in environments}
    sandboxes = {str(_get_nested(values, "sandbox", "backend") or "none") for values in environments}
    rows = {
        "variant": _get_nested(identity, "variant", "name") or "unknown",
        "criterion": criterion,
        "requested models": ", ".join(_iterate_models(identity.get("model"))) or "unknown",
        "served models": ", ".join(f"{name} ({', '.join(roles)})" for name, roles in served.items()) or "unknown",
        "rounds": rounds,
        "test-driven-annotator version": ", ".join(sorted(versions)),
        "sandbox": ", ".join(sorted(sandboxes)),
        "started": segments[0].get("started") if segments else "unknown",
        "SHA-256 of the input": identity.get("input_sha256", "unknown"),
    }
    yield render_markdown_table(build_table(("", ""), rows.items()))


def _iterate_models(model: Any) -> Iterator[str]:
    """Iterate over the requested models: the default model, then the models for individual roles."""
    if not isinstance(model, Mapping):
        return
    roles = model.get("roles") or {}
    for role, settings in (("", model.get("default")), *roles.items()):
        if isinstance(settings, Mapping):
            name = settings.get("model") or settings.get("kind")
            rules = " (a rule-based baseline, not a language model)" if name == "heuristic" else ""
            yield f"{name}{rules}{f' ({role})' if role else ''}"


def _render_agreement(run: RunView) -> Iterator[str]:
    agreements = [pair.agreement for pair in run.index.iterate_labels() if pair.agreement is not None]
    if not agreements:
        yield "Not available, because each pair was annotated only once."
        return
    alpha = krippendorff_alpha(pair.votes for pair in run.index.iterate_labels())
    yield (
        f"The run has {run.index.round_count} rounds per pair. Krippendorff's alpha between rounds is "
        f"{'undefined' if alpha is None else f'{alpha:.3f}'}. On average, two rounds of a pair agree in "
        f"{sum(agreements) / len(agreements):.1%} of cases. Agreement does not imply accuracy, because the annotator "
        "can make the same error in every round."
    )


def _render_error(run: RunView) -> Iterator[str]:
    data = read_review_data(run)
    estimates = estimate_run({pair.id: pair.label for pair in run.index.iterate_labels()}, data)
    if estimates is not None and estimates.accuracy.value is not None:
        yield from _render_estimates(estimates, 1 - estimates.accuracy.value)
    elif not data.reviewers:
        yield "Unknown: no labels have been reviewed blind."
    elif data.is_stale:
        yield "Unknown: the run has changed since the review sample was drawn."
    elif estimates is None:
        yield "Unknown: the reviewed pairs are not a random sample of the run."
    else:
        yield f"Unknown: only {estimates.reviewed:,} of the {estimates.sampled:,} sampled pairs have been reviewed."


def _render_guarantee(guarantee: Guarantee) -> Iterator[str]:
    for figure in build_guarantee_figures(guarantee):
        yield figure["text"].replace("\n", "  \n")
        for table in figure["tables"]:
            yield f"\n{render_markdown_table(table)}"
    yield "\nAssumptions:"
    yield from (f"- {assumption}" for assumption in guarantee.assumptions)
    yield f"\nReviewers: {', '.join(escape_markdown(name, 100) for name in guarantee.reviewers)}. See `{CERTIFICATE}`."


def _render_estimates(estimates: RunEstimates, error_rate: float) -> Iterator[str]:
    accuracy = estimates.accuracy.interval
    bounds = "unknown" if accuracy is None else f"{1 - accuracy.high:.1%} to {1 - accuracy.low:.1%}"
    yield (
        f"An estimated {error_rate:.1%} of all labels in the run are wrong ({estimates.level:.0%} confidence interval: "
        f"{bounds}). The estimate is based on a random sample of {plural(estimates.reviewed, 'pair')}, reviewed blind "
        f"by {plural(estimates.reviewers, 'reviewer')}.{'' if estimates.by == (EVIDENCE,) else _UNLABELLED}"
    )
    yield ""
    measures = {"accuracy": estimates.accuracy, "precision": estimates.precision, "recall": estimates.recall}
    rows = [(name, value.value, value.interval) for name, value in measures.items()]
    yield render_markdown_table(build_table(("", "estimate", f"{estimates.level:.0%} confidence interval"), rows))


def _render_origins(origins: Counter[tuple[str, str]]) -> Iterator[str]:
    rows = [(source, licence, count) for (source, licence), count in origins.most_common()]
    yield render_markdown_table(build_table(("source", "licence", "pairs"), rows[:_MAX_LISTED]))
    if len(rows) > _MAX_LISTED:
        combinations = plural(len(rows) - _MAX_LISTED, "other combination")
        yield f"\nNot listed: {combinations} with {plural(sum(row[2] for row in rows[_MAX_LISTED:]), 'pair')} in total."
    for column, names in enumerate((SOURCE, LICENCE)):
        if missing := sum(row[2] for row in rows if row[column] == MISSING):
            fields = " or ".join(f"`{name}`" for name in names)
            yield f"\nPairs without {fields} in the input: {missing:,}."


def _render_columns(export: Export) -> Iterator[str]:
    types = {"json": "JSON as text", "flag": "boolean"}
    rows = [(name, types.get(kind, kind), _describe_column(name)) for name, kind in export.columns.items()]
    yield render_markdown_table(build_table(("column", "type", "description"), rows))


def _describe_column(column: str) -> str:
    field_name = column.removeprefix(INPUT_PREFIX)
    fallback = f"input field {field_name}" if field_name in _DESCRIPTIONS else "input field"
    return _DESCRIPTIONS.get(column, fallback)


def _choose_size_category(pairs: int) -> str:
    index = sum(pairs >= 1000 * 10**power for power in range(len(_SIZES) - 2))
    return f"{_SIZES[index]}<n<{_SIZES[index + 1]}" if index else "n<1K"


def _get_nested(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
