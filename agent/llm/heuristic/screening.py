"""The screener's and the judge's rules: words alone decide."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agent.llm.heuristic.overlap import Overlap, measure
from agent.llm.heuristic.snippets import MAX_CODE, outline

NON_MATCH_BELOW = 0.3
"""Screening: a pair with a lower overlap has next to no word of the query in the code."""

MATCH_FROM = 0.95
"""Screening: overlap from which a pair that no sandbox can test is taken for a match."""

JUDGE_FROM = {"exact": 0.6, "half": 0.45}
"""Judging without a test: overlap from which the label is 1, by criterion."""

_UNTESTABLE = re.compile(
    r"\b(?:tkinter|Tkinter|wx|gtk|Gtk|PyQt\d?|QtWidgets|QtGui|pygame|serial|socket|paramiko|boto3?|smtplib|selenium|"
    r"webdriver|psycopg2|pymysql|MySQLdb|redis|pymongo|RPi|win32\w*|requests\.(?:get|post|put|delete)|urlopen)\b"
)


def screen_reply(variables: Mapping[str, Any]) -> str:
    """Answer `screen`.

    Rule: `non_match` when the overlap is below `NON_MATCH_BELOW`; `match` when it is at least `MATCH_FROM`, no term is
    missing, and the code needs what no sandbox has (a display, a network, a device); `unclear` otherwise.
    """
    overlap = overlap_of(variables)
    if overlap.score < NON_MATCH_BELOW:
        verdict, rule = "non_match", f"below {NON_MATCH_BELOW}"
    elif overlap.score >= MATCH_FROM and not overlap.missing and _UNTESTABLE.search(variables["code"][:MAX_CODE]):
        verdict, rule = "match", f"at least {MATCH_FROM}, nothing missing, and no sandbox can test it"
    else:
        verdict, rule = "unclear", "a test must tell"
    reading = met(variables, verdict == "match")
    return json.dumps({"reason": f"rule: {shown(overlap)}: {rule}", **reading, "verdict": verdict})


def met(variables: Mapping[str, Any], positive: bool) -> dict[str, int | None]:
    """Return the part of a reply that names the reading met, where the prompt numbers them: rules know but one."""
    return {"reading": 1 if positive else None} if variables.get("spec") else {}


def judge_reply(variables: Mapping[str, Any]) -> str:
    """Answer `judge`: 1 when the overlap is at least `JUDGE_FROM` of the criterion, else 0."""
    overlap = overlap_of(variables)
    least = judge_from(variables)
    label = int(overlap.score >= least)
    compared = "at least" if label else "below"
    reason = f"rule: {shown(overlap)}: {compared} {least}"
    return json.dumps({"reason": reason, **met(variables, label == 1), "label": label})


def overlap_of(variables: Mapping[str, Any]) -> Overlap:
    """Return the overlap of the pair in question."""
    return measure(variables["query"], outline(variables["code"]))


def judge_from(variables: Mapping[str, Any]) -> float:
    """Return the overlap that the call's criterion asks for."""
    return JUDGE_FROM.get(variables.get("criterion", "exact"), JUDGE_FROM["exact"])


def shown(overlap: Overlap) -> str:
    """Return the overlap in words, for a reason."""
    absent = f", without {', '.join(overlap.missing[:5])}" if overlap.missing else ""
    return f"word overlap {overlap.score:.2f}{absent}"
