"""Runs recorded programs again, where and as they ran, and says whether the outcome is the same."""

from __future__ import annotations

from agent.replay.conditions import Conditions
from agent.replay.groups import Group, grouped, told
from agent.replay.outcome import Difference, differences
from agent.replay.records import Recorded, executed, sampled, tested, was_executed
from agent.replay.replayer import NotRun, Replayed, Replayer, replaying
from agent.replay.tally import Reproducibility, Tally

__all__ = [
    "Conditions",
    "Difference",
    "Group",
    "NotRun",
    "Recorded",
    "Replayed",
    "Replayer",
    "Reproducibility",
    "Tally",
    "differences",
    "executed",
    "grouped",
    "replaying",
    "sampled",
    "tested",
    "told",
    "was_executed",
]
