"""Ten thousand batch requests while the run is killed and the server fails lines, expires a batch and restarts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.runs.store.run_view import load_run
from tests.llm.batch_server import BatchServer, Faults

PAIRS = 10_000
ROOT = Path(__file__).parents[2]


def answer(body: dict[str, Any]) -> str:
    """Find one pair in forty unclear. The arbiter's labels differ from the screener's."""
    system, number = body["messages"][0]["content"], _parse_number(body)
    if '"verdict"' in system:
        verdict = "unclear" if number % 40 == 0 else ("match", "non_match")[number % 2]
        return json.dumps({"reason": "r", "verdict": verdict})
    return json.dumps({"reason": "r", "label": number % 80 // 40})


def _parse_number(body: dict[str, Any]) -> int:
    return int(body["messages"][1]["content"].rpartition("return ")[2].split()[0])


def label_of(number: int) -> tuple[int, str]:
    return (number % 80 // 40, "arbitrate") if number % 40 == 0 else ((1, 0)[number % 2], "screen")


@pytest.mark.long
def test_a_killed_run_loses_no_pairs_and_pays_no_call_twice(tmp_path: Path) -> None:
    with (tmp_path / "pairs.jsonl").open("w") as file:
        for number in range(PAIRS):
            pair = {"id": f"p{number}", "query": f"query {number // 10}", "code": f"def f(): return {number}"}
            file.write(json.dumps(pair) + "\n")
    faults = Faults(failing=0.03, expiring=(4,), unacknowledged=(5,), enqueued=6_000)
    chance, completed = random.Random(15), False
    with BatchServer(tmp_path / "server", f"{__name__}:answer", faults) as server:
        command = [
            sys.executable, "-m", "agent", "annotate", "pairs.jsonl", "--batch", "--variant", "ps_fa", "--out", "run",
            "--model", "test-model", "--base-url", server.url, "--cache", "cache.sqlite",
        ]  # fmt: skip
        for kill in range(20):
            with (tmp_path / "log").open("ab") as log:
                run = subprocess.Popen(
                    command, cwd=tmp_path, stdout=log, stderr=log, env={"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "k"}
                )
            try:
                run.wait(chance.uniform(2, 12) if kill < 6 else 300)
                assert run.returncode == 0, (tmp_path / "log").read_text()[-2000:]
                completed = True
                break
            except subprocess.TimeoutExpired:
                if kill % 3 == 1:
                    server.kill()
                    server.start()
            finally:
                run.kill()
                run.wait()
        assert completed
        statuses = [batch["status"] for batch in server.list_batches()]
        assert {"failed", "expired", "completed"} <= set(statuses)
        assert set(server.count_replies().values()) == {1}
        assert len(server.count_replies()) == PAIRS + PAIRS // 40
        assert len(server.count_failures()) > PAIRS // 50
        assert server.list_live_requests() == []
    with load_run(tmp_path / "run") as view:
        labels = {annotation.id: (annotation.label, annotation.decided_by) for annotation in view.annotations()}
        assert len(view.index) == PAIRS
    assert labels == {f"p{number}": label_of(number) for number in range(PAIRS)}
