"""One label per pair from the labels of its rounds, and how far the rounds agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict

from agent.datasets.encoding import dumps
from agent.store.files import replacing
from agent.types import Annotation, Frozen, Round, Share

Label = Literal[0, 1] | None
Ended = Literal["1", "0", "undecided", "error"]


def majority(labels: Iterable[int | None]) -> Label:
    """Return the label that more of them have; None on a tie, or when there is no label. None among them abstains."""
    counts = Counter(label for label in labels if label is not None)
    if counts[0] == counts[1]:
        return None
    return 1 if counts[1] > counts[0] else 0


def ended(label: int | None, *, failed: bool) -> Ended:
    """Return how a round, or a pair, ended: with a label, undecided, or in an error."""
    if failed:
        return "error"
    return "undecided" if label is None else "1" if label else "0"


def standing_for(rounds: Sequence[Ended]) -> int | None:
    """Return the place of the first round that ended as the majority of them did; None for a tie of labels.

    Errors count only where there is nothing else.
    """
    label = majority(None if each in ("undecided", "error") else int(each) for each in rounds)
    wanted = ended(label, failed=set(rounds) == {"error"})
    return rounds.index(wanted) if wanted in rounds else None


def agreement(outcomes: Sequence[Label]) -> float | None:
    """Return the share of pairs of rounds that ended alike, None for fewer than two rounds.

    Undecided is an outcome of its own: two undecided rounds are alike, an undecided one and a label are not.
    """
    twos = list(combinations(outcomes, 2))
    return sum(one == other for one, other in twos) / len(twos) if twos else None


@dataclass(frozen=True)
class PairLabel:
    """A pair's label over its rounds: one line of `labels.jsonl`.

    `votes` has the label of each round in order, null where a round is undecided or ended in an error (`errors` counts
    those). `agreement` is between rounds without error. `confidence` is the mean over rounds that have one, where a
    round with the other label counts as one minus its own; None without label or confidences.
    """

    id: str
    label: Label
    votes: tuple[Label, ...]
    agreement: float | None
    confidence: float | None
    errors: int

    @property
    def ended(self) -> Ended:
        """How the pair ended: in an error only where every round did."""
        return ended(self.label, failed=self.errors == len(self.votes))

    @property
    def undecided(self) -> bool:
        """Whether there is no label although a round ended without error."""
        return self.ended == "undecided"


class RoundLabel(Frozen):
    """What a pair's label is made from: these fields of a line of `annotations.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    id: str
    round: Round
    label: Label
    confidence: Share | None = None
    error: dict[str, Any] | None


class _Vote(NamedTuple):
    label: Label
    confidence: float | None
    failed: bool


class Votes:
    """Collects the rounds of all pairs; a later annotation of the same round takes the place of the earlier one."""

    def __init__(self) -> None:
        self._votes: dict[str, dict[int, _Vote]] = {}
        self.rounds = 0

    def add(self, found: Annotation | RoundLabel) -> None:
        """Take in the annotation of a pair and round."""
        vote = _Vote(found.label, found.confidence, found.error is not None)
        self._votes.setdefault(found.id, {})[found.round] = vote
        self.rounds = max(self.rounds, found.round + 1)

    def labels(self, order: Iterable[str] = ()) -> list[PairLabel]:
        """Return a label for each pair: those named in `order` first and so, the others as they came."""
        ids = dict.fromkeys((*(each for each in order if each in self._votes), *self._votes))
        return [_label(each, self._votes[each]) for each in ids]


def write_labels(path: Path, labels: Iterable[PairLabel]) -> None:
    """Replace the file of labels in one step.

    Raises:
        StorageError: it cannot be written; the old one is whole.
    """
    with replacing(path) as draft, draft.open("wb") as file:
        file.writelines(dumps(asdict(label)) + b"\n" for label in labels)


def _label(identifier: str, rounds: Mapping[int, _Vote]) -> PairLabel:
    votes = [rounds[number] for number in sorted(rounds)]
    label = majority(vote.label for vote in votes)
    known = [
        vote.confidence if vote.label == label else 1 - vote.confidence
        for vote in votes
        if vote.label is not None and vote.confidence is not None
    ]
    return PairLabel(
        id=identifier,
        label=label,
        votes=tuple(vote.label for vote in votes),
        agreement=agreement([vote.label for vote in votes if not vote.failed]),
        # exact: equal confidences must not come out a little lower, in another bin
        confidence=mean(known) if known and label is not None else None,
        errors=sum(vote.failed for vote in votes),
    )
