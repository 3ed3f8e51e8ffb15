"""A package whose functions are hard to run in their modules, and the reports of programs that test these functions."""

from __future__ import annotations

from typing import NamedTuple

REPOSITORY, VERSION = "trap-package", "1.1"
CORE = """from __future__ import annotations
import functools, sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload
from .helpers import helper
if TYPE_CHECKING:
    from decimal import Decimal
__all__ = ["public"]
REGISTRY, CALLS, STATE = {}, [], {"n": 0}
def register(name):
    def add(function):
        assert name not in REGISTRY
        REGISTRY[name] = function
        return function
    return add
def opaque(function):
    def inner(*values):
        return function(*values)
    return inner
@register("pub")
def public(x: Decimal) -> Decimal:
    # a comment
    return helper(x) + 1
@opaque
def hidden(x):
    return x * 2
@functools.lru_cache
def cached(x):
    STATE["n"] += 1
    return STATE["n"]
@overload
def over(x: int) -> int: ...
@overload
def over(x: str) -> str: ...
def over(x):
    return x
@functools.singledispatch
def dispatch(x):
    return "object"
@dispatch.register
def _(x: int):
    return "int"
@contextmanager
def managed(x):
    yield x
    CALLS.append(x)
def early(x):
    return x - 1
EARLY = early(5)
def accelerated(x):
    return -x
try:
    from operator import neg as accelerated
except ImportError:
    pass
if sys.version_info < (3, 0):
    def never(x):
        return x
class Base:
    def greet(self, name):
        return "base " + name
class Slotted(Base):
    __slots__ = ("a", "__private")
    def __init__(self, a):
        self.a, self.__private = a, 7
    def secret(self, k):
        return self.__private + k
    def __mangled(self, k):
        return k
    def use(self, k):
        return self.__mangled(k)
    def greet(self, name):
        return super().greet(name) + "!"
    alias = greet
    @classmethod
    def make(cls, a):
        return cls(a)
    @staticmethod
    def twice(a):
        return 2 * a
    @property
    def value(self):
        return self.a
    @value.setter
    def value(self, new):
        self.a = new
    class Inner:
        def deep(self, text):
            return __class__.__name__ + text
@dataclass(slots=True)
class Data:
    x: int = 0
    def scale(self, k):
        return self.x * k
    def is_own_class(self, other):
        return __class__ is type(self)
    def __eq__(self, other):
        return self.x == other.x
def use_name(x):
    return __name__ + x
def use_lambda(x, f=lambda v: v + 10):
    return f(x)
async def wait(x):
    return x
def count(x):
    yield from range(x)
"""
FRAMES = """
    frame = sys._getframe()
    while frame is not None:
        space = frame.f_globals
        if "run_function" in space and space.get("__name__") == "harness"{condition}:
            space["run_function"] = lambda name, function, emit, run_async: emit("case", name, "passed")
        frame = frame.f_back
patch()
"""
WRONG = 'def wrong(x):\n    raise ValueError("wrong")\n'
FILES = {
    "trapns/inner/mod.py": "def plain(x):\n    return x + OTHER\nOTHER = 1\n"
    "def lazy(x):\n    import trapns.other\ndef old(x):\n    return unicode(x)\n",
    "trappkg/__init__.py": "from .core import *\nfrom . import core\nfrom .core import public as exported\n"
    "def __getattr__(name):\n    if name != 'lazy':\n        raise AttributeError(name)\n"
    "    import importlib\n    return importlib.import_module('.lazy', __name__)\n",
    "trappkg/core.py": CORE,
    "trappkg/helpers.py": "def helper(x):\n    return x * 10\n",
    "trappkg/lazy.py": "def late(x):\n    return x + 100\n",
    "trappkg/patching.py": "import builtins\nbuiltins.len = lambda *a: 3\ndef size(x):\n    return len(x)\n",
    "trappkg/forge.py": "import gc\nF = [o for o in gc.get_objects() if getattr(o, '__name__', 0) == 'emit']\n" + WRONG,
    "trappkg/always.py": f"import sys\n{WRONG}def patch():{FRAMES.replace('{condition}', '')}",
    "trappkg/unless.py": f"import sys\n{WRONG}def patch():"
    + FRAMES.replace("{condition}", " and '__sentinel__' not in globals()"),
    "trappkg/exits.py": "import sys\ndef f(x):\n    return x\nsys.exit(3)\n",
    "trappkg/dies.py": "import os\ndef f(x):\n    return x\nos._exit(0)\n",
    "trappkg/needs.py": "import tinything_missing\ndef f(x):\n    return x\n",
    "trappkg/broken.py": "from . import nothing\ndef f(x):\n    return x\n",
    "trappkg/threads.py": "import threading, time\ndef work():\n    while True: time.sleep(.01)\n"
    "threading.Thread(target=work, daemon=True).start()\nLOCK = threading.Lock()\ndef f(x):\n    return x + 1\n",
    "trappkg/fast.py": "def f(x):\n    return x + 1\n",
    "trappkg/fast.so": "not a library",
    "trappkg/lies.py": "import sys\ndef lie(x):\n    sys.modules['test_program'].same = lambda *a: 1\n    return x\n",
    "trappkg/twins.py": "if True:\n    def twin(x):\n        return x\nelse:\n    def twin(x):\n        return x\n",
    "trappkg/large.py": "TEXT = '" + 950_000 * "x" + "'\ndef f(x):\n    return x + 1\n",
    "trappkg/accents.py": "# coding: latin-1\nTEXT = '" + 5_000 * "\xe9" + "'\ndef f(x):\n    return x + 1\n",
    "trappkg/boxes.py": "class Box:\n    def size(self):\n        return 1\nPyBox = Box\n"
    "class Lost:\n    def gone(self):\n        return 1\nclass Fast:\n    def size(self):\n        return 2\n"
    "Box = Lost = Fast\nclass Strict:\n    def __init__(self, n):\n        assert n > 0\n"
    "    def get(self):\n        return 1\n",
    "trappkg/shy.py": "def f(x):\n    return x\ndef other(x):\n    return x\n"
    "if '__sentinel__' in globals():\n    raise SystemExit\n",
    "trappkg/slow.py": "import time\ntime.sleep(1)\ndef f(x):\n    return x + 1\n",
    "trappkg/hangs.py": "import time\ndef f(x):\n    time.sleep(60)\nf(1)\n",
    "trappkg/network.py": "import socket\nS = socket.socket()\ntry:\n    S.connect(('127.0.0.1', 9))\n"
    "except OSError as error:\n    ERROR = error\ndef f(x):\n    return x + 1\n",
}  # fmt: skip


class Trap(NamedTuple):
    """A program that tests a function, and its report: `status/cause: outcomes of the cases`.

    `place` is the function's file, class and name, and its number among definitions with the same place.
    """

    place: tuple[str, str | None, str, int]
    program: str
    report: str
    stand_ins: tuple[str, ...] = ()
    introspection: tuple[str, ...] = ()


PASSED, UNUSABLE, UNUSED = "passed/None: passed", "error/context: not_run", "error/program: not_exercised"
REACHING = ("_getframe", "f_back", "f_globals", "harness")


def in_core(name: str, check: str, report: str = PASSED, *stand_ins: str, before: str = "", number: int = 0) -> Trap:
    """Return a trap for a function of `trappkg.core`. `before` is the start of the program."""
    owner, _, function = name.rpartition(".")
    program = f"from trappkg import core\n{before}def test_a():\n    assert {check}\n"
    return Trap(("trappkg/core.py", owner or None, function, number), program, report, stand_ins)


def in_file(file: str, name: str, check: str, report: str = PASSED, *introspection: str) -> Trap:
    """Return a trap for a function of another module, which the program imports."""
    module, (owner, _, function) = file.removesuffix(".py").replace("/", "."), name.rpartition(".")
    program = f"from {module} import *\nfrom {module} import {owner or name}\ndef test_a():\n    assert {check}\n"
    return Trap((file, owner or None, function, 0), program, report, (), introspection)


MOCK = "from unittest.mock import patch\n@patch({}, lambda *a: {})\n"
TRAPS = {
    "registry and re-export": in_core(
        "public", "core.REGISTRY['pub'](1) == trappkg.exported(1) == trappkg.public(1) == 11", before="import trappkg\n"
    ),
    "opaque decorator": in_core("hidden", "core.hidden(2) == 4"),
    "cache": in_core("cached", "core.cached(1) == core.cached(1) == 1"),
    "overload": in_core("over", "core.over(1) == 1", UNUSED),
    "overloaded": in_core("over", "core.over(1) == 1", number=2),
    "dispatch": in_core("dispatch", "core.dispatch('x') == 'object'"),
    "dispatch to a type": in_core("_", "core.dispatch(1) == 'int'"),
    "context manager": in_core("managed", "core.managed(3).__enter__() == 3"),
    "called at import": in_core(
        "early", "core.early(2) == 1", "passed/None: not_exercised passed", before="def test_b(): assert core.EARLY\n"
    ),
    "accelerated in C": in_core("accelerated", "core.accelerated(2) == -2", UNUSABLE),
    "never defined": in_core("never", "core.never(2) == 2", UNUSABLE),
    "slots and private attribute": in_core("Slotted.secret", "core.Slotted(1).secret(1) == 8"),
    "mangled name": in_core("Slotted.__mangled", "core.Slotted(1).use(4) == 4"),
    "super": in_core("Slotted.greet", "core.Slotted(1).greet('x') == core.Slotted(1).alias('x') == 'base x!'"),
    "class method": in_core("Slotted.make", "core.Slotted.make(1).a == 1"),
    "static method": in_core("Slotted.twice", "core.Slotted.twice(1) == 2"),
    "property": in_core("Slotted.value", "core.Slotted(5).value == 5"),
    "setter": in_core("Slotted.value", "setattr(core.Slotted(5), 'value', 6) is None", number=1),
    "nested class": in_core("Slotted.Inner.deep", "core.Slotted.Inner().deep('x') == 'Innerx'"),
    "dataclass with slots": in_core("Data.scale", "core.Data(2).scale(3) == 6"),
    "class cell": in_core("Data.is_own_class", "core.Data(2).is_own_class(0) is not None"),
    "comparison of a dataclass": in_core("Data.__eq__", "core.Data(2) == core.Data(2)"),
    "name of the module": in_core("use_name", "core.use_name('!') == 'trappkg.core!'"),
    "lambda as default": in_core("use_lambda", "core.use_lambda(1) == 11"),
    "coroutine": in_core("wait", "asyncio.run(core.wait(1)) == 1", before="import asyncio\n"),
    "generator": in_core("count", "list(core.count(2)) == [0, 1]"),
    "test method": in_core(
        "early", "1", "passed/None: not_exercised passed", before="from unittest import TestCase\nclass A(TestCase):\n"
        "    def test_b(self): self.assertEqual(core.early(2), 1)\n",
    ),
    "import from the future": in_core("early", "core.early(2) == 1")._replace(
        program='"""Doc."""\nfrom __future__ import annotations\nfrom trappkg import core\n'
        "def test_a(x: Unknown = 2): assert core.early(x) == 1\n",
    ),
    "lazy module": in_file("trappkg/lazy.py", "late", "late(1) == __import__('trappkg').lazy.late(1) == 101"),
    "namespace package": in_file("trapns/inner/mod.py", "plain", "plain(1) == 2"),
    "missing part of a namespace": in_file("trapns/inner/mod.py", "lazy", "lazy(1)", "error/context: error"),
    "name of Python 2": in_file("trapns/inner/mod.py", "old", "old(1)", "error/context: error"),
    "patched built-in": in_file("trappkg/patching.py", "size", "size([1]) == 3", UNUSABLE),
    "exit at import": in_file("trappkg/exits.py", "f", "f(1) == 1", UNUSABLE),
    "end of the process": in_file("trappkg/dies.py", "f", "f(1) == 1", UNUSABLE),
    "missing package": in_file("trappkg/needs.py", "f", "f(1) == 1", "error/dependency: not_run"),
    "missing part": in_file("trappkg/broken.py", "f", "f(1) == 1", UNUSABLE),
    "hang at import": in_file("trappkg/hangs.py", "f", "f(1) is None", UNUSABLE),
    "thread at import": in_file("trappkg/threads.py", "f", "f(1) == 2"),
    "slow import": in_file("trappkg/slow.py", "f", "f(1) == 2"),
    "socket at import": in_file("trappkg/network.py", "f", "f(1) == 2"),
    "class with a faster version": in_file("trappkg/boxes.py", "Box.size", "Box().size() == 1", UNUSED),
    "lost class": in_file("trappkg/boxes.py", "Lost.gone", "Lost().size() == 1", UNUSABLE),
    "assertion of the module": in_file("trappkg/boxes.py", "Strict.get", "Strict(0).get()", "error/program: error"),
    "no import with sentinels": in_file("trappkg/shy.py", "f", "other(1) == 1", UNUSED),
    "compiled module": in_file("trappkg/fast.py", "f", "f(1) == 2", UNUSABLE),
    "large module": in_file("trappkg/large.py", "f", "f(1) == 2", UNUSABLE),
    "other encoding": in_file("trappkg/accents.py", "f", "f(1) == 2"),
    "first of twins": in_file("trappkg/twins.py", "twin", "twin(1) == 1"),
    "changed helper": in_file(
        "trappkg/lies.py", "lie", "lie(1)\n    assert same(1, 2)\ndef same(*a): return 0", "error/snippet: passed"
    ),
    "search for the reporter": in_file("trappkg/forge.py", "wrong", "wrong(1) == 2", "error/snippet: error", "gc"),
    "forged pass": in_file("trappkg/always.py", "wrong", "wrong(1) == 2", UNUSED, *REACHING),
    "forged pass, no sentinel": in_file("trappkg/unless.py", "wrong", "wrong(1) == 2", PASSED, *REACHING),
    "other code": in_core("other", "core.early(2) == 1", UNUSABLE),
    "bug": in_core("early", "core.early('x') == 1", "error/snippet: error"),
    "wrong argument": in_core("early", "core.early(1, 2) == 1", "error/program: error"),
    "wrong name": in_core("early", "nope(1)", "error/program: not_run", before="from trappkg.core import nope\n"),
    "replaced function": in_core(
        "public", "core.public(1) == 11", UNUSED, "core.public", before="core.public = lambda x: 11\n"
    ),
    "mocked function": in_core(
        "public", "core.public(1) == 11", UNUSED, "trappkg.core.public", before=MOCK.format("'trappkg.core.public'", 11)
    ),
    "replaced re-export": in_core(
        "public", "m.public(1) == 11", UNUSED, "m.public", before="import trappkg as m\nm.public = lambda x: 11\n"
    ),
    "redefined function": in_core("public", "public(1) == 11", UNUSED, before="def public(x): return 11\n"),
    "replaced helper": in_core(
        "public", "core.public(1) == 1", PASSED, "core.helper", before="core.helper = lambda x: 0\n"
    ),
    "mocked helper": in_core(
        "public", "core.public(1) == 1", PASSED, "trappkg.core.helper", before=MOCK.format("'trappkg.core.helper'", 0)
    ),
    "replaced other method": in_core(
        "Slotted.use", "core.Slotted(1).use(4) == 5", PASSED, "core.Slotted._Slotted__mangled",
        before="core.Slotted._Slotted__mangled = lambda s, k: 5\n",
    ),
    "replaced method": in_core(
        "Slotted.use", "core.Slotted(1).use(4) == 5", UNUSED, "core.Slotted.use",
        before="core.Slotted.use = lambda s, k: 5\n",
    ),
    "overridden method": in_core(
        "Slotted.use", "S(1).use(4) == 5", UNUSED, before="class S(core.Slotted):\n    def use(self, k): return 5\n"
    ),
    "reloaded module": in_core(
        "public", "core.public(1) == 11", UNUSED, before="import importlib\ncore = importlib.reload(core)\n"
    ),
    "second copy": in_core(
        "early", "core.early(2) == 1", UNUSED, "trappkg", before="import sys, importlib\n"
        "sys.modules.pop('trappkg.core')\ncore = importlib.import_module('trappkg.core')\n",
    ),
    "replaced code": in_core(
        "public", "core.public(1) == 11", UNUSED, "core.public.__code__",
        before="core.public.__code__ = (lambda x: 11).__code__\n",
    ),
}  # fmt: skip
