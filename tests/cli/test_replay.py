"""`agent replay` runs recorded programs again and compares the outcomes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import ADD, CommandResult, Commands, read_figures, reply
from tests.cli.processes import find_alive, find_descendants, wait_until
from tests.evaluation.replays import CHANCE, ENDLESS, FAILS, PASSES, program_importing, program_reading
from tests.llm.server import Answer, ChatServer, Request
from tests.sandbox.wheelhouse import make_wheel
from tests.scripts import program, screen

pytestmark = pytest.mark.bwrap

NO_REPAIR = "Nothing can help.\n```bash\n```"


def annotate(agent: Commands, programs: Mapping[str, str], *options: str, **environment: str) -> CommandResult:
    """Create the run `run` with the given programs, labelled by their tests."""
    [result] = annotate_in_starts(agent, programs, options, **environment)
    return result


def annotate_in_starts(
    agent: Commands, programs: Mapping[str, str], *starts: Sequence[str], **environment: str
) -> list[CommandResult]:
    """Create the run in several starts with different options."""

    def answer(request: Request) -> Answer:
        if '"non_match"' in request.prompt:
            return reply(screen("unclear"))
        replies = (program(source) for name, source in programs.items() if f"way {name}." in request.prompt)
        return reply(next(replies, NO_REPAIR))

    rows = [{"id": name, "query": f"add two numbers, way {name}.", "code": ADD} for name in programs]
    with ChatServer(answer) as server:
        command = ("annotate", agent.write("p.jsonl", rows), "-o", "run", "--variant", "rule_arbiter", "--model", "m")
        server_options = ("--base-url", server.url, "--sandbox", "bwrap")
        return [agent(*command, *server_options, *options, **environment) for options in starts]


def test_without_ids_all_executed_pairs_are_replayed(agent: Commands) -> None:
    annotate(agent, {"fails": FAILS, "passes": PASSES, "chance": CHANCE})
    result = agent("replay", "run")
    assert result.code == 1
    assert "3 executions of 3 pairs" in result.err
    assert "note" not in result.err
    assert [read_figures(result.out, name) for name in ("replayed", "same", "different")] == [[3, 3], [2], [1, 1]]
    assert "\n  chance: flaky\n    " in result.out


def test_ids_select_pairs_with_all_rounds(agent: Commands) -> None:
    annotate(agent, {"fails": FAILS, "passes": PASSES, "chance": CHANCE}, "--rounds", "2")
    assert agent("replay", "run", "fails").code == 0
    document = agent("replay", "run", "fails", "chance", "--json").json
    assert (document["chosen"], document["same"], document["different"], document["flaky"]) == (4, 2, 2, 2)
    assert {(outcome["id"], outcome["cause"]) for outcome in document["pairs"]} == {("chance", "flaky")}
    assert document["pairs"][0]["recorded"] != document["pairs"][0]["replayed"]
    assert (document["pairs_not_run"], document["notes"]) == ([], [])


def test_mounts_are_passed_again_and_changed_settings_are_reported(agent: Commands, open_folder: Path) -> None:
    (file := open_folder / "file.txt").write_text("as it was")
    mount = ("-c", f"sandbox.mount_ro={file}:/data/file.txt")
    annotate(agent, {"reads": program_reading("/data/file.txt")}, *mount, "-c", "sandbox.memory_mb=300")
    agent.check_refused("sandbox.mount_ro=HOST:BOX", "replay", "run", "reads")
    assert agent("replay", "run", "reads", *mount).code == 0
    file.write_text("something else")
    result = agent("replay", "run", "reads", "-c", "sandbox.memory_mb=200", *mount)
    assert result.code == 1
    assert "\n  reads: changed\n" in result.out
    assert "    outcome of test_file: passed → failed\n" in result.out
    assert re.search(r"^note: memory_mb: .*300.*200", result.err, re.M)
    assert re.search(rf"^note: .*{file}:/data/file\.txt", result.err, re.M)


FILLS = "# <candidate>\n\n\ndef test_room():\n    assert open('/tmp/x', 'wb').write(bytes(20 << 20)) == 20 << 20\n"


def test_programs_are_replayed_with_their_recorded_limits(agent: Commands) -> None:
    roomy, tight, other = (("-c", f"sandbox.files_mb={size}") for size in (64, 8, 32))
    annotate_in_starts(agent, {"first": FILLS, "second": FILLS}, ("--limit", "1", *roomy), tight, other)
    document = agent("replay", "run", "--json").json
    assert (document["chosen"], document["same"], document["notes"]) == (2, 2, [])
    over = agent("replay", "run", "first", *tight, "--json").json
    (note,) = over["notes"]
    (pair,) = over["pairs"]
    assert (pair["replayed"]["passed"], re.findall(r"\d+", note)) == (0, ["64", "8"])


def test_unavailable_packages_are_an_error_not_a_different_outcome(
    agent: Commands, tmp_path: Path, open_folder: Path, request: pytest.FixtureRequest
) -> None:
    # a unique version, so that no other test shares the environment
    version = f"1.{os.getpid()}.{abs(hash(request.node.nodeid))}"
    wheel = make_wheel(open_folder, "pyyaml", version, files={"yaml.py": f"VERSION = '1.0'  # {version}\n"})
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(open_folder), "PIP_CONFIG_FILE": "/dev/null"}
    index |= {"PIP_EXTRA_INDEX_URL": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    annotate(agent, {"packaged": program_importing("yaml"), "passes": PASSES}, **index)
    assert agent("replay", "run", "packaged", **index).code == 0
    wheel.unlink()
    _forget_environment(agent, index)
    result = agent("replay", "run", "--json", **index)
    document = result.json
    assert (result.code, document["same"], document["different"]) == (1, 1, 0)
    assert document["not_run"] == {"LockUnavailable": 1}
    (failure,) = document["pairs_not_run"]
    assert (failure["id"], failure["round"]) == ("packaged", 0)
    assert f"pyyaml=={version}" in failure["error"]["message"]


def _forget_environment(agent: Commands, index: Mapping[str, str]) -> None:
    """Remove the environment of the run from the store of this machine."""
    import shutil

    from agent.sandbox.folders import get_shared_cache

    evidence = agent("show", "run", "packaged", "--json").json["evidence"]
    key = [event for event in evidence["events"] if event["kind"] == "execution"][-1]["environment"]
    root = get_shared_cache() if os.geteuid() == 0 else Path(index["XDG_CACHE_HOME"]) / "test-driven-annotator"
    [environment] = root.glob(f"bwrap/*/envs/{key}")
    shutil.rmtree(environment)
    shutil.rmtree(index["XDG_CACHE_HOME"], ignore_errors=True)


def test_ctrl_c_prints_the_results_so_far(agent: Commands) -> None:
    annotate(agent, {"1": PASSES, "2": ENDLESS}, "--timeout", "0.5", "--without", "repair")
    process = agent.start(
        "replay", "run", "--json", "--concurrency", "1", "-c", "pipeline.test_timeout=300", "-c",
        "sandbox.pool=0",
    )  # fmt: skip
    # programs run in order of their ids, so a process busy for a second is the second one, which never ends
    wait_until(
        lambda: any(_read_seconds(process) > 1 for process, _ in find_descendants(process.pid)),
        "a program that runs for a second",
    )
    children = find_descendants(process.pid)
    stopped = process.stop(seconds=30)
    wait_until(lambda: not find_alive(children), "the end of all processes", 10)
    assert stopped.code == 3
    assert "Interrupted" in stopped.err
    document: dict[str, Any] = json.loads(stopped.out)
    assert (document["interrupted"], document["same"], document["different"], document["chosen"]) == (True, 1, 0, 2)


def _read_seconds(pid: int) -> float:
    """Return the CPU seconds of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def test_unusable_selection_is_rejected(agent: Commands) -> None:
    annotate(agent, {"p1": PASSES})
    agent("annotate", "p.jsonl", "-o", "untested", "--variant", "single_llm", "--model", "heuristic")
    for arguments, message in (
        (("run", "p11"), "'p1'"),
        (("run", "p1", "-c", "sandbox.python=3.99"), "3.99"),
        (("untested",), "untested: "),
        (("untested", "p1"), "'p1'"),
    ):
        agent.check_refused(message, "replay", *arguments)
