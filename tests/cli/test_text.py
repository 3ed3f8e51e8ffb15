"""What models and datasets wrote cannot steer the terminal it is printed on."""

from __future__ import annotations

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console as RichConsole
from rich.table import Table

from agent.cli.show import Page
from agent.cli.text import Console, one_line, plain, print_json, say

SLICE = "xs[a:x:b]"
ANY = st.text(alphabet=st.characters() | st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")))


@given(ANY)
def test_no_control_format_or_surrogate_character_survives(text: str) -> None:
    categories = {unicodedata.category(character) for character in plain(text) if character not in "\n\t"}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    plain(text).encode("utf-8")


@given(ANY)
def test_one_line_is_one_line_of_the_length_asked_for_before_escapes(text: str) -> None:
    assert "\n" not in one_line(text)
    assert len(one_line("x" * 50 + text, limit=20)) == 20


def test_escapes_are_shown_as_what_they_are() -> None:
    assert plain("a\x1b[31mred\x07\r\n\tb\u202e\ud800é日") == "a\\x1b[31mred\\x07\\r\n\tb\\u202e\\ud800é日"


def test_said_text_is_not_wrapped_and_what_looks_like_a_code_is_none() -> None:
    out = io.StringIO()
    say(Console(file=out, width=20), "[bold]:x:" + "x" * 50 + " y\x1b[1m")
    assert out.getvalue() == "[bold]:x:" + "x" * 50 + " y\\x1b[1m\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_code_is_shown_as_it_is(terminal: bool) -> None:
    out = io.StringIO()
    page = Page(Console(file=out, force_terminal=terminal, color_system=None, width=300))
    page.title(SLICE)
    page.text(SLICE, "cyan")
    page.code(f"[b]{SLICE}\n", "python")
    page.outcomes([("failed", SLICE, ""), (SLICE, "", "")])
    (table := Table(title=SLICE)).add_column(SLICE)
    table.add_row(SLICE)
    Console(file=out, width=300).print(table)
    assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).count(SLICE) == 8
    assert "\N{CROSS MARK}" not in out.getvalue()


def test_text_without_colours_is_no_work_for_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RichConsole, "print")
    code = "x = 1\n" * 200_000
    out = io.StringIO()
    for terminal in (True, False):
        page = Page(Console(file=out, force_terminal=terminal))
        page.code(code, "python")
        page.text(code, style="cyan")
    assert out.getvalue() == (code + "\n") * 4


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_json_is_not_printed_as_such(number: float, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"number": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"number": number})
    assert capsys.readouterr().out == '{"number": 1.5}\n'
