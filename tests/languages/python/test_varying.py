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
        ("return list(x.keys() & y)", "order of sets"),
        ("return list(x.items() - y.items())", "order of sets"),
        ("return list({*y} ^ x.keys())", "order of sets"),
        ("names = x.keys()\n    return list(names | y)", "order of sets"),
        ("names = x.keys()\n    y -= names\n    return list(y)", "order of sets"),
        ("return list((names := x.keys()) and y & names)", "order of sets"),
        ("return list(x.union(y))", "order of sets"),
        ("return list(x.difference(y))", "order of sets"),
        ("x.difference_update(y)", "order of sets"),
        ("return [*map(set, x)]", "order of sets"),
        ("from collections import defaultdict\n    return defaultdict(set)", "order of sets"),
        ("make = frozenset\n    return list(make(x))", "order of sets"),
        ("return sorted(x, key=hash)", "hashes"),
        ("return {**dict(zip(map(id, x), x))}", "addresses"),
        ("from os import listdir\n    return listdir(x)", "order of files"),
        ("from os import walk as through\n    return next(through(x))", "order of files"),
        ("from glob import glob as found\n    return found(x)", "order of files"),
        ("from os import urandom as noise\n    return noise(x)", "random"),
        ("import secrets as s\n    return s.token_hex(x)", "random"),
        ("from numpy.random import normal\n    return normal(x)", "random"),
        ("import torch\n    return torch.randperm(x)", "random"),
        ("from os import getpid\n    return getpid()", "processes"),
        ("import os\n    return os.getpid()", "processes"),
        ("import os\n    return os.path.getmtime(x)", "time"),
        ("import asyncio\n    return asyncio.sleep(x)", "time"),
        ("import asyncio\n    return asyncio.wait(x)", "tasks"),
        ("from asyncio import create_task as begin\n    return begin(x)", "tasks"),
        ("import socket as s\n    return s.socket()", "connections"),
        ("import platform\n    return platform.uname()", "hosts"),
        ("from tempfile import mkdtemp\n    return mkdtemp()", "names of temporary files"),
        ("import tempfile\n    return tempfile.NamedTemporaryFile().name", "names of temporary files"),
        ("import os\n    return os.times()", "time"),
        ("from os import times as clock\n    return clock()", "time"),
        ("import os\n    return os.getloadavg()", "load of the machine"),
        ("import psutil\n    return psutil.cpu_percent()", "load of the machine"),
        ("from psutil import virtual_memory\n    return virtual_memory().percent", "load of the machine"),
        ("import shutil\n    return shutil.disk_usage(x)", "load of the machine"),
        ("import resource\n    return resource.getrusage(0)", "load of the machine"),
        ("import numpy as np\n    return np.empty(3)", "contents of memory"),
        ("from numpy import empty as room\n    return room(3)", "contents of memory"),
        ("import numpy as np\n    return np.empty_like(x)", "contents of memory"),
        ("import torch\n    return torch.empty(3)", "contents of memory"),
        ("import torch\n    return x.new_empty(3)", "contents of memory"),
        ("return str(object())", "addresses"),
        ("return repr(object())", "addresses"),
        ("mark = object()\n    return f'{mark}'", "addresses"),
    ],
)
def test_time_chance_and_order_are_seen_in_the_snippet(body: str, what: str) -> None:
    assert what in PythonLanguage().varying(program(f"def f(x):\n    {body}"))


def test_they_are_seen_in_the_program_around_it_too() -> None:
    template = "import random\n" + TEMPLATE
    assert PythonLanguage().varying(program("def f(x):\n    return x * x", template)) == ("random",)


def test_a_coroutine_alone_is_none() -> None:
    template = "import asyncio\n" + TEMPLATE
    assert PythonLanguage().varying(program("async def f(x):\n    return x * x", template)) == ()


def test_a_program_of_values_alone_has_none() -> None:
    assert PythonLanguage().varying(program("def f(x):\n    return sorted(x)[0] + len({'a': 1})")) == ()


@pytest.mark.parametrize(
    "body",
    [
        "return [*x.keys()] + [*x.items()]",
        "count = len(x.keys())\n    return count - 1 | 2",
        "return (x - 1) & 3 ^ 4 | 5",
        "x.id = set = hash = 3\n    return x",
        "times, empty = 3, []\n    return empty * times",
        "class A(object):\n        pass\n    return isinstance(A(), object)",
    ],
)
def test_a_dict_keeps_its_order_and_numbers_have_none(body: str) -> None:
    assert PythonLanguage().varying(program(f"def f(x):\n    {body}")) == ()
