"""Helpers of programs that take the place of what a snippet lacks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any


class _StandIn:
    """Takes the place of an object that the snippet uses and does not bring; does nothing and has no contents."""

    _uses = 0

    def __init__(self, name: str = "stand-in", echo: bool = False) -> None:
        self.__dict__.update(_name=name, _echo=echo)

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            return self._name
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        _StandIn._uses += 1
        if _StandIn._uses > 20_000:
            raise RuntimeError("a stand-in was used without end")
        self.__dict__[name] = _StandIn(name)
        return self.__dict__[name]

    def __call__(self, *values: Any, **_named: Any) -> Any:
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
        return True

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

    def __format__(self, spec: str) -> str:
        return str(self._name)

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

    def __await__(self) -> Generator[Any, None, Any]:
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

    def _same(self, *_others: Any) -> Any:
        return self

    def _less(self, _other: Any) -> bool:
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


class _GivenOldDict(dict):  # type: ignore[type-arg]
    """A dictionary with the methods of Python 2."""

    def iteritems(self) -> Iterator[Any]:
        return iter(self.items())

    def iterkeys(self) -> Iterator[Any]:
        return iter(self.keys())

    def itervalues(self) -> Iterator[Any]:
        return iter(self.values())

    def has_key(self, key: Any) -> bool:
        return key in self


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


def _given_package(*modules: str) -> None:
    """Make relative imports find modules that have every name, as stand-ins."""
    import sys
    import types

    for path in modules:
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
