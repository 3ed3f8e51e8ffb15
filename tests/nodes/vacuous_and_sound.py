"""Programs that pass: four prove nothing, each in another way, ten prove what they say."""

from __future__ import annotations

from collections.abc import Mapping

MARKER = "# <candidate>\n"
SLUG = """def slug(title):
    words = [word.lower() for word in title.split() if word.isalnum()]
    if len(words) > 3:
        words = words[:3]
    return "-".join(words)
"""
CHUNKS = """def chunks(items, size):
    for start in range(0, len(items), size):
        yield items[start:start + size]
"""
LARGEST = """def largest(self, count=1):
    ordered = sorted(self.items, reverse=True)
    return ordered[:count]
"""
MEDIAN = """def median(xs):
    ordered = sorted(xs)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 0:
        return (ordered[middle - 1] + ordered[middle]) / 2
    return ordered[middle]
"""
COUNTED = """def count_into(counts, words):
    for word in words:
        counts[word] = counts.get(word, 0) + 1
"""
TABLE = """def show_table(rows, width):
    for number, row in enumerate(rows, 1):
        print(str(number) + ".", row.ljust(width) + "|")
"""
PORT = """def read_port(text):
    port = int(text)
    if port < 1 or port > 65535:
        raise ValueError("not a port: " + text)
    return port
"""
GATHER = """async def gather_even(source):
    found = []
    async for number in source:
        if number % 2 == 0:
            found.append(number)
    return found
"""
STACK = """class Stack:
    def __init__(self):
        self._items = []

    def push(self, item):
        self._items.append(item)
        return self

    def pop(self):
        if not self._items:
            raise IndexError("pop from an empty stack")
        return self._items.pop()

    def __len__(self):
        return len(self._items)
"""
COPY_LINES = """def copy_matching(source, target, word):
    with open(source) as lines, open(target, "w") as out:
        for line in lines:
            if word in line:
                out.write(line)
"""
SAMPLE = """import random


def sample_distinct(items, count):
    pool = list(dict.fromkeys(items))
    random.shuffle(pool)
    return pool[:count]
"""


def completed(cases: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """Put a marker in front of what has none."""
    return {name: (code, text if MARKER in text else f"{MARKER}\n{text}") for name, (code, text) in cases.items()}


VACUOUS = completed(
    {
        "swallows every failure": (
            SLUG,
            """def test_it():
    try:
        assert slug("Hello World") == "hello-world"
    except Exception:
        pass
""",
        ),
        "asserts on its own stand-in": (
            LARGEST,
            """class Board:
    def __init__(self, items):
        self.items = items

    # <candidate>

def test_items():
    board = Board([3, 1, 2])
    board.largest(2)
    assert board.items == [3, 1, 2]

def test_sorted_items():
    assert sorted(Board([3, 1, 2]).items, reverse=True)[:2] == [3, 2]
""",
        ),
        "accepts none or anything": (
            MEDIAN,
            """def test_it():
    result = median([3, 1, 2])
    assert result is None or isinstance(result, object)
    assert type(result) in (type(None), type(result))
""",
        ),
        "compares the result with itself": (
            MEDIAN,
            """def test_it():
    result = median([3, 1, 2])
    assert result == result
    assert median([4, 4]) == median([4, 4])
""",
        ),
        "calls the code and looks at nothing": (SLUG, "def test_a():\n    slug('A b')\n"),
    }
)

SOUND = completed(
    {
        "a returned value": (
            MEDIAN,
            """def test_odd():
    assert median([5, 1, 3]) == 3

def test_even():
    assert median([4, 1, 3, 2]) == 2.5
""",
        ),
        "an effect on the argument": (
            COUNTED,
            """def test_counts():
    counts = {"a": 1}
    count_into(counts, ["a", "b", "a"])
    assert counts == {"a": 3, "b": 1}
""",
        ),
        "what is printed": (
            TABLE,
            """import contextlib
import io

# <candidate>

def test_prints_numbered_rows():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        show_table(["ab", "c"], 3)
    assert out.getvalue() == "1. ab |\\n2. c  |\\n"
""",
        ),
        "an error that is asked for": (
            PORT,
            """def refused(text):
    try:
        read_port(text)
    except ValueError:
        return True
    return False

def test_refuses():
    assert refused("0") and refused("65536") and refused("x")

def test_takes_the_ends():
    assert not refused("1") and not refused("65535")
""",
        ),
        "a generator": (
            CHUNKS,
            """def test_chunks():
    assert list(chunks([1, 2, 3, 4, 5], 2)) == [[1, 2], [3, 4], [5]]
""",
        ),
        "a method, by unittest": (
            LARGEST,
            """import unittest

class Board:
    def __init__(self, items):
        self.items = items

    # <candidate>

class TestLargest(unittest.TestCase):
    def test_one(self):
        self.assertEqual(Board([2, 9, 4]).largest(), [9])

    def test_two(self):
        self.assertEqual(Board([2, 9, 4]).largest(2), [9, 4])
""",
        ),
        "a coroutine": (
            GATHER,
            """async def numbers():
    for number in (1, 2, 4, 7, 8):
        yield number

async def test_keeps_the_even_ones():
    assert await gather_even(numbers()) == [2, 4, 8]
""",
        ),
        "a class": (
            STACK,
            """def test_last_in_first_out():
    stack = Stack().push(1).push(2)
    assert len(stack) == 2
    assert (stack.pop(), stack.pop()) == (2, 1)

def test_an_empty_one_refuses():
    try:
        Stack().pop()
    except IndexError:
        return
    raise AssertionError("nothing was raised")
""",
        ),
        "a file": (
            COPY_LINES,
            """import pathlib
import tempfile

# <candidate>

def test_copies_what_matches():
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "a"), pathlib.Path(folder, "b")
        source.write_text("one fish\\ntwo birds\\nred fish\\n")
        copy_matching(source, target, "fish")
        assert target.read_text() == "one fish\\nred fish\\n"
""",
        ),
        "properties of what chance gives": (
            SAMPLE,
            """def test_distinct_and_from_the_items():
    drawn = sample_distinct([1, 2, 2, 3, 3, 3, 4], 3)
    assert len(drawn) == 3
    assert len(set(drawn)) == 3
    assert set(drawn) <= {1, 2, 3, 4}

def test_not_always_the_same():
    assert len({tuple(sample_distinct(range(50), 10)) for _ in range(5)}) > 1
""",
        ),
    }
)
