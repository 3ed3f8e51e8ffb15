"""Passing programs that end in errors on most mutants: some only use results, others check them."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from tests.pipeline.nodes.vacuous_and_sound import CHUNKS, LARGEST, SLUG

UNIQUE = """def unique(xs):
    kept = []
    for x in xs:
        if x not in kept:
            kept.append(x)
    return kept
"""
POINT = """class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y
"""
CLIENT = """import asyncio


class Client:
    def __init__(self, base):
        self.base = base

    async def get(self, path):
        await asyncio.sleep(0)
        return self.base + path
"""
COUNTS = """def counts(words):
    found = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
"""
PI = "def pi():\n    return 3.14159\n"
PARSE = "import json\n\n\ndef parse(text):\n    return json.loads(text)\n"
ERROR = "class NotFound(Exception):\n    pass\n"
REFUSE = "def refuse(text):\n    raise ValueError(text)\n"


def add_markers(cases: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """Turn programs without a marker into a test case."""
    return {name: (code, text if "# <candidate>" in text else make_case(text)) for name, (code, text) in cases.items()}


def make_case(body: str) -> str:
    return "# <candidate>\n\n\ndef test_a():\n" + indent(body, "    ") + "\n"


CRASHES = add_markers(
    {
        "uses a variable of a script": ("import math\n\nresult = sorted([3, 1, 2])\n", "result.append(4)"),
        "asserts that a length is a length": (UNIQUE, "assert len(unique([1, 1, 2])) >= 0"),
        "calculates and prints": (PI, "print(f'{2 * pi():.2f}', '%d' % -pi(), round(1 - pi(), 1))"),
        "unpacks its items": (
            COUNTS,
            'for word, count in counts(["a"]).items():\n'
            "    print(word, count + 1)\n"
            'print(sum(counts(["a"]).values()), max(counts(["a"])), [word[0] for word in sorted(counts(["a"]))])',
        ),
        "awaits": (CLIENT, "# <candidate>\nasync def test_a():\n    (await Client('a').get('b')).upper()\n"),
        "calls a method": (
            LARGEST,
            "class Board:\n    items = [3, 1]\n    # <candidate>\ndef test_a():\n    Board().largest(1).copy()\n",
        ),
        "iterates the generator": (CHUNKS, "for a, b in chunks('abcd', 2):\n    print(a, b)"),
        "derives a class from it": (
            POINT,
            "# <candidate>\nclass Named(Point):\n    def __init__(self, name):\n        super().__init__(1, 2)\n"
            '        self.name = name\ndef test_a():\n    Named("a").x\n',
        ),
        "asserts something unrelated": (SLUG, "slug('A b').upper()\nassert 1 + 1 == 2"),
    }
)

CHECKS = add_markers(
    {
        "raises if the result differs": (
            "def add(a, b):\n    return a + b\n",
            "if add(1, 2) != 3:\n    raise ValueError('not the sum')",
        ),
        "raises if the code did not": (
            REFUSE,
            'try:\n    refuse("x")\nexcept ValueError:\n    return\nraise RuntimeError("it was taken")',
        ),
        "asserts that a number is close": (PI, "assert abs(pi() - 3.14) < 0.01"),
        "asserts a negation": (
            "def flags(x):\n    return x.first, x.second\n",
            "class X:\n    first = 0\n    second = 1\n# <candidate>\ndef test_a():\n    assert not flags(X())[0]\n",
        ),
        "exhausts an iterator and asserts its items": (
            "def each(items):\n    return iter(items)\n",
            "items, taken = each([1, 2]), []\nwhile True:\n    try:\n"
            "        taken.append(next(items))\n    except StopIteration:\n        break\nassert taken == [1, 2]",
        ),
        "asserts its type": (UNIQUE, "assert isinstance(unique([1, 1, 2]), list)"),
    }
)

BY_PYTEST: Mapping[str, tuple[str, str, str]] = {
    "an expected error": (
        REFUSE,
        "import pytest\n\n# <candidate>\n\n\ndef test_a():\n    with pytest.raises(ValueError):\n        refuse('x')\n",
        "checked",
    ),
    "an approximate number": (
        PARSE,
        "import pytest\n\n# <candidate>\n\n\ndef test_a():\n    assert parse('[1.5]')[0] == pytest.approx(1.5)\n",
        "checked",
    ),
    "only a call": (
        PI,
        """import pytest

# <candidate>


@pytest.mark.parametrize("by", [1, 2])
def test_a(by):
    print(f"{pi() * by:.2f}")
""",
        "vacuous",
    ),
}
