"""The bug fixer's rule: install what the message names, where its distribution is well known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.llm.heuristic.names import DISTRIBUTIONS
from agent.types import Cause, TestReport

_MISSING = re.compile(r"No module named ['\"]?([A-Za-z_]\w*)")


def repair_reply(variables: Mapping[str, Any]) -> str:
    """Answer `repair`: one `pip install` of missing modules not tried before, or an empty block."""
    commands = "".join(f"{command}\n" for command in _commands(variables))
    return f"```bash\n{commands}```\n"


def _commands(variables: Mapping[str, Any]) -> list[str]:
    report: TestReport | None = variables.get("report")
    if report is None or report.cause is not Cause.DEPENDENCY:
        return []
    texts = (report.message, *(case.message for case in report.cases), variables.get("output") or "")
    missing = dict.fromkeys(name for text in texts for name in _MISSING.findall(text[:100_000]))
    tried = " ".join(str(run.get("command", "")) for run in variables.get("history") or ()).split()
    wanted = dict.fromkeys(DISTRIBUTIONS[name] for name in missing if name in DISTRIBUTIONS)
    fresh = [name for name in wanted if name not in tried]
    return [f"pip install {' '.join(fresh)}"] if fresh else []
