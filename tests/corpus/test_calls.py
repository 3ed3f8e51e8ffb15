"""Functions are called with inputs in a sandbox: results are canonical, and hostile code changes only its own."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from agent.corpus.calls import RAN, Calls, CallTask, run_tasks
from agent.sandbox.inside.python_inputs import Signature, Unfit, list_shared_inputs
from agent.sandbox.session import SandboxSession
from tests.sandbox.conftest import BACKENDS, start

FOLDER = Path(__file__).parents[2] / "agent" / "sandbox"
"""A folder of the host whose files programs must not change. It has the sources of the harness."""
DOUBLE = "def double(x):\n    return x * 2\n"
INPUTS = ("1", "'a'", "[1, 2]")
HOSTILE = {
    "forges results": "for fd in range(10):\n        try: os.write(fd, b'\\0\\0\\0\\0\\0\\0\\0\\3ran' * 99)\n"
    "        except OSError: pass",
    "changes modes": "for fd in range(10):\n        try: os.chmod(fd, 0)\n        except OSError: pass",
    "moves offsets": "for fd in range(10):\n        try: os.lseek(fd, 3, 0), os.ftruncate(fd, 0)\n"
    "        except OSError: pass",
    "patches": "import builtins, json, random\n    builtins.repr = builtins.len = builtins.isinstance = None\n"
    "    builtins.hash = lambda _: 0\n    json.loads = json.dumps = random.seed = os.write = os._exit = print",
    "changes files": "for name in os.listdir('.'): os.remove(name)\n    os.chdir('..')\n    os.rmdir('values')\n"
    "    open('values', 'w').close()",
    "prints": "print('{\"kind\": \"end\"}' * 99)\n    sys.__stdout__.write('x' * 99)",
    "starts processes": "try: return os.fork()\n    except OSError: pass",
    "reads memory": "try: return open(f'/proc/{os.getppid()}/mem')\n    except OSError: pass",
    "exits": "os._exit(0)",
    "kills": "os.kill(os.getppid(), 9)",
    "handles the time limit": "try:\n        while True: pass\n    except BaseException: pass",
    "never ends": "for timer in (0, 1, 2): signal.setitimer(timer, 0)\n    while True: pass",
}


on_bwrap = pytest.mark.parametrize("session", BACKENDS[1:], indirect=True)


@pytest.fixture(params=BACKENDS)
async def session(request: pytest.FixtureRequest) -> AsyncIterator[SandboxSession]:
    """A session of a started backend."""
    backend = await start(request.param)
    session = SandboxSession(backend)
    yield session
    await session.close()
    await backend.close()


async def call(session: SandboxSession, *functions: str, inputs: Sequence[str] = INPUTS) -> list[Calls]:
    [calls] = await run_tasks(session, [CallTask(functions, functions[-1], inputs)], None)
    return calls


def read_modes(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each file in a folder except compiled ones, and the modes of devices."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]
    files = {str(path): (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) for path in paths}
    return files | {name: (stat.S_IMODE(Path(name).stat().st_mode), b"") for name in ("/dev/null", "/dev/zero", "/tmp")}


async def test_hostile_functions_change_neither_other_results_nor_the_host(session: SandboxSession) -> None:
    before = read_modes(FOLDER)
    [honest] = await call(session, DOUBLE)
    assert [result.text for result in honest.results] == ["2", "'aa'", "[1, 2, 1, 2]"]
    codes = [f"import os, signal, sys\ndef double(x):\n    {body}\n    return x * 2\n" for body in HOSTILE.values()]
    tasks = [CallTask([code, DOUBLE], DOUBLE, INPUTS) for code in codes]
    results = dict(zip(HOSTILE, await run_tasks(session, tasks, None), strict=True))
    assert [name for name, (_, other) in results.items() if other != honest] == ["kills"]
    assert results["starts processes"][0] == results["reads memory"][0] == honest
    failed = {name: hostile.status for name, (hostile, _) in results.items() if hostile.status != RAN}
    assert failed == {"exits": "process died", "kills": "process died", "never ends": "timed out"}
    timeouts = [name for name, (hostile, _) in results.items() if "timeout" in {row.outcome for row in hostile.results}]
    assert timeouts == ["handles the time limit"]
    alone = [CallTask([code], None) for code in codes]
    shared = [own.status for [own] in await run_tasks(session, [*alone, CallTask([DOUBLE], None)], None)]
    assert [name for name, status in zip([*HOSTILE, "honest"], shared, strict=True) if status != RAN] == [
        "exits", "kills", "never ends"
    ]  # fmt: skip
    assert read_modes(FOLDER) == before


RESULTS = [
    ("return x", "same", "1"),
    ("return None", "same", "None"),
    ("return (1.0, True)", "value", "[1, True]"),
    ("return {2, 1}, {'b': 1, 'a': b'x'}", "value", "[{1, 2}, {'a': b'x', 'b': 1}]"),
    ("yield from (x, x + 1)", "value", "[1, 2]"),
    ("return type('T', (), {})()", "value", "T({})"),
    ("return datetime.timedelta(x)", "value", "timedelta(1 day, 0:00:00)"),
    ("return repr(object())", "value", "'<object object at 0x>'"),
    ("print('hi')", "value", "None, prints 'hi\\n'"),
    ("raise KeyError(x)", "raised", "raises KeyError"),
    ("return bytearray(1 << 60)", "memory", "raises MemoryError"),
    ("time.sleep(9)", "timeout", "no result within the time limit"),
    ("while True: pass", "timeout", "no result within the time limit"),
    ("return unknown", "raised", "raises NameError"),
]


@on_bwrap
async def test_results_have_a_canonical_form(session: SandboxSession) -> None:
    codes = [f"import datetime, time\ndef f(x):\n    {body}\n" for body, *_ in RESULTS]
    [calls] = await run_tasks(session, [CallTask(codes, "def f(x): pass", ["1"])], None)
    results = [(result.outcome, result.text) for own in calls for result in own.results]
    assert results == [(outcome, text) for _, outcome, text in RESULTS]


@on_bwrap
async def test_changed_arguments_and_attributes_are_results(session: SandboxSession) -> None:
    [calls] = await call(session, "def f(x):\n    x.append(1)\n", inputs=["[]", "[2]"])
    assert [result.text for result in calls.results] == [f"None, changes an argument to [{x}1]" for x in ("", "2, ")]
    [calls] = await call(session, "def f(self, y):\n    self.x += y\n", inputs=["1\n2"])
    assert calls.results[0].text == "None, changes an argument to Receiver({'x': 3})"


ALIKE = [
    ("def f(a):\n    return a + a\n", "def f(self):\n    return self.x + self.x\n", True),
    ("def f(a):\n    a.append(1)\n", "def f(self):\n    self.x.append(1)\n", True),
    ("def f(a: Unknown):\n    return list(a)\n", "def f(a):\n    return [*a]\n", True),
    ("def f(a):\n    return np.mean(list(a))\n", "def f(a):\n    return missing(a)\n", True),
    ("def f(a):\n    return len(a)\n", "def f(a):\n    print(len(a))\n", False),
    ("def f(a):\n    a.append(1)\n", "def f(a):\n    a.append(2)\n", False),
    ("def f(a, b=2):\n    return a * b\n", "def f(a):\n    return a * 3\n", False),
]


@on_bwrap
async def test_functions_with_as_many_arguments_share_inputs(session: SandboxSession) -> None:
    codes = [code for first, second, _ in ALIKE for code in (first, second)]
    results = [own.shared for [own] in await run_tasks(session, [CallTask([code], None) for code in codes], None)]
    assert {len(own.split(" ")) for own in results} == {len(list_shared_inputs(1))}
    assert [first == second for first, second in zip(results[::2], results[1::2], strict=True)] == [
        alike for *_, alike in ALIKE
    ]
    [[raised], [same]] = await run_tasks(
        session, [CallTask(["def f(a):\n    1 / 0"], None), CallTask(["def f(a, b, c):\n    return b"], None)], None
    )
    assert set(raised.shared) == {" "}
    assert {text[:1] for text in same.shared.split(" ")} <= {"", "="}


CHOSEN = [
    (DOUBLE, RAN),
    ("def f(self, n):\n    return self.size * n\n", RAN),
    ("def f(text, upper=False):\n    return text.upper() if upper else text.title()\n", RAN),
    ("def f(path):\n    return open(path).read()\n", RAN),
    ("def f(x):\n    return x > 3\n", "too few results"),
    ("def f(x):\n    return object()\n", "too few results"),
    ("def f(x):\n    return uuid.uuid4().hex + str(x)\n", "flaky"),
    ("def f(x):\n    return random.random() + len(x)\n", "flaky"),
    ("def f(x):\n    while True: pass\n", "timed out"),
    ("def f(x):\n    return x\nf = 1 / 0\n", "does not load"),
    ("def f(x):\n    '>>> f(exec(\"import os; os._exit(0)\"))'\n    return x * 2\n", RAN),
    ("def f(x):\n    return time.time_ns() + len(x)\n", "flaky"),
]


@on_bwrap
async def test_inputs_are_chosen_for_functions_with_diverse_results(session: SandboxSession) -> None:
    tasks = [CallTask([code], code) for code, _ in CHOSEN]
    chosen = await run_tasks(session, tasks, None)
    assert [calls.status for [calls] in chosen] == [status for _, status in CHOSEN]
    for [calls] in chosen:
        assert bool(calls.results) == (calls.status == RAN)
        assert len({result.text for result in calls.results}) >= (3 if calls.status == RAN else 0)
        assert len(calls.results) <= 80
    assert await run_tasks(session, tasks, None) == chosen


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("def f(count): pass", "3"),
        ("def f(x: str): pass", "'abc'"),
        ("def f(words): pass", "[3, 1, 2]"),
        ("def f(n, s): pass", "3\n'abc'"),
        ("def f(n):\n    '''\n    >>> f(g(1))\n    >>> f(n)\n    >>> f({[]: 1})\n    >>> f(1e309)\n    '''", "1e309"),
        ("def f(options=None): pass", "{'a': 1, 'b': 2}"),
        ("def f(a):\n    '''\n    >>> f([7])\n    '''", "[7]"),
    ],
)
def test_likely_inputs_come_first(code: str, first: str) -> None:
    assert next(Signature(code).choose_inputs()) == first


def test_constants_and_optional_parameters_are_inputs() -> None:
    signature = Signature("def f(mode, strict=True, *, size=2):\n    return mode == 'fast'")
    assert "'fast'" in [*signature.choose_inputs()]
    assert [*signature.choose_options()][:2] == ["strict=False", "size=3"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(:", "does not parse"),
        ("x = 1", "not one function"),
        ("def f(): pass", "arguments"),
        ("def f(a, b, c, d, e, g): pass", "arguments"),
        ("def f(a, *, b): pass", "arguments"),
        ("def f(self, a):\n    return self.g(a)", "uses self"),
        ("def f(a):\n    return helper(a)", "unknown names"),
        ("f = " + "(" * 5000, "does not parse"),
        ("def f(a):\n    return '\ud800'", "does not parse"),
    ],
)
def test_other_functions_have_a_reason(code: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        Signature(code)
