"""Snippets are inserted into programs unchanged, whatever they contain."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import assume, given

from agent.languages.base import MalformedProgram
from agent.languages.python.insertion import Placement, place_snippet
from agent.languages.python.source import Unparsable, normalise, parse
from tests.languages.python.snippets import snippets

FLAT = "import os\n\n# <candidate>\n\ndef test_it():\n    assert True\n"
IN_CLASS = "class Stand:\n    x = 1\n\n    # <candidate>\n\n    def own(self):\n        pass\n"


def dumps(nodes: list[ast.stmt] | tuple[ast.stmt, ...]) -> list[str]:
    return [ast.dump(node) for node in nodes]


def lines_of(placement: Placement) -> list[str]:
    return placement.source.split("\n")[placement.first_line - 1 : placement.last_line]


def assert_verbatim(code: str) -> None:
    expected = dumps(parse(code).body)
    flat = place_snippet(FLAT, code)
    assert "\n".join(lines_of(flat)) == code
    for template in (IN_CLASS, IN_CLASS.replace("    ", "\t"), IN_CLASS.replace("    ", " ")):
        placement = place_snippet(template, code)
        assert dumps(placement.statements) == expected


@given(code=snippets())
def test_any_snippet_is_unchanged_at_column_0_and_in_a_class(code: str) -> None:
    try:
        parse(code)
    except Unparsable:
        assume(False)
    assert_verbatim(code)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["cosqa_search_codes_6267.jsonl", "cosqa_dev.jsonl"])
def test_every_real_snippet_that_parses_is_unchanged_at_column_0_and_in_a_class(real_data: Path, name: str) -> None:
    codes = [json.loads(line)["code"] for line in (real_data / name).read_text("utf-8").split("\n") if line]
    parsed = 0
    for code in map(normalise, codes):
        try:
            expected = dumps(parse(code).body)
        except Unparsable:
            continue
        parsed += 1
        assert "\n".join(lines_of(place_snippet(FLAT, code))) == code
        assert dumps(place_snippet(IN_CLASS, code).statements) == expected
    assert (len(codes), parsed) == {"cosqa_dev.jsonl": (277, 274)}.get(name, (6267, 6247))


def test_code_is_indented_like_the_marker_but_not_inside_strings() -> None:
    code = 'def f(self):\n        """Doc\n  odd\n        """\n        return f"""\n{self.x}\n"""\n'
    placement = place_snippet("class A:\n  # <candidate>\n", code)
    assert lines_of(placement) == [
        "  def f(self):",
        '          """Doc',
        "  odd",
        '        """',
        '          return f"""',
        "{self.x}",
        '"""',
        "  ",
    ]


def test_a_debug_f_string_keeps_line_breaks_in_its_expression() -> None:
    code = 'def f(a):\n    return f"""{\na\n  =}"""'
    placement = place_snippet(IN_CLASS, code)
    space: dict[str, type] = {}
    exec(placement.source, space)
    assert space["Stand"].f(1) == "\na\n  =1"  # type: ignore[attr-defined]


@pytest.mark.parametrize("separator", ["\f", "\x0b", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_unicode_line_separators_are_not_newlines(separator: str) -> None:
    assert_verbatim(f"def f():\n    return '''a{separator}b'''  # c{separator}d\n")


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_byte_order_marks_and_other_newlines_are_normalised_in_snippet_and_template(newline: str) -> None:
    code = '\ufeffdef f():\n    return """a\nb"""'
    placement = place_snippet("\ufeff" + FLAT.replace("\n", newline), code.replace("\n", newline))
    assert lines_of(placement) == code.lstrip("\ufeff").split("\n")
    assert "\r" not in placement.source
    assert "\ufeff" not in placement.source


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("x = 1\n", "missing"),
        ("x = 1  # <candidate>\n", "missing"),
        ("# <candidate>\n# <candidate>\n", "2 times"),
        ("x = [\n# <candidate>\n]\n", "does not parse"),
        ("x = '''\n# <candidate>\n'''\n", "would be changed"),
        ("@cache\n# <candidate>\n", "would be changed"),
        ("x = 1\n    # <candidate>\n", "does not parse"),
        ("# <candidate>\nfrom __future__ import annotations\n", "beginning of the file"),
    ],
)
def test_a_missing_duplicate_or_misplaced_marker_is_rejected(template: str, words: str) -> None:
    with pytest.raises(MalformedProgram, match=words):
        place_snippet(template, "def f():\n    pass")


def test_a_snippet_of_the_largest_size_can_be_indented() -> None:
    code = "def f():\n" + "    x=1\n" * 12_000
    assert place_snippet(IN_CLASS, code).last_line == 12_005


def test_huge_templates_are_rejected() -> None:
    with pytest.raises(MalformedProgram, match="100,000"):
        place_snippet(FLAT + "#" * 100_000, "x = 1")
    with pytest.raises(MalformedProgram, match="column 5000"):
        place_snippet(" " * 5_000 + "# <candidate>", "x = 1\n" * 1_000)


def test_an_else_after_the_marker_cannot_extend_the_snippet() -> None:
    with pytest.raises(MalformedProgram, match="would be changed"):
        place_snippet("# <candidate>\nelse:\n    y = 2\n", "if x:\n    y = 1")


def test_syntax_errors_have_line_numbers_of_the_template() -> None:
    code = "from __future__ import annotations\ndef f():\n    pass\n\n\n"
    with pytest.raises(MalformedProgram, match=r"line 3: `def test_\(:`"):
        place_snippet("# <candidate>\n\ndef test_(:\n    pass\n", code)
    with pytest.raises(MalformedProgram, match=r"line 1: `def test_\(:`"):
        place_snippet("def test_(:\n    pass\n# <candidate>\n", code)


class TestFutureImports:
    def test_future_imports_move_to_line_1_and_leave_a_blank_line(self) -> None:
        placement = place_snippet(
            "x = 1\n# <candidate>\n", "'''doc'''\nfrom __future__ import division\n\ndef f():\n    pass"
        )
        assert placement.source.split("\n")[0] == "from __future__ import division"
        assert lines_of(placement) == ["'''doc'''", "", "", "def f():", "    pass"]

    def test_future_imports_of_program_and_snippet_are_merged(self) -> None:
        template = '"""Program."""\nfrom __future__ import (\n    annotations,\n)\nimport os\n# <candidate>\n'
        placement = place_snippet(template, "from __future__ import division, print_function\ndef f():\n    pass")
        assert placement.source.startswith("from __future__ import annotations, division, print_function\n")
        assert placement.source.count("__future__") == 1
        assert lines_of(placement) == ["", "def f():", "    pass"]

    def test_other_statements_on_the_line_of_a_future_import_stay(self) -> None:
        code = "'é'; from __future__ import division; from __future__ import annotations; x = 1\ny = 2"
        assert lines_of(place_snippet("# <candidate>\n", code)) == ["'é'; x = 1", "y = 2"]

    def test_a_late_future_import_is_an_error(self) -> None:
        with pytest.raises(MalformedProgram, match="beginning of the file"):
            place_snippet(FLAT, "import os\nfrom __future__ import division\ndef f():\n    pass")
