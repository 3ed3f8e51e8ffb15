"""Progress: a bar on a terminal, a line now and then elsewhere, and each error as it comes."""

from __future__ import annotations

import io

from agent.cli.progress import Display
from agent.cli.text import Console
from agent.events import Note, PairFinished, ReplyReceived, RunStarted, Waiting
from agent.types import Annotation, ErrorInfo, Usage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def finished(number: int, **fields: object) -> PairFinished:
    annotation = Annotation.model_validate({"id": f"p{number}", "input_sha256": "0" * 64, **fields})
    return PairFinished(annotation)


def shown(*, terminal: str = "") -> tuple[Display, Clock, io.StringIO]:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=120, force_terminal=bool(terminal), _environ={"TERM": terminal})
    return Display(console, clock=clock), clock, out


def test_elsewhere_a_line_is_printed_every_ten_seconds_and_no_bar() -> None:
    display, clock, out = shown()
    with display:
        display(RunStarted(40, 10, "full", "docker"))
        for number in range(15):
            clock.now += 1
            display(finished(number, label=number % 2))
    lines = out.getvalue().splitlines()
    assert lines == [
        "40 pairs, 10 finished before · variant full · sandbox docker",
        "20/40 pairs, about 20 s left · match:5 no:5 undecided:0 error:0 · 1.0/s · $0.0000",
    ]


def test_each_error_is_told_at_once_on_one_harmless_line() -> None:
    display, _, out = shown()
    display(RunStarted(None, 0, "ps_fa", None))
    display(finished(1, error=ErrorInfo(type="ModelError", message="no\nreply \x1b[31m" + "x" * 500)))
    first, second = out.getvalue().splitlines()
    assert first == "pairs · variant ps_fa · no sandbox needed"
    assert second.startswith("p1: ModelError: no reply \\x1b[31mxxx")
    assert len(second) < 200


def test_counts_and_cost_are_those_of_the_pairs_failed_ones_included() -> None:
    display, clock, _ = shown()
    display(RunStarted(4, 0, "full", "bwrap"))
    clock.now += 2
    display(finished(1, label=1, usage=Usage(calls=1, cost_usd=0.5)))
    display(finished(2, error=ErrorInfo(type="ModelError", message=""), usage=Usage(calls=3, cost_usd=0.25)))
    display(finished(3))
    assert display.format_line() == "match:1 no:0 undecided:1 error:1 · 1.5/s · $0.7500"
    display(finished(4, usage=Usage(calls=1, cost_usd=None)))
    assert display.format_line().endswith("cost unknown")


def test_on_a_terminal_there_is_a_bar_that_knows_what_was_done_before() -> None:
    display, _, out = shown(terminal="xterm")
    with display:
        display(RunStarted(3, 1, "full", "docker"))
        display(finished(1, label=1))
        display(Note("an [image] is built"))
    text = out.getvalue()
    assert "2/3" in text
    assert "an [image] is built" in text
    assert "match:1" in text


def test_on_a_terminal_that_cannot_draw_there_are_lines_instead() -> None:
    display, clock, out = shown(terminal="dumb")
    with display:
        display(RunStarted(3, 1, "full", "docker"))
        clock.now += 20
        display(finished(1, label=1))
    assert out.getvalue().splitlines()[1].startswith("2/3 pairs, about 20 s left · match:1")


def test_equal_errors_are_printed_once_and_counted_at_the_end() -> None:
    display, _, out = shown()
    down = ErrorInfo(type="ModelUnavailable", message="HTTP 503")
    with display:
        display(RunStarted(4, 0, "full", "bwrap"))
        for number in range(3):
            display(finished(number, error=down))
        display(finished(3, error=ErrorInfo(type="ReplyError", message="no label")))
    assert out.getvalue().splitlines()[1:] == [
        "p0: ModelUnavailable: HTTP 503",
        "p3: ReplyError: no label",
        "3 pairs ended in this error: ModelUnavailable: HTTP 503",
    ]


def test_calls_in_flight_and_how_many_may_be_stand_in_the_line() -> None:
    display, *_ = shown()
    display(ReplyReceived("screen", "m", Usage(), False, in_flight=95, allowed=128))
    assert display.format_line().endswith(" · 95/128 calls")


def test_what_is_waited_for_stands_in_the_line_as_long_as_it_lasts() -> None:
    display, clock, out = shown()
    display(RunStarted(4, 0, "full", "bwrap"))
    clock.now += 11
    display(Waiting("the model server answered HTTP 503; attempt 2 of 6", 30.0))
    expected = "0/4 pairs · match:0 no:0 undecided:0 error:0 · 0.0/s · $0.0000"
    assert (
        out.getvalue().splitlines()[-1] == f"{expected} · waiting: the model server answered HTTP 503; attempt 2 of 6"
    )
    clock.now += 31
    assert "waiting" not in display.format_line()
