"""The statistics of a dataset, as one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.evaluation.statistics import Interval


@dataclass(frozen=True)
class TextStatistics:
    r"""Statistics of distinct texts. `characters` and `tokens` are means, and `vocabulary` counts distinct tokens.

    Tokens are the matches of `\w+|[^\w\s]` and keep their case. For CoSQA's 6,267 codes, their mean is 73.35 and their
    vocabulary 24,964 (22,396 in lower case). Table 4 of the CoSQA paper, which defines no tokens, has 71.51 and 28,254.
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
class Leak:
    """The number of distinct queries and of distinct codes that occur in both parts."""

    parts: tuple[str, str]
    queries: int
    codes: int


@dataclass(frozen=True)
class NameCounts:
    """Numbers of distinct names, of pairs without a name, and of pairs for each of the 10 most frequent names.

    Names, such as licences, are truncated to 200 characters.
    """

    count: int
    without: int
    top: Mapping[str, int]


@dataclass(frozen=True)
class Description:
    """The statistics of a dataset. A query matches a code if a pair of both has the label 1.

    - `labels` counts pairs by `1`, `0`, `undecided` and `error` (in runs) and `none` (in files).
    - `programs` counts test programs with test cases, in one round per pair (Table II of the CoSQA+ paper).
    - `queries_by_matches` counts queries by their matching codes (Fig. 3), and `codes_by_matches` counts codes by
      their matching queries (Fig. 7). Both ignore texts without a labelled pair. `several_share` is the share of codes
      with two or more matches among the codes with one or more.
    - `ranks` (Fig. 4) cover the labelled pairs with a `rank` of 1 to 999. `next_rank_queries` counts their queries.
      `next_rank_matches` is the expected number of matches if each of these queries had one more candidate: the share
      of matches at the last rank times the number of queries. `next_rank_interval` is the Wilson interval of the share
      times this number. Both are too high if the share falls with the rank.
    - `leaks` has an entry for every two parts of a split.
    """

    pairs: int
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
    next_rank_queries: int
    next_rank_matches: float | None
    next_rank_interval: Interval | None
    parts: Mapping[str, PartSize]
    leaks: list[Leak]
    sources: NameCounts
    licences: NameCounts
