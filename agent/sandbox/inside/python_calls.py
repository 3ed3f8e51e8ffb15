"""Calls functions with many inputs and reports the results in a canonical form.

The job's program is a JSON list of tasks (see `CallTask`). A function for which inputs are chosen runs twice.
A function with shared inputs runs once, and only the digests of its results are reported.

This process never executes a snippet. Each function runs in a fork that cannot fork, without the report's descriptor,
and in a new folder with the same files. A fork returns its results in shared memory, so none of its descriptors leads
anywhere. A snippet shares its interpreter with the code that describes its results. It could forge its own results, but
no others.
"""

from __future__ import annotations
import __future__

import datetime
import decimal
import fractions
import io
import json
import mmap
import os
import re
import resource
import signal
import sys
import time
import types
from _blake2 import blake2b
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from itertools import islice, zip_longest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from agent.sandbox.inside.python_inputs import OLD, POOL, STAND_INS, Signature, Unfit, list_shared_inputs

    Result = tuple[str, str, str]

CPU_SECONDS, SECONDS = 0.15, 3.0
"""Limits of a call in CPU time, which does not depend on the load, and in real time."""
FORK_CPU_SECONDS, FORK_SECONDS = 5, 20.0
SLOW_SECONDS = 0.05
"""Inputs with slower calls are not chosen, so that the limits seldom decide."""
MAX_FUTILE, MAX_TIMEOUTS = 800, 4
MAX_INFORMATIVE, MAX_OTHER, MIN_DISTINCT = 60, 20, 3
MAX_ITEMS, MAX_NODES, MAX_DEPTH, MAX_CHARACTERS, MAX_TEXT = 50, 400, 6, 2000, 200
MEMORY, MAX_PART = 1 << 20, 8000
FOLDER = "values"
TIMEOUT = "timeout", "no result within the time limit"
FILES = {
    "f.txt": "first line\nsecond line 2\n\nlast: x=3\n",
    "d.json": '{"a": 1, "b": [1, 2]}',
    "t.csv": "a,b\n1,2\n3,4\n",
}
ADDRESS = re.compile(r"\bat 0x[0-9a-f]*")
SCALARS = frozenset([type(None), bool, int, float, str, bytes])
ITERATORS = "dict_keys", "dict_values", "dict_items", "map", "filter", "zip", "generator", "deque"
PRINTED = "datetime", "date", "time", "timedelta", "Decimal", "Fraction", "complex", "Match", "UUID"
"""Types of standard libraries that are described by their text. The harness imports none of these libraries."""


class TimeLimit(BaseException):
    """Raised in a call that takes too long."""


class Node:
    """A node of a tree or a linked list."""

    def __init__(self, value: Any, left: Any = None, right: Any = None) -> None:
        self.value = self.val = self.data = value
        self.left, self.right, self.next = left, right, left
        self.children = [child for child in (left, right) if child is not None]


class Receiver:
    """The `self` of a method. Its description lacks the attributes that are still the `given` ones."""

    __slots__ = "__dict__", "given"

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        vars(self).update(given)


LIKE_LISTS, UNLIKE_LISTS = "[%s]", "(%s)"
FORMS = {"tuple": LIKE_LISTS}


def describe(value: Any, depth: int = 0, nodes: list[None] | None = None) -> str:
    """Return the canonical form of a value. Numbers of all types have the same form, and so have sequences."""
    nodes = [] if nodes is None else nodes
    nodes.append(None)
    kind = type(value)
    name: str = kind.__name__
    if kind in SCALARS:
        return describe_atom(value, name)
    if depth > MAX_DEPTH or len(nodes) > MAX_NODES:
        return "..."
    if hasattr(kind, "tolist") and hasattr(kind, "dtype"):
        return describe(value.tolist(), depth, nodes)
    if kind is Receiver:
        changed = {
            key: own for key, own in vars(value).items() if key not in value.given or own is not value.given[key]
        }
        return "Receiver(%s)" % describe(changed, depth, nodes)

    def describe_all(items: Iterable[Any]) -> list[str]:
        return [describe(item, depth + 1, nodes) for item in islice(items, MAX_ITEMS)]

    if isinstance(value, dict):
        return "{%s}" % ", ".join(sorted(": ".join(describe_all(item)) for item in islice(value.items(), MAX_ITEMS)))
    if isinstance(value, (set, frozenset)):
        return "{%s}" % ", ".join(sorted(describe_all(value)))
    is_iterator = name in ITERATORS or (hasattr(kind, "__next__") and not isinstance(value, io.StringIO))
    if isinstance(value, tuple):
        return FORMS["tuple"] % ", ".join(describe_all(value))
    if isinstance(value, (list, range)) or is_iterator:
        return "[%s]" % ", ".join(describe_all(value))
    return describe_atom(value, name) or "%s(%s)" % (name, describe(getattr(value, "__dict__", {}), depth, nodes))


def describe_atom(value: Any, name: str) -> str:
    """Return the canonical form of a value without parts, or an empty text."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return "%.12g" % value if isinstance(value, float) or abs(value) < 1 << 50 else hex(value)[:MAX_CHARACTERS]
    if isinstance(value, (str, bytes, bytearray)):
        return repr(value[:MAX_CHARACTERS])
    if isinstance(value, (type, types.FunctionType, types.ModuleType)):
        return "<%s>" % value.__name__
    if isinstance(value, io.StringIO):
        return "StringIO(%r)" % value.getvalue()[:MAX_CHARACTERS]
    return "%s(%s)" % (name, value) if name in PRINTED else ""


VALUES = {"datetime": datetime, "decimal": decimal, "fractions": fractions, "io": io, "Node": Node}
"""The names in the expressions of inputs."""


@lru_cache(10_000)
def compile_input(expression: str) -> Any:
    return compile(expression, "input", "eval", dont_inherit=True)


@lru_cache(10_000)
def describe_input(expression: str, tuples: str) -> str:
    """Return the description of an argument, or an empty text for an iterator, which a description would end."""
    FORMS["tuple"] = tuples
    value = eval(compile_input(expression), VALUES)
    return "" if hasattr(value, "__next__") else describe(value)


def warm_up() -> None:
    """Describe the values of the pool once for all forks. Other inputs may be hostile."""
    for kind, texts in POOL.items():
        if kind != "array" or "np" in VALUES:
            for text in texts.split(" | "):
                describe_input(text, UNLIKE_LISTS)
                describe_input(text, LIKE_LISTS)


class Caller:
    """Calls the function of a snippet. Executes the snippet, so it belongs in a fork."""

    def __init__(self, code: str, signature: Signature) -> None:
        self.signature = signature
        namespace: dict[str, Any] = {"__name__": "snippet", **({} if signature.strict else STAND_INS)}
        for name, (module, attribute) in signature.names.items():
            try:
                imported = import_module(module) if module else None
                namespace[name] = getattr(imported, attribute) if module and attribute else imported or OLD[name]
            except (ImportError, AttributeError):
                if signature.strict:
                    raise Unfit("unknown names") from None
        for name in ("random", "numpy.random"):
            if name in sys.modules:  # otherwise, all forks would draw the same numbers
                sys.modules[name].seed()
        self.armed = self.expired = False
        signal.signal(signal.SIGPROF, self.expire)
        signal.signal(signal.SIGALRM, self.expire)
        flags = 0 if signature.strict else __future__.annotations.compiler_flag  # annotations may contain unknown names
        exec(compile(code, "snippet", "exec", flags, dont_inherit=True), namespace)
        function = namespace[signature.function.name]
        self.function = getattr(function, "fget", None) or getattr(function, "__func__", function)

    def expire(self, *_: object) -> None:
        if self.armed:
            self.expired = True
            raise TimeLimit

    def call(self, input: str) -> tuple[str, str]:
        """Call the function with new arguments. Return the outcome (see `CallResult`) and the description."""
        expressions = input.split("\n")
        options = dict(text.split("=", 1) for text in expressions[len(self.signature.arguments) :])
        before = [describe_input(text, FORMS["tuple"]) for text in expressions[: len(self.signature.arguments)]]
        values = [eval(compile_input(text), VALUES) for text in expressions[: len(before)]]
        keywords = {name: eval(compile_input(text), VALUES) for name, text in options.items()}
        arguments = values
        if self.signature.is_method:
            receiver, count = Receiver(dict(zip(self.signature.attributes, values))), len(self.signature.attributes)
            arguments = [receiver, *values[count:]]
            values, before = [*values, receiver], [*before, describe(receiver)]
        return self.observe(lambda: self.function(*arguments, **keywords), values, before)

    def observe(self, call: Callable[[], Any], values: list[Any], before: list[str]) -> tuple[str, str]:
        sys.stdout = printed = io.StringIO()
        self.expired, self.armed = False, True
        try:
            try:
                set_timers(CPU_SECONDS, SECONDS)
                result = describe(call())
                parts = zip(values, before)
                after = [describe(value) if text and type(value) not in SCALARS else text for value, text in parts]
                text = printed.getvalue()
            finally:
                self.armed = False
        except BaseException as error:
            self.armed = False
            outcome = "memory" if isinstance(error, MemoryError) else "raised"
            result, after, text = "raises " + type(error).__name__, before, ""
        else:
            outcome = "same" if result == "None" or result in before else "value"
        set_timers(0, 0)
        if self.expired:
            return TIMEOUT
        changes = [own for own, old in zip(after, before) if own != old]
        if result == "None" and (text or changes):
            outcome = "value"
        result += ", prints %r" % text[:MAX_CHARACTERS] if text else ""
        result += ", changes an argument to " + " and ".join(changes) if changes else ""
        return outcome, ADDRESS.sub("at 0x", result)


def set_timers(cpu: float, real: float) -> None:
    """Start or stop the timers. They repeat, because a snippet may handle the exception."""
    set_timer(PROF, cpu, cpu)
    set_timer(REAL, real, real)


set_timer, PROF, REAL, measure_cpu = signal.setitimer, signal.ITIMER_PROF, signal.ITIMER_REAL, time.process_time


class Results:
    """The results of a function. `by_text` has the informative ones, by their description."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.by_text: dict[str, list[Result]] = {}
        self.others: list[Result] = []
        self.count = self.timeouts = 0

    def add(self, input: str) -> None:
        start = measure_cpu()
        outcome, text = self.caller.call(input)
        self.count += 1
        self.timeouts += outcome == "timeout"
        if measure_cpu() - start < SLOW_SECONDS and ADDRESS.search(text) is None:
            if outcome == "value":
                self.by_text.setdefault(text, []).append((input, outcome, text))
            elif outcome == "same":
                self.others.append((input, outcome, text))

    def list_diverse(self) -> list[Result]:
        """Return the informative results, different ones first."""
        return [row for turn in zip_longest(*self.by_text.values()) for row in turn if row is not None]


def choose(caller: Caller) -> list[Result]:
    """Return the inputs with the most diverse results, and the results."""
    results, more = Results(caller), Results(caller)
    for input in caller.signature.choose_inputs():
        if results.timeouts > MAX_TIMEOUTS or len(results.by_text) >= MAX_INFORMATIVE:
            break
        if results.count >= MAX_FUTILE and not results.by_text:
            break
        results.add(input)
    if len(results.by_text) < MIN_DISTINCT:
        raise Unfit("timed out" if results.timeouts > MAX_TIMEOUTS else "too few results")
    informative = results.list_diverse()
    for option in caller.signature.choose_options():
        for input, _, _ in informative[:8]:
            if more.timeouts <= MAX_TIMEOUTS:
                more.add(input + "\n" + option)
    new = [row for row in more.list_diverse() if row[2] not in results.by_text]
    return [*informative[:MAX_INFORMATIVE], *[*new, *results.others][:MAX_OTHER]]


def call_all(caller: Caller, inputs: list[str]) -> Iterator[Result]:
    """Iterate over the results for inputs. After several timeouts, the other calls are not made."""
    timeouts = 0
    for input in inputs:
        outcome, text = caller.call(input) if timeouts <= MAX_TIMEOUTS else TIMEOUT
        timeouts += outcome == "timeout"
        yield input, outcome, text


def call_shared(caller: Caller) -> str:
    """Return a digest for each shared input. It is empty without a result, and starts with `=` for None or an argument.

    Tuples and lists differ, because people who ask for one do not want the other. If numpy is not installed, the inputs
    that need it have no results.
    """
    inputs = list_shared_inputs(len(caller.signature.arguments))
    usable = [input for input in inputs if "np" in VALUES or "np." not in input]
    digests = {}
    for input, outcome, text in call_all(caller, usable):
        if outcome in ("value", "same") and ADDRESS.search(text) is None:
            digests[input] = "=" * (outcome == "same") + digest_text(text, 3)
    return " ".join([digests.get(input, "") for input in inputs])


def digest_text(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def run_fork(memory: mmap.mmap, code: str, signature: Signature, inputs: list[str] | None, shares: bool) -> None:
    """Call a function, and write the status and the results to the shared memory."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (FORK_CPU_SECONDS, FORK_CPU_SECONDS + 1))
    for number in (1, 2):
        os.dup2(0, number)
    os.closerange(3, 4096)
    sys.stderr = io.StringIO()
    try:
        caller = Caller(code, signature)
        parts = ["ran"]
        if shares:
            FORMS["tuple"] = UNLIKE_LISTS
            digests = call_shared(caller)
            for start in range(0, len(digests), MAX_PART):
                parts += ["", "", "", digests[start : start + MAX_PART]]
        else:
            for input, outcome, text in choose(caller) if inputs is None else call_all(caller, inputs):
                parts += [input, outcome, digest_text(text, 8), text[:MAX_TEXT].replace("\0", "")]
    except Unfit as error:
        parts = [str(error)]
    except BaseException:
        parts = ["does not load"]
    data = "\0".join(parts).encode("utf-8", "backslashreplace")
    memory[8 : 8 + len(data)] = data
    memory[:8] = len(data).to_bytes(8, "big")


def call_in_fork(
    work: str, code: str, signature: Signature, inputs: list[str] | None, shares: bool
) -> tuple[str, list[tuple[str, ...]]]:
    """Return the status of a function, and rows of input, outcome, digest and description."""
    enter_folder(work)
    exit_process = os._exit
    memory = mmap.mmap(-1, MEMORY)
    pid = os.fork()
    if pid == 0:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            run_fork(memory, code, signature, inputs, shares)
        finally:
            exit_process(0)
    is_timely = wait_for(pid)
    data = memory[8 : 8 + int.from_bytes(memory[:8], "big")]
    memory.close()
    status, *parts = data.decode("utf-8", "replace").split("\0")
    rows: list[tuple[str, ...]] = list(zip(parts[::4], parts[1::4], parts[2::4], parts[3::4]))
    is_complete = status and (inputs is None or status != "ran" or len(rows) == len(inputs))
    return (status, rows) if is_timely and is_complete else ("died" if is_timely else "timed out", [])


def wait_for(pid: int) -> bool:
    """Wait for a fork, and kill it after the time limit. Return whether it exited in time."""
    deadline = time.monotonic() + FORK_SECONDS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        signal.sigtimedwait([signal.SIGCHLD], FORK_SECONDS)


def enter_folder(work: str) -> None:
    """Make the working folder of a fork, always at the same path, and enter it. An earlier folder is moved away."""
    path = os.path.join(work, FOLDER)
    os.chdir(work)
    if os.path.lexists(path):
        os.rename(path, "%s-%d" % (path, time.monotonic_ns()))
    os.mkdir(path)
    os.chdir(path)
    for name, text in FILES.items():
        with open(name, "w") as file:
            file.write(text)


def hide() -> None:
    """Prevent forks, which run as the same user, from opening this process's memory and descriptors."""
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def main(job: Any, emit: Callable[..., None]) -> None:
    hide()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for number, task in enumerate(json.loads(job.program)):
        for status, rows, changed in run_task(job.work, **task):
            for row in rows:
                emit("result", *row)
            emit("function", str(number), status, str(changed))


def run_task(
    work: str, functions: list[str], like: str | None, inputs: Any, expected: Any
) -> Iterator[tuple[str, list[Any], int]]:
    """Iterate over each function's status, its results as tuples of texts, and how many informative results changed."""
    shares = like is None
    for code in functions:
        signature = Signature(like or code, strict=inputs is None and not shares)
        if signature.uses_numpy or shares or any("np." in text for text in inputs or ()):
            with suppress(ImportError):
                VALUES["np"] = import_module("numpy")
        warm_up()
        status, rows = call_in_fork(work, code, signature, inputs, shares)
        if inputs is None and not shares and status == "ran":
            again = call_in_fork(work, code, signature, [row[0] for row in rows], shares)
            status, rows = again if again == (status, rows) else ("flaky", [])
        first: dict[str, tuple[str, ...]] = {}
        changed = 0
        for index, row in enumerate(rows if expected else ()):
            if [*row[1:3]] != expected[index]:
                first.setdefault(row[1], (str(index), *row[1:]))
                changed += expected[index][0] == "value" and row[1] not in ("timeout", "memory")
        yield status, [*first.values()] if expected else rows, changed
