"""Assigns pairs to training, validation and test, so that the parts share no queries, codes, repositories or times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from math import inf
from random import Random
from typing import Any, Literal, NamedTuple

from agent.corpus.near_duplicates import cluster, shingle_code, shingle_text
from agent.datasets.encoding import dumps
from agent.errors import InputError, UsageError
from agent.retrieval.searchers.base import Progress

Part = Literal["train", "validation", "test"]
Rule = Literal["query", "code", "repository", "time", "pair"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")
FIELDS = {"repository": "repository", "time": "created"}
"""The rules that need a field of the pairs, with the default names of the fields."""
_EXPECTED = {"repository": "text", "time": "only numbers, or only ISO times (all with a time zone, or all without)"}


class SplitPair(NamedTuple):
    """A pair to assign. `cluster` names the near duplicates of its code. `value` is its repository or its time."""

    id: str
    query: str
    code: str
    label: int | None = None
    cluster: str | None = None
    value: Any = None


@dataclass(frozen=True)
class SplitRules:
    """How to split pairs. Raises a `UsageError` if the options contradict each other.

    `ratios` are the shares of `PARTS`. Instead, `sizes` are the numbers of pairs in validation and test. The parts in
    `positives_only` keep only pairs with label 1, and only these count for `sizes`. `field` is named in errors.
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
        if self.positives_only and (self.sizes is None or not self.positives_only <= {"validation", "test"}):
            raise UsageError("--positives-only: pass validation, test or both, and --sizes.")

    def compute_targets(self, count: int) -> dict[Part, int]:
        """Return the intended size of each part for `count` pairs. A share above 0 gets at least one pair."""
        shares = [share / sum(self.ratios) for share in self.ratios[1:]]
        validation, test = self.sizes or [max(round(count * share), int(share > 0)) for share in shares]
        return {"train": max(0, count - validation - test), "validation": validation, "test": test}


@dataclass
class Split:
    """The part of each pair, in the order of the pairs.

    A dropped pair has the part None, and `reasons` maps its position to the reason. `groups` contains the group of each
    pair, by the kind of the groups that must not be divided. `targets` are the intended sizes.
    """

    parts: list[Part | None]
    reasons: dict[int, str]
    targets: Mapping[Part, int]
    groups: Mapping[str, Sequence[Hashable]]

    def count_shared(self, pairs: Sequence[SplitPair]) -> dict[str, int]:
        """Count the queries, the codes and the groups that are in two or more parts."""
        texts = {"queries": [pair.query for pair in pairs], "codes": [pair.code for pair in pairs]}
        counts = {}
        for name, keys in {**texts, **self.groups}.items():
            members = {(key, part) for key, part in zip(keys, self.parts, strict=True) if part is not None}
            counts[name] = sum(count > 1 for count in Counter(key for key, _ in members).values())
        return counts

    def describe_parts(self, pairs: Sequence[SplitPair]) -> dict[str, dict[str, Any]]:
        """Count the pairs, queries, codes and matches of each part. Omits empty parts.

        `sha256` is the hash of the ids, queries, codes and labels, in order. Every form of output has the same hash.
        """
        described: dict[str, dict[str, Any]] = {}
        for part in PARTS:
            members = [pair for pair, assigned in zip(pairs, self.parts, strict=True) if assigned == part]
            if members:
                described[part] = {
                    "pairs": len(members),
                    "queries": len({pair.query for pair in members}),
                    "codes": len({pair.code for pair in members}),
                    "matches": sum(pair.label == 1 for pair in members),
                    "sha256": sha256(b"".join(dumps(pair[:4]) + b"\n" for pair in members)).hexdigest(),
                }
        return described


def split_pairs(pairs: Sequence[SplitPair], rules: SplitRules, progress: Progress) -> Split:
    """Assign each pair to a part, or drop the pair. The result depends only on the pairs, their order and the rules.

    Test is drawn first, then validation. Training gets the rest. Groups are not divided, so a drawn part can differ
    from its target by less than one group. Equal and nearly equal queries are a group, except for these rules:

    - `code`: a cluster of codes belongs to test if a test query has it, or else to validation if a validation query has
      it. Pairs of other queries with its codes are dropped. The clusters are the field `cluster` if all pairs have it
      and equal codes have equal values. Otherwise, they are computed.
    - `repository`: repositories are drawn as well, and pairs whose two draws differ are dropped.
    - `time`: pairs with equal times are a group. The latest pairs are test, and the earliest are training.
    - `pair`: each pair is a group.

    Raises:
        InputError: a pair has no repository or no time, or the times cannot be compared.
        UsageError: there are fewer pairs than `sizes`.
        ExtraMissing: the rule needs near duplicates, and `datasketch` is not installed.
    """
    groups, rng = _find_groups(pairs, rules, progress), Random(rules.seed)
    split = Split([], {}, rules.compute_targets(len(pairs)), groups)
    _draw(split, pairs, next(iter(groups.values()), range(len(pairs))), rules, rng)
    if rules.by == "repository":
        _draw(drawn := Split([], {}, split.targets, {}), pairs, groups["repositories"], rules, rng)
        for position, part in enumerate(drawn.parts):
            if part != split.parts[position]:
                split.parts[position], split.reasons[position] = None, f"repository in {part}"
    return split


def _draw(split: Split, pairs: Sequence[SplitPair], keys: Sequence[Hashable], rules: SplitRules, rng: Random) -> None:
    """Assign the pairs. Pairs with equal keys stay together."""
    split.parts, waiting, clusters = ["train"] * len(pairs), list(range(len(pairs))), split.groups.get("code_clusters")
    for part in PARTS[:0:-1]:
        is_kept = [part not in rules.positives_only or pair.label == 1 for pair in pairs]
        sizes, target = Counter[Any](), split.targets[part]
        for position in waiting:
            sizes[keys[position]] += is_kept[position]
        if rules.sizes and sizes.total() < target:
            raise UsageError(f"--sizes: {target:,} pairs for {part}, but only {sizes.total():,} can be used.")
        in_order, taken = rules.by == "time", set[Hashable]()
        order = sorted(sizes, reverse=True) if in_order else rng.sample(list(sizes), len(sizes))
        chosen = _choose_groups(sizes, order, target, in_order=in_order)
        if clusters:
            taken = {clusters[position] for position in waiting if keys[position] in chosen and is_kept[position]}
        for position in waiting:
            if keys[position] in chosen and is_kept[position]:
                split.parts[position] = part
            elif keys[position] in chosen:
                split.parts[position], split.reasons[position] = None, "not positive"
            elif clusters and clusters[position] in taken:
                split.parts[position], split.reasons[position] = None, f"code in {part}"
        waiting = [position for position in waiting if split.parts[position] == "train"]


def _choose_groups(sizes: Mapping[Any, int], order: Iterable[Any], target: int, *, in_order: bool) -> set[Any]:
    """Choose groups with about `target` pairs in all. A group that is too large is skipped, or is the last `in_order`.

    Adds the smallest skipped group if this brings the total closer to the target, or if no other group was chosen.
    """
    chosen, gap, skipped = set[Any](), target, list[Any]()
    for key in order:
        if gap == 0 or (in_order and skipped):
            break
        if sizes[key] > gap:
            skipped.append(key)
        elif sizes[key] or in_order:
            chosen.add(key)
            gap -= sizes[key]
    smallest = min(skipped, key=sizes.__getitem__, default=None)
    if gap and skipped and (gap == target or 2 * gap > sizes[smallest]):
        chosen.add(smallest)
    return chosen


def _find_groups(pairs: Sequence[SplitPair], rules: SplitRules, progress: Progress) -> dict[str, Sequence[Hashable]]:
    """Return the groups of the pairs. The first groups are drawn."""
    if rules.by in ("pair", "time"):
        return {"times": _read_values(pairs, rules)} if rules.by == "time" else {}
    queries = [" ".join(pair.query.lower().split()) for pair in pairs]
    groups: dict[str, Sequence[Hashable]] = {"query_groups": _cluster_texts(queries, shingle_text, progress)}
    if rules.by == "repository":
        groups["repositories"] = _read_values(pairs, rules)
    if rules.by == "code":
        clusters = {(pair.code, pair.cluster) for pair in pairs}
        if all(name is not None for _, name in clusters) and len(clusters) == len({code for code, _ in clusters}):
            groups["code_clusters"] = [pair.cluster for pair in pairs]
        else:
            groups["code_clusters"] = _cluster_texts([pair.code for pair in pairs], shingle_code, progress)
    return groups


def _cluster_texts(texts: Sequence[str], shingle: Callable[[str], frozenset[str]], progress: Progress) -> Sequence[int]:
    distinct = list(dict.fromkeys(texts))
    names = dict(zip(distinct, cluster(distinct, len(distinct), progress, shingle), strict=True))
    return [names[text] for text in texts]


def _read_values(pairs: Sequence[SplitPair], rules: SplitRules) -> Sequence[Any]:
    """Return the repositories or the times of the pairs, which must be comparable with each other."""
    values = list[Any]()
    for pair in pairs:
        text = pair.value if isinstance(pair.value, str) and pair.value.strip() else None
        values.append(_parse_time(pair.value) if rules.by == "time" else text)
        try:
            min(values[0], values[-1])
        except TypeError:
            cause = f"pair {pair.id[:60]!r}: {rules.field!r} is {pair.value!r:.40}; expected {_EXPECTED[rules.by]}"
            raise InputError(f"{cause}. Correct the pair, or name the field with --field") from None
    return values


def _parse_time(value: Any) -> Any:
    """Return a finite number or a `datetime`, or None, which cannot be compared."""
    if isinstance(value, str):
        with suppress(ValueError):
            return datetime.fromisoformat(value.strip())
        with suppress(ValueError):
            value = float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf else None
