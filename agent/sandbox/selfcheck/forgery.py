"""Programs that would pass without having earned it: none does."""

from __future__ import annotations

from agent.sandbox.selfcheck.check import does_not_pass, programs

_FORGERIES = {
    "leaves while loading": "import os\nos._exit(0)\ndef test_a(): assert 0",
    "leaves in a case": "import os\ndef test_a():\n    os._exit(0)\n    assert 0",
    "leaves after the case": "import os, threading, time\n"
    "def leave():\n    time.sleep(0.05)\n    os._exit(0)\n"
    "def test_a():\n    threading.Thread(target=leave).start()\n    time.sleep(1)",
    "exits while loading": "import sys\nsys.exit(0)\ndef test_a(): pass",
    "exits in a case": "def test_a():\n    raise SystemExit(0)",
    "interrupts": "def test_a():\n    raise KeyboardInterrupt",
    "interrupts itself": "import os, signal\ndef test_a():\n    os.kill(os.getpid(), signal.SIGINT)\n    assert 0",
    "prints success": "print('OK')\nprint('1 passed')\ndef test_a(): assert 0",
    "writes a result file": "open('result.json', 'w').write('{\"passed\": 1}')\ndef test_a(): assert 0",
    "writes a report": "import os\nos.write(3, b'\\0\\0\\0\\4pass')\ndef test_a(): pass",
    "fills the report": "import os\nfor _ in range(100): os.write(3, b'x' * 60000)\ndef test_a(): pass",
    "closes the report": "import os\nos.close(3)\ndef test_a(): pass",
    "has no case": "x = 1",
    "has no such function": "test_a = 3",
    "has a generator for a case": "def test_a():\n    yield\n    assert 0",
    "patches a builtin": "import builtins\nbuiltins.len = lambda x: 3\ndef test_a(): assert len([]) == 3",
    "patches a builtin in a case": "import builtins\ndef test_a(): builtins.sorted = list",
    "removes a builtin": "import builtins\ndel builtins.all\ndef test_a(): pass",
    "patches AssertionError": "import builtins\nbuiltins.AssertionError = Warning\ndef test_a(): assert len([]) == 3",
    "skips": "import unittest\ndef test_a(): raise unittest.SkipTest('no')",
    "skips the module": "import unittest\nraise unittest.SkipTest('no')\ndef test_a(): pass",
    "kills itself": "import os\ndef test_a(): os.kill(os.getpid(), 9)",
    "stops itself": "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGSTOP)",
    "becomes another program": "import os\nos.execv('/bin/true', ['true'])\ndef test_a(): pass",
    "becomes another program in a case": "import os\ndef test_a(): os.execv('/bin/true', ['true'])",
    "forks away": "import os\nif os.fork(): os._exit(0)\ndef test_a(): pass",
    "forks away in a case": "import os\ndef test_a():\n    if os.fork(): os._exit(0)",
    "leaves at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef test_a(): assert 0",
    "replaces streams": "import sys\nsys.stdout = sys.stderr = sys.__stdout__ = None\ndef test_a(): assert 0",
    "replaces the way out": "import os\nos._exit = os.write = lambda *a: None\ndef test_a(): assert 0",
    "runs as the main program": "if __name__ == '__main__':\n    def test_a(): pass",
    "segfaults": "def test_a():\n    import faulthandler\n    faulthandler._sigsegv()",
    "writes into every descriptor of the first process": "import os\n"
    "def test_a():\n    for n in range(64):\n        try:\n"
    "            with open(f'/proc/1/fd/{n}', 'wb', buffering=0) as f: f.write(b'x\\0\\0\\0\\0')\n"
    "        except OSError: pass\n    assert 0",
    "writes into every descriptor of its own": "import os\n"
    "for n in range(64):\n    try: os.write(n, b'r\\0\\0\\0\\4pass')\n    except OSError: pass\ndef test_a(): assert 0",
    "ends the first process": "import os\ndef test_a():\n    for s in (15, 9, 19):\n"
    "        try: os.kill(1, s)\n        except OSError: pass\n    assert 0",
    "ends its parent": "import os\n"
    "def test_a():\n    try: os.kill(os.getppid(), 9)\n    except OSError: pass\n    assert 0",
    "ends all it may": "import os\ndef test_a():\n    os.kill(-1, 9)\n    assert 0",
    "writes a stack of its own": "import os\n"
    "stack = b'  File \"x\", line ' + b'9' * 5000 + b' in f\\n' + b'  File \"' * 2000\n"
    "for n in range(3, 9):\n    try: os.write(n, stack)\n"
    "    except OSError: pass\ndef test_a(): assert 0",
    "reads the nonce from its frames": "import sys, os\n"
    "def test_a():\n    frame = sys._getframe()\n    while frame:\n        for v in list(frame.f_locals.values()):\n"
    "            if isinstance(v, str) and 16 <= len(v) <= 64: os.write(3, v.encode())\n"
    "        frame = frame.f_back\n    assert 0",
    "stops time": "import time\ntime.time = time.monotonic = time.perf_counter = lambda: 0.0\n"
    "def test_a(): assert time.time() > 1",
    "leaves by a signal's handler": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: os._exit(0))\n"
    "def test_a():\n    os.kill(os.getpid(), signal.SIGUSR1)\n    assert 0",
}

CHECKS = programs("forgeries", _FORGERIES, does_not_pass, timeout=1.5, whole=True)
