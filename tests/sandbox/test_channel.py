"""A channel returns a result or raises `SandboxError`, regardless of the bytes that a supervisor sends."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ContainerLost, EnvironmentGone, RunnerCrashed, SandboxError
from agent.sandbox import channel as channel_module
from agent.sandbox.base import Frame, ReportLine, SandboxJob, SandboxLimits
from agent.sandbox.channel import MAX_FRAME, ChannelSandbox, pack, pack_frame, read_report, unpack

JOB = SandboxJob("harness", "program", timeout=5.0)
HELLO = pack_frame(b"h", b"")
END = pack_frame(b"x", pack(["0", "", "0", "", "0", "0.01"]))
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class PeerSandbox(ChannelSandbox):
    """A sandbox without processes or containers. `why` is the backend's explanation of the stream's end."""

    why = ""

    async def _destroy(self) -> None:
        self._writer.close()

    async def _explain(self, error: Exception) -> SandboxError:
        return ContainerLost(self.why) if self.why else await super()._explain(error)


@asynccontextmanager
async def connect_peer(peer: Peer) -> AsyncIterator[PeerSandbox]:
    """Yield a sandbox whose supervisor is played by `peer`."""
    tasks: list[asyncio.Task[None]] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(peer(reader, writer)))
        with suppress(OSError):
            await tasks[-1]
        writer.close()

    server = await asyncio.start_server(play, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield PeerSandbox(set(), reader, writer, SandboxLimits(output=1000))
    finally:
        writer.close()
        server.close()
        for task in tasks:
            task.cancel()


async def read_request(reader: asyncio.StreamReader) -> list[str]:
    header = await reader.readexactly(5)
    return unpack(await reader.readexactly(int.from_bytes(header[1:], "big")))


async def accept_harness(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Receive the harness of the first run, as every supervisor does."""
    assert await read_request(reader) == ["", "harness"]
    writer.write(pack_frame(b"p", pack([""])))


def respond_with(*chunks: bytes, loading: bool = True) -> Peer:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept_harness(reader, writer)
        await respond(reader, writer)

    return peer if loading else respond


async def test_a_run_sends_a_request_and_parses_the_response() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accept_harness(reader, writer)
        fields = await read_request(reader)
        assert (fields[0], fields[8:]) == ("5.0", ["/envs/abc", "program", "1", "test_a", "key", "value"])
        key = hashlib.blake2b(fields[7].encode(), key=fields[6].encode()).digest()
        report = record(0, "case", "test_a", "passed", "", "", key=key)
        stack = b'Stack (most recent call first):\n  File "program.py", line 3 in f\n'
        stack += b'Other (most recent call first):\n  File "program.py", line 2 in h\n  File "x.py", line 1 in g\n'
        parts = [(b"o", b"out \xff"), (b"r", report[:7]), (b"e", b"err"), (b"r", report[7:]), (b"t", stack)]
        for byte in b"".join(pack_frame(kind, data) for kind, data in parts) + END:
            writer.write(bytes([byte]))
        await writer.drain()

    async with connect_peer(peer) as channel:
        result = await channel.run(SandboxJob("harness", "program", ("test_a",), {"key": "value"}, "abc", 5.0))
    assert result.records == (ReportLine("case", "test_a", "passed"),)
    assert (result.stdout, result.stderr, result.exit_code) == ("out \ufffd", "err", 0)
    assert result.hang == (Frame("program.py", 3, "f"),)
    assert result.hang_beside == ((Frame("x.py", 1, "g"), Frame("program.py", 2, "h")),)


@pytest.mark.parametrize(
    "text",
    [
        'File "x", line ' + "9" * 5000 + " in f",
        'File "' * 2000,
        'File "x", line \u0665 in f',
        'File "x", line 3 in ' + "f" * 900,
    ],
)
def test_malformed_stack_lines_are_ignored(text: str) -> None:
    trace = f'Stack (most recent call first):\n  {text}\n  File "program.py", line 3 in f\n'
    assert channel_module._parse_stacks(trace) == [(Frame("program.py", 3, "f"),)]


async def test_a_removed_environment_raises_regardless_of_the_output() -> None:
    parts = pack_frame(b"o", b"No module named six"), pack_frame(b"g", b"")
    async with connect_peer(respond_with(*parts, loading=False)) as channel:
        with pytest.raises(EnvironmentGone):
            await channel.run_command(["python3"], 5)


BROKEN = {
    "nothing": b"",
    "half a frame": END[:-3],
    "a frame too large": b"o" + (MAX_FRAME + 1).to_bytes(4, "big"),
    "an unknown frame": pack_frame(b"?", b""),
    "another hello": HELLO,
    "an exit without fields": pack_frame(b"x", b""),
    "an exit code that is not a number": pack_frame(b"x", pack(["zero", "", "0", "", "0", "0"])),
    "a malformed exit": pack_frame(b"x", b"\xff" * 10),
    "more than the cap": pack_frame(b"o", b"x" * MAX_FRAME) + pack_frame(b"o", b"x"),
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
async def test_a_malformed_response_raises_a_sandbox_error(sent: bytes) -> None:
    async with connect_peer(respond_with(sent)) as channel:
        with pytest.raises(RunnerCrashed):
            await channel.run(JOB)
        with pytest.raises(SandboxError, match="unusable"):
            await channel.run(JOB)


@pytest.mark.parametrize("sent", [b"", END, b"garbage that goes on and on", b"h" + (MAX_FRAME + 1).to_bytes(4, "big")])
async def test_a_malformed_greeting_raises_a_sandbox_error(sent: bytes) -> None:
    async def peer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)

    async with connect_peer(peer) as channel:
        with pytest.raises(RunnerCrashed):
            await channel.open(5)


@settings(max_examples=30)
@given(sent=st.lists(st.binary(max_size=40), max_size=6))
def test_arbitrary_bytes_yield_a_result_or_a_sandbox_error(sent: list[bytes]) -> None:
    async def attempt() -> None:
        async with connect_peer(respond_with(*sent)) as channel:
            with suppress(SandboxError):
                await channel.run(JOB)

    asyncio.run(attempt())


async def test_the_backend_explains_why_a_stream_ended() -> None:
    async with connect_peer(respond_with()) as channel:
        channel.why = "its container was removed"
        with pytest.raises(ContainerLost, match="its container was removed"):
            await channel.run(JOB)


async def test_a_silent_supervisor_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(channel_module, "GRACE", 0.05)
    async with connect_peer(silent) as channel:
        with pytest.raises(RunnerCrashed, match=r"0\.05 s"):
            await channel.run(SandboxJob("harness", "", timeout=0.05))
        with pytest.raises(RunnerCrashed, match=r"0\.05 s"):
            await channel.open(0.05)


async def test_a_cancelled_run_makes_the_sandbox_unusable() -> None:
    async with connect_peer(respond_with(pack_frame(b"o", b"late"), END + pack_frame(b"o", b"x") + END)) as channel:
        running = asyncio.ensure_future(channel.run(JOB))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        with pytest.raises(SandboxError, match="unusable"):
            await channel.run(JOB)


@pytest.mark.parametrize("key", ["../x", "/x", "", ".hidden", "a/b", "a\0b", "é"])
async def test_an_invalid_environment_key_is_refused(key: str) -> None:
    async with connect_peer(respond_with(END)) as channel:
        with pytest.raises(SandboxError, match="key"):
            await channel.run(SandboxJob("", "", environment=key))


async def test_an_oversized_request_is_refused() -> None:
    async with connect_peer(respond_with(END)) as channel:
        with pytest.raises(SandboxError, match=str(channel_module.MAX_REQUEST)):
            await channel.run(SandboxJob("harness", "x" * (65 << 20)))


async def test_a_harness_that_does_not_load_raises_a_sandbox_error() -> None:
    async with connect_peer(respond_with(pack_frame(b"p", pack(["SyntaxError: no"])), loading=False)) as channel:
        with pytest.raises(SandboxError, match="SyntaxError: no"):
            await channel.run(JOB)


KEY = b"0123456789abcdef"


def record(number: int, *fields: str, key: bytes = KEY) -> bytes:
    """Return a record that is signed with a key."""
    content = pack(fields)
    signed = hashlib.blake2b(number.to_bytes(8, "big") + content, digest_size=16, key=key).digest() + content
    return len(signed).to_bytes(4, "big") + signed


START, PASS, END_RECORD = (
    record(number, *fields, "", "", "")
    for number, fields in enumerate([("start", "test_a"), ("case", "test_a"), ("end", "")])
)
FORGED_REPORTS = {
    "another key": (START + record(1, "end", "", "", "", "", key=b"0" * 16), 1),
    "a replayed record": (START + PASS + PASS, 2),
    "records in another order": (PASS + START + END_RECORD, 0),
    "a missing record": (START + END_RECORD, 1),
    "changed content": (START + PASS.replace(b"test_a", b"test_b"), 1),
    "no tag": (START + pack([pack(["end", "", "", "", ""]).decode()]), 1),
}


@pytest.mark.parametrize(("report", "genuine"), FORGED_REPORTS.values(), ids=FORGED_REPORTS)
def test_a_report_ends_at_the_first_record_without_its_signature(report: bytes, genuine: int) -> None:
    assert [line.kind for line in read_report(START + PASS + END_RECORD, KEY)] == ["start", "case", "end"]
    assert [line.kind for line in read_report(report, KEY)] == [*["start", "case"][:genuine], "tamper"]


@given(st.binary(min_size=1))
def test_random_bytes_contain_no_end_record(data: bytes) -> None:
    assert "end" not in [line.kind for line in read_report(data, KEY)]


@given(st.binary(max_size=40))
def test_a_truncated_report_is_parsed_up_to_its_last_record(tail: bytes) -> None:
    for end in range(len(PASS) + 1):
        kinds = [line.kind for line in read_report(START + PASS[:end], KEY, truncated=True)]
        assert kinds == ["start", "case"][: 2 if end == len(PASS) else 1]
    assert "end" not in [line.kind for line in read_report(START + tail, KEY, truncated=True)]


@pytest.mark.parametrize(("line", "expected"), [("12", 12), ("9" * 5000, 0), ("\u0665", 0), ("-1", 0), ("", 0)])
def test_a_malformed_line_number_becomes_0(line: str, expected: int) -> None:
    (report,) = read_report(record(0, "case", "test_a", "error", "E", "m", "f.py", line, "f"), KEY)
    assert report.frames == (Frame("f.py", expected, "f"),)
