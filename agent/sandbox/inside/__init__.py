"""What runs inside a sandbox, as source: a sandbox's image needs an interpreter and nothing of this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
ENVIRONMENT: Mapping[str, str] = {"PYTHONHASHSEED": "0", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""The first process's environment variables: all of them."""


_FUTURE = "from __future__ import annotations\n"
_PARTS: Mapping[str, tuple[str, ...]] = {
    "supervisor": ("child", "supervisor"),
    "python_harness": ("python_reports", "python_guard", "python_pytest", "python_harness"),
}
"""What a source is joined of, in order: it is sent as one text."""


@cache
def source(name: str) -> str:
    """Return the source of `supervisor`, of a harness, or of what takes a snippet's place."""
    first, *others = ((_FOLDER / f"{part}.py").read_text(encoding="utf-8") for part in _PARTS.get(name, (name,)))
    # what is imported from the future has to stand first, and holds for the parts that follow
    return "\n\n".join([first, *(other.replace(_FUTURE, "") for other in others)])


def supervisor_argv(python: str, *, user: tuple[int, int] | None, work: str, compiled: str | None = None) -> list[str]:
    """Return the command of a sandbox's first process.

    `user` is the uid and gid that programs run as, None to run them as the process's own; `work` their folder.
    `compiled` is where the sandbox holds the supervisor's bytecode; without it its source is sent along.
    """
    uid, gid = ("", "") if user is None else map(str, user)
    code = ["-c", source("supervisor")] if compiled is None else [compiled]
    return [python, "-S", "-s", "-B", *code, uid, gid, work]
