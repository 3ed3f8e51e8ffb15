"""A model that replies from a file, for reproducible runs without a language model."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from agent.errors import InputError, ModelError
from agent.llm.base import Call, Reply
from agent.text import describe_error
from agent.types import Frozen, Usage

_Key = tuple[str, str, int]


class _RecordedReply(Frozen):
    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    role: str
    turn: int | None = Field(default=None, ge=0)
    reply: str
    usage: Usage = Usage()


class ReplayModel:
    """Returns recorded replies from a JSON Lines file.

    Each line has the form `{"pair": ID, "role": ROLE, "reply": TEXT}` and may contain the `turn` and `usage` fields.
    `turn` is the number of earlier replies in this role for the pair. By default, replies are numbered in the order of
    the file. Lines of the form `{"about": TEXT}` are comments.

    Raises:
        InputError: the file cannot be read or contains no replies, or a line is malformed or duplicated.
    """

    by_pair = True

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read the replies: {error.strerror or error}", path=path) from error
        self._sha256 = hashlib.sha256(content).hexdigest()
        self._replies = self._read(content)

    def identity(self) -> Mapping[str, Any]:
        """Return the hash of the file's content. The path is not included."""
        return {"kind": "replay", "model": "replay", "sha256": self._sha256}

    async def reply(self, call: Call) -> Reply:
        """Return the recorded reply for the call's pair, role and turn.

        Raises:
            ModelError: the file contains no reply for this call.
        """
        line = self._replies.get((call.pair_id, call.role, call.turn))
        if line is None:
            raise ModelError(
                f"{self._path} has no reply for pair {call.pair_id!r}, role {call.role!r}, turn {call.turn}"
            )
        return Reply(line.reply, usage=line.usage, model="replay")

    def _read(self, content: bytes) -> dict[_Key, _RecordedReply]:
        replies: dict[_Key, _RecordedReply] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if not raw.strip():
                continue
            try:
                record = json.loads(raw)
                if isinstance(record, dict) and record.keys() == {"about"}:
                    continue
                line = _RecordedReply.model_validate(record)
            except (ValueError, RecursionError) as error:
                cause = f"invalid reply: {describe_error(error)}"
                raise InputError(cause, path=self._path, line=number) from error
            turn = counts[line.pair, line.role] if line.turn is None else line.turn
            counts[line.pair, line.role] += 1
            key = (line.pair, line.role, turn)
            if key in replies:
                cause = f"duplicate reply for pair {line.pair!r}, role {line.role!r}, turn {turn}"
                raise InputError(cause, path=self._path, line=number)
            replies[key] = line
        if not replies:
            raise InputError("the file contains no replies", path=self._path)
        return replies
