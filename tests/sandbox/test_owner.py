"""A container's owner counts as exited only if this process can check it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

from agent.sandbox.owner import Owner

HERE = Owner.current()


def test_an_owner_survives_the_round_trip_through_labels() -> None:
    assert Owner.from_labels({**HERE.as_labels(), "more": "x"}) == HERE


def test_incomplete_labels_yield_no_owner() -> None:
    assert Owner.from_labels({}) is None
    assert Owner.from_labels({**HERE.as_labels(), "test-driven-annotator.pid": "x"}) is None


def test_a_live_owner_is_not_gone() -> None:
    assert not HERE.is_gone(HERE)
    assert HERE.pid == os.getpid()


def test_a_zombie_is_gone() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert replace(HERE, pid=process.pid).is_gone(HERE)
    finally:
        process.wait()


def test_a_process_with_a_reused_pid_is_gone() -> None:
    assert replace(HERE, started="1").is_gone(HERE)


def test_owners_on_other_hosts_are_never_gone() -> None:
    assert not replace(HERE, host="other", pid=1 << 22).is_gone(HERE)
