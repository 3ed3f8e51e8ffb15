"""Makes the profile that Docker's engine takes in place of its own, for every machine of the table."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from typing import Any

from agent.sandbox.seccomp.rules import Match, Restriction
from agent.sandbox.seccomp.table import MACHINES, Verdict, numbers, verdict

_ALLOW, _ERRNO = "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"


def profile() -> str:
    """Return the profile as JSON.

    What is not named gets EPERM, as it does in Docker's own profile: runc gives ENOSYS to what is later than all that
    is named, and engines before 23 know no other default. Names that a machine or its runc lacks are passed over.
    """
    said = {name: verdict(name, number) for machine in MACHINES for name, number in numbers(machine).items()}
    made = {
        "defaultAction": _ERRNO,
        "defaultErrnoRet": errno.EPERM,
        "archMap": [{"architecture": machine.docker, "subArchitectures": []} for machine in MACHINES.values()],
        "syscalls": [
            {"names": _having(said, 0), "action": _ALLOW},
            {"names": _having(said, errno.ENOSYS), "action": _ERRNO, "errnoRet": errno.ENOSYS},
            *_restricted(said),
        ],
    }
    return json.dumps(made, indent=1) + "\n"


def _having(said: dict[str, Verdict], wanted: int) -> list[str]:
    return sorted(name for name, found in said.items() if found == wanted)


def _restricted(said: dict[str, Verdict]) -> Iterator[dict[str, Any]]:
    for name, found in sorted(said.items()):
        if isinstance(found, Restriction):
            for matches in found.allowed:
                yield {"names": [name], "action": _ALLOW, "args": [_argument(match) for match in matches]}


def _argument(match: Match) -> dict[str, Any]:
    if match.mask == (1 << 64) - 1:
        return {"index": match.argument, "value": match.value, "op": "SCMP_CMP_EQ"}
    return {"index": match.argument, "value": match.mask, "valueTwo": match.value, "op": "SCMP_CMP_MASKED_EQ"}
