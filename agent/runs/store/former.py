"""Turns records of schema 1 into today's records.

Schema 1 had the variant `full_plus`, whose parts are gone, and other names of settings, events and JSON keys. Each
`update_*` function changes a parsed record. It leaves malformed parts unchanged for the validation that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.config import REMOVED_VARIANTS, RENAMED
from agent.errors import RunFolderError
from agent.types import SCHEMA_VERSION, Cause, Status

SCHEMA = 1

_REMOVED_ROLES = ("generate_blind", "scaffold", "specify_query")
_REMOVED_SETTINGS = ("abstain", "flakiness_runs", "mutant_timeout", "mutants", "votes")
_REMOVED_COLUMNS = ("mean_strength", "tests_checked", "tests_vacuous")
_REMOVED_FIELDS = ("mutant", "spec")
_KEPT_PURPOSES = ("test", "sentinel")
_KINDS = {"exchange": "model_call", "visit": "node_run"}
_CALL_KEYS = {"asked": "requested", "made": "executed", "separate": "if_run_alone", "earlier": "cached_before"}
# First digits of the hashes of templates that contained parts for `full_plus`, with the hashes of the templates without
# these parts. For all other variants, both render the same prompts.
_TEMPLATES = {
    "7e1f9ef8d72c2263": "d088ddb89d99bae962a8245c65950138bed863454b8dc03ef7753e3dcc561ead",  # arbitrate
    "53af949038fab1ed": "6fdc97d62be598f60c4e6e11277bbbd96de92fa67a7ecc093de4ad949f9c8e95",  # generate_test
    "b175a565f59f9063": "d8f63e367bc713db2c0b5cb1b15546fa2cd47c9dfc3f9d345ac09b75a8d626f1",  # judge
    "dcafa7fca7b450b5": "ab996bf815e40b3f2ab22a7833e0e102271ba8b39f77c3856e3caf29bd2ee5f5",  # prefer
    "90d7e5269c7c0c45": "deaa7bd4d14f87ca576b8ddc06f3879a7779685c87bddf6ad59285976f6b3b96",  # repair
    "147f184ba083de53": "61f6303a498f996a8cc69d53c5dec6b2b4d6a3a5fc13d590d72d54dfed4fe57f",  # screen
    "1754f07f37253a8d": "e9a452d0b478bbd8067836f5322004715b284ae2e2b5463abfa1170c9ead18e6",  # write_code
}


def update_annotation(record: dict[str, Any]) -> None:
    """Update a line of `annotations.jsonl`. Fields that are gone are ignored when the line is validated."""
    _update_report(record.get("test"))


def update_label(record: dict[str, Any]) -> None:
    """Update a line of `labels.jsonl`, which has no schema version."""
    record.pop("confidence", None)


def update_history(record: dict[str, Any]) -> None:
    """Update a record of `evidence.sqlite`, which has no schema version. Executions on mutants and repeats are dropped.

    Raises:
        TypeError: the record is malformed.
        KeyError: the record is malformed.
    """
    if _KINDS.keys().isdisjoint([event["kind"] for event in record["events"]]):
        return
    record["events"] = [event for event in record["events"] if event.get("purpose", "test") in _KEPT_PURPOSES]
    for event in record["events"]:
        event["kind"] = _KINDS.get(event["kind"], event["kind"])
        for name in _REMOVED_FIELDS:
            event.pop(name, None)
        _update_report(event.get("report"))


def update_manifest(record: dict[str, Any]) -> None:
    """Update `manifest.json`, so that a run can be resumed if its variant still exists."""
    record["schema"] = SCHEMA_VERSION
    identity = record.get("identity")
    if not isinstance(identity, dict):
        return
    if isinstance(settings := identity.get("pipeline"), dict):
        identity["pipeline"] = {
            RENAMED.get(f"pipeline.{name}", f"pipeline.{name}").removeprefix("pipeline."): value
            for name, value in settings.items()
            if name not in _REMOVED_SETTINGS
        }
    if isinstance(prompts := identity.get("prompts"), dict):
        identity["prompts"] = {
            role: _TEMPLATES.get(str(digest)[:16], digest)
            for role, digest in prompts.items()
            if role not in _REMOVED_ROLES
        }


def update_ablation(record: dict[str, Any]) -> None:
    """Update `ablation.json`."""
    for name in ("calls", "executions"):
        if isinstance(counts := record.get(name), dict):
            record[name] = {_CALL_KEYS.get(key, key): count for key, count in counts.items()}
    for row in _as_dicts(record.get("rows")):
        for name in _REMOVED_COLUMNS:
            row.pop(name, None)


def check_resumable(path: Path, identity: Mapping[str, Any]) -> None:
    """Check that the variant of a run still exists.

    Raises:
        RunFolderError: the variant is gone.
    """
    variant = identity.get("variant")
    name = variant.get("name") if isinstance(variant, dict) else None
    if str(name).partition("-without-")[0] in REMOVED_VARIANTS:
        raise RunFolderError(
            f"{path}: contains a run of the variant {name}, which no longer exists. The run can be read, "
            "but not resumed. Choose the variant full and another folder (-o; in Python run_dir)."
        )


def _update_report(report: Any) -> None:
    """Turn a vacuous pass and a flaky outcome, which are no evidence, into errors of the program."""
    for part in _as_dicts([report]):
        if part.pop("vacuous", False):
            part |= {"status": Status.ERROR.value, "cause": Cause.PROGRAM.value}
        for inner in (part, *_as_dicts(part.get("cases"))):
            if inner.get("cause") == "flaky":
                inner["cause"] = Cause.PROGRAM.value


def _as_dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
