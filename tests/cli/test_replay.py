"""`agent replay` runs recorded programs again and says whether the outcome is the same."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import ADD, Commands, Ended, reply
from tests.cli.processes import alive, descendants, until
from tests.evaluation.replays import CHANCE, ENDLESS, FAILS, PASSES, packaged, reads
from tests.llm.server import Answer, ChatServer, Request
from tests.sandbox.wheelhouse import make_wheel
from tests.scripts import program, screen

pytestmark = pytest.mark.bwrap

NO_REPAIR = "Nothing can help.\n```bash\n```"


def annotate(agent: Commands, programs: Mapping[str, str], *options: str, **environment: str) -> Ended:
    """Make the run `run` of pairs whose programs are given, labelled by what their tests say."""
    [ended] = annotate_in_starts(agent, programs, options, **environment)
    return ended


def annotate_in_starts(
    agent: Commands, programs: Mapping[str, str], *starts: Sequence[str], **environment: str
) -> list[Ended]:
    """Make it in several starts, each with options of its own."""

    def answer(request: Request) -> Answer:
        if '"non_match"' in request.prompt:
            return reply(screen("unclear"))
        written = (program(source) for name, source in programs.items() if f"way {name}." in request.prompt)
        return reply(next(written, NO_REPAIR))

    rows = [{"id": name, "query": f"add two numbers, way {name}.", "code": ADD} for name in programs]
    with ChatServer(answer) as server:
        command = ("annotate", agent.write("p.jsonl", rows), "-o", "run", "--variant", "rule_arbiter", "--model", "m")
        at = ("--base-url", server.url, "--sandbox", "bwrap")
        return [agent(*command, *at, *options, **environment) for options in starts]


def test_one_pair_ends_as_it_did(agent: Commands) -> None:
    annotate(agent, {"fails": FAILS})
    ended = agent("replay", "run", "fails")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "the same outcome")
    assert "execution 1: failed (cause: snippet), 0 of 1 case passed" in ended.out
    assert "note" not in ended.err
    told = agent("replay", "run", "fails", "--json").json
    assert (told["id"], told["same"], told["differences"], told["notes"]) == ("fails", True, [], [])
    assert told["recorded"] == told["replayed"]


def test_a_whole_run_has_a_share_with_its_interval(agent: Commands) -> None:
    annotate(agent, {"fails": FAILS, "passes": PASSES, "chance": CHANCE})
    ended = agent("replay", "run", "--all")
    assert ended.code == 1
    assert "replayed    3 of 3 pairs that were executed" in ended.out
    assert "same        2 (66.7% of those that ran; 95% interval 20.8% to 93.9%)" in ended.out
    assert "different   1 (1 flaky, 0 in messages alone)" in ended.out
    assert "\n  chance: flaky: " in ended.out


def test_the_interval_is_over_pairs_of_which_every_round_must_end_as_it_did(agent: Commands) -> None:
    annotate(agent, {"fails": FAILS, "passes": PASSES, "chance": CHANCE}, "--rounds", "3")
    ended = agent("replay", "run", "--all")
    assert ended.code == 1
    assert "replayed    9 rounds of 3 of 3 pairs that were executed" in ended.out
    alike = "same        6 rounds; every round of 2 pairs "
    assert f"{alike}(66.7% of those that ran; 95% interval over pairs 20.8% to 93.9%)" in ended.out
    told = agent("replay", "run", "--all", "--json").json
    assert (told["executions"], told["same"], told["different"]) == (9, 6, 3)
    assert (told["pairs_replayed"], told["pairs_same"], told["not_run"]) == (3, 2, {})
    assert {(each["id"], each["cause"]) for each in told["pairs"]} == {("chance", "flaky")}
    drawn = agent("replay", "run", "--all", "--sample", "1", "--seed", "1").out
    assert "replayed    3 rounds of 1 of 3 pairs that were tested (a random sample, seed 1)" in drawn


def test_what_changed_on_this_machine_is_told(agent: Commands, open_folder: Path) -> None:
    (file := open_folder / "file.txt").write_text("as it was")
    shown = ("--mount-ro", f"{file}:/data/file.txt")
    annotate(agent, {"reads": reads("/data/file.txt")}, *shown, "--memory", "300")
    unasked = agent("replay", "run", "reads")
    assert (unasked.code, unasked.out) == (2, "")
    assert "--mount-ro HOST:BOX" in unasked.err
    assert agent("replay", "run", "reads", *shown).code == 0
    file.write_text("something else")
    ended = agent("replay", "run", "reads", "--memory", "200", *shown)
    assert ended.code == 1
    assert ended.out.startswith("another outcome than recorded\nit always ends in this other way by now\n")
    assert "  test_file\n    then  passed\n    now   failed\n" in ended.out
    assert "note: memory_mb: 300 then, 200 now" in ended.err
    assert f"note: mounted read-only: {file}:/data/file.txt" in ended.err


FILLS = "# <candidate>\n\n\ndef test_room():\n    assert open('/tmp/x', 'wb').write(bytes(20 << 20)) == 20 << 20\n"


def test_each_program_has_the_limits_it_had_and_a_start_that_annotated_nothing_decides_none(agent: Commands) -> None:
    roomy, tight, other = (("-c", f"sandbox.files_mb={size}") for size in (64, 8, 32))
    annotate_in_starts(agent, {"first": FILLS, "second": FILLS}, ("--limit", "1", *roomy), tight, other)
    one = agent("replay", "run", "first", "--json").json
    assert (one["same"], one["recorded"]["status"], one["notes"]) == (True, "passed", [])
    told = agent("replay", "run", "--all", "--json").json
    (note,) = told["notes"]
    assert "files_mb 64 (1 program) and files_mb 8 (1 program)" in note
    assert (told["same"], told["pairs_replayed"]) == (2, 2)
    over = agent("replay", "run", "first", *tight, "--json").json
    assert (over["replayed"]["passed"], over["notes"]) == (0, ["files_mb: 64 then, 8 now"])


def test_packages_that_cannot_be_had_are_an_error_and_no_other_outcome(
    agent: Commands, tmp_path: Path, open_folder: Path, request: pytest.FixtureRequest
) -> None:
    # a version of the test's own: no other test's environment has its key
    version = f"1.{os.getpid()}.{abs(hash(request.node.nodeid))}"
    wheel = make_wheel(open_folder, "pyyaml", version, files={"yaml.py": f"VERSION = '1.0'  # {version}\n"})
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(open_folder), "PIP_CONFIG_FILE": "/dev/null"}
    index |= {"PIP_EXTRA_INDEX_URL": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    annotate(agent, {"packaged": packaged("yaml"), "passes": PASSES}, **index)
    assert agent("replay", "run", "packaged", **index).code == 0
    wheel.unlink()
    _forget_environment(agent, index)
    ended = agent("replay", "run", "packaged", **index)
    assert (ended.code, ended.out) == (2, "")
    assert "'packaged'" in ended.err
    assert f"(pyyaml=={version}): " in ended.err
    told = agent("replay", "run", "--all", "--json", **index)
    assert (told.code, told.json["same"], told.json["share"]) == (1, 1, 1.0)
    assert told.json["not_run"] == {"LockUnavailable": 1}


def _forget_environment(agent: Commands, index: Mapping[str, str]) -> None:
    """Remove what the run had installed from the machine's store."""
    import shutil

    from agent.sandbox.folders import get_shared_cache

    evidence = agent("show", "run", "packaged", "--json").json["evidence"]
    key = [each for each in evidence["events"] if each["kind"] == "execution"][-1]["environment"]
    root = get_shared_cache() if os.geteuid() == 0 else Path(index["XDG_CACHE_HOME"]) / "test-driven-annotator"
    [environment] = root.glob(f"**/envs/**/{key}")
    shutil.rmtree(environment)
    shutil.rmtree(index["XDG_CACHE_HOME"], ignore_errors=True)


def test_ctrl_c_tells_what_is_known_so_far(agent: Commands) -> None:
    annotate(agent, {"1": PASSES, "2": ENDLESS}, "--timeout", "0.5", "--without", "repair")
    process = agent.start(
        "replay", "run", "--all", "--json", "--concurrency", "1", "-c", "pipeline.test_timeout=300", "-c",
        "sandbox.pool=0",
    )  # fmt: skip
    # one at a time, in the order of their ids: what has been busy for a second is the second one, which never ends
    until(lambda: any(_seconds(process) > 1 for process, _ in descendants(process.pid)), "a program at work for long")
    children = descendants(process.pid)
    os.kill(process.pid, signal.SIGINT)
    stopped = process.wait(30)
    until(lambda: not alive(children), "the end of all processes", 10)
    assert stopped.code == 3
    assert "Interrupted; this is what is known so far." in stopped.err
    told: dict[str, Any] = json.loads(stopped.out)
    assert (told["interrupted"], told["same"], told["different"], told["chosen"]) == (True, 1, 0, 2)


def _seconds(pid: int) -> float:
    """Return how long a process has been busy."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def test_what_cannot_be_meant_is_told(agent: Commands) -> None:
    annotate(agent, {"p1": PASSES})
    for arguments, message in (
        ((), "say which pair to replay by its id, or replay every one (--all)"),
        (("p1", "--all"), "the pair 'p1' and every pair (--all) were asked for: give one of them"),
        (("--all", "--execution", "1"), "choose among the executions of one pair"),
        (("p1", "--execution", "2"), "'p1': execution 2"),
        (("p1", "--round", "2"), "run has no round 2 of the pair 'p1'; it has: 0"),
        (("p11",), "run has no annotation of a pair with the id 'p11'; near it are: 'p1'"),
        (("p1", "--python", "3.99"), "Python 3.99"),
    ):
        ended = agent("replay", "run", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert message in ended.err
        assert "Traceback" not in ended.err
