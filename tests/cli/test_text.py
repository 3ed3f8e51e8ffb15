"""Text of models and datasets cannot control the terminal."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.cli.text import Console, escape_hidden, one_line, print_json, print_table, print_text
from agent.text import build_table

ANY = st.text(alphabet=st.characters() | st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp")))


@given(ANY)
def test_no_control_format_or_surrogate_character_survives(text: str) -> None:
    categories = {unicodedata.category(character) for character in escape_hidden(text) if character not in "\n\t"}
    assert not categories & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    escape_hidden(text).encode("utf-8")


@given(ANY)
def test_one_line_is_cut_to_the_limit_before_escaping(text: str) -> None:
    assert "\n" not in one_line(text)
    assert len(one_line("x" * 50 + text, limit=20)) == 20


def test_control_characters_are_escaped() -> None:
    assert escape_hidden("a\x1b[31mred\x07\r\n\tb\u202e\ud800é日") == "a\\x1b[31mred\\x07\\r\n\tb\\u202e\\ud800é日"


def test_printed_text_is_not_wrapped_or_interpreted() -> None:
    out = io.StringIO()
    print_text(Console(file=out, width=20), "[bold]:x:" + "x" * 50 + " y\x1b[1m")
    assert out.getvalue() == "[bold]:x:" + "x" * 50 + " y\\x1b[1m\n"


@pytest.mark.parametrize("width", [60, 100, 300])
def test_a_table_has_every_cell_at_any_width(width: int) -> None:
    name, numbers = "hf:" + "long-name-" * 9, [n + 0.123 for n in range(7)]
    columns = ("searcher", *(f"a long metric {n}" for n in range(7)), "remark")
    out = io.StringIO()
    print_table(Console(file=out, width=width), build_table(columns, [(name, *numbers, "\x1b")], left=["remark"]))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert {*map(str, numbers), "\\x1b"} < {*out.getvalue().split()}
    assert name in "".join(line.split("  ")[0].strip() for line in lines)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_rejected(number: float, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"number": 1.5})
    with pytest.raises(ValueError, match="JSON"):
        print_json({"number": number})
    assert capsys.readouterr().out == '{"number": 1.5}\n'
