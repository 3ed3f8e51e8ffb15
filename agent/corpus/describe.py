"""Computes the statistics of a dataset that papers report: sizes, texts, matches, parts, sources and licences."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from agent.corpus.labelled import LabelledPair, read_labelled
from agent.corpus.near_duplicates import TOKEN
from agent.datasets.benchmarks.pairs import find_part_files, is_split
from agent.datasets.fields import FieldMap
from agent.errors import InputError
from agent.evaluation.statistics import Interval, wilson_interval
from agent.evaluation.tally import Tally
from agent.runs.store import files
from agent.runs.store.run_view import load_run

MISSING = "missing"
SOURCE = ("repository", "source")
LICENCE = ("licence", "license")
_STATUSES = ("1", "0", "undecided", "no_intent", "error", "none")
_MAX_NAME_LENGTH = 200
_RANK = re.compile(r"([1-9][0-9]{0,2})(?:\.0)?")


@dataclass(frozen=True)
class TextStatistics:
    r"""Statistics of distinct texts. `characters` and `tokens` are means, and `vocabulary` counts distinct tokens.

    Tokens are the matches of `\w+|[^\w\s]` and keep their case. For CoSQA's 6,267 functions, their mean is 73.35 and
    their vocabulary 24,964 (22,396 in lower case). Table 4 of the CoSQA paper, which defines no tokens, has 71.51 and
    28,254.
    """

    count: int
    characters: float
    tokens: float
    vocabulary: int


@dataclass(frozen=True)
class RankShare:
    """The matches among the labelled pairs with a rank. `interval` is the Wilson interval of their share."""

    rank: int
    pairs: int
    matches: int
    share: float
    interval: Interval


@dataclass(frozen=True)
class PartSize:
    """Counts for a part of a split. `queries` and `codes` count distinct texts."""

    pairs: int
    queries: int
    codes: int
    labels: Mapping[str, int]


@dataclass(frozen=True)
class SplitOverlap:
    """The number of distinct queries and of distinct snippets that occur in both parts."""

    parts: tuple[str, str]
    queries: int
    codes: int


@dataclass(frozen=True)
class Description:
    """The statistics of a dataset. A query matches a snippet if a pair of both has the label 1.

    - `not_annotated` counts the other pairs of an unfinished run. All other figures ignore these pairs.
    - `labels` counts pairs by `1`, `0`, `undecided`, `no_intent` and `error` (in runs) and `none` (in files).
    - `programs` counts test programs with test cases, in one round per pair (Table II of the CoSQA+ paper).
    - `queries_by_matches` counts queries by their matching snippets (Fig. 3), and `codes_by_matches` counts snippets
      by their matching queries (Fig. 7). Both ignore texts without a labelled pair. `several_share` is the share of
      snippets with two or more matches among the snippets with one or more.
    - `ranks` (Fig. 4) cover the labelled pairs with a `rank` of 1 to 999. A dataset or part whose ranked pairs are all
      matches, such as a part with positives only, has no shares by rank. `unused_ranks` counts its ranked pairs.
    - `next_rank_matches` is the expected number of matches if each query with a labelled candidate at the last rank had
      one more: as many as at the last rank. `next_rank_interval` is the Wilson interval of the share at the last rank
      times its pairs. Both are too high if the share falls with the rank.
    - `leaks` has an entry for every two parts of a split.
    - `sources` and `licences` count pairs by name, the most frequent first. Names have up to 200 characters. The name
      of pairs without one is `missing`.
    """

    pairs: int
    not_annotated: int
    labels: Mapping[str, int]
    queries: TextStatistics
    codes: TextStatistics
    programs: int
    cases_per_program: float | None
    executed_share: float | None
    queries_by_matches: Mapping[int, int]
    codes_by_matches: Mapping[int, int]
    several_share: float | None
    ranks: list[RankShare]
    unused_ranks: int
    next_rank_matches: int | None
    next_rank_interval: Interval | None
    parts: Mapping[str, PartSize]
    leaks: list[SplitOverlap]
    sources: Mapping[str, int]
    licences: Mapping[str, int]


def describe(path: Path, mapping: FieldMap = None) -> Description:
    """Describe a run folder, a file of pairs with the fields of `mapping`, or a folder of `agent corpus split`.

    Raises:
        InputError: there are no annotated pairs or no tables of pairs, or see `read_labelled`.
        RunFolderError, ExtraMissing: see `read_labelled`.
    """
    tables = dict[str | None, Path](find_part_files(path)) if is_split(path) else {None: path}
    run_pairs = 0
    if (path / files.ANNOTATIONS).is_file():
        with load_run(path) as run:
            run_pairs = sum(1 for _ in run.pairs())
    builder = DescriptionBuilder(run_pairs)
    for part, table in tables.items():
        for labelled in read_labelled(table, mapping):
            builder.add(labelled, part)
    if not builder.pairs:
        remedy = "Resume a run with agent annotate. Write a split as hf, jsonl, csv or parquet (--to)"
        raise InputError(f"has no annotated pairs. {remedy}", path=path)
    return builder.build()


class DescriptionBuilder:
    """Counts annotated pairs that are added one by one. Stores hashes of texts, but no texts.

    `run_pairs` is the number of pairs in the run, including pairs that are not annotated.
    """

    def __init__(self, run_pairs: int = 0) -> None:
        self.pairs = 0
        self._run_pairs = run_pairs
        self._queries = _Texts()
        self._codes = _Texts()
        self._labels: dict[tuple[int, int], int] = {}  # by query and code
        self._statuses = defaultdict[str | None, Counter[str]](Counter)  # of each part
        self._ranks = defaultdict[str | None, Counter[tuple[int, int]]](Counter)  # and labels, of each part
        self._sources = Counter[str]()
        self._licences = Counter[str]()
        self._tally = Tally()

    def add(self, labelled: LabelledPair, part: str | None = None) -> None:
        """Add a pair. `part` is its part of a split, or None."""
        pair = labelled.pair
        label = labelled.label
        observation = labelled.observation
        status = "none" if label is None else str(label)
        self._statuses[part][status if observation is None else observation.label] += 1
        texts = self._queries.add(pair.query, part), self._codes.add(pair.code, part)
        if label is not None:
            self._labels[texts] = max(label, self._labels.get(texts, 0))
            if rank := _RANK.fullmatch(str(pair.meta.get("rank"))):
                self._ranks[part][int(rank[1]), label] += 1
        self._sources[get_name(pair.meta, SOURCE)] += 1
        self._licences[get_name(pair.meta, LICENCE)] += 1
        if observation is not None:
            self._tally.add(observation)
        self.pairs += 1

    def build(self) -> Description:
        """Return the statistics of the pairs. There must be at least one pair."""
        statuses = sum(self._statuses.values(), Counter[str]())
        labels = {name: statuses[name] for name in _STATUSES if statuses[name] or name in ("1", "0")}
        parts = {part: counts for part, counts in self._statuses.items() if part is not None}
        queries = self._queries.by_part
        codes = self._codes.by_part
        by_query = Counter[int]()
        by_code = Counter[int]()
        for (query, code), label in self._labels.items():
            by_query[query] += label
            by_code[code] += label
        matching = [matches for matches in by_code.values() if matches]
        ranks = list(self._iterate_ranks())
        last = ranks[-1] if ranks else None
        expected = Interval(last.interval.low * last.pairs, last.interval.high * last.pairs) if last else None
        return Description(
            pairs=self.pairs,
            not_annotated=max(0, self._run_pairs - self.pairs),
            labels=labels,
            queries=self._queries.summarise(),
            codes=self._codes.summarise(),
            programs=self._tally.programs,
            cases_per_program=self._tally.cases_per_program,
            executed_share=self._tally.executed_share,
            queries_by_matches=dict(sorted(Counter(by_query.values()).items())),
            codes_by_matches=dict(sorted(Counter(by_code.values()).items())),
            several_share=sum(matches > 1 for matches in matching) / len(matching) if matching else None,
            ranks=ranks,
            unused_ranks=sum(own.total() for own in self._ranks.values()) - sum(rank.pairs for rank in ranks),
            next_rank_matches=last.matches if last else None,
            next_rank_interval=expected,
            parts={
                part: PartSize(own.total(), len(queries[part]), len(codes[part]), {name: own[name] for name in labels})
                for part, own in parts.items()
            },
            leaks=[
                SplitOverlap((one, other), len(queries[one] & queries[other]), len(codes[one] & codes[other]))
                for one, other in combinations(parts, 2)
            ],
            sources=dict(self._sources.most_common()),
            licences=dict(self._licences.most_common()),
        )

    def _iterate_ranks(self) -> Iterator[RankShare]:
        parts = (counts for counts in self._ranks.values() if any(label == 0 for _, label in counts))
        counts = sum(parts, Counter[tuple[int, int]]())
        for rank in sorted({rank for rank, _ in counts}):
            matches = counts[rank, 1]
            pairs = counts[rank, 0] + counts[rank, 1]
            yield RankShare(rank, pairs, matches, matches / pairs, wilson_interval(matches, pairs))


class _Texts:
    """Distinct texts. Stores 64-bit hashes of the texts of each part, and of all tokens."""

    def __init__(self) -> None:
        self.by_part = defaultdict[str | None, set[int]](set)
        self._vocabulary = set[int]()
        self._characters = self._tokens = 0

    def add(self, text: str, part: str | None) -> int:
        number = hash(text)
        if not any(number in numbers for numbers in self.by_part.values()):
            tokens = TOKEN.findall(text)
            self._vocabulary.update(map(hash, tokens))
            self._characters = self._characters + len(text)
            self._tokens = self._tokens + len(tokens)
        self.by_part[part].add(number)
        return number

    def summarise(self) -> TextStatistics:
        count = len(set().union(*self.by_part.values()))
        return TextStatistics(count, self._characters / count, self._tokens / count, len(self._vocabulary))


def get_name(meta: Mapping[str, Any], fields: Iterable[str]) -> str:
    """Return the first value of `SOURCE` or `LICENCE` in a pair's `meta`, truncated, or `MISSING`."""
    values = (meta[name] for name in fields if meta.get(name) not in (None, ""))
    return str(next(values, MISSING))[:_MAX_NAME_LENGTH]
