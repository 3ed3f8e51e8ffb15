"""Measures a model while it is trained, with the evaluator of sentence-transformers."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from agent.datasets.benchmark import Benchmark
from agent.datasets.encoding import dumps
from agent.errors import ConfigError

# metrics, each with the argument and the result of the evaluator
_METRICS = {"nDCG": ("ndcg_at_k", "ndcg@k"), "RR": ("mrr_at_k", "mrr@k"), "R": ("precision_recall_at_k", "recall@k")}
DEFAULT_METRICS = ("nDCG@10", "RR@10", "R@100")


def parse_metric(name: str) -> tuple[str, int]:
    """Return the kind and the cutoff of a metric.

    Raises:
        ConfigError: the metric is not available while training.
    """
    if match := re.fullmatch(rf"({'|'.join(_METRICS)})@([1-9][0-9]{{0,3}})", name):
        return match[1], int(match[2])
    raise ConfigError(f"--metric {name}: not available while training. Available: {'@k, '.join(_METRICS)}@k")


class Evaluator:
    """Measures how well a model ranks the snippets of a benchmark. Queries without a relevant snippet are left out.

    `score` maps vectors of queries and of snippets to a matrix of scores. `batch_size` texts are embedded at once.
    """

    def __init__(self, benchmark: Benchmark, score: Callable[[Any, Any], Any], metric: str, batch_size: int) -> None:
        from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

        self._benchmark = benchmark
        self._score = score
        self._batch_size = batch_size
        self._metrics = {name: parse_metric(name) for name in (metric, *DEFAULT_METRICS)}
        # the evaluator ranks equal scores by id, so ids must not tell which snippets are relevant
        ids = {code: f"{sha256(dumps(text)).hexdigest()} {code}" for code, text in benchmark.codes.items()}
        relevant = {
            query: {ids[code] for code, grade in row.items() if grade > 0} for query, row in benchmark.grades.items()
        }
        cutoffs = {argument: [1] for argument, _ in _METRICS.values()}
        for kind, cutoff in self._metrics.values():
            cutoffs[_METRICS[kind][0]].append(cutoff)
        self._evaluator = InformationRetrievalEvaluator(
            dict(benchmark.queries), {ids[code]: text for code, text in benchmark.codes.items()}, relevant,
            corpus_chunk_size=10_000, batch_size=batch_size, score_functions={"score": score}, map_at_k=[1],
            accuracy_at_k=[1], **cutoffs,
        )  # fmt: skip

    def measure(self, model: Any) -> dict[str, float]:
        """Return the values of the default metrics and of `metric`."""
        values = self._evaluator.compute_all_metrics(model)["score"]
        return {name: float(values[_METRICS[kind][1]][cutoff]) for name, (kind, cutoff) in self._metrics.items()}

    def measure_accuracy(self, model: Any) -> dict[str, float]:
        """Return the share of labelled pairs that are answered correctly. A positive score means yes.

        This is code question answering (Huang et al. 2021, *CoSQA*, section 4), which is measured by accuracy. Without
        label 0, always answering yes would be correct, so the result is empty.
        """
        graded = self._benchmark.grades
        options = {"batch_size": self._batch_size, "convert_to_tensor": True}
        if all(grade > 0 for row in graded.values() for grade in row.values()):
            return {}
        positions = {code: number for number, code in enumerate({code: 0 for row in graded.values() for code in row})}
        queries = model.encode_query([self._benchmark.queries[query] for query in graded], **options)
        codes = model.encode_document([self._benchmark.codes[code] for code in positions], **options)
        correct = list[bool]()
        for vector, row in zip(queries, graded.values(), strict=True):
            scores = self._score(vector[None], codes[[positions[code] for code in row]])[0].tolist()
            correct += [(score > 0) == (grade > 0) for score, grade in zip(scores, row.values(), strict=True)]
        return {"accuracy": sum(correct) / len(correct)}
