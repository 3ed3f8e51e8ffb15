"""Reports how cases of a program end, and names the program; the first part of the Python harness."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = "program.py"
MODULE = "test_program"
MAX_MESSAGE = 2000
MAX_FRAMES = 40


def finish(emit: Callable[..., None], name: str, problem: Any) -> None:
    """Report how a case ended: `problem` is None, or an outcome with an exception or a reason."""
    if problem is None:
        emit("case", name, "passed")
    elif isinstance(problem[1], BaseException):
        report_error(emit, "case", name, problem[1], problem[0])
    else:
        emit("case", name, problem[0], "", str(problem[1])[:MAX_MESSAGE])


def report_error(emit: Callable[..., None], kind: str, name: str, error: BaseException, outcome: str = "") -> None:
    """Report an exception with the innermost part of its traceback."""
    frames: list[tuple[str, int, str]] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename != OWN_NAME:
            frames.append((code.co_filename, traceback.tb_lineno, code.co_name))
        traceback = traceback.tb_next
    if not frames and isinstance(error, SyntaxError) and error.filename == NAME:
        frames.append((NAME, error.lineno or 0, "<module>"))
    error_type: str = type.__dict__["__name__"].__get__(type(error))
    if kind == "load":
        outcome = "error"
    elif not outcome:
        skipped = error_type in ("SkipTest", "Skipped") and type(error).__module__ in (
            "unittest.case",
            "_pytest.outcomes",
        )
        outcome = "skipped" if skipped else "failed" if isinstance(error, AssertionError) else "error"
    emit(kind, name, outcome, error_type, message_of(error), frames[-MAX_FRAMES:])


def message_of(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException as other:
        return "<no message: str() raised %s>" % type(other).__name__


OWN_NAME = finish.__code__.co_filename
