"""Computes the statistics of a dataset that papers report: sizes, texts, matches, parts, sources and licences."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, combinations
from pathlib import Path

from agent.corpus.description import Description, Leak, NameCounts, PartSize, RankShare, TextStatistics
from agent.corpus.labelled import LabelledPair, read_labelled
from agent.corpus.near_duplicates import TOKEN
from agent.datasets.benchmarks.pairs import find_part_files, is_split
from agent.errors import InputError
from agent.evaluation.statistics import Interval, wilson_interval
from agent.evaluation.tally import Tally
from agent.scratch import as_key

_SOURCE, _LICENCE = ("repository", "source"), ("licence", "license")
_LABELS = ("1", "0", "undecided", "error", "none")
_MAX_NAMES, _MAX_NAME_LENGTH = 10, 200
_RANK = re.compile(r"([1-9][0-9]{0,2})(?:\.0)?")
_LABELLED, _RANKED, _FIRST_PART = 1, 2, 4  # flags of a text


def describe(path: Path) -> Description:
    """Describe a run folder, a file of pairs, or a folder of `agent corpus split`.

    Raises:
        InputError: there are no pairs, a split folder has no table of pairs, or see `read_labelled`.
        RunFolderError, ExtraMissing: see `read_labelled`.
    """
    builder = DescriptionBuilder()
    for part, file in _iterate_files(path):
        for labelled in read_labelled(file):
            builder.add(labelled, part)
    if not builder.pairs:
        raise InputError("has no annotated pairs yet. Resume the run with agent annotate", path=path)
    return builder.build()


def _iterate_files(path: Path) -> Iterator[tuple[str | None, Path]]:
    if not is_split(path):
        yield None, path
        return
    parts = find_part_files(path)
    if not parts:
        raise InputError("has no table of pairs for train, validation or test. Pass a file or a run instead", path=path)
    yield from parts.items()


class DescriptionBuilder:
    """Counts pairs that are added one by one. Stores hashes of texts, but no texts."""

    def __init__(self) -> None:
        self.pairs = 0
        self._queries, self._codes = _Texts(), _Texts()
        self._matches = set[tuple[int, int]]()
        self._labels = defaultdict[str | None, Counter[str]](Counter)
        self._ranks: dict[int, tuple[int, int]] = {}
        self._names = {fields: Counter[str]() for fields in (_SOURCE, _LICENCE)}
        self._tally = Tally()

    def add(self, labelled: LabelledPair, part: str | None = None) -> None:
        """Add a pair. `part` is its part of a split, or None."""
        pair, label, observation = labelled.pair, labelled.label, labelled.observation
        name = "none" if label is None else str(label)
        self._labels[part][name if observation is None else observation.label] += 1
        flags = _LABELLED * (label is not None) | _FIRST_PART << list(self._labels).index(part)
        rank = _RANK.fullmatch(str(pair.meta.get("rank")))
        if rank is not None and label is not None:
            pairs, matches = self._ranks.get(int(rank[1]), (0, 0))
            self._ranks[int(rank[1])] = pairs + 1, matches + label
            flags |= _RANKED
        numbers = self._queries.add(pair.query, flags), self._codes.add(pair.code, flags)
        if label == 1:
            self._matches.add(numbers)
        for fields, names in self._names.items():
            values = (pair.meta[field] for field in fields if pair.meta.get(field) not in (None, ""))
            names[str(next(values, ""))[:_MAX_NAME_LENGTH]] += 1
        if observation is not None:
            self._tally.add(observation)
        self.pairs += 1

    def build(self) -> Description:
        """Return the statistics of the pairs. There must be at least one pair."""
        codes_by_matches = self._codes.count_matches(code for _, code in self._matches)
        matching, several = (sum(count for n, count in codes_by_matches.items() if n >= least) for least in (1, 2))
        names = {"1", "0", *chain(*self._labels.values())}
        labels = {name: sum(own[name] for own in self._labels.values()) for name in sorted(names, key=_LABELS.index)}
        flags = {part: _FIRST_PART << number for number, part in enumerate(self._labels) if part is not None}
        ranks = [
            RankShare(rank, pairs, matches, matches / pairs, wilson_interval(matches, pairs))
            for rank, (pairs, matches) in sorted(self._ranks.items())
        ]
        queries = self._queries.count(_RANKED)
        low, high = (ranks[-1].interval.low, ranks[-1].interval.high) if ranks else (0.0, 0.0)
        return Description(
            pairs=self.pairs,
            labels=labels,
            queries=self._queries.summarise(),
            codes=self._codes.summarise(),
            programs=self._tally.programs,
            cases_per_program=self._tally.cases_per_program,
            executed_share=self._tally.executed_share,
            queries_by_matches=self._queries.count_matches(query for query, _ in self._matches),
            codes_by_matches=codes_by_matches,
            several_share=several / matching if matching else None,
            ranks=ranks,
            next_rank_queries=queries,
            next_rank_matches=ranks[-1].share * queries if ranks else None,
            next_rank_interval=Interval(low * queries, high * queries) if ranks else None,
            parts={part: self._describe_part(part, flag, labels) for part, flag in flags.items()},
            leaks=[
                Leak((one, other), self._queries.count(both), self._codes.count(both))
                for one, other in combinations(flags, 2)
                for both in [flags[one] | flags[other]]
            ],
            sources=_count_names(self._names[_SOURCE]),
            licences=_count_names(self._names[_LICENCE]),
        )

    def _describe_part(self, part: str, flag: int, names: Iterable[str]) -> PartSize:
        labels = self._labels[part]
        counts = {name: labels[name] for name in names}
        return PartSize(labels.total(), self._queries.count(flag), self._codes.count(flag), counts)


class _Texts:
    """Distinct texts: a 128-bit hash and the flags of each text, and a 64-bit hash of each distinct token."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._flags: list[int] = []
        self._vocabulary = set[int]()
        self._characters = self._tokens = 0

    def add(self, text: str, flags: int) -> int:
        number = self._numbers.setdefault(blake2b(as_key(text), digest_size=16).digest(), len(self._flags))
        if number == len(self._flags):
            tokens = TOKEN.findall(text)
            self._flags.append(0)
            self._vocabulary.update(map(hash, tokens))
            self._characters, self._tokens = self._characters + len(text), self._tokens + len(tokens)
        self._flags[number] |= flags
        return number

    def count(self, flags: int) -> int:
        """Return the number of texts that have all these flags."""
        return sum(own & flags == flags for own in self._flags)

    def count_matches(self, numbers: Iterator[int]) -> dict[int, int]:
        """Count the labelled texts by their number of matches. `numbers` has the number of a text for each match."""
        matches = Counter(numbers)
        return dict(sorted((Counter({0: self.count(_LABELLED) - len(matches)}) + Counter(matches.values())).items()))

    def summarise(self) -> TextStatistics:
        count = len(self._flags)
        return TextStatistics(count, self._characters / count, self._tokens / count, len(self._vocabulary))


def _count_names(pairs: Counter[str]) -> NameCounts:
    without = pairs[""]
    names = Counter({name: count for name, count in pairs.items() if name})
    return NameCounts(len(names), without, dict(names.most_common(_MAX_NAMES)))
