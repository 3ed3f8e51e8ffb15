"""What is said to a builder, and what it says: that may be anything, and nothing of it breaks more than its build."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.pip_process import clean
from agent.sandbox.dependencies.wheel_archive import Room, check_room
from agent.sandbox.dependencies.wheels import locked

DEADLINE = 900.0
"""Seconds that a builder may take to install."""

_LONGEST = 16 << 20
_SHOWN = 4_000


def installer_job(wheels: Sequence[Path], room: Room) -> str:
    """Return what the installer is told of the wheels it finds; a lock made of what they say themselves could lie.

    Raises:
        DependencyUnavailable: there is no room for them, or one is damaged.
    """
    check_room(wheels, room)
    return json.dumps({"lock": locked(wheel.name for wheel in wheels), **asdict(room)})


def installed(said: Mapping[str, Any], *, no_pip: str) -> tuple[str, ...]:
    """Return the lock that the installer wrote down; `no_pip` is to be said where it has none.

    Raises:
        DependencyUnavailable: it refused the wheels, or has no pip.
        ValueError: it said something else.
    """
    if isinstance(said.get("refused"), str):
        raise DependencyUnavailable(f"the wheels could not be installed; pip says:\n{clean(said['refused'])[:_SHOWN]}")
    if said.get("no_pip") is True:
        raise DependencyUnavailable(no_pip)
    return texts(said.get("installed"))


async def everything(reader: asyncio.StreamReader) -> bytes:
    """Return all that a builder prints.

    Raises:
        ValueError: it has no end.
    """
    said = bytearray()
    while chunk := await reader.read(1 << 16):
        said += chunk
        if len(said) > _LONGEST:
            raise ValueError(f"more than {_LONGEST} bytes")
    return bytes(said)


def last_object(output: bytes) -> dict[str, Any]:
    """Return the JSON object that is the last line of an output.

    Raises:
        ValueError: there is none.
    """
    line = output.rstrip().rpartition(b"\n")[2]
    try:
        found = json.loads(line)
    except RecursionError:
        raise ValueError("an answer nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("an answer that is no object")
    return found


def exit_code(payload: bytes) -> int:
    """Return the exit code that the last frame of a relay names.

    Raises:
        ValueError: it names none.
    """
    code = last_object(payload).get("exit_code")
    if type(code) is not int or not -256 < code < 256:
        raise ValueError("an exit code that is none")
    return code


def texts(value: object) -> tuple[str, ...]:
    """Return a list of texts, such as a lock.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("no list of texts")
    return tuple(value)
