"""Shows a run while it goes on: a progress bar on a terminal, plain lines elsewhere. Always on standard error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from agent.cli.summary import money
from agent.cli.text import Console, one_line, say
from agent.events import Event, Note, PairFinished, ReplyReceived, RunStarted, Waiting
from agent.types import Annotation, Usage
from agent.wording import counted

_SECONDS_BETWEEN_LINES = 10.0
_MOST_MESSAGES = 1_000


def bar(console: Console) -> Progress:
    """Return a bar for work of a known length with a text beside it; it shows on a terminal alone."""
    beside = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), beside, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class Display:
    """Listens to the events of one run, or of several that come one after another. `clock` gives seconds.

    The same note is printed once. Of equal errors the first is printed, and at the end how many there were.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._noted: set[str] = set()
        self._begin(None, 0)

    def _begin(self, total: int | None, finished: int) -> None:
        self._started = self._printed = self._clock()
        self.outcomes: Counter[str] = Counter()
        self.spent = Usage()
        self.total, self.finished_before, self.done = total, finished, 0
        self._errors: Counter[tuple[str, str]] = Counter()
        self._waiting, self._waiting_until = "", 0.0
        self._calls = ""
        self._what = "pairs"
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        for (kind, message), count in self._errors.items():
            if count > 1:
                say(self._console, f"{count:,} {self._what} ended in this error: {kind}: {message}")

    def __call__(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, Note):
            if event.message not in self._noted:
                self._noted.add(event.message)
                say(self._console, event.message)
        elif isinstance(event, Waiting):
            self._waiting, self._waiting_until = one_line(event.what, 100), self._clock() + event.seconds
            self._update()
        elif isinstance(event, ReplyReceived):
            self._calls = f" · {event.in_flight}/{event.allowed} calls" if event.in_flight else ""
        elif isinstance(event, RunStarted):
            self.__exit__()
            self._begin(event.total, event.finished)
            self._start(event)
        elif isinstance(event, PairFinished):
            self._count(event.annotation)

    def seconds(self) -> float:
        """Return the seconds since the display was made."""
        return self._clock() - self._started

    def _start(self, event: RunStarted) -> None:
        where = "no sandbox needed" if event.sandbox is None else f"sandbox {event.sandbox}"
        self._what = "pairs" if event.rounds == 1 else "annotations"
        finished = f"{event.finished:,}" if event.rounds == 1 else counted(event.finished, "annotation")
        found = f", {finished} finished before" if event.finished else ""
        pairs = "pairs" if event.total is None else counted(event.total // event.rounds, "pair")
        rounds = "" if event.rounds == 1 else f" in {event.rounds} rounds"
        say(self._console, f"{pairs}{rounds}{found} · variant {event.variant} · {where}")
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bar = bar(self._console)
            self._task = self._bar.add_task("", total=event.total, completed=event.finished)
            self._bar.start()

    def _count(self, annotation: Annotation) -> None:
        self.done += 1
        self.spent += annotation.usage
        self.outcomes[_outcome(annotation)] += 1
        if annotation.error is not None:
            kind, message = annotation.error.type, one_line(annotation.error.message, 160)
            if (kind, message) not in self._errors and len(self._errors) >= _MOST_MESSAGES:
                message = "too many different messages to list each"
            self._errors[kind, message] += 1
            if self._errors[kind, message] == 1:
                say(self._console, f"{one_line(annotation.id, 40)}: {kind}: {message}")
        self._update(advance=1)

    def _update(self, advance: int = 0) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=advance, description=self.line())
        elif self._clock() - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = self._clock()
            say(self._console, f"{self._position()} {self.line()}")

    def line(self) -> str:
        """Return counts by outcome, rate and cost so far, calls in flight and how many may be, what is waited for."""
        counts = " ".join(f"{name}:{self.outcomes[name]}" for name in ("match", "no", "undecided", "error"))
        rate = self.done / max(self.seconds(), 1e-9)
        waiting = f" · waiting: {self._waiting}" if self._waiting_until > self._clock() else ""
        return f"{counts} · {rate:.1f}/s · {money(self.spent.cost_usd)}{self._calls}{waiting}"

    def _position(self) -> str:
        done = self.finished_before + self.done
        if self.total is None:
            return f"{done} {self._what}"
        if not self.done or self._waiting_until > self._clock():  # how long a wait takes nobody knows
            return f"{done}/{self.total} {self._what} ·"
        left = (self.total - done) * self.seconds() / self.done
        return f"{done}/{self.total} {self._what}, about {left:.0f} s left ·"


def _outcome(annotation: Annotation) -> str:
    if annotation.error is not None:
        return "error"
    return {1: "match", 0: "no", None: "undecided"}[annotation.label]


class Steps:
    """Shows work of known length, one step after another: a bar on a terminal, elsewhere a line every ten seconds.

    `prefix` stands before what a step does, and may be changed at any time. `clock` gives seconds.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.prefix = ""
        self._console = console
        self._clock = clock
        self._printed = clock()
        self._bar = bar(console)
        self._task: TaskID | None = None
        self._step = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take in how much of a step is done."""
        step = one_line(f"{self.prefix}{what}")
        if self._task is None or step != self._step:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task, self._step = self._bar.add_task(step, total=total), step
        self._bar.update(self._task, completed=done, total=total)
        if not self._console.is_terminal and self._clock() - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = self._clock()
            say(self._console, f"{step}: {done:,} of {total:,}")
