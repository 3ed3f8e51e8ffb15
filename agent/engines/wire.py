"""What the process of a run and its workers say to each other: tuples of a kind, a number and more, many at a time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.config import Config
from agent.errors import AgentError
from agent.graph import Pipeline
from agent.languages.base import Language
from agent.llm.models import Models
from agent.prompts import Prompts
from agent.sandbox.base import Limits, SandboxBackend

# to a worker
TURN = "turn"  # of a turn: its pair and round, to be worked on
DROP = "drop"  # of a turn: nobody wants it any more
CALL = "call"  # of a question: the model is to be called
ANSWER = "answer"  # of a question: the reply, or an error
# from a worker
ASK = "ask"  # of a question: its turn and the call
GONE = "gone"  # of a question: nobody wants its answer any more
MADE = "made"  # of a question: what the call gave, a reply or an error
WAIT = "wait"  # of a question: why and how long its call waits
END = "end"  # of a turn: its annotation or the error that ends the run, and what happened in it
EVENT = "event"  # of nothing: something for the listener

Message = tuple[Any, ...]


@dataclass(frozen=True)
class Parts:
    """What a worker is made of: what the user chose, read and checked. `backend` is the user's own, if there is one."""

    models: Models
    pipeline: Pipeline
    fallback: Pipeline | None
    prompts: Prompts
    languages: Mapping[str, Language]
    backend: SandboxBackend | None
    config: Config


@dataclass(frozen=True)
class Site:
    """Where a worker runs programs: its node, and name, description and limits of its sandboxes' backend."""

    node: str
    name: str | None = None
    described: Mapping[str, str] = field(default_factory=dict)
    limits: Limits | None = None

    @classmethod
    def of(cls, node: str, backend: SandboxBackend | None) -> Site:
        """Return where programs run on a node."""
        return cls(node) if backend is None else cls(node, backend.name, dict(backend.describe()), backend.limits)


def packed(messages: list[Message]) -> bytes:
    """Return messages as bytes; Ray's own pickler takes several times as long."""
    return pickle.dumps(messages, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> list[Message]:
    """Return the messages again."""
    messages: list[Message] = pickle.loads(data)
    return messages


def sendable(error: BaseException) -> BaseException:
    """Return an error as it is or, where it cannot be sent, one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's exception may fail in any way
        return AgentError(f"{type(error).__name__}: {error}")
    return error
