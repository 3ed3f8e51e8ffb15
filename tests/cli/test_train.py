"""`agent train` on tiny models."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from agent.cli.exit_codes import DONE, STOPPED, WRONG_USAGE
from agent.retrieval.searchers.trained import read_record
from tests.cli.commands import Commands
from tests.cli.processes import wait_until
from tests.disks import remount, tiny_disk
from tests.retrieval.test_blindness import write_mutants
from tests.training.tiny import CODES, QUERIES, WORDS, save_bert

LIBRARIES = ("torch", "transformers", "sentence_transformers", "accelerate", "safetensors", "datasets")
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
TRAIN = ("train", "pairs.jsonl", "--recipe", "biencoder", "-o", "m", "--base", "./base", "--batch-size", "4")


def make_pairs(numbers: range = range(12)) -> list[dict[str, Any]]:
    return [{"id": str(n), "query": QUERIES[n], "code": CODES[n], "label": 1} for n in numbers]


@pytest.fixture
def trainer(agent: Commands, request: pytest.FixtureRequest) -> Commands:
    if request.node.get_closest_marker("embed"):
        agent.commands = request.getfixturevalue("training_commands")
    agent.write("pairs.jsonl", make_pairs())
    return agent


@pytest.fixture
def based(trainer: Commands) -> Commands:
    save_bert(trainer.folder / "base")
    return trainer


@pytest.mark.embed
def test_a_trained_model_is_measured_and_found_by_retrieval(based: Commands) -> None:
    based.write(
        "held.jsonl", [{"id": str(n), "query": f"parse {n}", "code": f"{n} + 1", "label": n % 2} for n in range(6)]
    )
    options = ("--epochs", "2", "--validation", "held.jsonl", "--test", "held.jsonl", "--metric", "RR@10")
    result = based(*TRAIN[:2], *TRAIN[4:], *options, "--json", **OFFLINE)  # biencoder is the default
    assert result.code == DONE, result.err
    assert result.json["folder"] == "m"
    assert [epoch["step"] for epoch in result.json["epochs"]] == [0, 3, 6]
    assert result.json["settings"]["metric"] == "RR@10"
    assert list(result.json["tests"].values()) == [result.json["epochs"][result.json["best_epoch"]]["scores"]]
    assert list(result.json["untrained_tests"].values()) == [result.json["epochs"][0]["scores"]]
    again = based(*TRAIN, *options, **OFFLINE)
    assert (again.code, "--searcher model:m" in again.out) == (DONE, True), again.err
    found = based("retrieval", "run", "held.jsonl", "--searcher", "model:m", "-o", "r", **OFFLINE)
    assert found.code == DONE, found.err
    rankings = json.loads((based.folder / "r/manifest.json").read_text())["rankings"]
    assert rankings["model:m"]["training"]["recipe"] == "biencoder"


def write_mutants_of_pairs(agent: Commands) -> None:
    pairs = ((row["query"], row["code"], row["code"] + ";") for row in make_pairs())
    write_mutants(agent.folder / "mutants.jsonl", *pairs)


@pytest.mark.embed
def test_a_model_is_trained_on_mutants_mixed_and_compared_with_the_base(based: Commands) -> None:
    write_mutants_of_pairs(based)
    based.write("held.jsonl", [{"query": f"parse {n}", "code": f"{n} + 1", "label": 1} for n in range(3)])
    held_out = ("--validation", "held.jsonl", "--test", "held.jsonl", "--learning-rate", "1e-9", "--epochs", "1")
    command = (*TRAIN, *held_out, "--contrast", "mutants.jsonl", "--mix", "0.4")
    plan = based(*command, "--dry-run", "--json", **OFFLINE).json
    assert (plan["contrasts"]["functions"], plan["contrasts"]["count"]) == (12, 12)
    result = based(*command, **OFFLINE)
    assert (result.code, "untrained" in result.out, "mixed" in result.out) == (DONE, True, True), result.err
    assert "warning" in result.out  # this learning rate cannot raise a score
    record = read_record(based.folder / "m")
    assert record is not None
    assert record.data.contrasts is not None
    assert (record.data.contrasts.name, record.data.contrasts.count) == ("mutants.jsonl", 12)
    assert record.mixed == record.epochs[0].scores
    kept = based(*TRAIN, *held_out, "--best", "any", "--force", "--json", **OFFLINE)
    assert (kept.code, kept.json["best_epoch"]) == (DONE, 0), kept.err


@pytest.mark.embed
def test_mutants_are_hard_negatives_and_rows_that_are_left_out_are_counted_by_rule(trainer: Commands) -> None:
    write_mutants_of_pairs(trainer)
    rows = [json.loads(line) for line in (trainer.folder / "mutants.jsonl").read_text().splitlines()]
    unproved = [{name: value for name, value in row.items() if name != "mutant"} for row in rows]
    trainer.write("pairs.jsonl", unproved)
    for file, expected in (("mutants.jsonl", {}), ("pairs.jsonl", {"near_duplicate": 12})):
        options = ("--base", ".", "--hard-negatives", "1", "--batch-size", "4", "--dry-run", "--json")
        plan = trainer("train", file, "-o", "m", *options, **OFFLINE)
        assert plan.json["rows_left_out"] == expected, plan.err


@pytest.mark.embed
@pytest.mark.parametrize("kilobytes", [8, 60, 120, 500])
def test_a_full_disk_is_one_error_and_more_space_resumes_the_training(based: Commands, kilobytes: int) -> None:
    command = (*TRAIN, "-o", "tiny/m", "--epochs", "6")
    with tiny_disk(based.folder / "tiny") as tiny:
        remount(tiny, f"size={kilobytes}k")
        stopped = based(*command, **OFFLINE)
        assert (stopped.code in (STOPPED, WRONG_USAGE), "disk is full" in stopped.err) == (True, True), stopped.err
        remount(tiny, "size=64m")
        assert based(*command, **OFFLINE).code == DONE


@pytest.mark.embed
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_training_resumes(based: Commands, number: signal.Signals) -> None:
    command = (*TRAIN, "--epochs", "12")
    running = based.start(*command, **OFFLINE)
    wait_until(lambda: any(based.folder.glob("m/.training/checkpoint-*/trainer_state.json")), "a checkpoint", 120)
    result = running.stop(number)
    if number is not signal.SIGKILL:
        record = read_record(based.folder / "m")
        assert (result.code, "Traceback" in result.err) == (STOPPED, False), result.err
        assert record is not None
        assert 0 < len(record.epochs) < 12
        assert (based.folder / "m/model.safetensors").is_file()
    finished = based(*command, "--json", **OFFLINE)
    assert (finished.code, len(finished.json["epochs"])) == (DONE, 12), finished.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ((), "./base"),
        (("--metric", "AP"), "AP"),
        (("--hard-negatives", "0"), "--hard-negatives"),
        (("-o", "other"), "other"),
        (("-o", "pairs.jsonl/m"), "pairs.jsonl"),
        pytest.param(("--base", "owner/missing"), "owner/missing", marks=pytest.mark.embed),
        pytest.param(("--base", "minilm:other"), "minilm:FOLDER", marks=pytest.mark.embed),
        pytest.param(("--base", "my base"), "my base", marks=pytest.mark.embed),
        pytest.param(
            ("--recipe", "siamese", "--base", ".", "--mini-batch", "2"), "--mini-batch", marks=pytest.mark.embed
        ),
        pytest.param(("--base", ".", "--in-batch"), "--in-batch", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--recipe", "unif"), "--base", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--best", "any"), "--validation", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--contrast", "pairs.jsonl"), "mutants", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--contrast", "x", "--mini-batch", "2"), "--mini-batch", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--contrast", "x", "--recipe", "siamese"), "siamese", marks=pytest.mark.embed),
        pytest.param(("--base", ".", "--recipe", "unif", "--pooling", "cls"), "--pooling", marks=pytest.mark.embed),
        pytest.param(
            ("--base", ".", "--recipe", "unif", "--precision", "float32"), "--precision", marks=pytest.mark.embed
        ),
    ],
)
def test_bad_input_is_one_error(trainer: Commands, options: tuple[str, ...], word: str) -> None:
    (trainer.folder / "other").mkdir()
    trainer.write("other/notes.txt", "mine")
    assert trainer.check_refused(word, *TRAIN, *options, **OFFLINE).count("\n") == 1
    assert not (trainer.folder / "m").exists()


@pytest.mark.parametrize("option", ["--softmax-temperature", "--learning-rate", "--alpha"])
def test_infinite_values_are_refused(trainer: Commands, option: str) -> None:
    trainer.check_refused(option, *TRAIN, option, "inf")


@pytest.mark.embed
def test_leaks_are_recorded_if_they_are_allowed(based: Commands) -> None:
    based.write("held.jsonl", make_pairs(range(2)))
    result = based(*TRAIN, "--test", "held.jsonl", "--epochs", "1", "--allow-leaks", "--json", **OFFLINE)
    assert [leaks["queries"] for leaks in result.json["data"]["leaks"].values()] == [2], result.err
    assert '"queries": 2' in (based.folder / "m/README.md").read_text()


@pytest.mark.embed
def test_leaks_stop_a_training_and_can_be_left_out(based: Commands) -> None:
    codes = [f'def {name}_it(x):\n    """{name.title()} the things."""\n    return {name}(x)' for name in WORDS]
    based.write("codes.jsonl", [{"code": code} for code in codes])
    based.write("held.jsonl", [{"query": "Max the things.", "code": "1", "label": 1},
                               {"query": "add", "code": codes[0], "label": 1}])  # fmt: skip
    command = (TRAIN[0], "codes.jsonl", *TRAIN[2:], "--pairs", "docstrings", "--test", "held.jsonl", "--epochs", "1")
    stopped = based(*command, **OFFLINE)
    assert (stopped.code, (based.folder / "m").exists(), "--drop-leaks" in stopped.err) == (WRONG_USAGE, False, True)
    assert all(text in stopped.err for text in ("Max the things.", "def sort_it"))
    plan = based(*command, "--drop-leaks", "--dry-run", "--json", **OFFLINE).json
    assert (plan["queries"], plan["codes"], plan["leaking_texts"]) == (10, 10, [])
    trained = based(*command, "--drop-leaks", "--json", **OFFLINE)
    assert (trained.code, trained.json["data"]["leaks"]) == (DONE, {}), trained.err


@pytest.mark.embed
def test_a_dry_run_reports_steps_and_leaks_and_writes_nothing(trainer: Commands) -> None:
    before = set(trainer.folder.rglob("*"))
    options = ("--validation", "pairs.jsonl", "--hard-negatives", "2", "--dry-run")
    plan = trainer(*TRAIN[:6], "--base", ".", "--batch-size", "4", *options, "--json", **OFFLINE).json
    assert (plan["steps_per_epoch"], plan["steps"], plan["settings"]["hard_negatives"]) == (3, 9, 2)
    assert [leaks["queries"] for leaks in plan["leaks"].values()] == [12]
    assert [leak["text"] for leak in plan["leaking_texts"]] == [*QUERIES, *CODES]
    assert trainer(*TRAIN[:6], "--base", ".", *options, **OFFLINE).code == DONE
    assert {path for path in trainer.folder.rglob("*") if not path.name.startswith(".")} <= before


@pytest.mark.parametrize("missing", ["torch", "sentence_transformers"])
def test_the_missing_extra_is_named(trainer: Commands, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import agent.cli; agent.cli.main()"
    result = trainer.run_python(code, *TRAIN, "--base", ".")
    assert (result.code, "Traceback" in result.err) == (WRONG_USAGE, False)
    assert "test-driven-annotator[train]" in result.err


@pytest.mark.parametrize("module", ["agent.cli.train", "agent.training.model_folder", "agent.training.evaluation"])
def test_libraries_are_imported_when_training_starts(agent: Commands, module: str) -> None:
    result = agent.run_python(f"import sys, {module}; print(sorted(set(sys.modules) & set({LIBRARIES!r})))")
    assert result.out.strip() == "[]", result.err


def test_the_options_are_those_of_the_hyperparameters(agent: Commands) -> None:
    from agent.cli.train import FLAGS
    from agent.training.recipe import RECIPES, Hyperparameters

    text = agent("train", "--help").out
    flags = {name: FLAGS.get(name, f"--{name.replace('_', '-')}") for name in Hyperparameters.model_fields}
    assert [name for name, flag in flags.items() if flag not in text] == []
    assert [name for name in RECIPES if name not in text] == []
