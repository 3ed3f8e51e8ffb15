"""Draws the rows of an epoch, and places them in batches without false negatives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from random import Random
from typing import Any, NamedTuple

from agent.datasets.mutants import Contrast
from agent.errors import UsageError, needs_extra
from agent.text import plural
from agent.training.data import TrainingData
from agent.training.recipe import Form, Hyperparameters, Rewriting

RULES = {
    "empty_text": "an empty text",
    "near_duplicate": "a snippet with label 0 that nearly equals a relevant one",
    "no_negative": "no suitable negative",
    "no_batch": "no batch where every negative is one",
}
"""The rules that leave out rows, in words."""


class Row(NamedTuple):
    """A query with one snippet and its label, or with a relevant snippet followed by negatives (form `ranking`)."""

    query: int
    codes: tuple[int, ...]
    label: int


@dataclass
class _Batch:
    """Rows, the clusters of their snippets, and those relevant to their queries. `free` counts all other snippets."""

    free: int
    rows: list[Row] = field(default_factory=list)
    present: set[int] = field(default_factory=set)
    relevant: set[int] = field(default_factory=set)


def rewrite_query(query: str, how: Rewriting, random: Random) -> str:
    """Rewrite a query of at least two words in a way of section 5.2 of the CoSQA paper.

    `delete` removes a word, `copy` inserts a word once more at any place, and `switch` exchanges two words.
    """
    words = query.split()
    if how == "none" or len(words) < 2:
        return query
    first, second = random.sample(range(len(words)), 2)
    if how == "delete":
        del words[first]
    elif how == "copy":
        words.insert(random.randrange(len(words) + 1), words[first])
    else:
        words[first], words[second] = words[second], words[first]
    return " ".join(words)


class EpochRows:
    """Draws the rows and batches of each epoch, which depend on the data, the settings and the epoch alone.

    Let F(q) be the clusters of all snippets relevant to a query in the group of q. No negative of q is in F(q), except
    snippets with label 0 that differ from all relevant ones and were proved wrong for q. With in-batch negatives (form
    `ranking`, or `in_batch`), no snippet of another row of the batch is in F(q) either. `batches` is the number of
    batches of each epoch. `omitted` counts the rows and hard negatives that are left out of the last drawn epoch, by
    rule (`RULES`).

    Rows of the form `labels` are all pairs. If no pair has label 0, each relevant pair also gives a row with a random
    snippet and label 0 (section 6.1 of the CoSQA paper). Rows of the form `ranking` are the relevant pairs, each with
    `hard_negatives` snippets: those that have label 0 for the query, filled up with random snippets.

    With `alpha`, a batch has rows and negatives of one language: language i with n_i rows with probability
    n_i^α / Σ_j n_j^α (equation 2 of the ProCQA paper). An epoch then repeats rows of rare languages, and has only some
    rows of frequent ones.

    Each batch also has one contrast for each row. They are drawn from different families, so that the query of one is
    a wrong query for another. A family, with a random contrast, is drawn again once too few others remain for a batch.

    Raises:
        UsageError: no pair with label 1 can be trained on, no batch has a negative, or there are too few contrasts.
    """

    def __init__(self, data: TrainingData, recipe_form: Form, settings: Hyperparameters) -> None:
        self._data = data
        self._settings = settings
        self._is_ranking = recipe_form == "ranking"
        self._in_batch = self._is_ranking or settings.in_batch
        relevant: defaultdict[int, set[int]] = defaultdict(set)
        for query, code, label in data.pairs:
            if label:
                relevant[data.query_groups[query]].add(data.code_clusters[code])
        self._relevant = [relevant[group] for group in data.query_groups]
        self._exact = {(data.query_groups[query], code) for query, code, label in data.pairs if label}
        self._codes: defaultdict[str, list[int]] = defaultdict(list)
        self._sizes: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for code, text in enumerate(data.codes):
            if text.strip():
                self._codes[self._get_language(code)].append(code)
                self._sizes[self._get_language(code)][data.code_clusters[code]] += 1
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._hard: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        self._add_rows()
        self.batches = -(-self._total // settings.batch_size)
        self._families = self._group_contrasts()
        batches = self.draw(0)
        if self._is_ranking and all(len(batch) == len(batch[0].codes) == 1 for batch in batches):
            raise UsageError(
                f"{data.name}: no batch has a negative, so there is nothing to learn. Add pairs with other queries and"
                " snippets. Or pass --hard-negatives 1, if some snippets are not relevant."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # `datasets` pickles the transform to name the dataset, which would copy all texts
        return str, (self._data.sha256,)

    def draw(self, epoch: int) -> list[list[Row]]:
        """Draw the batches of an epoch. The dataset has these rows until the next epoch is drawn."""
        random = Random(f"{self._settings.seed} {epoch}")
        self._epoch = epoch
        self.omitted = self._unusable.copy()
        weights = [len(rows) ** (self._settings.alpha or 0) for rows in self._rows.values()]
        order = random.choices(list(self._rows), weights, k=self.batches)
        placed = {language: self._place(language, count, random) for language, count in Counter(order).items()}
        batches = [placed[language].pop() for language in order]
        self._drawn = [row for batch in batches for row in batch]
        self._drawn_contrasts = self._draw_contrasts(map(len, batches))
        return batches

    def make_dataset(self) -> Any:
        """Return a `datasets.Dataset` of texts. Index i is row i of the epoch that was drawn last (in this process).

        Columns of `ranking` are `query`, `code`, and `negative_1` to `negative_N`. Columns of `labels` are `query`,
        `code`, `label` and, with a rewriting, `rewritten`, which equals `query` in rows with label 0. With contrasts,
        the last columns are `contrast_query`, `right` and `wrong`. Raises `ExtraMissing` without the library
        `datasets`.
        """
        with needs_extra("train"):
            from datasets import Dataset
        rows = Dataset.from_dict({"row": range(self.batches * self._settings.batch_size)})
        return rows.with_transform(lambda indices: self._fill(indices["row"]))

    def _get_language(self, code: int) -> str:
        return "" if self._settings.alpha is None else self._data.languages[code]

    def _find_rule(self, query: int, code: int, label: int) -> str | None:
        """Return the rule that leaves out a pair, whatever the other pairs are."""
        data = self._data
        if not (data.queries[query].strip() and data.codes[code].strip()):
            return "empty_text"
        if label or data.code_clusters[code] not in self._relevant[query]:
            return None
        is_exempt = (query, code) in data.proved and (data.query_groups[query], code) not in self._exact
        return None if is_exempt else "near_duplicate"

    def _add_rows(self) -> None:
        rules = {pair: self._find_rule(*pair) for pair in self._data.pairs}
        pairs = [pair for pair, rule in rules.items() if rule is None]
        draws = not self._is_ranking and all(pair.label for pair in pairs)
        # the number of random snippets for which each batch keeps room
        self._needed = (self._settings.hard_negatives or 0) if self._is_ranking else int(draws)
        self._unusable = Counter[str]()
        for (query, code, label), rule in rules.items():
            language = self._get_language(code)
            free = len(self._codes[language]) - self._count(language, self._relevant[query])
            is_hard = self._is_ranking and not label
            if is_hard and not self._needed:
                continue
            if rule or (not is_hard and free < self._needed):
                self._unusable[rule or "no_negative"] += 1 + (draws and label)
            elif is_hard:
                self._hard[language, query].append(code)
            else:
                self._rows[language] += [Row(query, (code,), label), Row(query, (), 0)][: 1 + draws]
        self._total = sum(map(len, self._rows.values()))
        if not any(row.label for row in chain.from_iterable(self._rows.values())):
            raise UsageError(
                f"{self._data.name}: no pair with label 1 can be trained on. Each needs texts that are not empty, and"
                f" {self._needed} snippets that are not relevant to its query. Add snippets or lower --hard-negatives."
            )

    def _group_contrasts(self) -> list[list[Contrast]]:
        families = defaultdict[int, list[Contrast]](list)
        if contrasts := self._data.contrasts:
            for family, contrast in zip(contrasts.families, contrasts.rows, strict=True):
                families[family].append(contrast)
            if len(families) < (size := min(self._settings.batch_size, self._total)):
                raise UsageError(
                    f"{contrasts.record.name}: has {plural(len(families), 'different function')}, but a batch has"
                    f" {size} rows. Pass a smaller --batch-size or a file with more functions."
                )
        return list(families.values())

    def _draw_contrasts(self, sizes: Iterable[int]) -> list[Contrast]:
        if not self._families:
            return []
        random = Random(f"{self._settings.seed} {self._epoch} contrasts")
        drawn: list[Contrast] = []
        left: list[list[Contrast]] = []
        for size in sizes:
            if len(left) < size:
                left = random.sample(self._families, len(self._families))
            drawn += [random.choice(left.pop()) for _ in range(size)]
        return drawn

    def _count(self, language: str, clusters: Iterable[int]) -> int:
        sizes = self._sizes[language]
        return sum(sizes[cluster] for cluster in clusters)

    def _place(self, language: str, count: int, random: Random) -> list[list[Row]]:
        """Place rows first-fit, starting from a rotating batch so that batches have nearly equal sizes."""
        rows = self._rows[language]
        clusters = self._data.code_clusters
        batches = [_Batch(len(self._codes[language])) for _ in range(count)]
        shuffled = chain.from_iterable(random.sample(rows, len(rows)) for _ in repeat(None))
        for position, (query, codes, label) in enumerate(islice(shuffled, -(-self._total * count // self.batches))):
            if hard := self._hard.get((language, query)):
                codes += tuple(random.sample(hard, min(len(hard), self._needed)))
            present = {clusters[code] for code in codes}
            relevant = self._relevant[query]
            for offset in range(count):
                batch = batches[(position + offset) % count]
                if len(batch.rows) < self._settings.batch_size and self._fits(language, batch, present, relevant):
                    batch.rows.append(Row(query, codes, label))
                    if self._in_batch:
                        batch.free -= self._count(language, relevant - batch.relevant)
                        batch.present |= present
                        batch.relevant |= relevant
                    break
            else:
                self.omitted["no_batch"] += 1
        return [[self._complete(language, row, batch, random) for row in batch.rows] for batch in batches]

    def _fits(self, language: str, batch: _Batch, present: set[int], relevant: set[int]) -> bool:
        return not self._in_batch or (
            batch.present.isdisjoint(relevant)
            and batch.relevant.isdisjoint(present)
            and (not self._needed or batch.free - self._count(language, relevant - batch.relevant) >= self._needed)
        )

    def _complete(self, language: str, row: Row, batch: _Batch, random: Random) -> Row:
        """Add random snippets. With in-batch negatives, they are relevant to no query of the batch."""
        avoided = batch.relevant if self._in_batch else self._relevant[row.query]
        clusters = self._data.code_clusters
        codes = list(row.codes)
        size = 1 + self._needed * self._is_ranking
        for _ in range(20):
            if len(codes) == size:
                return Row(row.query, tuple(codes), row.label)
            drawn = dict.fromkeys(random.choices(self._codes[language], k=size - len(codes)))
            codes += [code for code in drawn if clusters[code] not in avoided and code not in codes]
        suitable = [code for code in self._codes[language] if clusters[code] not in avoided and code not in codes]
        return Row(row.query, (*codes, *random.sample(suitable, size - len(codes))), row.label)

    def _fill(self, indices: Sequence[int]) -> dict[str, list[Any]]:
        data = self._data
        # epochs differ in length, and libraries read the first rows
        rows = [self._drawn[index % len(self._drawn)] for index in indices]
        columns: dict[str, list[Any]] = {"query": [data.queries[row.query] for row in rows]}
        for place, codes in enumerate(zip(*(row.codes for row in rows), strict=True)):
            columns[f"negative_{place}" if place else "code"] = [data.codes[code] for code in codes]
        if not self._is_ranking:
            columns["label"] = [row.label for row in rows]
        if not self._is_ranking and self._settings.rewrite != "none":
            columns["rewritten"] = [self._rewrite(row) for row in rows]
        if data.contrasts:
            drawn = [self._drawn_contrasts[index % len(self._drawn)] for index in indices]
            columns["contrast_query"] = [contrast.query for contrast in drawn]
            columns["right"] = [contrast.right for contrast in drawn]
            columns["wrong"] = [contrast.wrong for contrast in drawn]
        return columns

    def _rewrite(self, row: Row) -> str:
        query = self._data.queries[row.query]
        random = Random(f"{self._settings.seed} {self._epoch} {row.query} {row.codes}")
        return rewrite_query(query, self._settings.rewrite, random) if row.label else query
