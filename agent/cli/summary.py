"""Builds the summary of a run, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Table

from agent.cli.text import make_rows_table, one_line
from agent.evaluation.breakdown import audit_screener, describe_audits
from agent.evaluation.tally import Tally
from agent.text import plural


def as_json(tally: Tally, **more: Any) -> dict[str, Any]:
    """Return the summary as JSON. Shares are between 0 and 1. `seconds` is the sum over pairs.

    `labels` counts pairs by their majority label. `no_intent` counts pairs whose query has no search intent, which are
    not `undecided`. `pairs_repaired` counts pairs with a repair in at least one round, and `pairs_with_stand_ins`
    counts pairs with a stand-in in at least one round. All other counts refer to annotations; a pair has one
    annotation per round.

    `agreement` is the share of comparisons between two rounds of a pair in which the outcomes are the same, averaged
    over pairs. It is null if no pair has two rounds. `rounds_alpha` is Krippendorff's alpha between rounds.

    `audit` contains estimates of the screener's error rate for all verdicts (key `all`) and for each verdict. It is
    empty if no verdict was audited.

    `modules` is present if snippets were to run in their modules. It counts annotations by where their tests ran.
    """
    pair_statuses = tally.pair_statuses
    return {
        "pairs": pair_statuses.total(),
        "rounds": tally.round_count,
        "annotations": tally.annotations,
        "agreement": tally.agreement,
        "rounds_alpha": tally.rounds_alpha,
        "labels": {
            "1": pair_statuses["1"],
            "0": pair_statuses["0"],
            "null": pair_statuses.total() - pair_statuses["1"] - pair_statuses["0"],
        },
        "undecided": pair_statuses["undecided"],
        "no_intent": pair_statuses["no_intent"],
        "errors": dict(tally.errors.most_common()),
        "decided_by": dict(_count_deciders(tally).most_common()),
        "audit": {name: asdict(audit) for name, audit in audit_screener(tally).items()},
        "statuses": dict(tally.statuses.most_common()),
        "causes": dict(_count_causes(tally).most_common()),
        "programs": tally.programs,
        "programs_executed": tally.executed,
        "cases_per_program": _round(tally.cases_per_program, 2),
        "repairs": tally.repairs,
        "pairs_repaired": tally.repaired,
        "stand_ins": tally.stand_ins,
        "pairs_with_stand_ins": tally.with_stand_ins,
        "usage": tally.usage.model_dump(mode="json"),
        "seconds": round(tally.seconds, 1),
        "executed_share": tally.executed_share,
        **({"modules": _count_modules(tally)} if tally.modules else {}),
        **more,
    }


def as_table(
    tally: Tally,
    wall_seconds: float | None = None,
    *,
    in_folder: tuple[int, int] = (0, 0),
    spent_usd: float | None = None,
    elsewhere: Mapping[str, int] | None = None,
) -> Table:
    """Return the summary as a table of names and values.

    `in_folder` contains the numbers of pairs and annotations in the folder, and `spent_usd` is the cost of the folder.
    These values may exceed the values in `tally`. `elsewhere` maps the addresses of servers that the last session did
    not use to the numbers of their replies.
    """
    counts, usage = tally.pair_statuses, tally.usage
    undecided = f"{counts['undecided']} undecided" + " by majority" * (tally.round_count > 1)
    rows: dict[str, str | None] = {
        "pairs": _describe_pairs(tally, in_folder),
        "labels": f"{counts['1']} match · {counts['0']} no match · {undecided}" + describe_no_intent(counts),
        "agreement": _describe_agreement(tally),
        "errors": _list_counts(tally.errors),
        "decided by": _list_counts(_count_deciders(tally)) or "none",
        "screener": describe_audits(audit_screener(tally)),
        "tests": _list_counts(tally.statuses),
        "causes": _list_counts(_count_causes(tally)),
    }
    if tally.programs:
        executed = f"{tally.executed} of {tally.programs} ran ({tally.executed_share:.1%})"
        rows["programs"] = f"{executed}, {_round(tally.cases_per_program, 2)} cases each"
        rows["repairs"] = f"{tally.repairs} in {plural(tally.repaired, 'pair')}"
        rows["stand-ins"] = f"{tally.stand_ins} in {plural(tally.with_stand_ins, 'pair')}"
    if tally.modules:
        rows["modules"] = _list_counts(_count_modules(tally))
    tokens = f"{usage.input_tokens:,} tokens in ({usage.cached_input_tokens:,} cached), {usage.output_tokens:,} out"
    rows["model"] = f"{plural(usage.calls, 'paid call')} · {tokens} · {format_cost(usage.cost_usd)}"
    if None not in (usage.cost_usd, spent_usd) and format_cost(spent_usd) != format_cost(usage.cost_usd):
        rows["folder"] = (
            f"{format_cost(spent_usd)} paid over all sessions, including other pairs, unfinished pairs and retries"
        )
    if elsewhere:
        replies = plural(sum(elsewhere.values()), "reply", "replies")
        rows["servers"] = f"{replies} from other addresses: {_list_counts(elsewhere)}"
    if wall_seconds:
        rows["time"] = f"{wall_seconds:.1f} s"
    return make_rows_table({name: value for name, value in rows.items() if value})


def describe_no_intent(counts: Mapping[Any, int]) -> str:
    """Describe the number of pairs whose query has no search intent, or return an empty string if there are none."""
    return f" · {counts['no_intent']:,} without search intent" if counts.get("no_intent") else ""


def _describe_agreement(tally: Tally) -> str | None:
    if tally.agreement is None:
        return None
    alpha = "undefined" if tally.rounds_alpha is None else f"{tally.rounds_alpha:.3f}"
    return f"same outcome in {tally.agreement:.1%} of comparisons between two rounds · Krippendorff's alpha {alpha}"


def _describe_pairs(tally: Tally, in_folder: tuple[int, int]) -> str:
    shown, (pairs, annotations) = tally.pair_statuses.total(), in_folder
    text = f"{shown} of {pairs}" if pairs > shown else f"{shown}"
    more = annotations > tally.annotations
    if tally.round_count > 1 or annotations > pairs:
        size = f"{tally.annotations} of {annotations} annotations" if more else plural(tally.annotations, "annotation")
        text += f", {plural(tally.round_count, 'round')}: {size}"
    return f"{text} in the folder" if more else text


def format_cost(cost: float | None) -> str:
    """Format a cost in US dollars. None means that the cost is unknown."""
    return "cost unknown" if cost is None else f"${cost:.4f}"


def _count_deciders(tally: Tally) -> Counter[str]:
    return Counter({name: labels.total() for name, labels in tally.deciders.items()})


def _count_causes(tally: Tally) -> Counter[str]:
    return Counter(
        {f"{outcome}: {cause}": counts[cause] for outcome, counts in tally.causes.items() for cause in counts if cause}
    )


def _count_modules(tally: Tally) -> dict[str, int]:
    return {place: labels.total() for place, labels in tally.modules.items()}


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _list_counts(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{count} {one_line(name, 60)}" for name, count in Counter(counts).most_common())
