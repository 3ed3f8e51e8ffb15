"""What may make equal runs of a program end differently is found by its names."""

from __future__ import annotations

import pytest

from agent.languages import PythonLanguage
from agent.languages.base import Program, Snippet

TEMPLATE = "# <candidate>\n\n\ndef test_a():\n    assert f(2) == 4\n"


def program(code: str, template: str = TEMPLATE) -> Program:
    return PythonLanguage().insert(template, Snippet(code))


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("import time\n    return time.time()", "time"),
        ("from datetime import datetime\n    return datetime.now()", "time"),
        ("import random\n    return random.choice(x)", "random"),
        ("from uuid import uuid4\n    return uuid4()", "random"),
        ("import numpy as np\n    return np.random.rand(x)", "random"),
        ("return list(set(x))", "order of sets"),
        ("return {part for part in x}", "order of sets"),
        ("import os\n    return os.listdir(x)", "order of files"),
        ("import threading\n    return threading.Thread(target=x)", "threads"),
        ("import asyncio\n    return asyncio.gather(*x)", "tasks"),
        ("return hash(x)", "hashes"),
        ("return id(x)", "addresses"),
    ],
)
def test_time_chance_and_order_are_seen_in_the_snippet(body: str, what: str) -> None:
    assert what in PythonLanguage().varying(program(f"def f(x):\n    {body}"))


def test_they_are_seen_in_the_program_around_it_too() -> None:
    template = "import random\n" + TEMPLATE
    assert PythonLanguage().varying(program("def f(x):\n    return x * x", template)) == ("random",)


def test_a_temporary_file_or_a_coroutine_alone_is_none() -> None:
    template = "import asyncio\nimport tempfile\n" + TEMPLATE
    assert PythonLanguage().varying(program("async def f(x):\n    return x * x", template)) == ()


def test_a_program_of_values_alone_has_none() -> None:
    assert PythonLanguage().varying(program("def f(x):\n    return sorted(x)[0] + len({'a': 1})")) == ()
