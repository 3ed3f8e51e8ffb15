"""Generate Python sources that indentation could change."""

from __future__ import annotations

from hypothesis import strategies as st

_INDENTS = st.sampled_from(["    ", "  ", "\t", "        ", " \t"])
_ODD_SPACE = st.sampled_from(["", " ", "   ", "\t", "\f", " \f ", "          "])
_TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from(list(" \t\n\f{}#'x=ü\x0b\x1c\u2028")),
        st.characters(codec="utf-8", exclude_characters='\0\\"\r'),
    ),
    max_size=30,
)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@st.composite
def _multi_line_string(draw: st.DrawFn, prefixes: tuple[str, ...] = ("", "r", "b", "u", "f", "rf")) -> str:
    prefix, text = draw(st.sampled_from(prefixes)), draw(_TEXT)
    if prefix == "b":
        text = text.encode("ascii", "ignore").decode()
    if "f" in prefix:
        field = draw(
            st.sampled_from(["{a}", "{a!r:>{b}}", "{a[0]}\n{b}", "{\n  a\n}", "{a:\n>4}", "{[a, '''\n y''']}", ""])
        )
        text = _escaped(text) + field.replace("\n", draw(st.sampled_from(["\n", " "]))) + _escaped(draw(_TEXT))
    return f'{prefix}"""{text}"""'


_JOINED = st.sampled_from(["'a\\\n  b'", '"\\\n"', "'a' \\\n  'b'", "f'{a}\\\n {b}'", "(1 +\\\n2)"])
_BRACKETED = st.sampled_from(
    ["[\n1,\n        2,\n  # odd\n3]", "(a\n)", "{\n'k':\n[(\n1)]}", "[x\nfor x\n    in a\n]", "()"]
)


@st.composite
def _expression(draw: st.DrawFn) -> str:
    parts = st.one_of(
        _multi_line_string(("", "r", "f", "rf")), _JOINED, _BRACKETED, st.sampled_from(["a", "b.c(1)", "-1"])
    )
    first, second = draw(parts), draw(parts)
    return draw(st.sampled_from([first, f"[{first}, {second}]", f"f({first},\n{second})", f"({first}\n ,{second})"]))


@st.composite
def _block(draw: st.DrawFn, indent: str, depth: int) -> list[str]:
    lines: list[str] = []
    step = draw(_INDENTS)
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            lines.append(draw(_ODD_SPACE) + draw(st.sampled_from(["# at any column", "", "# '''"])))
        kind = draw(st.sampled_from(["assign", "bare", "def", "if", "continued"] if depth else ["assign", "bare"]))
        if kind == "assign":
            lines.append(f"{indent}a = {draw(_expression())}")
        elif kind == "bare":
            lines.append(f"{indent}{draw(_multi_line_string())}; b = 1")
        elif kind == "continued":
            lines.append(f"{indent}b = a + \\\n{draw(st.sampled_from(['', '    ', '            ']))}1")
        else:
            head = {"def": "@a\n{}def g(self, a=(1,\n2)):", "if": "if a:"}[kind].format(indent)
            lines += [indent + head, *draw(_block(indent + step, depth - 1))]
    return lines


@st.composite
def snippets(draw: st.DrawFn) -> str:
    """A function, class or script. Most examples parse; callers discard the others."""
    body = draw(_block(draw(_INDENTS), 2))
    head = draw(st.sampled_from(["def f(self, a, b):", "class C:", "async def f(\na, b\n):", "@a\ndef f():", "if a:"]))
    start = draw(st.sampled_from(["", "# before\n", "\f\n", "\n\n", "    # odd\n"]))
    return start + "\n".join([head, *body]) + draw(st.sampled_from(["", "\n", "\n\n  ", "\n# after"]))
