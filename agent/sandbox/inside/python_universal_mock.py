"""An object that supports every operation and can replace a snippet.

A program that passes with this object does not check results. Only the class is copied into programs, so its methods
contain their own imports.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator


class _UniversalMock:
    """Supports every operation. Every comparison and truth test returns `_truth`.

    An instance can replace a function, its result, a decorator, a class, its instance, a coroutine, a list or a number.
    """

    _truth = False
    _item_count = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __mro_entries__(self, _: object) -> "tuple[type, ...]":
        # every class of the snippet is this object, and a class cannot have the same base twice
        return (type("Base", (type(self),), {}),)

    def __call__(self, *_: object, **__: object) -> "_UniversalMock":
        return self

    def __getattr__(self, name: str) -> "_UniversalMock":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    __getitem__ = __setitem__ = __delitem__ = __reversed__ = __enter__ = __aenter__ = __call__
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = __call__
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __call__
    __and__ = __or__ = __xor__ = __lshift__ = __rshift__ = __call__
    __rand__ = __ror__ = __rxor__ = __rlshift__ = __rrshift__ = __rpow__ = __call__
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = __trunc__ = __floor__ = __ceil__ = __call__

    def __bool__(self, *_: object) -> bool:
        return self._truth

    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __instancecheck__ = __subclasscheck__ = __bool__

    def __eq__(self, _: object) -> bool:
        return self._truth

    def __hash__(self) -> int:
        return int(self._truth)

    __len__ = __int__ = __index__ = __hash__

    def __float__(self) -> float:
        return float(self._truth)

    def __format__(self, _: str) -> str:
        return str(self)

    def __fspath__(self) -> str:
        return str(self)

    def __iter__(self) -> "Iterator[_UniversalMock]":
        from opcode import opmap
        from sys import _getframe

        # return one item, or as many items as an unpacking such as `a, b = mock` needs
        caller = _getframe(1)
        code, count = caller.f_code.co_code[caller.f_lasti : caller.f_lasti + 2]
        return iter([self] * (count if code == opmap["UNPACK_SEQUENCE"] else 1))

    def __next__(self) -> "_UniversalMock":
        from sys import _getframe

        # the event loop treats an object with `__next__` as a coroutine, which must end here
        if _getframe(1).f_globals.get("__name__", "").partition(".")[0] == "asyncio":
            raise StopIteration(self)
        # a loop gets one item if `_truth` is false, and two items if it is true
        if self._item_count > self._truth:
            self._item_count = 0
            raise StopIteration
        self._item_count += 1
        return self

    async def __aiter__(self) -> "AsyncIterator[_UniversalMock]":
        yield self

    def __await__(self) -> "Generator[object, None, _UniversalMock]":
        yield from ()
        return self

    def send(self, _: object) -> object:
        raise StopIteration(self)

    def throw(self, *error: BaseException) -> object:
        raise error[0]

    def close(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass
