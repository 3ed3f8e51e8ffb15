"""Programs that pass, and on most mutants end in errors: some only use what they get, others check it as well."""

from __future__ import annotations

from collections.abc import Mapping

from tests.nodes.vacuous_and_sound import CHUNKS, LARGEST, SLUG, STACK

UNIQUE = """def unique(xs):
    kept = []
    for x in xs:
        if x not in kept:
            kept.append(x)
    return kept
"""
TIMER = """from contextlib import contextmanager


@contextmanager
def timer(log):
    log.append("start")
    yield log
    log.append("end")
"""
POINT = """class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y
"""
FIELDS = "from dataclasses import dataclass\n\n\n@dataclass\nclass Point:\n    x: int\n    y: int\n"
CIRCLE = """class Circle:
    def __init__(self, radius):
        self.radius = radius

    @property
    def area(self):
        return self.radius * self.radius * 3.14
"""
CLIENT = """import asyncio


class Client:
    def __init__(self, base):
        self.base = base

    async def get(self, path):
        await asyncio.sleep(0)
        return self.base + path
"""
HALVES = "def halves(xs):\n    middle = len(xs) // 2\n    return xs[:middle], xs[middle:]\n"
TWICE = """def twice(function):
    def inner(*values):
        function(*values)
        return function(*values)
    return inner
"""
COUNTS = """def counts(words):
    found = {}
    for word in words:
        found[word] = found.get(word, 0) + 1
    return found
"""
PI = "def pi():\n    return 3.14159\n"
DUMP = "import json\n\n\ndef dump(value):\n    return json.dumps(value)\n"
PARSE = "import json\n\n\ndef parse(text):\n    return json.loads(text)\n"
ERROR = "class NotFound(Exception):\n    pass\n"
REFUSE = "def refuse(text):\n    raise ValueError(text)\n"

CRASHES: Mapping[str, tuple[str, str]] = {
    "calls a lambda": ("double = lambda x: x * 2\n", "# <candidate>\n\n\ndef test_a():\n    double(3)\n"),
    "reads a name of a script": (
        "import math\n\nresult = sorted([3, 1, 2])\n",
        "# <candidate>\n\n\ndef test_a():\n    result\n    assert True\n",
    ),
    "uses a name of a script": (
        "import math\n\nresult = sorted([3, 1, 2])\n",
        "# <candidate>\n\n\ndef test_a():\n    result.append(4)\n",
    ),
    "goes through a result": (UNIQUE, "# <candidate>\n\n\ndef test_a():\n    list(unique([1, 1, 2]))\n"),
    "asserts that a length is a length": (
        UNIQUE,
        "# <candidate>\n\n\ndef test_a():\n    assert len(unique([1, 1, 2])) >= 0\n",
    ),
    "enters a context": (TIMER, "# <candidate>\n\n\ndef test_a():\n    with timer([]):\n        pass\n"),
    "calculates and prints": (
        PI,
        "# <candidate>\n\n\ndef test_a():\n    print(f'{2 * pi():.2f}', '%d' % -pi(), round(1 - pi(), 1))\n",
    ),
    "takes a result apart": (
        HALVES,
        "# <candidate>\n\n\ndef test_a():\n    left, right = halves([1, 2, 3])\n    print(len(left) + len(right))\n",
    ),
    "takes its items apart": (
        COUNTS,
        """# <candidate>


def test_a():
    for word, count in counts(["a"]).items():
        print(word, count + 1)
    print(sum(counts(["a"]).values()), max(counts(["a"])), [word[0] for word in sorted(counts(["a"]))])
""",
    ),
    "awaits": (CLIENT, "# <candidate>\n\n\nasync def test_a():\n    (await Client('a').get('b')).upper()\n"),
    "runs a coroutine": (
        CLIENT,
        "import asyncio\n\n# <candidate>\n\n\ndef test_a():\n    print(asyncio.run(Client('a').get('b'))[0])\n",
    ),
    "reads a property": (CIRCLE, "# <candidate>\n\n\ndef test_a():\n    abs(Circle(3).area)\n"),
    "makes a point": (POINT, "# <candidate>\n\n\ndef test_a():\n    Point(1, 2).x + Point(1, 2).y\n"),
    "reads a field": (FIELDS, "# <candidate>\n\n\ndef test_a():\n    Point(1, 2).x + Point(1, 2).y\n"),
    "decorates": (TWICE, "# <candidate>\n\n\ndef test_a():\n    @twice\n    def f(x):\n        return x\n\n    f(1)\n"),
    "calls a method": (
        LARGEST,
        "class Board:\n    items = [3, 1]\n\n    # <candidate>\n\n\ndef test_a():\n    Board().largest(1).copy()\n",
    ),
    "chains its methods": (STACK, "# <candidate>\n\n\ndef test_a():\n    len(Stack().push(1).push(2))\n"),
    "iterates the generator": (
        CHUNKS,
        "# <candidate>\n\n\ndef test_a():\n    for a, b in chunks('abcd', 2):\n        print(a, b)\n",
    ),
    "takes the generator's first item": (CHUNKS, "# <candidate>\n\n\ndef test_a():\n    next(chunks('abcd', 2))\n"),
    "derives a class from it": (
        POINT,
        """# <candidate>


class Named(Point):
    def __init__(self, name):
        super().__init__(1, 2)
        self.name = name


def test_a():
    Named("a").x
""",
    ),
    "asserts afterwards": (SLUG, "# <candidate>\n\n\ndef test_a():\n    slug('A b').upper()\n    assert 1 + 1 == 2\n"),
}

CHECKS: Mapping[str, tuple[str, str]] = {
    "raises where the result is another": (
        "def add(a, b):\n    return a + b\n",
        "# <candidate>\n\n\ndef test_a():\n    if add(1, 2) != 3:\n        raise ValueError('not the sum')\n",
    ),
    "ends where the result is another": (
        "def add(a, b):\n    return a + b\n",
        "import sys\n\n# <candidate>\n\n\ndef test_a():\n    if add(1, 2) != 3:\n        sys.exit(1)\n",
    ),
    "raises where nothing was raised": (
        REFUSE,
        """# <candidate>


def test_a():
    try:
        refuse("x")
    except ValueError:
        return
    raise RuntimeError("it was taken")
""",
    ),
    "asserts that a number is near": (PI, "# <candidate>\n\n\ndef test_a():\n    assert abs(pi() - 3.14) < 0.01\n"),
    "asserts on a part": (PARSE, "# <candidate>\n\n\ndef test_a():\n    assert parse('{\"a\": 1}')['a'] == 1\n"),
    "asserts on what it read back": (
        DUMP,
        "import json\n\n# <candidate>\n\n\ndef test_a():\n    assert json.loads(dump({'a': [1]})) == {'a': [1]}\n",
    ),
    "asserts what a method says": (
        "import os\n\n\ndef here():\n    return os.getcwd()\n",
        "# <candidate>\n\n\ndef test_a():\n    assert here().startswith('/')\n",
    ),
    "asserts what is not so": (
        "def flags(x):\n    return x.first, x.second\n",
        "class X:\n    first = 0\n    second = 1\n\n\n# <candidate>\n\n\ndef test_a():\n    assert not flags(X())[0]\n",
    ),
    "asserts what is not in it": (
        COUNTS,
        "# <candidate>\n\n\ndef test_a():\n    assert 'c' not in counts(['a', 'b'])\n",
    ),
    "asserts on a field alone": (POINT, "# <candidate>\n\n\ndef test_a():\n    assert Point(1, 2).y == 2\n"),
    "raises its error": (
        ERROR,
        """# <candidate>


def test_a():
    try:
        raise NotFound("x")
    except NotFound as error:
        assert str(error) == "x"
""",
    ),
    "asserts that there is a result": (
        UNIQUE,
        "# <candidate>\n\n\ndef test_a():\n    assert unique([1, 1, 2]) is not None\n",
    ),
    "takes items until there are none, and asserts what they are": (
        "def each(items):\n    return iter(items)\n",
        """# <candidate>


def test_a():
    items, taken = each([1, 2]), []
    while True:
        try:
            taken.append(next(items))
        except StopIteration:
            break
    assert taken == [1, 2]
""",
    ),
    "takes items until there are none, and asserts how many": (
        "def each(items):\n    return iter(items)\n",
        "# <candidate>\n\n\ndef test_a():\n    items, count = each('a'), 0\n"
        "    while next(items, None) is not None:\n        count += 1\n    assert count == 1\n",
    ),
    "asserts its type": (
        UNIQUE,
        "# <candidate>\n\n\ndef test_a():\n    assert isinstance(unique([1, 1, 2]), list)\n",
    ),
}

BY_PYTEST: Mapping[str, tuple[str, str, str]] = {
    "an error that is raised": (
        REFUSE,
        "import pytest\n\n# <candidate>\n\n\ndef test_a():\n    with pytest.raises(ValueError):\n        refuse('x')\n",
        "checked",
    ),
    "a failure that is told": (
        "def add(a, b):\n    return a + b\n",
        "import pytest\n\n# <candidate>\n\n\ndef test_a():\n    if add(1, 2) != 3:\n        pytest.fail('no')\n",
        "checked",
    ),
    "a number that is near": (
        PARSE,
        "import pytest\n\n# <candidate>\n\n\ndef test_a():\n    assert parse('[1.5]')[0] == pytest.approx(1.5)\n",
        "checked",
    ),
    "no more than a call": (
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
