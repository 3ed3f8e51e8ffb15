"""Implements the host's side of the protocol with a sandbox's supervisor. The two sides exchange frames.

All input is treated as hostile. Sizes are checked before data is stored, and each request has a deadline.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import signal
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self, TypeVar

from agent.errors import EnvironmentGone, ForkRefused, RunnerCrashed, SandboxError
from agent.sandbox.base import (
    CommandResult,
    Frame,
    ReportLine,
    RunResult,
    Sandbox,
    SandboxJob,
    SandboxLimits,
)
from agent.sandbox.inside import read_source

MAX_FRAME = 1 << 20
MAX_REQUEST = 64 << 20
_HEADER = 5
_FIXED = 5
_TAG = 16
_LINE_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
GRACE = 10.0
"""Seconds that a supervisor may take beyond a run's time limit before the sandbox is considered failed."""

T = TypeVar("T")
_STORE = "/envs"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# programs can write to this stream, so the pattern is bounded and matches in linear time
_STACK_LINE = re.compile(r'^ *File "([^"\n]{1,400})", line (\d{1,9}) in ([^\n]{0,200})$', re.ASCII | re.MULTILINE)
_STACK = "(most recent call first):\n"
_MAX_STACKS = 33
_RUNNER_RESERVE = 1 << 30
"""Added to a runner's limit on memory of its own. Node reserves 512 MiB for code per thread, and uses little of it."""
_OUT_OF_MEMORY = "out of memory"
"""Part of what Node writes before it aborts because it cannot allocate memory."""


class MalformedFrame(ValueError):
    """The received bytes violate the supervisor's protocol."""


@dataclass
class _Response:
    """The response to one request. Each stream contains at most `cap` bytes, and `exit` is read from the last frame."""

    cap: int
    streams: dict[bytes, bytearray] = field(
        default_factory=lambda: {kind: bytearray() for kind in (b"o", b"e", b"r", b"t")}
    )
    exit: RunResult = field(default_factory=RunResult)

    def add_frame(self, kind: bytes, payload: bytes) -> bool:
        """Add a frame and return whether it was the last one."""
        if kind == b"x":
            self._parse_exit(unpack(payload))
            return True
        if kind == b"g":
            raise EnvironmentGone("the program's environment was removed from the store")
        if kind == b"z":
            raise ForkRefused("".join(unpack(payload)))
        stream = self.streams.get(kind)
        if stream is None or len(stream) + len(payload) > self.cap:
            raise MalformedFrame(f"unexpected frame of type {kind!r} with {len(payload)} bytes")
        stream += payload
        return False

    def _parse_exit(self, fields: list[str]) -> None:
        try:
            code, number, timed_out, limit, truncated, seconds = fields
            self.exit = RunResult(
                exit_code=int(code) if code else None,
                signal=int(number) if number else None,
                timed_out=timed_out == "1",
                limit=limit or None,
                truncated=truncated == "1",
                seconds=float(seconds),
            )
        except ValueError as error:
            raise MalformedFrame(f"malformed exit frame: {error}") from error

    def decode(self, kind: bytes) -> str:
        return self.streams[kind].decode("utf-8", "replace")


class ChannelSandbox(Sandbox):
    """A sandbox that sends requests to its supervisor over a byte stream, one at a time.

    After a failed or cancelled request, the sandbox rejects all further requests. `alive` is the set of sandboxes that
    have not been released yet. `processes` is the process limit that the supervisor sets, or 0 if the backend enforces
    the limit. If `site` is true, programs can import the image's site-packages. `compiled` maps the source of a harness
    to the path of its bytecode in the sandbox. `last_argv` is the `argv` of the last job in any of the backend's
    sandboxes.
    """

    def __init__(
        self,
        alive: set[Self],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: SandboxLimits,
        *,
        processes: int = 0,
        site: bool = False,
        compiled: Mapping[str, str] = MappingProxyType({}),
        last_argv: list[str] | None = None,
    ) -> None:
        self._alive = alive
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._processes = processes
        self._site_packages = site
        self._compiled = compiled
        self._last_argv = [] if last_argv is None else last_argv
        self._unusable = ""
        self._fork_secret = secrets.token_hex(16)
        self._prepared: str | None = None
        self._runner: tuple[str, ...] = ()
        alive.add(self)

    async def open(self, timeout: float) -> None:
        """Wait until the supervisor is ready and has loaded the Python harness.

        Raises:
            SandboxError: the supervisor is not ready within `timeout` seconds.
        """
        kind, _ = await self._run_within(timeout, self._read_frame())
        if kind != b"h":
            raise RunnerCrashed(f"the sandbox failed: its first frame has type {kind!r}")
        await self._prepare(read_source("python_harness"))

    def prepare_runner(self) -> None:
        """Start the runner that the backend's last program used, so that the next program need not wait for it."""
        if self._last_argv:
            self._runner = tuple(self._last_argv)
            self._writer.write(self._pack_start(self._runner))

    async def _prepare(self, harness: str) -> None:
        if problem := await self._request(GRACE, self._load(harness)):
            raise SandboxError(f"the supervisor cannot load the harness: {problem}")
        self._prepared = harness

    async def _load(self, harness: str) -> str:
        compiled = self._compiled.get(harness, "")
        self._writer.write(pack_frame(b"P", pack([compiled, "" if compiled else harness])))
        await self._writer.drain()
        kind, payload = await self._read_frame()
        if kind != b"p":
            raise MalformedFrame(f"expected a frame of type b'p', got {kind!r}")
        return "".join(unpack(payload))

    async def run(self, job: SandboxJob) -> RunResult:
        """Run a program. See `Sandbox.run`."""
        if job.environment is not None and not _KEY.fullmatch(job.environment):
            raise SandboxError(f"invalid environment key: {job.environment!r}")
        secret, nonce = self._fork_secret if job.fork else secrets.token_hex(16), secrets.token_hex(16)
        key = secret.encode() if job.argv else hashlib.blake2b(nonce.encode(), key=secret.encode()).digest()
        self._last_argv[:] = job.argv
        if not job.argv and job.harness != self._prepared:
            await self._prepare(job.harness)
        options = {**job.options, **({"site": "1"} if self._site_packages and not job.argv else {})}
        path = "" if job.environment is None else f"{_STORE}/{job.environment}"
        fields = [secret] if job.argv else [str(self._limits.output), secret, nonce]
        fields += [path, job.program]
        fields += [str(len(job.cases)), *job.cases, *(part for item in options.items() for part in item)]
        start = self._pack_start(job.argv) if job.argv and job.argv != self._runner else b""
        kind = b"J" if job.argv else b"F" if job.fork else b"R"
        response = await self._send(kind, job.timeout, fields, start)
        hang, *other_stacks = _parse_stacks(response.decode(b"t"))
        killed = response.exit.signal is not None or response.exit.timed_out or response.exit.limit is not None
        stderr = response.decode(b"e")
        if job.argv and response.exit.signal in (signal.SIGABRT, signal.SIGTRAP) and _OUT_OF_MEMORY in stderr:
            response.exit = replace(response.exit, limit=response.exit.limit or "memory")
        return replace(
            response.exit,
            records=read_report(bytes(response.streams[b"r"]), key, truncated=killed, by_runner=bool(job.argv)),
            hang=hang,
            hang_beside=tuple(other_stacks),
            stdout=response.decode(b"o"),
            stderr=stderr,
            forked=job.fork,
        )

    async def run_command(self, argv: Sequence[str], timeout: float) -> CommandResult:
        """Run a command. See `Sandbox.run_command`."""
        response = await self._send(b"C", timeout, [str(self._limits.output), *argv])
        return CommandResult(response.exit.exit_code, response.decode(b"o"), response.exit.timed_out)

    async def release(self) -> None:
        """Destroy the sandbox. Further calls do nothing."""
        if self in self._alive:
            self._alive.remove(self)
            await self._destroy()

    @abstractmethod
    async def _destroy(self) -> None:
        """Destroy the sandbox's processes or container."""

    async def _explain(self, error: Exception) -> SandboxError:
        """Return the error to raise after the stream ended or was malformed. Backends add details."""
        return RunnerCrashed(f"the sandbox failed: {error}")

    async def _send(self, kind: bytes, timeout: float, fields: list[str], before: bytes = b"") -> _Response:
        request = before + self._pack_request(kind, timeout, fields)
        self._runner = ()
        return await self._request(timeout + GRACE, self._exchange(request))

    def _pack_start(self, argv: tuple[str, ...]) -> bytes:
        return self._pack_request(b"S", 0.0, [str(self._limits.output), *argv], reserve=_RUNNER_RESERVE)

    def _pack_request(self, kind: bytes, timeout: float, fields: list[str], *, reserve: int = 0) -> bytes:
        limits = self._limits
        head = [timeout, limits.memory + reserve, limits.files, limits.open_files, self._processes]
        payload = pack([*map(str, head), *fields])
        if len(payload) > MAX_REQUEST:
            raise SandboxError(f"a request of {len(payload)} bytes exceeds the limit of {MAX_REQUEST} bytes")
        return pack_frame(kind, payload)

    async def _request(self, timeout: float, exchange: Coroutine[Any, Any, T]) -> T:
        unusable = self._unusable if self in self._alive else "it was released"
        if unusable:
            exchange.close()
            raise SandboxError(f"the sandbox is unusable: {unusable}")
        self._unusable = "another request is in progress, has failed or was cancelled"
        response = await self._run_within(timeout, exchange)
        self._unusable = ""
        return response

    async def _exchange(self, request: bytes) -> _Response:
        self._writer.write(request)
        await self._writer.drain()
        response = _Response(max(self._limits.output, MAX_FRAME))
        while not response.add_frame(*await self._read_frame()):
            pass
        return response

    async def _read_frame(self) -> tuple[bytes, bytes]:
        try:
            header = await self._reader.readexactly(_HEADER)
            size = int.from_bytes(header[1:], "big")
            if size > MAX_FRAME:
                raise MalformedFrame(f"a frame of {size} bytes exceeds the limit of {MAX_FRAME} bytes")
            return header[:1], await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("its stream ended") from error

    async def _run_within(self, timeout: float, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(timeout):
                return await work
        except TimeoutError as error:
            raise RunnerCrashed(f"the sandbox did not respond within {timeout:g} s") from error
        except (OSError, ValueError) as error:
            raise await self._explain(error) from error


def _parse_stacks(text: str) -> list[tuple[Frame, ...]]:
    """Parse the stacks written by faulthandler and then by the harness. The main thread's stack comes first."""
    _, *parts = text.split(_STACK)
    stacks = (
        tuple(Frame(file, int(line), function) for file, line, function in reversed(_STACK_LINE.findall(part)))
        for part in parts[:_MAX_STACKS]
    )
    return list(stacks) or [()]


def pack(fields: Iterable[str]) -> bytes:
    """Join fields, each prefixed with its length (4 bytes, big endian)."""
    encoded = (field.encode("utf-8", "surrogatepass") for field in fields)
    return b"".join(len(data).to_bytes(4, "big") + data for data in encoded)


def unpack(payload: bytes) -> list[str]:
    """Split a payload into its fields. Replaces bytes that are not valid UTF-8.

    Raises:
        MalformedFrame: a length exceeds the payload.
    """
    fields, position = [], 0
    while position < len(payload):
        end = position + 4 + int.from_bytes(payload[position : position + 4], "big")
        if position + 4 > len(payload) or end > len(payload):
            raise MalformedFrame("a field is longer than its frame")
        fields.append(payload[position + 4 : end].decode("utf-8", "replace"))
        position = end
    return fields


def pack_frame(kind: bytes, payload: bytes) -> bytes:
    """Return a frame: a type byte, the payload's length (4 bytes, big endian) and the payload."""
    return kind + len(payload).to_bytes(4, "big") + payload


def read_report(data: bytes, key: bytes, *, truncated: bool = False, by_runner: bool = False) -> tuple[ReportLine, ...]:
    """Parse a harness's report. A record that is not signed with the run's key and its own number counts as tampering.

    If `truncated` is true, the report may end within a record, because its writer was killed or it was too long.
    Runners in other languages sign with HMAC-SHA256, because not every language has keyed BLAKE2b.
    """
    sign = _sign_by_runner if by_runner else _sign
    records: list[ReportLine] = []
    position = 0
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if truncated and (position + 4 > len(data) or end > len(data)):
            break
        try:
            if end > len(data):
                raise MalformedFrame("the report ends within a record")
            records.append(_parse_record(data[position + 4 : end], key, len(records), sign))
        except MalformedFrame as error:
            records.append(ReportLine("tamper", message=f"this run's harness did not write the report: {error}"))
            break
        position = end
    return tuple(records)


def _sign(key: bytes, message: bytes) -> bytes:
    return hashlib.blake2b(message, digest_size=_TAG, key=key).digest()


def _sign_by_runner(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")[:_TAG]


def _parse_record(record: bytes, key: bytes, number: int, sign: Callable[[bytes, bytes], bytes]) -> ReportLine:
    tag, content = record[:_TAG], record[_TAG:]
    fields = unpack(content) if hmac.compare_digest(tag, sign(key, number.to_bytes(8, "big") + content)) else []
    if len(fields) < _FIXED:
        raise MalformedFrame("a record is not signed with the run's key and its own number")
    kind, name, outcome, error_type, message, *rest = fields
    lines = [int(line) if _LINE_NUMBER.fullmatch(line) else 0 for line in rest[1::3]]
    frames = tuple(Frame(*parts) for parts in zip(rest[::3], lines, rest[2::3], strict=False))
    return ReportLine(kind, name, outcome, error_type, message, frames)
