"""Programs that pass: vacuous ones, which prove nothing, and sound ones."""

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
TABLE = """def show_table(rows, width):
    for number, row in enumerate(rows, 1):
        print(str(number) + ".", row.ljust(width) + "|")
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


def add_markers(cases: Mapping[str, tuple[str, str]]) -> Mapping[str, tuple[str, str]]:
    """Prepend a marker to programs without one."""
    return {name: (code, text if MARKER in text else f"{MARKER}\n{text}") for name, (code, text) in cases.items()}


VACUOUS = add_markers(
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
        "ignores the result": (SLUG, "def test_a():\n    slug('A b')\n"),
    }
)

SOUND = add_markers(
    {
        "printed output": (
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
        "a method with unittest": (
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
    }
)
