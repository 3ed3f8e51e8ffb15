"""Programs that look odd and are honest: they pass, for a sandbox that refuses everything proves nothing."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import Broken, Check, Room, earned, passes, programs, told

_HONEST = {
    "adds builtins": "import builtins\nbuiltins.unicode = str\ndef test_a(): assert unicode(1) == '1'",
    "answers input": "import builtins\nbuiltins.input = lambda *a: '5'\ndef test_a(): assert input() == '5'",
    "patches and restores": "from unittest import mock\nimport io\n"
    "def test_a():\n    with mock.patch('builtins.open', lambda p: io.StringIO('x')): assert open('f').read() == 'x'",
    "is patched by a decorator": "from unittest import mock\n"
    "@mock.patch('os.getcwd', lambda: 'here')\ndef test_a():\n    import os\n    assert os.getcwd() == 'here'",
    "patches unittest and restores it": "import unittest\nfrom unittest import mock\n"
    "@mock.patch.object(unittest.TestCase, 'assertEqual', lambda *a: None)\ndef test_a():\n"
    "    unittest.TestCase().assertEqual(1, 2)\n"
    "    with mock.patch('asyncio.run'), mock.patch.dict('sys.modules', unittest=None): pass",
    "has test classes of many kinds": "import unittest\nfrom unittest import mock\n"
    "def timed(owner):\n    owner.setUpClass = classmethod(lambda cls: None)\n    return owner\n"
    "class Base(unittest.TestCase):\n    count = 0\n"
    "    def assertEqual(self, a, b):\n        Base.count += 1\n        super().assertEqual(a, b)\n"
    "    def run(self, result=None): return super().run(result)\n"
    "@timed\nclass TestB(Base):\n    def test_b(self): self.assertEqual(1, 1)\n"
    "def test_a():\n    result = unittest.TestResult()\n    unittest.TestSuite([TestB('test_b')]).run(result)\n"
    "    assert result.wasSuccessful() and Base.count == 1\n    assert mock.mock_open(read_data='x')().read() == 'x'",
    "stops the clock while it runs": "import time, types, sys\n"
    "def test_a():\n    real = time.time\n"
    "    found = [(m, k) for m in list(sys.modules.values()) if isinstance(m, types.ModuleType)\n"
    "        for k, v in list(vars(m).items()) if v is real]\n"
    "    for m, k in found: setattr(m, k, lambda: 0.0)\n    assert time.time() == 0.0\n"
    "    for m, k in found: setattr(m, k, real)",
    "waits for much": "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\n"
    "async def test_a(): assert await asyncio.gather(f(1), f(2)) == [1, 2]",
    "defines a fallback": "try:\n    from json import loads as f\nexcept ImportError:\n    def f(x): return 1\n"
    "def test_a(): assert f('2') == 2",
    "chooses a definition": "if False:\n    def f(): return 1\nelse:\n    def f(): return 2\n"
    "def test_a(): assert f() == 2",
    "defines twice": "def f(): return 1\ndef f(): return 2\ndef test_a(): assert f() == 2",
    "rebinds": "def f(): return 1\nf = [f]\ndef test_a(): assert f[0]() == 1",
    "has descriptors": "class A:\n    @property\n    def p(self): return 1\n    @p.setter\n    def p(self, v): pass\n"
    "    @staticmethod\n    def s(): return 2\n    @classmethod\n    def c(cls): return 3\n    def __m(self): pass\n"
    "    def __init_subclass__(cls): pass\n    def __class_getitem__(cls, x): return x\n"
    "def test_a(): assert (A().p, A.s(), A.c()) == (1, 2, 3)",
    "has a data class": "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass A:\n    x: int\n"
    "    def y(self): return self.x\ndef test_a(): assert A(1).y() == 1 and A(1) == A(1)",
    "caches": "import functools\n@functools.lru_cache(None)\ndef f(x): return x\n"
    "@functools.singledispatch\ndef g(x): return 1\n@g.register(str)\ndef _(x): return 2\n"
    "def test_a(): assert f(1) == 1 and g('') == 2",
    "forks and comes back": "import os\ndef test_a():\n    pid = os.fork()\n"
    "    if pid: assert os.waitpid(pid, 0)[0] == pid",
    "leaves threads": "import threading, time\ndef test_a(): threading.Thread(target=time.sleep, args=(60,)).start()",
    "closes its output": "import sys\ndef test_a(): sys.stdout.close()",
    "has odd hooks": "import os, sys, atexit\nos.register_at_fork(before=sys.exit)\nsys.excepthook = None\n"
    "atexit.register(sys.exit, 3)\ndef test_a(): pass",
}

_OUTPUT = """
import sys
sys.stdout.buffer.write(b"nul \\0, invalid \\xff\\xfe, escapes \\x1b[31m\\x1b]0;title\\x07, \\xe2\\x82\\xac\\n")
sys.stdout.flush()
"""


async def _odd_output(room: Room) -> None:
    """Bytes that are no text do not break the report, and what is text arrives as it was written."""
    async with room.sandbox() as sandbox:
        result = await sandbox.run(room.job(f"def test_a(): pass\n{_OUTPUT}"))
        if not earned(result) or "nul \0" not in result.stdout or "€" not in result.stdout:
            raise Broken(f"its output is {result.stdout!r}: {told(result)}")


async def _capped_output(room: Room) -> None:
    """Output beyond its limit is cut, and said to be."""
    async with room.sandbox() as sandbox:
        size = 3 * room.limits.output
        result = await sandbox.run(room.job(f"def test_a(): print('x' * {size})"))
        if not (result.truncated and 0 < len(result.stdout) <= room.limits.output):
            raise Broken(f"{len(result.stdout)} characters of {size} arrived: {told(result)}")


CHECKS = [
    *programs("honest programs", _HONEST, passes, whole=True),
    Check("writes what is no text", "honest programs", _odd_output),
    Check("writes more than is kept", "honest programs", _capped_output),
]
