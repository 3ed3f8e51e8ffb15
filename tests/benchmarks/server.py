"""A fast model server that sends the same reply to every request after a delay. Prints its port."""

# Avoids large imports: the memory benchmark imports this module, and child processes inherit its peak memory.
from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.llm.server import says

VERDICT = json.dumps({"reason": "It sorts instead of reversing.", "verdict": "non_match"})


async def serve(delay: float) -> None:
    """Reply to every request with `non_match`, until the process ends."""
    body = says(VERDICT, prompt_tokens=2000).body
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    reply = head.encode() + body

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                length = request.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(delay)
                writer.write(reply)
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def start_server(delay: float = 0.05) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start the server in a new process. Yields its base URL and the process."""
    command = [sys.executable, "-m", "tests.benchmarks.server", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
