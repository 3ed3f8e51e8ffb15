"""Options and settings make one configuration, and those without effect are named."""

from __future__ import annotations

import re

import pytest

from agent.cli.options import RUN_FLAGS, AnnotateOptions
from agent.cli.reference import describe_settings, format_markdown_table
from agent.cli.settings import read_config
from agent.config import PipelineConfig, collect_setting_fields
from agent.errors import ConfigError
from agent.graph import find_readers, load_variant
from agent.nodes import BUILT_IN
from agent.settings import Settings
from tests.cli.commands import ROOT, Commands, pairs


def test_settings_go_over_options_and_the_last_one_counts() -> None:
    config = read_config(
        {"runner.concurrency": 3, "variant": "ps_fa"}, ["runner.concurrency=4", "runner.concurrency=5"]
    )
    assert (config.runner.concurrency, config.variant) == (5, "ps_fa")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sandbox.memory_mb", "settings look like sandbox.memory_mb=512"),
        ("=3", "settings look like"),
        (
            "sandbox.memory=512",
            r"'sandbox.memory' .*sandbox.memory_mb\?.*-c help",
        ),
        ("sandbox.memory_mb=lots", "setting sandbox.memory_mb: .*integer"),
        ("sandbox.memory_mb=1", "setting sandbox.memory_mb: .* 64"),
        ("sandbox.memory_mb.x=1", "'memory_mb' .*group"),
        ("sandbox.memory_mb=", "setting sandbox.memory_mb: .*nothing"),
        ("sandbox=5", "setting sandbox .*sandbox.NAME=VALUE"),
        ("sandbox.memory_mb=[", "the value cannot be read"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config({"sandbox.memory_mb": 512}, [setting])


def test_an_unknown_setting_names_those_near_it_and_no_others() -> None:
    with pytest.raises(ConfigError) as raised:
        read_config({}, ["runner.budget=1", "memory_mb=512", "zzz=1"])
    budget, memory, unlike = str(raised.value).split("; ")
    assert re.search(r"'runner\.budget' .*runner\.budget_usd\?", budget)
    assert re.search(r"'memory_mb' .*sandbox\.memory_mb\?", memory)
    assert re.search(r"'zzz' [^?]*$", unlike)


def test_each_setting_is_listed_with_type_default_bounds_and_description(agent: Commands) -> None:
    listed = agent("annotate", "-c", "help")
    assert listed.code == 0
    keys = [line.split()[0] for line in listed.out.splitlines()[1:]]
    assert keys == list(collect_setting_fields())
    described = {setting.key: setting for setting in describe_settings()}
    assert described["sandbox.memory_mb"][1:4] == ("whole number", "1024", "≥ 64, ≤ 16,777,216")
    assert described["pipeline.abstain"].type == "keep|negative"
    assert described["runner.concurrency"].type == "whole number or auto"
    assert [setting.key for setting in described.values() if not (setting.description and setting.default)] == []


def test_an_option_takes_type_bounds_and_help_from_its_setting(agent: Commands) -> None:
    text = " ".join(agent("annotate", "--help").out.split())
    fields = collect_setting_fields(Settings)
    assert [key for key in RUN_FLAGS.values() if fields[key].description not in text.replace("- ", "-")] == []
    assert agent("annotate", "p.jsonl", "--memory", "5").code == 2
    assert agent("annotate", "p.jsonl", "--criterion", "third").code == 2


def settings_table() -> str:
    return format_markdown_table({**AnnotateOptions.flags, "--model": "model"})


def test_the_page_of_settings_is_the_table_of_their_fields() -> None:
    """`python -m tests.cli.test_settings` prints it."""
    assert settings_table() in (ROOT / "docs/settings.md").read_text("utf-8")


def test_a_group_that_is_set_as_a_whole_keeps_the_settings_that_it_does_not_name() -> None:
    sandbox = read_config({"sandbox.memory_mb": 300}, ["sandbox={python: 3.11, images: {3.11: mine}}"]).sandbox
    assert (sandbox.memory_mb, sandbox.python, sandbox.images) == (300, "3.11", {"3.11": "mine"})


def test_versions_and_dates_stay_what_was_typed() -> None:
    settings = ["sandbox.python=3.10", "sandbox.exclude_newer=2016-12-31", "sandbox.images={3.10: mine:1}"]
    sandbox = read_config({}, settings).sandbox
    assert (sandbox.python, sandbox.exclude_newer, sandbox.images) == ("3.10", "2016-12-31", {"3.10": "mine:1"})
    with pytest.raises(ConfigError, match=r"setting sandbox\.python"):
        read_config({}, ["sandbox.python=2.7"])


EVERYWHERE = {"criterion", "reasks", "pair_timeout"}
"""What matters to every node: no variant is without it."""
OF_SANDBOXES = {"sandbox_attempts"}


def said(err: str) -> list[str]:
    return [line for line in err.splitlines() if "has no effect" in line]


@pytest.mark.parametrize(("options", "lines"), [
    (("--abstain", "negative"), ["--abstain has no effect: of the nodes that it is for (arbitrate_or_abstain, "
                                 "rate_confidence) none is in variant ps_fa"]),
    (("-c", "pipeline.votes=5", "-c", "pipeline.votes=5"), ["-c pipeline.votes has no effect: of the nodes that it is "
                                                            "for (rate_confidence) none is in variant ps_fa"]),
    (("--without", "screen", "--model", "screen=heuristic"), ["--model screen=… has no effect: nothing asks in this "
                                                              "role in variant ps_fa-without-screen"]),
    (("--temperature", "0.5"), ["--temperature has no effect: heuristic is no language model, and takes no such option"
                                ]),
    (("--sandbox", "bwrap", "--memory", "100", "-c", "runner.sandboxes=2"), [
        f"{flag} has no effect: of the nodes that it is for (execute, repair, repair_program, check_flakiness, "
        "check_validity) none is in variant ps_fa" for flag in ("--sandbox", "--memory", "-c runner.sandboxes")]),
    (("--model", "judge=heuristic", "--unsupported", "judge"), []),
    (("--criterion", "half", "--concurrency", "2", "-c", "pipeline.reasks=1"), []),
])  # fmt: skip
def test_annotate_names_option_and_variant(agent: Commands, options: tuple[str, ...], lines: list[str]) -> None:
    agent.write("p.jsonl", pairs(1))
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "ps_fa", *options, "-o", "out", "--json")
    assert done.code == 0
    assert said(done.err) == [f"note: {line}" for line in lines]


def test_ablate_says_it_once_and_only_where_no_variant_is_concerned(agent: Commands) -> None:
    agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(1)])
    command = ("ablate", "p.jsonl", "--model", "heuristic", "--abstain", "negative", "-c", "variant=full")
    done = agent(*command, "--variants", "single_llm,ps_fa", "-o", "out")
    assert said(done.err) == [
        "note: --abstain has no effect: of the nodes that it is for (arbitrate_or_abstain, rate_confidence) none is in "
        "variants single_llm, ps_fa",
        "note: -c variant has no effect: --variants names what is compared",
    ]
    agent.write(
        "mine.yaml", "start: judge\nnodes:\n  judge: {decided: rate_confidence}\n  rate_confidence: {rated: end}\n"
    )
    done = agent(*command[:-2], "--variants", "ps_fa,mine.yaml", "-o", "other")
    assert (done.code, said(done.err)) == (0, [])


def test_every_setting_is_for_some_node_or_for_all() -> None:
    named = {name for node in BUILT_IN.values() for name in getattr(node, "settings", ())}
    assert named | EVERYWHERE | OF_SANDBOXES == set(PipelineConfig.model_fields)
    for name in EVERYWHERE:
        assert find_readers(f"pipeline.{name}") is None
    assert find_readers("pipeline.votes", load_variant("full_plus")) == ["rate_confidence"]
    assert find_readers("pipeline.votes", load_variant("full")) == []
    assert find_readers("sandbox.memory_mb", load_variant("single_llm")) == []


def test_options_go_over_what_is_set_once(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(2))
    agent.write("agent.toml", 'model = "nowhere"\nvariant = "single_llm"\ncache = "c.sqlite"\n[runner]\nrounds = 2\n')
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--rounds", "3", "-o", "out", "--json")
    assert (done.code, done.json["pairs"], (agent.folder / "c.sqlite").is_file()) == (0, 2, True), done.err
    assert "note: agent.toml sets cache, model, runner.rounds, variant" in done.err
    assert "variant single_llm" in done.err
    assert "2 pairs in 3 rounds" in done.err


def test_what_agent_toml_sets_is_part_of_the_run(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    agent.write("agent.toml", 'model = "heuristic"\nvariant = "single_llm"\n')
    assert agent("annotate", "p.jsonl", "-o", "out").code == 0
    agent.write("agent.toml", 'model = "heuristic"\nvariant = "ps_fa"\n')
    done = agent("annotate", "p.jsonl", "-o", "out")
    assert (done.code, "other settings" in done.err, "variant" in done.err) == (2, True, True)


def test_a_wrong_agent_toml_ends_the_command_before_anything(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    agent.write("agent.toml", "runer.rounds = 2\n")
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "-o", "out")
    assert (done.code, (agent.folder / "out").exists()) == (2, False)
    assert done.err.startswith("agent: agent.toml: unknown setting 'runer'")


def test_doctor_asks_the_model_that_a_variable_names(agent: Commands) -> None:
    done = agent("doctor", "--quick", "--sandbox", "bwrap", "--json", AGENT_MODEL="heuristic")
    assert [each["name"] for each in done.json if each["part"] == "model"] == ["heuristic"]


if __name__ == "__main__":
    print(settings_table(), end="")
