"""Blindness: whether searchers prefer right code to mutants, under right and wrong queries."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from agent.datasets.mutants import Contrast, MutantRecord
from agent.errors import InputError, UsageError
from agent.evaluation.statistics import BootstrapSettings
from agent.retrieval.blindness import (
    WRONG_QUERIES,
    ContrastSet,
    compare_snippets,
    draw_wrong_queries,
    read_contrast_set,
    restore_searcher,
    summarise_outcomes,
    update_blindness,
)
from agent.retrieval.folder import RetrievalFolder, open_for_writing
from agent.retrieval.results import Blindness, MetricValue, SearcherBlindness
from agent.retrieval.search import import_ranking
from agent.retrieval.searchers.base import SearchResult
from agent.retrieval.searchers.models import HuggingFaceEmbedder
from agent.retrieval.searchers.presets import EmbedderOptions
from agent.retrieval.searchers.registry import make_searcher
from agent.types import Progress
from tests.retrieval.searchers.tiny_models import publish, save_roberta
from tests.retrieval.test_search import add_searcher_ranking

Score = Callable[[str, str], float | None]
WORDS = ("alpha beta", "gamma delta", "epsilon zeta", "eta theta", "iota kappa")


class ScoringSearcher:
    """Scores each query and snippet by a function. A snippet without a score is not retrieved."""

    name, about, settings = "scoring", "", {}  # type: ignore[var-annotated]

    def __init__(self, score: Score) -> None:
        self.score = score

    def index(self, codes: Sequence[str], _: Progress) -> None:
        self.codes = codes

    def search(self, queries: Sequence[str], depth: int, _: Progress) -> Iterator[SearchResult]:
        for query in queries:
            scores = {
                row: score for row, code in enumerate(self.codes) if (score := self.score(query, code)) is not None
            }
            best = sorted(scores, key=lambda row: -scores[row])[:depth]
            yield SearchResult(np.array(best, dtype=np.int64), np.array([scores[row] for row in best]))


def make_contrasts(functions: int = 30, mutants: int = 4) -> list[Contrast]:
    """Create contrasts of functions with different numbers of mutants, of three kinds."""
    return [
        Contrast(f"f{f}", f"query{f}", f"right{f}", f"wrong{f}.{m}", "text", make_record(f"k{m % 3}", crashes=m == 3))
        for f in range(functions)
        for m in range(1 + f % mutants)
    ]


def make_record(kind: str, *, crashes: bool = False) -> MutantRecord:
    return MutantRecord(of="f", kind=kind, change="", check="inputs", crashes=crashes)


def score_randomly(query: str, code: str) -> float | None:
    """Score with ties, and without a score for some snippets."""
    value = random.Random(query + code).randrange(5)
    return None if value == 0 else value + 0.5 * code.startswith("right")


def measure(contrasts: Sequence[Contrast], *scores: Score) -> list[SearcherBlindness]:
    contrast_set = ContrastSet(contrasts, draw_wrong_queries(contrasts, 0), 0)
    outcomes = {
        str(number): compare_snippets(ScoringSearcher(score), contrast_set, lambda *_: None)
        for number, score in enumerate(scores)
    }
    return list(summarise_outcomes(contrasts, outcomes, BootstrapSettings(resamples=2000)))


def compute_outcome(score: Score, query: str, contrast: Contrast) -> float:
    right, wrong = (
        -1.0 if (value := score(query, code)) is None else value for code in (contrast.right, contrast.wrong)
    )
    return (1 + np.sign(right - wrong)) / 2  # type: ignore[no-any-return]


def test_figures_match_plain_loops_and_the_bootstrap_of_scipy() -> None:
    contrasts, scores = make_contrasts(200), (score_randomly, lambda query, code: score_randomly(code, query))
    wrong_queries, results = draw_wrong_queries(contrasts, 0), measure(contrasts, *scores)
    groups = {"all except crashes": lambda c: not c.mutant.crashes, "k1": lambda c: c.mutant.kind == "k1"}
    for name, belongs in {"all": lambda _: True, **groups}.items():
        used = [
            (contrast, queries) for contrast, queries in zip(contrasts, wrong_queries, strict=True) if belongs(contrast)
        ]
        table = np.array([
            [1, *(value for score in scores for value in (
                compute_outcome(score, contrast.query, contrast),
                np.mean([compute_outcome(score, query, contrast) for query in queries]),
            ))] for contrast, queries in used
        ])  # fmt: skip
        functions = np.array([contrast.function for contrast, _ in used])
        clusters = np.array([table[functions == function].sum(0) for function in dict.fromkeys(functions)]).T

        def compute(n: Any, a: Any, b: Any, c: Any, d: Any, axis: int = -1) -> Any:
            size = n.sum(axis)
            shares = [a.sum(axis) / size, b.sum(axis) / size, c.sum(axis) / size, d.sum(axis) / size]
            gaps = [shares[i] - np.maximum(0.5, shares[i + 1]) for i in (0, 2)]
            return np.stack([*shares, *gaps, gaps[1] - gaps[0]])

        options = {"paired": True, "n_resamples": 4000, "method": "percentile", "rng": np.random.default_rng(1)}
        interval = stats.bootstrap(tuple(clusters), compute, **options).confidence_interval
        first, second = (result.total if name == "all" else result.groups[name] for result in results)
        values = [first.accuracy, first.wrong_query_accuracy, second.accuracy, second.wrong_query_accuracy]
        values += [first.gap, second.gap, second.gap_difference or MetricValue(mean=0, interval=None)]
        assert (first.contrasts, first.functions, first.gap_difference) == (len(used), len(set(functions)), None)
        assert [value.mean for value in values] == pytest.approx(compute(*clusters).tolist(), abs=1e-12)
        bounds = [(value.interval.low, value.interval.high) for value in values if value.interval]
        expected = list(zip(interval.low, interval.high, strict=True))
        # scipy draws from the functions of the group only, so the intervals differ slightly
        assert np.array(bounds) == pytest.approx(np.array(expected), abs=0.02)
    assert results[0].ties == sum(compute_outcome(score_randomly, c.query, c) == 0.5 for c in contrasts) > 0


@pytest.mark.parametrize(
    ("score", "accuracy", "wrong_query_accuracy", "gap"),
    [
        pytest.param(lambda _, code: code.startswith("right"), 1, 1, 0, id="knows right code without the query"),
        pytest.param(lambda _, code: -len(code), 1, 1, 0, id="length"),
        pytest.param(lambda _, code: len(code), 0, 0, -0.5, id="prefers long mutants"),
        pytest.param(lambda *_: 1, 0.5, 0.5, 0, id="ties"),
        pytest.param(lambda *_: None, 0.5, 0.5, 0, id="retrieves nothing"),
        pytest.param(lambda _, code: 1 + 1e-8 * len(code), 0.5, 0.5, 0, id="rounding errors"),
        pytest.param(lambda q, code: -1 if code == f"right{q[5:]}" else None, 1, 0.5, 0.5, id="retrieves right code"),
    ],
)
def test_searchers_with_known_blindness(score: Score, accuracy: float, wrong_query_accuracy: float, gap: float) -> None:
    [result] = measure(make_contrasts(), score)
    means = [value.mean for value in (result.total.accuracy, result.total.wrong_query_accuracy, result.total.gap)]
    assert means == pytest.approx([accuracy, wrong_query_accuracy, gap])


def test_wrong_queries_belong_to_other_functions() -> None:
    contrasts = [*make_contrasts(), replace(make_contrasts(1)[0], query="second query of right0")]
    similar = ("read a csv file", "read a csv file with python")
    contrasts += [replace(contrasts[0], right=f"r{query}", query=query) for query in similar]
    drawn = draw_wrong_queries(contrasts, 0)
    for contrast, queries in zip(contrasts, drawn, strict=True):
        own = {other.query for other in contrasts if other.right == contrast.right}
        assert len(set(queries) - own) == WRONG_QUERIES
        assert contrast.query not in similar or not set(similar) & set(queries)
    assert drawn == list(reversed(draw_wrong_queries(contrasts[::-1], 0))) != draw_wrong_queries(contrasts, 1)


def write_mutants(path: Path, *functions: tuple[str, str, str]) -> Path:
    """Write a file with a query, right code and a mutant for each function."""
    rows: list[dict[str, Any]] = []
    for number, (query, right, wrong) in enumerate(functions):
        record = {"of": f"f{number}", "kind": "k", "change": "c", "check": "inputs"}
        rows.append({"id": f"f{number}", "query": query, "code": right, "label": 1})
        rows.append({"id": f"m{number}", "query": query, "code": wrong, "label": 0, "mutant": record})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FUNCTIONS = [(words, f"def f():\n    return '{words}'", "def f():\n    return ''") for words in WORDS]


def test_mutants_equal_to_right_code_are_excluded(tmp_path: Path) -> None:
    query, right, _ = FUNCTIONS[0]
    equal = [(query, right, right), (query, "x = 1", right)]
    contrast_set = read_contrast_set(write_mutants(tmp_path / "m.jsonl", *FUNCTIONS, *equal), 0)
    assert (len(contrast_set.contrasts), contrast_set.equivalent) == (len(FUNCTIONS), 2)


@pytest.mark.parametrize(
    "functions",
    [
        pytest.param([*FUNCTIONS, ("q", "x = 1  # right", "x = 2")], id="right code has a comment"),
        pytest.param([*FUNCTIONS, ("q", "x = 1", "x  = 2")], id="mutant has two spaces"),
        pytest.param([*FUNCTIONS, ("q", "x = 1", "x = (")], id="mutant does not parse"),
        pytest.param([*FUNCTIONS, ("q", "x = 1", "x = " + "-" * 5000 + "1")], id="deeply nested"),
        pytest.param(FUNCTIONS[:1], id="one query"),
        pytest.param([(query, right, right) for query, right, _ in FUNCTIONS], id="only equal mutants"),
    ],
)
def test_an_unusable_file_is_refused(tmp_path: Path, functions: list[tuple[str, str, str]]) -> None:
    with pytest.raises(InputError):
        read_contrast_set(write_mutants(tmp_path / "m.jsonl", *functions), 0)


def test_bm25_prefers_the_right_words_only_under_the_right_query(tmp_path: Path) -> None:
    add_searcher_ranking(make_searcher("bm25"), tmp_path / "r")
    with open_for_writing(tmp_path / "r") as folder:
        (tmp_path / "own.trec").write_text("q1 Q0 c1 1 9 x\n")
        import_ranking(folder, folder.reopen_benchmark(), "own", tmp_path / "own.trec")
        path = write_mutants(tmp_path / "m.jsonl", *FUNCTIONS)
        blindness = update_blindness(folder, path)
        assert folder.load_document("blindness.json", Blindness) == blindness
        for names in (["own"], ["none"]):
            with pytest.raises(UsageError):
                update_blindness(folder, path, searchers=names)
    [bm25] = blindness.searchers
    assert (bm25.total.accuracy.mean, bm25.total.wrong_query_accuracy.mean, bm25.total.gap.mean) == (1, 0.5, 0.5)
    assert (bm25.ties, bm25.truncated_ties, bm25.total.contrasts) == (0, None, 5)
    assert [note.split()[0] for note in blindness.notes] == ["own", "5"]  # each function has only four wrong queries


@pytest.mark.embed
def test_snippets_equal_up_to_the_limit_tie_by_truncation(hub: Path, tmp_path: Path) -> None:
    model = publish(save_roberta(hub / "codebert-base"))
    embedder = HuggingFaceEmbedder(model, EmbedderOptions())
    assert embedder.truncate(["short", "x" * 510, "x" * 511]) == ["short", "x" * 510, "x" * 510]
    add_searcher_ranking(make_searcher(f"hf:{model}", EmbedderOptions(embeddings=tmp_path)), tmp_path / "r")
    long = f"x = '{'y' * 600}'"
    functions = [*FUNCTIONS, ("long", f"{long}\nx = 1", f"{long}\nx = 2")]
    with open_for_writing(tmp_path / "r") as folder:
        [result] = update_blindness(folder, write_mutants(tmp_path / "m.jsonl", *functions)).searchers
    assert (result.ties, result.truncated_ties) == (1, 1)


@pytest.mark.embed
def test_a_searcher_is_restored_with_its_settings_or_refused(tmp_path: Path) -> None:
    model = save_roberta(tmp_path / "model")
    options = EmbedderOptions(tmp_path, pooling="cls", query_prefix="find: ", code_prefix="")
    name = f"hf:{model}"
    add_searcher_ranking(make_searcher(name, options), tmp_path / "r")
    folder = RetrievalFolder(tmp_path / "r")
    recorded = folder.rankings[name].settings
    assert restore_searcher(folder, name, EmbedderOptions()).settings == make_searcher(name, options).settings
    recorded["device"] = "cuda"
    restore_searcher(folder, name, EmbedderOptions())
    undamaged = dict(recorded)
    for damage in ({"prefixes": ["a"]}, {"prefixes": {"query": 1}}, {"pooling": {}}, {"similarity": "dot"}):
        recorded.update(damage)
        with pytest.raises(UsageError):
            restore_searcher(folder, name, EmbedderOptions())
        recorded.update(undamaged)
    (model / "config.json").write_text((model / "config.json").read_text() + " ")
    with pytest.raises(UsageError, match="version"):
        restore_searcher(folder, name, EmbedderOptions())


def test_the_server_comes_from_the_user_and_not_from_the_folder(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    searcher = make_searcher("openai:m")
    searcher.index = lambda *_: None  # type: ignore[method-assign]
    searcher.search = lambda queries, *_: iter([SearchResult(np.arange(0), np.zeros(0))] * len(queries))  # type: ignore[method-assign]
    add_searcher_ranking(searcher, tmp_path / "r")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:10/v1")
    with pytest.raises(UsageError, match="server"):
        restore_searcher(RetrievalFolder(tmp_path / "r"), "openai:m", EmbedderOptions())
    options = EmbedderOptions(base_url="http://127.0.0.1:9/v1")
    assert restore_searcher(RetrievalFolder(tmp_path / "r"), "openai:m", options).settings == searcher.settings
