"""Trains a recipe with the trainer of sentence-transformers."""

from __future__ import annotations

import math
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers.trainer_callback import PrinterCallback, TrainerCallback, TrainerState

from agent.datasets.benchmark import Benchmark
from agent.errors import AgentError, UsageError
from agent.retrieval.searchers.models import choose_device, choose_precision
from agent.retrieval.searchers.trained import HEAD, EpochRecord, TrainingRecord
from agent.runs.store import files
from agent.text import one_line
from agent.training import model_folder
from agent.training.biencoder import ContrastLoss
from agent.training.evaluation import Evaluator
from agent.training.model_folder import Training
from agent.training.rows import EpochRows

MAX_LOSSES = 200
_EVAL = "eval_"
_FULL_DISK = ("No space left", "quota exceeded", "failed writing file", "unexpected pos")  # of safetensors and torch


class _NotFiniteError(Exception):
    """The loss or a weight is NaN or infinite."""


def train(training: Training) -> TrainingRecord:
    """Train a model, measure it once on the test benchmarks, and write it to a folder.

    Resumes from a checkpoint of the same training in the folder, and returns the record of a finished one. Equal
    seeds, library versions and numbers of threads give equal weights on the CPU. Uses at most one GPU.

    Raises:
        KeyboardInterrupt: training was stopped. The folder has a checkpoint, and the best model so far.
        UsageError: the base model or the folder cannot be used, the loss is not finite, or memory does not suffice.
        StorageError: the folder cannot be written.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.set_seed(training.settings.seed)
    fastest = "float32" if "precision" in training.recipe.unused else choose_precision("auto", choose_device())
    training = training._replace(settings=model_folder.choose_settings(training, fastest))
    model = training.recipe.make_model(training.base, training.data, training.settings, training.progress)
    record = model_folder.make_record(training, model.model_card_data)
    with model_folder.open_folder(training, record) as finished:
        if finished is not None:
            return finished
        trainer = _Trainer(training, model, record)
        try:
            return trainer.run()
        except AgentError:
            raise
        except Exception as error:
            raise UsageError(f"{training.out}: {trainer.explain(error)}") from error


def find_best(epochs: Sequence[EpochRecord], metric: str, best: Literal["trained", "any"]) -> EpochRecord | None:
    """Return the first epoch with the highest score, or the last without scores. `best` is the hyperparameter."""
    eligible = (epoch for epoch in epochs if epoch.epoch or best == "any")
    return max(eligible, key=lambda epoch: epoch.scores.get(metric, epoch.epoch), default=None)


class BatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Yields the batches of the current epoch, as indices of `rows.make_dataset()`.

    Build it in the trainer's `get_batch_sampler`, with its `options`. The training arguments are part of every
    checkpoint, so a sampler in them would save the texts.
    """

    def __init__(self, dataset: Any, *, rows: EpochRows, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._rows = rows

    def __iter__(self) -> Iterator[list[int]]:
        start = 0
        for batch in self._rows.draw(self.epoch):
            yield list(range(start, start + len(batch)))
            start += len(batch)

    def __len__(self) -> int:
        return self._rows.batches


class _Trainer(SentenceTransformerTrainer):  # type: ignore[misc]
    """Saves and loads the head of the loss, and writes the best model. `state` has everything that changes."""

    def __init__(self, training: Training, model: Any, record: TrainingRecord) -> None:
        self.training = training
        self.rows = training.rows
        self.record = record
        self.last_loss = math.nan
        recipe = training.recipe
        settings = training.settings
        benchmark = training.data.validation
        self.steps = self.rows.batches
        self.total = self.rows.batches * settings.epochs
        self.checkpoint = model_folder.find_checkpoint(training.out)
        loss = ContrastLoss(model, settings) if training.data.contrasts else recipe.make_loss(model, settings)
        self.untrained = {name: weight.cpu().clone() for name, weight in loss.state_dict().items()}
        rows = self.rows.make_dataset()
        self.validation = self._make_evaluator(loss, benchmark) if benchmark else None
        super().__init__(model, self._make_arguments(model), rows, loss=loss, callbacks=[_Callback(self)])
        self.remove_callback(PrinterCallback)
        if self.checkpoint:
            self.state = TrainerState.load_from_json(str(self.checkpoint / "trainer_state.json"))

    def run(self) -> TrainingRecord:
        """Train to the end or, with a KeyboardInterrupt, until `is_stopping`. Write the best model and its scores."""
        if not self.is_finished():
            with files.writing(self.training.out):
                self.train(resume_from_checkpoint=self.checkpoint and str(self.checkpoint))
        if not self.is_finished():
            self.write_best()
            raise KeyboardInterrupt
        self.write_best()
        best = self.find_best()
        is_mixed = self.training.settings.mix and best and best.epoch
        mixed = self.validation.measure(self.model) if self.validation and is_mixed else {}
        self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)  # tests use float32, like `retrieval run`
        tests = self.measure_tests("the model")
        self.loss.load_state_dict(self.untrained)
        untrained = self.measure_tests("the untrained model")
        record = self.write_best({"mixed": mixed, "tests": tests, "untrained_tests": untrained})
        with files.writing(self.training.out):
            shutil.rmtree(self.training.out / model_folder.STATE)
        return record

    def is_finished(self) -> bool:
        """Return whether all epochs have ended, or `patience` epochs have not improved the score."""
        best = self.find_best()
        patience = self.training.settings.patience
        stops_early = bool(best and best.scores and patience and self.read_epochs()[-1].epoch >= best.epoch + patience)
        return stops_early or self.state.global_step >= self.total

    def measure_tests(self, name: str) -> dict[str, dict[str, float]]:
        """Measure the current model, called `name`, on each test benchmark."""
        tests = dict[str, dict[str, float]]()
        for number, benchmark in enumerate(self.training.data.tests, start=1):
            if self.training.is_stopping():
                raise KeyboardInterrupt
            self.training.progress(f"measuring {name} on {benchmark.name}", 0, None)
            evaluator = self._make_evaluator(self.loss, benchmark)
            accuracy = evaluator.measure_accuracy(self.model) if self.training.recipe.form == "labels" else {}
            key = benchmark.name if benchmark.name not in tests else f"{benchmark.name} ({number})"
            tests[key] = evaluator.measure(self.model) | accuracy
        return tests

    def find_best(self) -> EpochRecord | None:
        settings = self.training.settings
        return find_best(self.read_epochs(), settings.metric, settings.best)

    def load_best(self) -> int | None:
        """Load the weights of the best epoch, if an epoch has ended, and return its number. `mix` mixes them."""
        if not (best := self.find_best()):
            return None
        if best.epoch == 0:
            self.loss.load_state_dict(self.untrained)
            return 0
        self._load_from_checkpoint(f"{self.args.output_dir}/checkpoint-{best.step}")
        if share := self.training.settings.mix:
            mixed = {
                name: self.untrained[name].to(weight).lerp(weight, share) if weight.is_floating_point() else weight
                for name, weight in self.loss.state_dict().items()
            }
            self.loss.load_state_dict(mixed)
        return best.epoch

    def write_best(self, results: Mapping[str, Any] | None = None) -> TrainingRecord:
        """Write the best model, or the current model if no epoch has ended. Without `results`, it is unfinished."""
        losses = [(row["step"], row["loss"]) for row in self.state.log_history if "loss" in row]
        losses = losses[:: -(-len(losses) // MAX_LOSSES) or 1]
        changes = {"epochs": self.read_epochs(), "best_epoch": self.load_best(), "losses": losses}
        record = self.record.model_copy(update={**changes, "finished": results is not None, **(results or {})})
        model_folder.write_model(self.training.out, self._save, record)
        return record

    def read_epochs(self) -> list[EpochRecord]:
        """Return the epochs that have ended, and epoch 0 if the untrained model was measured."""
        last = 0
        sums = defaultdict[int, float](float)
        scores = dict[int, dict[str, float]]()
        for row in self.state.log_history:
            if "loss" in row:  # the mean since the last row
                sums[-(-row["step"] // self.steps)] += row["loss"] * (row["step"] - last) / self.steps
                last = row["step"]
            elif values := {name.removeprefix(_EVAL): row[name] for name in row if name.startswith(_EVAL)}:
                scores[row["step"] // self.steps] = values
        return [
            EpochRecord(epoch=epoch, step=epoch * self.steps, loss=sums.get(epoch), scores=scores.get(epoch, {}))
            for epoch in range(self.state.global_step // self.steps + 1)
            if epoch in scores or (epoch and not self.validation)
        ]

    def explain(self, error: Exception) -> str:
        """Describe an error and its remedy, and write the model of the best epoch."""
        if isinstance(error, _NotFiniteError):
            problem = "the loss is not finite any more. Pass a smaller --learning-rate and another folder (-o)."
        elif "out of memory" in str(error) or "allocate memory" in str(error):
            options = (
                name for name in ("batch_size", "mini_batch", "max_tokens") if name not in self.training.recipe.unused
            )
            smaller = " or ".join(f"--{name.replace('_', '-')}" for name in options)
            problem = f"out of memory. Pass a smaller {smaller} and another folder (-o)."
        elif any(sign in str(error) for sign in _FULL_DISK):
            problem = "the disk is full. Free some space, and repeat the command to resume."
        else:
            text = one_line(f"{type(error).__name__}: {error}", 300)
            problem = f"training failed: {text}. Repeat the command to resume."
        kept = ""
        with suppress(Exception):  # the checkpoint of the best epoch may be incomplete, or the disk full
            if self.find_best():
                kept = f" The folder has the model of epoch {self.write_best().best_epoch}."
        return f"step {min(self.state.global_step + 1, self.total):,} of {self.total:,}: {problem}{kept}"

    def _make_evaluator(self, loss: Any, benchmark: Benchmark) -> Evaluator:
        settings = self.training.settings
        score = self.training.recipe.make_scorer(loss)
        return Evaluator(benchmark, score, settings.metric, settings.mini_batch or settings.batch_size)

    def _make_arguments(self, model: Any) -> Any:
        settings = self.training.settings
        has_cuda = torch.cuda.is_available()
        tasks = {"query": "query", "rewritten": "query", "code": "document"}
        tasks |= {"contrast_query": "query", "right": "document", "wrong": "document"}
        tasks |= {f"negative_{number}": "document" for number in range(1, (settings.hard_negatives or 0) + 1)}
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str((self.training.out / model_folder.STATE).absolute()),
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=math.ceil(settings.warmup * self.total),
            seed=settings.seed,
            bf16=settings.precision == "bfloat16",
            use_cpu=choose_device() == "cpu",
            logging_strategy="no",
            save_strategy="epoch",
            save_total_limit=2,
            eval_on_start=bool(self.validation) and not self.checkpoint,
            metric_for_best_model=settings.metric if self.validation else None,
            greater_is_better=True,
            prompts={column: prompt for column, task in tasks.items() if (prompt := model.prompts.get(task))} or None,
            router_mapping=tasks,
            dataloader_pin_memory=has_cuda,
            disable_tqdm=True,
            report_to=[],
        )
        arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs would split a batch and its negatives
        return arguments

    def add_model_card_callback(self, default_args_dict: Any) -> None:
        """Write no cards with checkpoints, because they quote training texts."""

    def get_batch_sampler(self, dataset: Any, **options: Any) -> BatchSampler:
        return BatchSampler(dataset, rows=self.rows, **options)

    def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*arguments, **options)
        self.last_loss = loss.item()
        if not math.isfinite(self.last_loss):
            raise _NotFiniteError
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        assert self.validation is not None
        self.training.progress("validating", 0, None)
        scores = {f"{_EVAL}{name}": value for name, value in self.validation.measure(self.model).items()}
        self.log(scores)
        if self.is_finished():
            self.control.should_training_stop = True
        return scores

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:  # noqa: ARG002
        folder = output_dir or self.args.output_dir
        self.model.save_pretrained(folder, create_model_card=False)
        if hasattr(self.loss, "head"):
            save_file(self.loss.head.state_dict(), Path(folder, HEAD))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        super()._load_from_checkpoint(checkpoint_path)
        if hasattr(self.loss, "head"):
            self.loss.head.load_state_dict(load_file(Path(checkpoint_path, HEAD)))


class _Callback(TrainerCallback):  # type: ignore[misc]
    """Decides when to log, evaluate, save and stop."""

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        trainer = self._trainer
        step = state.global_step
        trainer.training.report(step, trainer.total, trainer.last_loss)
        ends_epoch = step % trainer.steps == 0
        stops = trainer.training.is_stopping()
        control.should_log = ends_epoch or stops or step % -(-trainer.total // MAX_LOSSES) == 0
        if (ends_epoch or stops) and not all(weight.isfinite().all() for weight in trainer.loss.parameters()):
            state.global_step -= 1
            raise _NotFiniteError
        if stops and not ends_epoch:
            control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        if state.global_step % self._trainer.steps:  # stopped within an epoch, and saved
            control.should_save = False
        else:
            control.should_evaluate = bool(self._trainer.validation)
            control.should_training_stop |= self._trainer.training.is_stopping()
