"""Reports the outcomes of cases. This file is the first part of the Python harness."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = "program.py"
MODULE = "test_program"
MAX_MESSAGE = 2000
MAX_FRAMES = 40


def report_case(emit: Callable[..., None], name: str, problem: Any) -> None:
    """Report that a case finished. `problem` is None or a pair: the outcome, and an exception or a reason."""
    if problem is None:
        emit("case", name, "passed")
    elif isinstance(problem[1], BaseException):
        report_error(emit, "case", name, problem[1], problem[0])
    else:
        emit("case", name, problem[0], "", str(problem[1])[:MAX_MESSAGE])


def report_error(emit: Callable[..., None], kind: str, name: str, error: BaseException, outcome: str = "") -> None:
    """Report an exception with the innermost frames of its traceback."""
    frames: list[tuple[str, int, str]] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename != HARNESS_FILE:
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
    emit(kind, name, outcome, error_type, read_message(error), frames[-MAX_FRAMES:])


def read_message(error: BaseException) -> str:
    try:
        return str(error)[:MAX_MESSAGE]
    except BaseException as other:
        return "<no message: str() raised %s>" % type(other).__name__


HARNESS_FILE = report_case.__code__.co_filename
