"""Who is let in: this machine's browser with the token, and only the page itself when something is written."""

from __future__ import annotations

import pytest

from agent.views.gate import Gate

HOST = "127.0.0.1:8000"


@pytest.fixture
def gate() -> Gate:
    return Gate()


def cookie(gate: Gate) -> str:
    return gate.cookie().split(";")[0]


def test_a_token_has_more_than_128_bits_and_is_another_each_time() -> None:
    tokens = {Gate().token for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) * 6 >= 128 for token in tokens)


def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_other_servers(gate: Gate) -> None:
    assert gate.cookie() == f"agent-review={gate.token}; Path={gate.path}; HttpOnly; SameSite=Strict"


def test_the_path_of_the_page_is_as_hard_to_guess_and_says_nothing_of_the_token(gate: Gate) -> None:
    paths = {Gate(gate.token).path for _ in range(100)}
    assert len(paths) == 100
    assert all(len(path) * 6 >= 128 and (path[0], path[-1]) == ("/", "/") for path in paths)


@pytest.mark.parametrize("host", [HOST, "localhost:8000", "[::1]:8000", "localhost", "localhost:9999"])
def test_names_of_this_machine_are_let_in_also_by_a_forwarded_port(gate: Gate, host: str) -> None:
    assert gate.refusal("GET", {"host": host, "cookie": cookie(gate)}) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.", "127.0.0.1:8000@evil", "0:8000"],
)
def test_any_other_name_is_refused_whatever_it_knows(gate: Gate, host: str) -> None:
    assert "browser of this machine" in str(gate.refusal("GET", {"host": host, "cookie": cookie(gate)}, gate.token))


def test_the_token_is_taken_from_the_address_or_from_the_cookie_among_others(gate: Gate) -> None:
    assert gate.refusal("GET", {"host": HOST}, gate.token) is None
    assert gate.refusal("GET", {"host": HOST, "cookie": f'a="b; {cookie(gate)}; c'}) is None


@pytest.mark.parametrize("kept", ["", "agent-review=", "agent-review=wrong", "agent-review", "ä=ö\ud800"])
@pytest.mark.parametrize("token", [None, "", "wrong", "ä\ud800"])
def test_without_the_token_there_is_nothing(gate: Gate, kept: str, token: str | None) -> None:
    assert "holds the token" in str(gate.refusal("GET", {"host": HOST, "cookie": kept}, token))


def test_another_servers_cookie_is_none_of_ours(gate: Gate) -> None:
    assert gate.refusal("GET", {"host": HOST, "cookie": cookie(Gate())}) is not None


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:9", "https://127.0.0.1:8000"]
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_the_page_itself_writes(gate: Gate, origin: str | None, method: str) -> None:
    headers = {"host": HOST, "cookie": cookie(gate)}
    assert "Only the page" in str(gate.refusal(method, headers if origin is None else {**headers, "origin": origin}))
    assert gate.refusal(method, {**headers, "origin": f"http://{HOST}"}) is None


def test_a_ticket_is_good_once(gate: Gate) -> None:
    ticket = gate.ticket()
    assert ticket != gate.token
    assert gate.refusal("GET", {"host": HOST}, ticket) is None
    assert gate.refusal("GET", {"host": HOST}, ticket) is not None
