"""`langgraph dev` serves the variant `full`, in one run and step by step."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

from agent.errors import UsageError
from agent.pipeline.state import State
from tests.cli.commands import make_environment
from tests.cli.processes import wait_until
from tests.llm.server import free_port

ROOT = Path(__file__).parent.parent
CODE = 'def reverse(items):\n    """Reverse.\n\n    >>> reverse([1, 2])\n    [2, 1]\n    """\n    return items[::-1]\n'
INPUT = {"pair": {"query": "reverse a list of items", "code": CODE}}
NODES = ["screen", "generate_test", "execute", "arbitrate"]


def test_every_class_of_the_state_can_be_stored_between_steps() -> None:
    serde = json.loads((ROOT / "langgraph.json").read_text())["checkpointer"]["serde"]
    hints, classes = list[Any](get_type_hints(State).values()), set[tuple[str, str]]()
    for hint in hints:
        hints += get_args(hint)  # the loop reaches these types too
        if getattr(hint, "__module__", "").startswith("agent."):
            hints += get_type_hints(hint).values()
            classes.add((hint.__module__, hint.__name__))
    assert set(map(tuple, serde["allowed_msgpack_modules"])) == classes


async def test_a_thread_refuses_a_second_pair() -> None:
    from examples import studio

    studio.app.state.backend = None
    state = await studio.run_node("screen", State(**INPUT), "thread")
    with pytest.raises(UsageError):
        await studio.run_node("screen", State(**{**state, **INPUT}), "thread")


def is_ready(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stream(client: SyncLangGraphClient, thread: str, **options: Any) -> list[str]:
    """Run the graph in a thread. Return the names of the nodes in order."""
    parts = client.runs.stream(thread, "full", stream_mode="updates", **options)
    return [name for part in parts if part.event == "updates" for name in part.data if name != "__interrupt__"]


@pytest.mark.long
@pytest.mark.network
@pytest.mark.bwrap
def test_a_pair_runs_through_the_graph_at_once_or_step_by_step() -> None:
    (command,) = re.findall(r"^\S*uv (run .*)$", (ROOT / "docs/variants.md").read_text(), re.MULTILINE)
    port = free_port()
    words = [f"{ROOT}/.venv/bin/uv", *shlex.split(f"{command} --no-browser --no-reload --port {port}")]
    environment = make_environment(LANGGRAPH_DISABLE_FILE_PERSISTENCE="true", LANGGRAPH_CLI_NO_ANALYTICS="1")
    with subprocess.Popen(words, cwd=ROOT, env=environment, start_new_session=True) as server:
        try:
            wait_until(lambda: server.poll() is not None or is_ready(port), "the server", 300)
            client = get_sync_client(url=f"http://127.0.0.1:{port}", timeout=120)
            first, second = (client.threads.create()["thread_id"] for _ in range(2))
            assert stream(client, first, input=INPUT) == NODES
            steps = [stream(client, second, input=pair, interrupt_after="*") for pair in (INPUT, None, None, None)]
            assert steps == [[name] for name in NODES]
        finally:
            os.killpg(server.pid, signal.SIGINT)
            server.wait(60)
