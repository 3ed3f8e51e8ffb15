"""A container's owner is called dead only where this process can know it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

from agent.sandbox.owner import Owner

HERE = Owner.current()


def test_labels_bring_the_owner_back() -> None:
    assert Owner.from_labels({**HERE.as_labels(), "more": "x"}) == HERE


def test_labels_of_others_name_no_owner() -> None:
    assert Owner.from_labels({}) is None
    assert Owner.from_labels({**HERE.as_labels(), "test-driven-annotator.pid": "x"}) is None


def test_a_live_owner_is_not_gone() -> None:
    assert not HERE.is_gone(HERE)
    assert HERE.pid == os.getpid()


def test_an_ended_process_nobody_has_waited_for_is_gone() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert replace(HERE, pid=process.pid).is_gone(HERE)
    finally:
        process.wait()


def test_a_pid_that_another_process_has_now_is_gone() -> None:
    assert replace(HERE, started="1").is_gone(HERE)


def test_nothing_is_known_of_other_hosts() -> None:
    assert not replace(HERE, host="other", pid=1 << 22).is_gone(HERE)
