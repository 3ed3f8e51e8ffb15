"""What the labels mean, in words for reviewers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import RunFolderError
from agent.store.run_view import criterion_of


@dataclass(frozen=True)
class Guidelines:
    """What each label means under a criterion, and what to keep in mind with every pair."""

    criterion: str
    one: str
    zero: str
    notes: tuple[str, ...]


_NOTES = (
    "Where the query has several plausible readings, one that is met is enough.",
    "The code was cut out of a program: missing imports, classes and helpers do not count against it. But when the "
    "very thing asked for is left to an unseen helper, the code does not show it.",
    "What the code does counts, not what its names and comments say; right results on ordinary input are required.",
    "More than was asked is fine. Style and leftovers of Python 2 are no fault.",
    "“Cannot decide” is an answer: say why in the reason.",
)
GUIDELINES: Mapping[str, Guidelines] = {
    "exact": Guidelines(
        criterion="exact match",
        one="Under a plausible reading the code answers the query completely, or answers it and does more.",
        zero="It meets most of the demand but misses a required part, meets it only partly, or does something else, "
        "however close in topic or words.",
        notes=("Every operation, input, result, direction and means that the query names is required.", *_NOTES),
    ),
    "half": Guidelines(
        criterion="at least half",
        one="Under a plausible reading the code meets at least half of what the query demands; it may lack a smaller "
        "part.",
        zero="It meets less than half of the demand, shares only words or a topic with it, or does something else.",
        notes=(
            "The demand is every operation, input, result, direction and means that the query names: weigh what of it "
            "is met. The opposite direction, or another operation on the same subject, meets none.",
            *_NOTES,
        ),
    ),
}


def guidelines_of(manifest: Mapping[str, Any]) -> Guidelines:
    """Return the guidelines of a run's criterion.

    Raises:
        RunFolderError: the run's criterion is not known here.
    """
    criterion = criterion_of(manifest)
    try:
        return GUIDELINES[criterion]
    except KeyError:
        raise RunFolderError(f"the run's criterion is {criterion!r}, which this version does not know") from None
