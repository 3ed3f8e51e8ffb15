"""What `self.x` is in a class is known from what it, its bases and else its derived classes set."""

from __future__ import annotations

import pytest

from agent.languages.base import MalformedProgram
from tests.languages.python.parts import CLASS, program

CASE = """# <candidate>

class First(unittest.TestCase):
    def setUp(self):
        self.c = C()

    def check(self):
        self.c.x = 3

"""


def test_an_object_made_for_all_cases_is_known_in_each() -> None:
    made = "\nclass Given:\n    def setUp(self):\n        self.c = {}\n\n    def check(self):\n        self.c.m = max\n"
    program(CLASS, template=f"# <candidate>\n{made.format('mock.Mock()')}")
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(CLASS, template=f"# <candidate>\n{made.format('C()')}")
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(CLASS, template="# <candidate>\nc = C()\ndef given():\n    c.m = max\n")
    program(CLASS, template="# <candidate>\nc = C()\ndef given(c):\n    c.m = max\n")


@pytest.mark.parametrize(
    "other",
    [
        "class Other:\n    c: object = None\n    def check(self):\n        self.c.m = max\n",
        "class Other:\n    def __init__(self, c):\n        self.c = c\n        self.c.m = max\n",
        "class Other(First):\n    def setUp(self):\n        self.c = mock.Mock()\n        self.c.m = max\n",
        "def other(self):\n    self.c.m = max\n",
    ],
)
def test_the_self_of_another_class_is_another_one(other: str) -> None:
    program(CLASS, template=CASE + other)


@pytest.mark.parametrize(
    "other",
    [
        "class Other(First):\n    def check(self):\n        self.c.m = max\n",
        "class Other:\n    def setUp(self):\n        self.c = 1\n\nclass Third(Other, First):\n"
        "    def setUp(self):\n        self.d = C()\n        self.d.m = max\n",
        "class Other:\n    def check(self):\n        self.c.m = max\n\nclass Third(Other):\n"
        "    def setUp(self):\n        self.c = C()\n",
        "class Other:\n    def check(self):\n        self.c = C()\n        (lambda: setattr(self.c, 'm', max))()\n",
        "class Other(First):\n    def check(self):\n        def inner():\n            self.c.m = max\n",
        "class Other:\n    @classmethod\n    def setUpClass(cls):\n        cls.c = C()\n\n"
        "    def check(self):\n        self.c.m = max\n",
        "class Other:\n    c = None\n\n    def setUp(self):\n        self.c = C()\n\n"
        "    def tearDown(self):\n        self.c = None\n        del self.c\n\n"
        "    def check(self):\n        self.c.m = max\n",
        "class Other:\n    c: object\n\n    def setUp(self):\n        self.c, self.want = C(), 7\n\n"
        "    def check(self):\n        self.c.m = max\n",
        "class Other:\n    c = C()\n\n    def check(self):\n        self.c.m = max\n",
        "class Other:\n    c = C()\n\n    @classmethod\n    def check(cls):\n        cls.c.m = max\n",
    ],
)
def test_that_of_the_same_or_a_derived_class_is_known(other: str) -> None:
    with pytest.raises(MalformedProgram, match=r"`C\.m`, which the candidate defines"):
        program(CLASS, template=CASE + other)


def test_what_was_saved_on_self_may_be_set_back() -> None:
    saving = "class Other:\n    def setUp(self):\n        self.saved = C.seen\n\n"
    restoring = "    def tearDown(self):\n        C.seen = self.saved\n"
    program(CLASS, template=f"# <candidate>\n\n{saving}{restoring}")
    with pytest.raises(MalformedProgram, match=r"`C\.seen`, which the candidate defines"):
        program(CLASS, template=f"# <candidate>\n\n{saving}{restoring}\nOther().saved = 1\n")
    with pytest.raises(MalformedProgram, match=r"`C\.seen`, which the candidate defines"):
        program(CLASS, template=f"# <candidate>\n\n{saving}\nclass Third:\n{restoring}")


@pytest.mark.parametrize("bases", ["Other", "Third", "First, Other, Third"])
def test_classes_that_derive_from_each_other_in_a_ring_are_read(bases: str) -> None:
    assert program(CLASS, template=f"{CASE}class Third(Other):\n    pass\n\nclass Other({bases}):\n    pass\n").cases
