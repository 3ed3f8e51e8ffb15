"""Assigns pairs to training, validation and test, so that the parts share no queries, code, repositories or times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from random import Random
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError

from agent.corpus.near_duplicates import cluster, shingle_query
from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.text import plural
from agent.types import Frozen, Progress

Rule = Literal["query", "code", "repository", "time", "pair"]
PARTS = ("train", "validation", "test")
FIELDS = {"repository": "repository", "time": "created"}
"""The rules that need a field of the pairs, with the default names of the fields."""
_Repository = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Time = Annotated[datetime, AfterValidator(lambda time: time if time.tzinfo else time.replace(tzinfo=UTC))]
_VALUES: Mapping[str, tuple[TypeAdapter[Any], str]] = {
    "repository": (TypeAdapter(_Repository), "text"),
    "time": (TypeAdapter(_Time), "a time (ISO 8601 or Unix)"),
}


class SplitPair(NamedTuple):
    """A pair to assign. `value` is its repository or its time."""

    id: str
    query: str
    code: str
    label: int | None = None
    value: Any = None


class PartCounts(Frozen):
    """Counts of a part. `sha256` is the hash of its ids, queries, snippets and labels, in order."""

    pairs: int
    queries: int
    codes: int
    matches: int
    undecided: int
    sha256: str


class SplitCounts(Frozen):
    """The pairs of each part, the dropped pairs by reason, and the number of texts that are in two or more parts."""

    pairs: int
    parts: dict[str, PartCounts]
    dropped: dict[str, int] = Field(exclude_if=lambda dropped: not dropped)
    share_kept: float
    shared_between_parts: dict[str, int]


@dataclass(frozen=True)
class SplitRules:
    """How to split pairs.

    `ratios` are the shares of `PARTS`. Instead, `sizes` are the numbers of pairs in validation and test. The parts in
    `positives_only` keep only pairs with label 1, and only these count for `sizes`. `field` is named in errors.

    Raises:
        UsageError: the options contradict each other.
    """

    by: Rule = "query"
    ratios: tuple[float, ...] = (8, 1, 1)
    sizes: tuple[int, ...] | None = None
    positives_only: frozenset[str] = frozenset()
    seed: int = 0
    field: str = ""

    def __post_init__(self) -> None:
        if len(self.ratios) != 3 or not all(0 <= share < inf for share in self.ratios) or not sum(self.ratios):
            raise UsageError("--ratios: pass the shares of train, validation and test, such as 8:1:1.")
        if self.sizes is not None and (len(self.sizes) != 2 or min(self.sizes) < 0):
            raise UsageError("--sizes: pass the numbers of pairs in validation and test, such as 500,500.")
        if self.sizes is not None and self.by == "repository":
            raise UsageError("--sizes cannot be met with --by repository, which drops pairs. Pass --ratios.")
        is_possible = self.sizes is not None and self.by != "time" and self.positives_only <= {"validation", "test"}
        if self.positives_only and not is_possible:
            raise UsageError("--positives-only: pass validation, test or both, with --sizes and without --by time.")

    def describe(self) -> dict[str, Any]:
        """Return the rules as JSON, without fields that have no value."""
        shares = {"sizes": self.sizes} if self.sizes else {"ratios": self.ratios}
        optional = {"positives_only": sorted(self.positives_only), "field": self.field}
        return {"by": self.by, **shares, "seed": self.seed, **{name: own for name, own in optional.items() if own}}


def split_pairs(pairs: Sequence[SplitPair], rules: SplitRules, progress: Progress) -> list[str]:
    """Return the part of each pair or, if the pair is dropped, the reason. Depends on the order of the pairs.

    Test is drawn first, then validation. Training gets the rest. Groups are not divided, so a drawn part can differ
    from its intended size by less than one group. Equal and nearly equal queries are a group, except for these rules:

    - `code`: a cluster of snippets belongs to test if a test query has it, or else to validation if a validation query
      has it. Pairs of other queries with its snippets are dropped.
    - `repository`: repositories are drawn as well, and pairs whose two draws differ are dropped.
    - `time`: pairs with equal times are a group. The latest pairs are test, and the earliest are training. Numbers are
      Unix times in seconds or milliseconds, and times without a zone are UTC.
    - `pair`: each pair is a group.

    Raises:
        InputError: a pair has no repository or no time.
        UsageError: there are fewer pairs than `sizes`.
        ExtraMissing: the rule needs near duplicates, and `datasketch` is not installed.
    """
    groups = find_groups(pairs, rules, progress)
    rng = Random(rules.seed)
    if rules.by == "repository":
        drawn = zip(*(_draw(pairs, keys, keys, rules, rng) for keys in groups), strict=True)
        return [part if part == other else f"repository in {other}" for part, other in drawn]
    return _draw(pairs, groups[0], groups[-1], rules, rng)


def find_groups(pairs: Sequence[SplitPair], rules: SplitRules, progress: Progress) -> list[Sequence[Hashable]]:
    """Return the group of each pair: first the groups that are drawn, then the clusters of code or the repositories.

    Raises:
        InputError, ExtraMissing: see `split_pairs`.
    """
    values = _read_values(pairs, rules) if rules.by in FIELDS else range(len(pairs))
    if rules.by in ("time", "pair"):
        return [values]
    queries = [pair.query for pair in pairs]
    groups: list[Sequence[Hashable]] = [cluster(queries, len(queries), progress, shingle_query)]
    if rules.by == "code":
        groups.append(cluster([pair.code for pair in pairs], len(pairs), progress))
    return [*groups, values] if rules.by == "repository" else groups


def describe_split(pairs: Sequence[SplitPair], outcomes: Sequence[str]) -> SplitCounts:
    """Describe the result of `split_pairs` (`outcomes`). Omits empty parts."""
    parts = dict[str, PartCounts]()
    queries = Counter[str]()
    codes = Counter[str]()
    for part in PARTS:
        members = [pair for pair, outcome in zip(pairs, outcomes, strict=True) if outcome == part]
        if not members:
            continue
        queries.update(own_queries := {pair.query for pair in members})
        codes.update(own_codes := {pair.code for pair in members})
        labels = Counter(pair.label for pair in members)
        parts[part] = PartCounts(
            pairs=len(members),
            queries=len(own_queries),
            codes=len(own_codes),
            matches=labels[1],
            undecided=labels[None],
            sha256=sha256(b"".join(dumps(pair[:4]) + b"\n" for pair in members)).hexdigest(),
        )
    shared = {"queries": queries, "codes": codes}
    dropped = Counter(outcome for outcome in outcomes if outcome not in PARTS)
    return SplitCounts(
        pairs=len(pairs),
        parts=parts,
        dropped=dict(dropped.most_common()),
        share_kept=1 - dropped.total() / len(pairs),
        shared_between_parts={name: sum(n > 1 for n in texts.values()) for name, texts in shared.items()},
    )


def _draw(
    pairs: Sequence[SplitPair], keys: Sequence[Any], clusters: Sequence[Hashable], rules: SplitRules, rng: Random
) -> list[str]:
    """Return the part of each pair, or the reason why it is dropped. Pairs with equal keys are not divided."""
    outcomes = ["train"] * len(pairs)
    waiting = list(range(len(pairs)))
    shares = [share / sum(rules.ratios) for share in rules.ratios]
    validation, test = rules.sizes or [max(round(len(pairs) * share), int(share > 0)) for share in shares[1:]]
    for part, target in (("test", test), ("validation", validation)):
        usable = [n for n in waiting if part not in rules.positives_only or pairs[n].label == 1]
        if rules.sizes and len(usable) < target:
            only = f"{plural(len(usable), 'pair')} can be used for {part}"
            raise UsageError(f"--sizes: only {only}, and {target:,} are wanted. Pass smaller sizes.")
        chosen = _choose_groups(Counter(keys[n] for n in usable), target, None if rules.by == "time" else rng)
        drawn = {n for n in usable if keys[n] in chosen}
        taken = {clusters[n] for n in drawn}
        for n in waiting:
            if n in drawn:
                outcomes[n] = part
            elif keys[n] in chosen:
                outcomes[n] = "not positive"
            elif clusters[n] in taken:
                outcomes[n] = f"code in {part}"
        waiting = [n for n in waiting if outcomes[n] == "train"]
    return outcomes


def _choose_groups(sizes: Counter[Any], target: int, rng: Random | None) -> set[Any]:
    """Choose random groups, or the latest groups without `rng`. They have at most `target` pairs in all.

    If the target is above 0 and no group fits, chooses the smallest or the latest group.
    """
    order = rng.sample(list(sizes), len(sizes)) if rng else sorted(sizes, reverse=True)
    chosen = set[Any]()
    gap = target
    for key in order:
        if sizes[key] <= gap:
            chosen.add(key)
            gap -= sizes[key]
        elif rng is None:
            break
    if order and target and not chosen:
        chosen.add(min(order, key=sizes.__getitem__) if rng else order[0])
    return chosen


def _read_values(pairs: Sequence[SplitPair], rules: SplitRules) -> Sequence[Any]:
    adapter, expected = _VALUES[rules.by]
    values = list[Any]()
    bad = list[str]()
    for pair in pairs:
        try:
            values.append(adapter.validate_python(pair.value))
        except ValidationError:
            bad.append(pair.id)
    if bad:
        count = f"{len(bad):,} of {plural(len(pairs), 'pair')}"
        cause = f"the field {rules.field!r} is missing or not {expected} in {count}; the first is {bad[0][:60]!r}"
        raise InputError(f"{cause}. Name another field with --field, or remove these pairs")
    return values
