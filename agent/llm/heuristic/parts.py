"""Helpers that generated programs carry with them, kept as real code; `source` gives the text of those needed.

They run inside programs, next to the tested snippet: each is self-contained, and none knows the snippet.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any


class _StandIn:
    """Takes the place of an object that the snippet uses and does not bring; does nothing and has no contents."""

    _uses = 0

    def __init__(self, name: str = "stand-in", echo: bool = False, truth: bool = True) -> None:
        self.__dict__.update(_name=name, _echo=echo, _truth=truth)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        _StandIn._uses += 1
        if _StandIn._uses > 20_000:
            raise RuntimeError("a stand-in was used without end")
        self.__dict__[name] = _StandIn(name)
        return self.__dict__[name]

    def __call__(self, *values: Any, **named: Any) -> Any:
        if values and (self._echo or (callable(values[0]) and len(values) == 1)):
            return values[0]
        return _StandIn(self._name)

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__(f"item_{key!r}"[:80])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__[f"item_{key!r}"[:80]] = value

    def __delitem__(self, key: Any) -> None:
        self.__dict__.pop(f"item_{key!r}"[:80], None)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __next__(self) -> Any:
        raise StopIteration

    def __reversed__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, item: Any) -> bool:
        return False

    def __bool__(self) -> bool:
        return bool(self._truth)

    def __int__(self) -> int:
        return 1

    def __index__(self) -> int:
        return 1

    def __float__(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return str(self._name)

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __fspath__(self) -> str:
        return str(self._name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *details: Any) -> None:
        return None

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *details: Any) -> None:
        return None

    def __await__(self) -> Iterator[Any]:
        yield from ()
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        raise StopAsyncIteration

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __subclasscheck__(self, subclass: Any) -> bool:
        return False

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def _same(self, *others: Any) -> Any:
        return self

    def _less(self, other: Any) -> bool:
        return False

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _same
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _same
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _less


class _GivenPermissive(type):
    """Gives a class every attribute it lacks, as a stand-in."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        stand_in = _StandIn(name)
        setattr(cls, name, stand_in)
        return stand_in


class _GivenObject:
    """A plain object with two attributes."""

    def __init__(self) -> None:
        self.name = "name"
        self.value = 1


def _given_attribute(holder: Any, name: str) -> Any:
    """Return, and keep, a stand-in for an attribute that an object was not given."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    stand_in = _StandIn(name)
    holder.__dict__[name] = stand_in
    return stand_in


def _given_type(value: Any, accepted: tuple[str, ...], refused: tuple[str, ...]) -> bool:
    """Say whether a value's type is an accepted one, or else none of the refused; a stand-in may be of any type."""
    names = [kind.__name__ for kind in type(value).__mro__]
    if isinstance(value, _StandIn):
        return True
    return any(name in accepted for name in names) if accepted else not any(name in refused for name in names)


def _given_package(name: str, *modules: str) -> None:
    """Make relative imports find modules that have every name, as stand-ins."""
    import sys
    import types

    for path in (name, *modules):
        module = types.ModuleType(path)
        module.__path__ = []
        module.__getattr__ = lambda attribute: _StandIn(attribute)  # type: ignore[method-assign]
        sys.modules[path] = module


def _given_moved(module: str, name: str, replacement: Callable[[], Any]) -> None:
    """Give a module back a name that it had in older versions."""
    import importlib

    found = importlib.import_module(module)
    if not hasattr(found, name):
        setattr(found, name, replacement())


def _given_folder() -> str:
    """Return a new folder with two files in it."""
    import os
    import tempfile

    folder = tempfile.mkdtemp()
    for name in ("one.txt", "two.txt"):
        with open(os.path.join(folder, name), "w") as handle:
            handle.write("alpha\n")
    return folder


def _given_new_path() -> str:
    """Return the path of a file that does not exist yet."""
    import os

    return os.path.join(_given_folder(), "new.out")


def _given_file(suffix: str = ".txt") -> str:
    """Return the path of a new file with contents that suit its suffix."""
    import os

    texts = {
        ".json": '{"a": 1, "b": [1, 2]}',
        ".csv": "name,value\na,1\nb,2\n",
        ".yaml": "a: 1\nb:\n  - 1\n  - 2\n",
        ".xml": "<root><item>one</item></root>\n",
    }
    path = os.path.join(_given_folder(), "given" + suffix)
    if suffix == ".zip":
        import zipfile

        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("one.txt", "alpha\n")
    elif suffix == ".png":
        import base64

        dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
        with open(path, "wb") as handle:
            handle.write(base64.b64decode(dot))
    else:
        with open(path, "w") as text:
            text.write(texts.get(suffix, "alpha  beta\n\ngamma\n"))
    return path


def _given_handle(mode: str = "r") -> Any:
    """Return an open file."""
    return open(_given_file(), mode)


def _given_settle(result: Any) -> Any:
    """Return what a lazy result comes to: awaited, iterated (up to 1,000 items), entered."""
    import asyncio
    import itertools

    if asyncio.iscoroutine(result):
        result = asyncio.run(result)
    if hasattr(type(result), "__anext__") and not isinstance(result, _StandIn):

        async def collect() -> list[Any]:
            return [item async for item in result]

        return asyncio.run(collect())
    if hasattr(type(result), "__next__") and not isinstance(result, _StandIn) and not hasattr(result, "read"):
        return list(itertools.islice(result, 1000))
    if type(result).__name__ == "_GeneratorContextManager":
        with result as entered:
            return entered
    return result


def _given_outcome(call: Callable[..., Any], arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Any, str, Any]:
    """Return the settled result of a call, what it printed, and its first argument afterwards."""
    import contextlib
    import io

    printed = io.StringIO()
    positional, keywords = arguments
    with contextlib.redirect_stdout(printed):
        result = _given_settle(call(*positional, **keywords))
    return result, printed.getvalue(), positional[0] if positional else None


def _given_first(call: Callable[..., Any], lists: Iterable[Callable[[], Any]]) -> tuple[Any, str, Any]:
    """Return the outcome of the first argument list that the call accepts; raise the first refusal when none is."""
    refusal = None
    for make in lists:
        try:
            return _given_outcome(call, make())
        except (NameError, ImportError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the snippet raises is a refusal, and is raised below
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _given_plain(value: Any) -> Any:
    """Return a value with tuples, arrays and views as lists, so that equal contents compare equal."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)) or type(value).__name__ in ("dict_keys", "dict_values", "dict_items"):
        return [_given_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _given_plain(item) for key, item in value.items()}
    return value


def _given_same(one: Any, other: Any) -> bool:
    """Say whether two values are equal, numbers within rounding."""
    one, other = _given_plain(one), _given_plain(other)
    number = (int, float)
    if isinstance(one, number) and isinstance(other, number):
        return abs(one - other) <= 1e-6 * max(1.0, abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_given_same(a, b) for a, b in zip(one, other))  # noqa: B905
    return bool(one == other)


def _given_shown(value: Any) -> str:
    """Return how a value shows itself, without addresses."""
    import re

    return re.sub(r"0x[0-9a-f]+", "0x", repr(_given_plain(value)))[:10_000]


def _given_fits(value: Any, expected: Any, accept: str) -> bool:
    """Say whether a value is what was expected, in the way that `accept` names."""
    if accept == "any":
        return any(_given_same(value, one) for one in expected)
    if accept == "truth":
        return not isinstance(value, (str, list)) and bool(value) is expected
    if accept == "unordered":
        if isinstance(value, (str, bytes, type(None))) or not hasattr(value, "__iter__"):
            return False
        shown = [sorted(_given_shown(item) for item in items) for items in (value, expected)]
        return shown[0] == shown[1]
    if accept == "holds":
        return bool(expected(value))
    return _given_same(value, expected)


def _given_agrees(call: Callable[..., Any], make: Callable[[], Any], expected: Callable[..., Any], accept: str) -> bool:
    """Say whether a call answers, prints or puts into its first argument what is expected of these arguments.

    Two arguments may be in either order; the first refusal is raised when no order is accepted.
    """
    wanted = expected(*make())
    refusal = None
    ran = False
    for turned in (False, True)[: 1 + (len(make()) == 2)]:
        values = make()[::-1] if turned else make()
        try:
            result, printed, first = _given_outcome(call, (values, {}))
        except (NameError, ImportError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the snippet raises is a refusal, and is raised below
            refusal = refusal or error
            continue
        ran = True
        if _given_fits(result, wanted, accept):
            return True
        if result is None and isinstance(first, (list, dict, set)) and _given_fits(first, wanted, accept):
            return True
        if result is None and printed and accept == "equal" and printed.strip() == str(wanted):
            return True
    if refusal is not None and not ran:
        raise refusal
    return False


def _given_shows(value: Any, printed: str, want: str) -> bool:
    """Say whether a value, or what was printed, is what an example in a docstring shows."""
    import ast

    def folded(text: str) -> str:
        return "".join(text.split()).replace('"', "'").replace("u'", "'")

    if folded(printed + ("" if value is None else repr(value))) == folded(want):
        return True
    try:
        return _given_same(value, ast.literal_eval(want.strip()))
    except (ValueError, SyntaxError):
        return False


class _Bare(ast.NodeTransformer):
    """Leaves out annotations and docstrings of methods: programs stay short and run on old interpreters."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function


@lru_cache(maxsize=1)
def _parts() -> dict[str, str]:
    """Return the source of every helper, by name, in the order of this file."""
    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    kept = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name.startswith(("_given", "_Given", "_StandIn"))
    ]
    return {node.name: ast.unparse(_Bare().visit(node)) for node in kept}


def source(text: str) -> list[str]:
    """Return the source of each helper that a text mentions, and of those that these need."""
    parts = _parts()
    needed: set[str] = set()
    fresh = {name for name in parts if _mentions(text, name)}
    while fresh:
        needed |= fresh
        fresh = {name for name in parts for user in fresh if _mentions(parts[user], name)} - needed
    return [code for name, code in parts.items() if name in needed]


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
