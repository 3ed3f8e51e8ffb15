"""Equal executions have equal evidence, and values that tests compare remain unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.languages.canonical import canonicalise


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<A object at 0x7f3c9a1b2c40>", "<A object at <address>>"),
        ("<Mock name='f' id='140212345678901'>", "<Mock name='f' id='<address>'>"),
        ("Ran 3 tests in 0.004s", "Ran 3 tests in <duration>"),
        ("took 12 ms, elapsed: 1.25 seconds", "took <duration>, elapsed: <duration>"),
        ("now 2026-01-02 03:04:05.678901+00:00.", "now <time>."),
        ("a\n2026-01-02T03:04:05Z INFO x", "a\n<time> INFO x"),
        ("at 1763700000.123456", "at <time>"),
        ("pid 4312, PID=77, /proc/4312/fd", "pid <number>, PID=<number>, /proc/<number>/fd"),
        ("Exception in Thread-17 (run)", "Exception in Thread-<number> (run)"),
        ("open('/tmp/tmpab12cd_x/data.csv')", "open('/tmp/<temporary>/data.csv')"),
        ("/tmp/pytest-of-user/pytest-3/test_a0/f", "/tmp/<temporary>/test_a0/f"),
        ("\x1b[31mred\x1b[0m\x00\x7f\r", "\\x1b[31mred\\x1b[0m\\x00\\x7f\\r"),
        ("\u202eevil\u2028\ufeff", "\\u202eevil\\u2028\\ufeff"),
        ("\ud800x\udfff", "\ufffdx\ufffd"),
    ],
)
def test_volatile_and_invisible_text_is_replaced(text: str, shown: str) -> None:
    assert canonicalise(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError: '2020-01-02 03:04:05' != '2020-01-02'",
        "assert humanize(300) == 'in 5 minutes'",
        "assert sleep(5) is 2.5 s",
        "Täst ünïcode 漢字 🎉",
        "/home/user/tmp/x and ./tmp/y",
    ],
)
def test_values_that_a_test_may_compare_are_unchanged(text: str) -> None:
    assert canonicalise(text) == text


def test_the_middle_of_long_text_is_cut_out_with_a_note() -> None:
    text = canonicalise("first\n" + "x" * 100_000 + "\nlast")
    assert len(text) <= 6_000
    assert text.startswith("first\n")
    assert text.endswith("\nlast")
    assert "\n[... 95511 characters left out ...]\n" in text


def test_a_limit_that_is_too_small_is_rejected() -> None:
    with pytest.raises(ValueError, match="400"):
        canonicalise("x", limit=10)


PIECES = st.one_of(
    st.sampled_from(["at 0x7f3c9a1b2c40", "/tmp/", "tmpa1b2c3d4", "in 0.5", "s", "pid ", "12", "1763700000.5", "id='"]),
    st.sampled_from(["2026-01-02 03:04:05", ".123", "\n", " ", "\r", "\x1b", "\ud800", "Thread-", "'", "/proc/1"]),
    st.sampled_from(["x" * 150, "[... 9 characters left out ...]"]),
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=40).map("".join), st.sampled_from([400, 1_000, 6_000]))
def test_canonicalise_is_idempotent(text: str, limit: int) -> None:
    once = canonicalise(text, limit)
    assert canonicalise(once, limit) == once
    assert len(once) <= limit
    once.encode()
