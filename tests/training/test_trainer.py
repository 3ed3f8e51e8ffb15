"""Training with tiny models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.errors import UsageError
from agent.retrieval.measures import QueryRanking, get_metric
from agent.retrieval.searchers.trained import DataRecord, EpochRecord, TrainingRecord, read_record
from agent.training.base import load_base
from agent.training.evaluation import Evaluator
from agent.training.model_folder import Training
from agent.training.recipe import Hyperparameters, load_recipe
from agent.training.rows import EpochRows
from tests.retrieval.searchers.tiny_models import save_roberta, save_sentence_transformer
from tests.training.tiny import CODES, QUERIES, make_benchmark, make_contrasts, make_data, save_bert, save_t5

pytestmark = pytest.mark.embed
SETTINGS = Hyperparameters(epochs=3, batch_size=4, learning_rate=1e-2, max_tokens=32)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_bert(tmp_path_factory.mktemp("base") / "bert"))


class Session:
    """Counts training steps, and stops training after `stop` of them."""

    def __init__(self, stop: int | None = None) -> None:
        self.done: list[tuple[int, int, float]] = []
        self.stop = stop

    def train(self, out: Path, base: str | None, recipe: Any = "biencoder", **changes: Any) -> TrainingRecord:
        """Train on the tiny data. `changes` are hyperparameters, `data` or `force`."""
        from agent.training.trainer import train

        data, force = changes.pop("data", None) or make_data(), changes.pop("force", False)
        recipe = load_recipe(recipe) if isinstance(recipe, str) else recipe
        settings = SETTINGS.model_copy(update=changes)
        report = lambda *step: self.done.append(step)  # noqa: E731
        is_stopping = lambda: self.stop is not None and len(self.done) >= self.stop  # noqa: E731
        rows = EpochRows(data, recipe.form, settings)
        return train(
            Training(recipe, data, rows, settings, base, out, lambda *_: None, report, is_stopping, force=force)
        )


def read_weights(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def make_recipe(step: int, error: Exception | None = None) -> Any:
    """Return a bi-encoder whose loss is NaN at a step, or raises an error."""
    recipe = load_recipe("biencoder")
    make_loss = recipe.make_loss

    def make_failing(model: Any, settings: Hyperparameters) -> Any:
        loss, calls = make_loss(model, settings), 0
        forward = loss.forward

        def fail(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step and error is not None:
                raise error
            return forward(*arguments, **options) * (float("nan") if calls == step else 1)

        loss.forward = fail
        return loss

    recipe.make_loss = make_failing  # type: ignore[method-assign]
    return recipe


CONTRASTING = {"data": make_data(contrasts=make_contrasts()), "mix": 0.5}


@pytest.mark.parametrize(
    ("recipe", "stop", "options"),
    [
        ("biencoder", 1, {}),
        ("biencoder", 3, {}),
        ("biencoder", 8, {}),
        ("biencoder", 7, CONTRASTING),
        ("siamese", 7, {}),
        ("unif", 4, {}),
    ],
)
def test_a_stopped_and_resumed_training_has_equal_weights(
    tmp_path: Path, base: str, recipe: str, stop: int, options: Any
) -> None:
    whole, parts, stopped, resumed = tmp_path / "whole", tmp_path / "parts", Session(stop), Session()
    start = None if recipe == "unif" else base
    record = Session().train(whole, start, recipe, **options)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(parts, start, recipe, **options)
    assert stopped.done[-1][0] == stop
    partial = read_record(parts)
    assert partial is not None
    assert (partial.best_epoch is None, partial.finished) == (stop < record.epochs[1].step, False)
    assert resumed.train(parts, start, recipe, **options).epochs == record.epochs
    assert record.finished
    assert [step for step, *_ in stopped.done + resumed.done] == list(range(1, record.epochs[-1].step + 1))
    assert read_weights(parts) == read_weights(whole)
    assert ("head.safetensors" in read_weights(parts)) == (recipe == "siamese")
    assert not (parts / ".training").exists()


def test_weights_depend_on_the_seed_alone(tmp_path: Path, base: str) -> None:
    weights = []
    for number, seed in enumerate((1, 1, 2)):
        Session().train(tmp_path / str(number), base, "siamese", epochs=1, seed=seed)
        weights.append(read_weights(tmp_path / str(number)))
    assert weights[0] == weights[1]
    assert all(weights[0][name] != weights[2][name] for name in weights[0])


@pytest.mark.parametrize("machine", ["float32", "bfloat16"])
def test_auto_is_recorded_and_resumes_with_the_precision_of_the_first_machine(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    from agent.training import trainer

    other = "float32" if machine == "bfloat16" else "bfloat16"
    data = make_data(tests=[make_benchmark("test")])
    records = [
        Session().train(tmp_path / name, base, precision=name, data=data, learning_rate=1e-3)
        for name in (machine, other)
    ]
    monkeypatch.setattr(trainer, "choose_precision", lambda *_: machine)
    with pytest.raises(KeyboardInterrupt):
        Session(4).train(tmp_path / "auto", base, precision="auto", data=data, learning_rate=1e-3)
    monkeypatch.setattr(trainer, "choose_precision", lambda *_: other)
    with pytest.raises(UsageError, match="precision"):
        Session().train(tmp_path / "auto", base, precision=other, data=data, learning_rate=1e-3)
    for _ in ("resumed", "finished"):
        assert Session().train(tmp_path / "auto", base, data=data, learning_rate=1e-3) == records[0]
    assert records[0].settings["precision"] == machine
    weights = [read_weights(tmp_path / name) for name in ("auto", machine, other)]
    assert weights[0] == weights[1] != weights[2]
    assert {name: len(content) for name, content in weights[1].items()} == {
        name: len(content) for name, content in weights[2].items()
    }


def test_the_same_command_returns_the_record_of_a_finished_training(tmp_path: Path, base: str) -> None:
    record, again, forced = Session().train(tmp_path, base, epochs=1), Session(), Session()
    assert again.train(tmp_path, base, epochs=1) == record == read_record(tmp_path)
    assert again.done == []
    forced.train(tmp_path, base, epochs=1, force=True)
    assert len(forced.done) == 3


def test_the_record_and_the_card_describe_the_training_without_its_texts(tmp_path: Path, base: str) -> None:
    data = make_data(tests=[make_benchmark("test")], licences={"MIT": 24})
    with pytest.raises(KeyboardInterrupt):
        Session(4).train(tmp_path, base, "siamese", data=data)
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    record = Session().train(tmp_path, base, "siamese", data=data)
    content += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert not any(text.encode() in content for text in (*QUERIES, *CODES, "quuxly", "zorgly"))
    assert [(epoch.epoch, epoch.step) for epoch in record.epochs] == [(0, 0), (1, 6), (2, 12), (3, 18)]
    assert [epoch.loss is None for epoch in record.epochs] == [True, False, False, False]
    assert all(epoch.scores.keys() == {"nDCG@10", "RR@10", "R@100"} for epoch in record.epochs)
    assert record.tests["test"].keys() == {"nDCG@10", "RR@10", "R@100", "accuracy"}
    assert record.untrained_tests["test"].keys() == record.tests["test"].keys()
    assert [step for step, _ in record.losses] == list(range(1, 19))
    assert record.base.name == base
    assert record.base.revision is not None
    assert record.data.split == {"train": 12, "validation": 3, "test 1": 3}
    card = (tmp_path / "README.md").read_text()
    described = json.loads(card.partition("```json\n")[2].partition("\n```")[0])
    assert (described["settings"]["batch_size"], described["data"]["licences"]) == (4, {"MIT": 24})


def test_a_folder_loads_in_sentence_transformers_with_the_weights_of_the_best_epoch(tmp_path: Path, base: str) -> None:
    from sentence_transformers import SentenceTransformer

    record = Session().train(tmp_path, base, learning_rate=1e-3)
    model = SentenceTransformer(str(tmp_path), device="cpu")
    assert model.max_seq_length == SETTINGS.max_tokens
    scores = Evaluator(make_benchmark("validation"), model.similarity, "nDCG@10", 4).measure(model)
    assert scores == next(epoch.scores for epoch in record.epochs if epoch.epoch == record.best_epoch)


def load(folder: Path | str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def measure(model: Any, name: str) -> dict[str, float]:
    return Evaluator(make_benchmark(name), model.similarity, "nDCG@10", 4).measure(model)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_mixed_weights_are_the_average_with_the_base(tmp_path: Path, base: str, share: float) -> None:
    data = make_data(tests=[make_benchmark("test")])
    trained, mixed = (
        Session().train(tmp_path / str(mix), base, data=data, mix=mix, learning_rate=1e-3) for mix in (None, share)
    )
    before, after, result = (load(path).state_dict() for path in (base, tmp_path / "None", tmp_path / str(share)))
    for name, weight in result.items():
        expected = (1 - share) * before[name].double() + share * after[name].double()
        assert weight.numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    assert (mixed.epochs, trained.mixed) == (trained.epochs, {})
    assert mixed.mixed == measure(load(tmp_path / str(share)), "validation")
    assert mixed.tests == {"test": measure(load(tmp_path / str(share)), "test")}
    assert mixed.untrained_tests == trained.untrained_tests == {"test": measure(load(base), "test")}


@pytest.mark.parametrize("best", ["any", "trained"])
def test_the_untrained_model_may_be_the_best(tmp_path: Path, base: str, best: str) -> None:
    import torch

    options = {"learning_rate": 0.0, "patience": 2, "mix": 0.5}  # no epoch beats the base
    record = Session().train(tmp_path, base, best=best, **options)
    assert (record.best_epoch, record.epochs[-1].epoch) == ((0, 2) if best == "any" else (1, 3))
    assert (record.beats_untrained, bool(record.mixed)) == (False, best == "trained")
    weights = load(tmp_path).state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in load(base).state_dict().items())


def test_training_on_contrasts_raises_the_gap_on_them(tmp_path: Path, base: str) -> None:
    contrasts = make_contrasts()

    def count_right(folder: Path | str) -> tuple[int, int]:
        """Count the contrasts whose right code is closer than the mutant, to their own and to another query."""
        columns = zip(*((row.query, row.right, row.wrong) for row in contrasts.rows), strict=True)
        queries, right, wrong = (load(folder).encode(list(column), normalize_embeddings=True) for column in columns)
        margins = queries @ (right - wrong).T
        return sum(margins.diagonal() > 0), sum(margins.diagonal(1) > 0)

    data = make_data(contrasts=contrasts, validation=None)
    options = {"epochs": 20, "learning_rate": 3e-3, "batch_size": 12, "max_tokens": 64}
    record = Session().train(tmp_path, base, data=data, **options)
    (own, other), (own_before, other_before) = count_right(tmp_path), count_right(base)
    assert own - other > own_before - other_before + 3
    assert own > 10
    assert record.data.contrasts == contrasts.record


def test_training_stops_after_epochs_without_improvement(tmp_path: Path, base: str) -> None:
    session = Session()
    record = session.train(tmp_path, base, epochs=9, patience=2, learning_rate=0.0)
    assert (record.best_epoch, record.epochs[-1].epoch, len(session.done)) == (1, 3, 9)


@pytest.mark.parametrize(
    ("scores", "best", "expected"),
    [((0.2, 0.1, 0.3), 2, True), ((0.3, 0.1, 0.3), 2, False), ((0.2,), None, None), ((None, 0.1), 1, None)],
)
def test_the_best_epoch_is_compared_with_the_untrained_model(scores: Any, best: int | None, expected: Any) -> None:
    epochs = [
        EpochRecord(epoch=n, step=n, scores={} if score is None else {"R@1": score}) for n, score in enumerate(scores)
    ]
    data = DataRecord(name="data", sha256="")
    record = TrainingRecord(recipe="unif", data=data, settings={"metric": "R@1"}, epochs=epochs, best_epoch=best)
    assert record.beats_untrained is expected


def test_the_best_epoch_is_the_first_with_the_highest_score() -> None:
    from agent.training.trainer import find_best

    epochs = [EpochRecord(epoch=n, step=n, scores={"R@1": s}) for n, s in enumerate((0.9, 0.1, 0.3, 0.3, 0.2))]
    assert find_best(epochs, "R@1", "trained") == epochs[2]
    assert find_best(epochs, "R@1", "any") == epochs[0]
    unscored = [epoch.model_copy(update={"scores": {}}) for epoch in epochs]
    assert find_best(unscored, "R@1", "trained") == unscored[4]
    assert find_best(epochs[:1], "R@1", "trained") is None


@pytest.mark.parametrize(
    ("error", "option"), [(None, "--learning-rate"), (RuntimeError("CUDA out of memory. Tried"), "--batch-size")]
)
def test_a_failed_step_keeps_the_last_good_checkpoint(tmp_path: Path, base: str, error: Any, option: str) -> None:
    with pytest.raises(UsageError, match=option):
        Session().train(tmp_path, base, make_recipe(5, error))
    record, session = read_record(tmp_path), Session()
    assert record is not None
    assert record.best_epoch == 1
    session.train(tmp_path, base)
    assert session.done[0][0] == 4


def test_a_stop_while_the_tests_are_measured_leaves_the_best_model(tmp_path: Path, base: str) -> None:
    data = make_data(tests=[make_benchmark("test")])
    with pytest.raises(KeyboardInterrupt):
        Session(9).train(tmp_path, base, data=data)
    record = read_record(tmp_path)
    assert record is not None
    assert (record.epochs[-1].epoch, record.finished, record.tests) == (3, False, {})
    assert Session().train(tmp_path, base, data=data).tests.keys() == {"test"}


def test_a_first_step_that_fails_leaves_a_folder_for_other_settings(tmp_path: Path, base: str) -> None:
    with pytest.raises(UsageError):
        Session().train(tmp_path, base, make_recipe(1), epochs=1)
    assert read_record(tmp_path) is None
    assert Session().train(tmp_path, base, epochs=1, batch_size=6).best_epoch == 1


def test_infinite_weights_are_not_saved(tmp_path: Path, base: str) -> None:
    with pytest.raises(UsageError):
        Session().train(tmp_path, base, batch_size=12, learning_rate=1e38, warmup=0.0)
    assert read_record(tmp_path) is None
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("save", [save_roberta, save_t5])
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"recipe": "biencoder", "mini_batch": 2}, 2),
        ({"recipe": "siamese"}, 4),
        ({"recipe": "siamese", "in_batch": True, "rewrite": "switch"}, 4),
    ],
)
def test_roberta_and_t5_encoders_train_without_validation(tmp_path: Path, save: Any, options: Any, steps: int) -> None:
    folder, data = str(save(tmp_path / "base")), make_data(validation=None)
    record = Session().train(tmp_path / "model", folder, epochs=1, batch_size=6, data=data, **options)
    assert [(epoch.epoch, epoch.step, epoch.scores) for epoch in record.epochs] == [(1, steps, {})]
    assert record.best_epoch == 1


def test_prompts_of_the_base_model_are_used_in_training(tmp_path: Path) -> None:
    losses = []
    for name, prompts in (("plain", {}), ("asking", {"query": "query: "}), ("answering", {"document": "code: "})):
        session, base = Session(), save_sentence_transformer(tmp_path / name, prompts=prompts)
        session.train(tmp_path / f"{name}-model", str(base), epochs=1, learning_rate=0.0)
        losses.append(session.done[0][2])
    assert len(set(losses)) == 3


def make_evaluator(score: Any, metric: str = "R@1", **changes: Any) -> Evaluator:
    return Evaluator(replace(make_benchmark("test"), **changes), score, metric, 2)


@pytest.mark.parametrize("metric", ["nDCG@2", "RR@10", "R@3"])
def test_scores_equal_those_of_agent_retrieval(base: str, metric: str) -> None:
    import torch

    benchmark, model = make_benchmark("test"), load_base(base, pooling="mean", max_tokens=None)
    matrix = torch.rand(3, 6, generator=torch.Generator().manual_seed(2))
    rankings = [
        QueryRanking(dict(zip(benchmark.codes, row, strict=True)), benchmark.grades[query])
        for query, row in zip(benchmark.queries, matrix.tolist(), strict=True)
    ]
    expected = sum(get_metric(metric).compute(ranking) for ranking in rankings) / len(rankings)
    assert make_evaluator(lambda *_: matrix, metric).measure(model)[metric] == pytest.approx(expected)


def test_the_scores_of_ties_do_not_depend_on_ids(base: str) -> None:
    import torch

    benchmark, model, scores = make_benchmark("test"), load_base(base, pooling="mean", max_tokens=None), []
    for ids in ("abcdef", "fedcba"):
        names = dict(zip(benchmark.codes, ids, strict=True))
        codes = {names[code]: text for code, text in benchmark.codes.items()}
        grades = {q: {names[code]: grade for code, grade in row.items()} for q, row in benchmark.grades.items()}
        evaluator = make_evaluator(lambda q, c: torch.ones(len(q), len(c)), codes=codes, grades=grades)
        scores.append(evaluator.measure(model))
    assert scores[0] == scores[1]


def test_accuracy_counts_pairs_with_a_positive_score_as_matches(base: str) -> None:
    import torch

    model, grades = load_base(base, pooling="mean", max_tokens=None), make_benchmark("test").grades
    for sign, expected in ((1, 3 / 5), (-1, 2 / 5)):
        evaluator = make_evaluator(
            lambda q, c, sign=sign: sign * torch.ones(len(q), len(c)), grades={**grades, "1": {"1": 1}}
        )
        assert evaluator.measure_accuracy(model) == {"accuracy": expected}
    assert make_evaluator(lambda *_: torch.ones(1, 1), grades={"1": {"1": 1}}).measure_accuracy(model) == {}
