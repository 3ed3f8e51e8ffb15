"""A builder's proxy carries what is for a configured index, whole and both ways, and nothing else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer

from agent.sandbox.dependencies.egress import EgressProxy, Upstream
from agent.sandbox.dependencies.egress_request import RefusedRequest, host_name, parse
from agent.sandbox.dependencies.folder_pages import FOLDER_HOST
from tests.sandbox.wheelhouse import make_wheel

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[int]:
    """Serve a handler on a port of this machine."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await handler(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@asynccontextmanager
async def connected(proxy: EgressProxy) -> AsyncIterator[Streams]:
    """Connect to a proxy."""
    async with listening(proxy.serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


async def said(proxy: EgressProxy, request: str | bytes) -> bytes:
    """Send a request and return all that comes back."""
    async with connected(proxy) as (reader, writer), asyncio.timeout(20):
        writer.write(request if isinstance(request, bytes) else request.encode())
        return await reader.read()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, and `bye` once the other side has ended."""
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    writer.write(b"bye")
    await writer.drain()


def local(port: int, **options: Any) -> EgressProxy:
    return EgressProxy({("127.0.0.1", port)}, **options)


async def test_a_tunnel_carries_both_ways_and_each_side_may_end_first() -> None:
    async with listening(echo) as port, connected(proxy := local(port)) as (reader, writer):
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly ".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        assert await reader.readexactly(6) == b"early "
        data = bytes(range(256)) * 40_000

        async def send() -> None:
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.ensure_future(send())
        assert await reader.read(-1) == data + b"bye"
        await sending
    assert proxy.refused == []


@pytest.mark.parametrize(
    "target",
    [
        "evil.example:443",
        "169.254.169.254:80",
        "127.0.0.1:1",
        "127.0.0.1:{port}@evil.example:443",
        "127.0.0.1:{port}@evil.example",
        "user:pw@127.0.0.1:{port}",
        "127.1:{port}",
        "2130706433:{port}",
        "0x7f.0.0.1:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "localhost:{port}",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:{port}/",
        "127.0.0.1:{port}0000000",
        "127.0.0.1:-{port}",
        "http://127.0.0.1:{port}/",
        "127.0.0.1..:{port}",
        "\x1b[31m127.0.0.1:{port}",
        "",
    ],
)
async def test_every_other_target_is_refused_and_recorded(target: str) -> None:
    async with listening(echo) as port:
        proxy = local(port)
        target = target.format(port=port)
        answer = await said(proxy, f"CONNECT {target} HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    [refused] = proxy.refused
    assert refused.isprintable()


@pytest.mark.parametrize("spelling", ["LocalHost:{port}", "localhost.:{port}", "LOCALHOST.:{port}"])
async def test_a_host_is_the_same_in_every_spelling(spelling: str) -> None:
    async with listening(echo) as port:
        proxy = EgressProxy({("localhost", port)})
        async with connected(proxy) as (reader, writer):
            writer.write(f"CONNECT {spelling.format(port=port)} HTTP/1.1\r\n\r\n".encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


def test_addresses_of_version_six_have_one_spelling() -> None:
    assert parse(b"CONNECT [0:0::01]:443 HTTP/1.1").place == ("::1", 443)
    assert parse(b"GET http://[::1]/x HTTP/1.1").place == (host_name("0:0::1"), 80)
    with pytest.raises(RefusedRequest):
        parse(b"CONNECT [::1%25eth0]:443 HTTP/1.1")


@pytest.mark.parametrize(
    "request_text",
    [
        "POST http://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "GET https://127.0.0.1:{port}/ HTTP/1.1\r\n\r\n",
        "GET http://127.0.0.1:{port}@evil.example/ HTTP/1.1\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n",
        "GET http://127.0.0.1:{port}/ HTTP/1.1\r\n folded\r\n\r\n",
        "GET http://127.0.0.1:{port}/a b HTTP/1.1\r\n\r\n",
        "GET http://127.0.0.1:{port}/\r\n\r\n",
        "nonsense\r\n\r\n",
    ],
)
async def test_what_is_neither_a_tunnel_nor_a_page_is_refused(request_text: str, httpserver: HTTPServer) -> None:
    proxy = local(httpserver.port)
    assert (await said(proxy, request_text.format(port=httpserver.port))).startswith(b"HTTP/1.1 403 ")
    assert len(proxy.refused) == 1
    assert httpserver.log == []


async def test_a_plain_index_is_asked_for_one_page_a_connection(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/simple/x/").respond_with_data("the page")
    place = f"127.0.0.1:{httpserver.port}"
    proxy = local(httpserver.port)
    one = f"GET http://{place}/simple/x/ HTTP/1.1\r\nHost: evil\r\nAccept: a/b\r\nProxy-Connection: keep-alive\r\n\r\n"
    answer = await said(proxy, one + one)
    assert b" 200 OK\r\n" in answer
    assert answer.endswith(b"the page")
    [(request, _)] = httpserver.log
    assert request.headers["Host"] == place
    assert request.headers["Accept"] == "a/b"
    assert request.headers["Connection"] == "close"
    assert "Proxy-Connection" not in request.headers


async def test_long_headers_and_slow_requests_are_not_waited_for() -> None:
    proxy = EgressProxy(set(), head_seconds=0.2)
    assert b"too long" in await said(proxy, b"GET http://x/ HTTP/1.1\r\nA: " + b"b" * 20_000)
    assert await said(proxy, b"CONNECT x:443 HT") == b""


async def test_a_connection_on_which_nothing_moves_is_dropped() -> None:
    async with listening(echo) as port:
        proxy = local(port, idle_seconds=0.2)
        assert await said(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nx") == (
            b"HTTP/1.1 200 Connection established\r\n\r\nx"
        )


async def test_a_busy_direction_keeps_a_silent_one_open() -> None:
    async def trickle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(8):
            writer.write(b".")
            await asyncio.sleep(0.1)

    async with listening(trickle) as port:
        answer = await said(local(port, idle_seconds=0.4), f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
    assert answer.endswith(b"." * 8)


async def test_more_bytes_than_allowed_are_cut_off() -> None:
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(b"0" * 4096)
            await writer.drain()

    async with listening(endless) as port:
        proxy = local(port, size=100_000)
        answer = await said(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
    assert len(answer) < 110_000
    assert proxy.exhausted


async def test_who_does_not_read_is_not_read_ahead_for() -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while not writer.is_closing():
            writer.write(b"0" * 65536)
            await writer.drain()
            sent += 65536

    async with listening(flood) as port, connected(local(port)) as (_reader, writer):
        writer.transport.pause_reading()
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        await asyncio.sleep(0.5)
        held = sent
        await asyncio.sleep(0.3)
        assert sent == held
    assert held < 32 << 20


async def test_too_many_connections_at_once_are_turned_away() -> None:
    async with listening(echo) as port:
        proxy = local(port, connections=1)
        async with connected(proxy) as (reader, writer):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            await reader.readline()
            assert (await said(proxy, "CONNECT x:1 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503 ")


async def test_an_index_that_does_not_answer_is_a_bad_gateway() -> None:
    async with listening(echo) as port:
        pass
    answer = await said(local(port), f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")


async def test_the_hosts_own_proxy_is_gone_through() -> None:
    heads: list[bytes] = []

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 fine\r\n\r\n")
        await echo(reader, writer)

    async with listening(upstream) as port:
        places = {("index.example", 443), ("plain.example", 80)}
        proxy = EgressProxy(places, upstreams=dict.fromkeys(places, Upstream("127.0.0.1", port, "me:pw")))
        async with connected(proxy) as (reader, writer):
            writer.write(b"CONNECT index.example:443 HTTP/1.1\r\n\r\nhello")
            writer.write_eof()
            assert await reader.read() == b"HTTP/1.1 200 Connection established\r\n\r\nhellobye"
        async with connected(proxy) as (reader, writer):
            writer.write(b"GET http://plain.example/simple/ HTTP/1.1\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    credentials = b"Proxy-Authorization: Basic " + base64.b64encode(b"me:pw")
    assert heads[0].startswith(b"CONNECT index.example:443 HTTP/1.1\r\n")
    assert heads[1].startswith(b"GET http://plain.example:80/simple/ HTTP/1.1\r\n")
    assert all(credentials in head for head in heads)


async def test_a_proxy_of_the_host_that_refuses_is_a_bad_gateway() -> None:
    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 who are you\r\n\r\n")

    async with listening(upstream) as port:
        place = ("index.example", 443)
        proxy = EgressProxy({place}, upstreams={place: Upstream("127.0.0.1", port)})
        answer = await said(proxy, b"CONNECT index.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"407 who are you" in answer


async def test_folders_give_their_wheels_and_pages_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    (folder / "simple" / "x").mkdir(parents=True)
    wheel = make_wheel(folder, "x")
    (folder / "simple" / "x" / "index.html").write_text("the page")
    (folder / "secret.txt").write_text("secret")
    (tmp_path / "outside-1.0-py3-none-any.whl").write_text("secret")
    proxy = EgressProxy(set(), folders=[folder])

    async def page(path: str) -> bytes:
        return await said(proxy, f"GET http://{FOLDER_HOST}{path} HTTP/1.1\r\n\r\n")

    assert (await page(f"{folder}/simple/x/")).endswith(b"\r\n\r\nthe page")
    assert (await page(f"{folder}/{wheel.name}")).endswith(wheel.read_bytes())
    assert f'href="{wheel.name}"'.encode() in await page(f"{folder}/")
    for path in ("secret.txt", "../outside-1.0-py3-none-any.whl", "%2e%2e/outside-1.0-py3-none-any.whl", "none.whl"):
        assert (await page(f"{folder}/{path}")).startswith(b"HTTP/1.1 404 ")
    assert (await page("/etc/passwd")).startswith(b"HTTP/1.1 404 ")
    assert (await said(proxy, f"CONNECT {FOLDER_HOST}:80 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 403 ")


async def test_links_do_not_lead_out_of_a_folder_and_beside_an_index_there_are_wheels_alone(tmp_path: Path) -> None:
    (index := tmp_path / "mine" / "index").mkdir(parents=True)
    (files := tmp_path / "mine" / "files").mkdir()
    (tmp_path / "secret.html").write_text("secret")
    wheel = make_wheel(files, "x")
    outside = make_wheel(tmp_path, "outside")
    (files / "page.html").write_text("secret")
    (index / "note.txt").write_text("secret")
    (index / "y.html").write_text("the page")
    links = {"p.html": "/etc/passwd", "q.html": tmp_path / "secret.html", "out": tmp_path, "n.html": index / "note.txt"}
    for name, target in {**links, "beside.html": files / "page.html", outside.name: outside, "x": files}.items():
        (index / name).symlink_to(target)
    proxy = EgressProxy(set(), folders=[index], heaps=[tmp_path / "mine"])

    async def page(path: str) -> bytes:
        return await said(proxy, f"GET http://{FOLDER_HOST}{path} HTTP/1.1\r\n\r\n")

    assert (await page(f"{index}/y.html")).endswith(b"the page")
    for place in (f"{files}/{wheel.name}", f"{index}/x/{wheel.name}"):
        assert (await page(place)).endswith(wheel.read_bytes())
    hidden = [*links, "beside.html", outside.name, "out/secret.html", f"out/{outside.name}", "x/", "x/page.html"]
    for place in (*(f"{index}/{name}" for name in hidden), str(files), f"{files}/page.html", str(tmp_path / "mine")):
        assert (await page(place)).startswith(b"HTTP/1.1 404 "), place


@given(st.binary(max_size=300))
def test_no_bytes_make_anything_but_a_request_or_a_refusal(head: bytes) -> None:
    with suppress(RefusedRequest):
        assert parse(head).method in ("CONNECT", "GET", "HEAD")


@given(st.text(max_size=60))
def test_a_target_that_is_accepted_is_one_host_and_one_port(target: str) -> None:
    try:
        host, port = parse(f"CONNECT {target} HTTP/1.1".encode()).place
    except RefusedRequest:
        return
    assert 0 < port < 65536
    assert not set(host) & set("@/[] \r\n\\")
