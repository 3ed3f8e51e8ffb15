"""Shows the progress of a run on standard error, as a bar on a terminal and as plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from agent.cli.summary import format_cost
from agent.cli.text import Console, one_line, print_text
from agent.events import Event, Note, PairFinished, ReplyReceived, RunStarted, Waiting
from agent.runs.store.annotations import LabelStatus, get_status
from agent.text import plural
from agent.types import Annotation, ErrorInfo, Usage

_SECONDS_BETWEEN_LINES = 10.0
_MAX_MESSAGES = 1_000
_OUTCOMES: Mapping[LabelStatus, str] = {
    "1": "match", "0": "no", "undecided": "undecided", "no_intent": "no_intent", "error": "error",
}  # fmt: skip


class Gauge:
    """Shows progress as a bar on a terminal, and as a line every ten seconds elsewhere."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._printed_at = clock()
        self._bar = Progress(
            BarColumn(bar_width=24 if console.width >= 80 else 8, table_column=Column(no_wrap=True)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.description}", markup=False, table_column=Column()),  # wraps on a narrow terminal
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            disable=console.is_dumb_terminal or not console.is_terminal,
        )

    def start(self, total: int | None, done: int = 0) -> None:
        """Start a new task, which replaces the current task."""
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task("", total=total, completed=done)
        self._bar.start()

    def update(self, done: int, description: str, line: str) -> None:
        """Update the bar and its description. If no bar is shown, print `line` every ten seconds."""
        for task in self._bar.task_ids:
            self._bar.update(task, completed=done, description=description)
        if self._bar.disable and self._clock() - self._printed_at >= _SECONDS_BETWEEN_LINES:
            self._printed_at = self._clock()
            print_text(self._console, line)

    def stop(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class Display:
    """Displays the events of one run, or of several consecutive runs. `clock` returns seconds.

    Prints each distinct note once. Prints each distinct error when it first occurs, and its count at the end.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self.outcome_names = _OUTCOMES
        self._gauge = Gauge(console, clock)
        self._printed_notes: set[str] = set()
        self._reset(None, 0)

    def _reset(self, total: int | None, finished: int) -> None:
        self._started = self._clock()
        self.outcomes: Counter[str] = Counter()
        self.spent = Usage()
        self.total, self.finished_before, self.done = total, finished, 0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._waiting, self._waiting_until = "", 0.0
        self._calls = ""
        self._unit = "pairs"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._gauge.stop()
        for (kind, message), count in self._errors.items():
            if count > 1:
                print_text(self._console, f"{count:,} {self._unit} ended with this error: {kind}: {message}")

    def __call__(self, event: Event) -> None:
        """Display one event."""
        if isinstance(event, Note):
            if event.message not in self._printed_notes:
                self._printed_notes.add(event.message)
                print_text(self._console, event.message)
        elif isinstance(event, Waiting):
            self._waiting, self._waiting_until = one_line(event.what, 100), self._clock() + event.seconds
            self._update()
        elif isinstance(event, ReplyReceived):
            self._calls = f" · {event.in_flight}/{event.allowed} calls" if event.in_flight else ""
        elif isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, PairFinished):
            self._count(event.annotation)

    def seconds(self) -> float:
        """Return the seconds since the last run started, or since the display was created."""
        return self._clock() - self._started

    def _start(self, event: RunStarted) -> None:
        self.__exit__()
        self._reset(event.total, event.finished)
        sandbox = "no sandbox needed" if event.sandbox is None else f"sandbox {event.sandbox}"
        pairs = "pairs" if event.total is None else plural(event.total // event.rounds, "pair")
        rounds, finished = "", f"{event.finished:,}"
        if event.rounds > 1:
            self._unit = "annotations"
            rounds, finished = f" in {event.rounds} rounds", plural(event.finished, "annotation")
        before = f", {finished} finished earlier" if event.finished else ""
        print_text(self._console, f"{pairs}{rounds}{before} · variant {event.variant} · {sandbox}")
        self._gauge.start(event.total, event.finished)

    def _count(self, annotation: Annotation) -> None:
        self.done += 1
        self.spent += annotation.usage
        self.outcomes[self.outcome_names[get_status(annotation)]] += 1
        if annotation.error is not None:
            self._count_error(annotation.id, annotation.error)
        self._update()

    def _count_error(self, pair_id: str, error: ErrorInfo) -> None:
        key = error.type, one_line(error.message, 160)
        if key not in self._errors and len(self._errors) >= _MAX_MESSAGES:
            key = error.type, "too many different messages to list"
        self._errors[key] += 1
        if self._errors[key] == 1:
            print_text(self._console, f"{one_line(pair_id, 40)}: {': '.join(key)}")

    def _update(self) -> None:
        line = self.format_line()
        self._gauge.update(self.finished_before + self.done, line, f"{self._format_position()} {line}")

    def format_line(self) -> str:
        """Return a line of progress.

        It contains the number of annotations with each outcome, the rate, the cost, the calls in flight with their
        limit, and the reason for waiting.
        """
        shown = (name for name in self.outcome_names.values() if self.outcomes[name] or name != "no_intent")
        counts = " ".join(f"{name}:{self.outcomes[name]}" for name in shown)
        rate = self.done / max(self.seconds(), 1e-9)
        waiting = f" · waiting: {self._waiting}" if self._waiting_until > self._clock() else ""
        return f"{counts} · {rate:.1f}/s · {format_cost(self.spent.cost_usd)}{self._calls}{waiting}"

    def _format_position(self) -> str:
        done = self.finished_before + self.done
        if self.total is None:
            return f"{done} {self._unit}"
        if not self.done or self._waiting_until > self._clock():  # it is unknown how long the wait will last
            return f"{done}/{self.total} {self._unit} ·"
        seconds_left = (self.total - done) * self.seconds() / self.done
        return f"{done}/{self.total} {self._unit}, about {seconds_left:.0f} s left ·"


class Steps:
    """Shows the progress of consecutive steps, and the time left.

    `prefix` precedes the name of each step, and `detail` follows it. Both may change at any time.
    """

    def __init__(self, console: Console) -> None:
        self.prefix = self.detail = self._step = ""
        self._gauge = Gauge(console, time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._gauge.stop()

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Update the progress of a step. `total` is None if the length is unknown."""
        step = one_line(f"{self.prefix}{name}")
        if step != self._step:
            self._step, self._first, self._started = step, done, time.monotonic()
            self._gauge.start(total, done)
        detail = f" · {self.detail}" if self.detail else ""
        position = f"{done:,}" if total is None else f"{done:,} of {total:,}{self._format_time_left(done, total)}"
        self._gauge.update(done, f"{step}{detail}", f"{step}: {position}{detail}")

    def _format_time_left(self, done: int, total: int) -> str:
        seconds = (time.monotonic() - self._started) * (total - done) / max(1, done - self._first)
        return f", about {seconds:.0f} s left" if done > self._first else ""
