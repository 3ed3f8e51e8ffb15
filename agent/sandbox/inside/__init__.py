"""The programs that run in a sandbox. They are sent as source, so an image needs only a Python interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
ENVIRONMENT: Mapping[str, str] = {"PYTHONHASHSEED": "0", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
"""All environment variables of the first process."""


_FUTURE = "from __future__ import annotations\n"
_PARTS: Mapping[str, tuple[str, ...]] = {
    "supervisor": ("child", "fork_server", "runners", "supervisor"),
    "python_harness": (
        "python_reports",
        "python_guard",
        "python_helpers",
        "python_pytest",
        "python_sentinel",
        "python_context",
        "python_sql",
        "python_harness",
        "python_forks",
    ),
    "python_calls": ("python_inputs", "python_calls"),
}
"""The files that form each source, in order. They are concatenated and sent as one text."""


@cache
def read_source(name: str) -> str:
    """Return the source of `supervisor`, of a harness, or of another file in this folder."""
    first, *others = ((_FOLDER / f"{part}.py").read_text(encoding="utf-8") for part in _PARTS.get(name, (name,)))
    # the import from __future__ must come first and also applies to the following parts
    return "\n\n".join([first, *(part.replace(_FUTURE, "") for part in others)])


@cache
def read_runner(name: str) -> str:
    """Return the source of a runner in another language, such as `node_runner.js`."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def build_supervisor_argv(
    python: str, *, user: tuple[int, int] | None, work: str, compiled: str | None = None
) -> list[str]:
    """Return the command for a sandbox's first process.

    `user` contains the uid and gid of programs. If it is None, programs run as the user of the first process. `work` is
    the working folder of programs. `compiled` is the path of the supervisor's bytecode in the sandbox. If it is None,
    the command contains the source.
    """
    uid, gid = ("", "") if user is None else map(str, user)
    code = ["-c", read_source("supervisor")] if compiled is None else [compiled]
    return [python, "-S", "-s", "-B", *code, uid, gid, work]
