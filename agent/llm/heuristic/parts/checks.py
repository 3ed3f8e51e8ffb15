"""Helpers of programs that call a snippet and compare what it does with what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _given_settle(result: Any) -> Any:
    """Return what a lazy result comes to: awaited, iterated (up to 1,000 items), entered."""
    import itertools

    if type(result).__name__ in ("coroutine", "async_generator"):
        import asyncio

        async def collect() -> Any:
            return [item async for item in result] if hasattr(result, "__anext__") else await result

        result = asyncio.run(collect())
    if hasattr(type(result), "__next__") and type(result).__name__ != "_StandIn" and not hasattr(result, "read"):
        return list(itertools.islice(result, 1000))
    if type(result).__name__ == "_GeneratorContextManager":
        with result as entered:
            return entered
    return result


async def _given_coroutine() -> int:
    """Come to 1."""
    return 1


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
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # the library's way to say that the question makes no sense
        return False


def _given_shown(value: Any) -> str:
    """Return how a value shows itself, without addresses and temporary paths; the type alone where that says little."""
    import re

    shown = repr(_given_plain(value))[:10_000]
    return type(value).__name__ if "<" in shown else re.sub(r"0x[0-9a-fA-F]+|/tmp/[\w/]+", "", shown)


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


def _given_type(value: Any, accepted: tuple[str, ...], refused: tuple[str, ...]) -> bool:
    """Say whether a value's type is an accepted one, or else none of the refused; a stand-in may be of any type."""
    names = [kind.__name__ for kind in type(value).__mro__]
    if "_StandIn" in names:
        return True
    return any(name in accepted for name in names) if accepted else not any(name in refused for name in names)
