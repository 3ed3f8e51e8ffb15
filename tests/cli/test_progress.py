"""Progress is a bar on a terminal and periodic lines elsewhere. Errors are printed at once."""

from __future__ import annotations

import io
import re

from agent.cli.progress import Display
from agent.cli.text import Console
from agent.events import Note, PairFinished, ReplyReceived, RunStarted, Waiting
from agent.types import Annotation, ErrorInfo, Usage


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def finish_pair(number: int, **fields: object) -> PairFinished:
    annotation = Annotation.model_validate({"id": f"p{number}", "input_sha256": "0" * 64, **fields})
    return PairFinished(annotation)


def make_display(*, terminal: str = "", width: int = 120) -> tuple[Display, Clock, io.StringIO]:
    out, clock = io.StringIO(), Clock()
    console = Console(file=out, width=width, force_terminal=bool(terminal), _environ={"TERM": terminal})
    return Display(console, clock=clock), clock, out


def test_without_a_terminal_a_line_is_printed_every_ten_seconds() -> None:
    display, clock, out = make_display()
    with display:
        display(RunStarted(40, 10, "full", "docker"))
        for number in range(15):
            clock.now += 1
            display(finish_pair(number, label=number % 2))
    lines = out.getvalue().splitlines()
    assert re.match(r"40 pairs, 10 .* · variant full · sandbox docker$", lines[0])
    assert re.match(r"20/40 pairs, .*\b20 s .*match:5 no:5 undecided:0 error:0 · 1\.0/s · \$0\.0000$", lines[1])
    assert len(lines) == 2


def test_errors_are_printed_at_once_on_one_escaped_line() -> None:
    display, _, out = make_display()
    display(RunStarted(None, 0, "ps_fa", None))
    display(finish_pair(1, error=ErrorInfo(type="ModelError", message="no\nreply \x1b[31m" + "x" * 500)))
    first, second = out.getvalue().splitlines()
    assert first.startswith("pairs · variant ps_fa · ")
    assert second.startswith("p1: ModelError: no reply \\x1b[31mxxx")
    assert len(second) < 200


def test_counts_and_cost_include_failed_pairs() -> None:
    display, clock, _ = make_display()
    display(RunStarted(4, 0, "full", "bwrap"))
    clock.now += 2
    display(finish_pair(1, label=1, usage=Usage(calls=1, cost_usd=0.5)))
    display(finish_pair(2, error=ErrorInfo(type="ModelError", message=""), usage=Usage(calls=3, cost_usd=0.25)))
    display(finish_pair(3))
    assert display.format_line() == "match:1 no:0 undecided:1 error:1 · 1.5/s · $0.7500"
    display(finish_pair(4, usage=Usage(calls=1, cost_usd=None)))
    assert display.format_line().endswith("unknown")


def test_terminal_shows_a_bar_that_includes_earlier_pairs() -> None:
    display, _, out = make_display(terminal="xterm")
    with display:
        display(RunStarted(3, 1, "full", "docker"))
        display(finish_pair(1, label=1))
        display(Note("an [image] is built"))
    text = out.getvalue()
    assert "2/3" in text
    assert "an [image] is built" in text
    assert "match:1" in text


def test_a_narrow_terminal_shows_the_whole_line() -> None:
    display, _, out = make_display(terminal="xterm", width=60)
    with display:
        display(RunStarted(412_080, 100, "full", "docker"))
        display(finish_pair(1, label=1, usage=Usage(calls=1, cost_usd=0.5)))
        display(Waiting("the model server answered HTTP 503", 30.0))
    text = out.getvalue()
    assert "101/412080" in text
    assert {"match:1", "undecided:0", "$0.5000", "503"} <= set(re.sub(r"\x1b\[[\d;?]*\w", " ", text).split())


def test_dumb_terminal_shows_lines() -> None:
    display, clock, out = make_display(terminal="dumb")
    with display:
        display(RunStarted(3, 1, "full", "docker"))
        clock.now += 20
        display(finish_pair(1, label=1))
    assert out.getvalue().splitlines()[1].startswith("2/3 pairs, ")


def test_equal_errors_are_printed_once_and_counted_at_the_end() -> None:
    display, _, out = make_display()
    down = ErrorInfo(type="ModelUnavailable", message="HTTP 503")
    with display:
        display(RunStarted(4, 0, "full", "bwrap"))
        for number in range(3):
            display(finish_pair(number, error=down))
        display(finish_pair(3, error=ErrorInfo(type="ReplyError", message="no label")))
    first, second, last = out.getvalue().splitlines()[1:]
    assert (first, second) == ("p0: ModelUnavailable: HTTP 503", "p3: ReplyError: no label")
    assert re.match(r"3 pairs .*ModelUnavailable: HTTP 503$", last)


def test_line_shows_calls_in_flight_and_their_limit() -> None:
    display, *_ = make_display()
    display(ReplyReceived("screen", "m", Usage(), False, in_flight=95, allowed=128))
    assert display.format_line().endswith(" · 95/128 calls")


def test_line_shows_the_reason_for_a_wait_until_it_ends() -> None:
    display, clock, out = make_display()
    display(RunStarted(4, 0, "full", "bwrap"))
    clock.now += 11
    display(Waiting("the model server answered HTTP 503; attempt 2 of 6", 30.0))
    line = "0/4 pairs · match:0 no:0 undecided:0 error:0 · 0.0/s · $0.0000"
    assert out.getvalue().splitlines()[-1] == f"{line} · waiting: the model server answered HTTP 503; attempt 2 of 6"
    clock.now += 31
    assert "waiting" not in display.format_line()
