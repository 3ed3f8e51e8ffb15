"""Options and settings are merged into one configuration, and options without effect are reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.cli.options import SETTINGS
from agent.cli.reference import describe_settings
from agent.cli.settings import read_config
from agent.config import PipelineConfig, collect_setting_fields
from agent.errors import ConfigError
from agent.pipeline.graph import find_readers, load_variant
from agent.pipeline.nodes.registry import BUILT_IN
from agent.settings import Settings, find_rule
from tests.cli.commands import ROOT, Commands, pairs, read_annotations


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sandbox.memory_mb", "-c sandbox.memory_mb: "),
        ("=3", "-c =3: "),
        ("sandbox.memory=512", r"'sandbox\.memory'.*sandbox\.memory_mb"),
        ("pipeline.audit_screen=0.1", "'pipeline.screen_audit_rate'"),
        ("sandbox={network_for_builds: false}", "'sandbox.install_packages'"),
        ("sandbox.memory_mb=lots", "sandbox.memory_mb: .*integer"),
        ("sandbox.memory_mb=1", "sandbox.memory_mb: .*64"),
        ("sandbox.memory_mb.x=1", "'memory_mb'"),
        ("sandbox.memory_mb=", "sandbox.memory_mb: "),
        ("sandbox=5", "group"),
        ("sandbox.memory_mb=[", r"-c sandbox\.memory_mb=\[: "),
        ("extra_body={a: 1}", "extra_body.*JSON"),
        ("extra_body=[1]", "extra_body: "),
        ("sandbox.python=2.7", r"sandbox\.python"),
    ],
)
def test_invalid_setting_is_named(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config({"sandbox.memory_mb": 512}, [setting])


def test_unknown_setting_suggests_similar_ones() -> None:
    with pytest.raises(ConfigError) as raised:
        read_config({}, ["runner.budget=1", "memory_mb=512", "zzz=1"])
    assert re.findall(r"'?[a-z]*\.?[a-z]+_?[a-z]+'|\w+\.\w+", str(raised.value)) == [
        "'runner.budget'", "runner.budget_usd", "'memory_mb'", "sandbox.memory_mb", "'zzz'",
    ]  # fmt: skip


def test_c_help_lists_each_setting_with_an_example(agent: Commands) -> None:
    for command in ("annotate", "requests import", "env list", "replay"):
        result = agent(*command.split(), "-c", "help")
        assert result.code == 0
        examples = [line.split("  ")[0].strip("'") for line in result.out.splitlines() if "=" in line]
        assert {example.partition("=")[0] for example in examples} == {*collect_setting_fields(Settings)}
        read_config({}, examples)
    settings = {setting.key: setting for setting in describe_settings()}
    assert settings["sandbox.memory_mb"][3:5] == ("1024", "≥ 64, ≤ 16,777,216")
    assert settings["thinking"].type == "on|off"
    assert [setting.key for setting in settings.values() if not (setting.description and setting.default)] == []


def test_options_for_settings_are_validated(agent: Commands) -> None:
    assert {*SETTINGS.values()} <= {*collect_setting_fields(Settings)}
    for options in (("--budget", "-1"), ("--criterion", "third"), ("--concurrency", "few"), ("--timeout", "inf")):
        agent.check_refused(options[0], "annotate", "p.jsonl", *options)


@pytest.mark.parametrize(("command", "replacement"), [
    ("annotate p.jsonl --thinking off", ["-c thinking=off"]),
    ("exec t.py --memory 5", ["-c sandbox.memory_mb=1024"]),
    ("annotate p.jsonl --audit-screen 0.1", ["-c pipeline.screen_audit_rate=0.02"]),
    ("corpus answer a -o b.jsonl --extra-body {}", ["-c 'extra_body={\"top_k\":20}'"]),
    ("corpus fill a -o b.jsonl --attempts 3", ["--snippets-per-query"]),
    ("train data -o model --temperature 1", ["--softmax-temperature"]),
    ("show x --thinking off", []),
])  # fmt: skip
def test_a_removed_option_names_its_replacement(agent: Commands, command: str, replacement: list[str]) -> None:
    refused = agent(*command.split())
    assert (refused.code, re.findall(r"No such option: --.* Pass (.*) instead", refused.err)) == (2, replacement)


def test_the_last_assignment_overrides_options(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    arguments = ("-c", "model=heuristic", "-c", "variant=single_llm", "-c", "cache=a.sqlite", "-c", "cache=b.sqlite")
    done = agent("annotate", "p.jsonl", "--model", "nowhere", "--variant", "full", *arguments, "-o", "out")
    assert (done.code, [path.name for path in agent.folder.glob("*.sqlite")]) == (0, ["b.sqlite"]), done.err


def test_values_have_the_types_of_their_settings() -> None:
    settings = read_config({}, ["thinking=off", "temperature=0.5", "prices=p", 'extra_body={"a": [1e-5]}'])
    assert (settings.thinking, settings.temperature, settings.prices) == ("off", 0.5, Path("p"))
    assert settings.extra_body == {"a": [1e-5]}
    assert read_config({}, ["extra_body.b=true"]).extra_body == {"b": True}
    mounts = [read_config({}, [f"sandbox.mount_ro={text}"]).sandbox.mount_ro for text in ("/a:/b", "[/a:/b]")]
    assert mounts == [("/a:/b",), ("/a:/b",)]


def test_a_group_keeps_its_other_settings_and_versions_and_dates_stay_strings() -> None:
    values = ["sandbox={python: 3.10, images: {3.10: mine:1}}", "sandbox.exclude_newer=2016-12-31"]
    sandbox = read_config({"sandbox.memory_mb": 300}, values).sandbox
    assert (sandbox.memory_mb, sandbox.images) == (300, {"3.10": "mine:1"})
    assert (sandbox.python, sandbox.exclude_newer) == ("3.10", "2016-12-31")


def format_settings_table() -> str:
    """Return the table for docs/settings.md."""
    flag_of = {setting: f"--{name.replace('_', '-')}" for name, setting in {**SETTINGS, "model": "model"}.items()}
    heads = ("setting", "option", "type", "default", "bounds", "working folder", "meaning")
    rows, fields = [heads, ("---",) * len(heads)], collect_setting_fields(Settings)
    for setting in describe_settings():
        flag = flag_of.get(setting.key, "")
        rule = find_rule(fields[setting.key])
        assert rule is not None, f"{setting.key} does not say what a file in the working folder may do with it"
        cells = (f"`{setting.key}`", flag and f"`{flag}`", setting.type, setting.default, setting.bounds, rule.value)
        rows.append((*(cell.replace("|", "\\|") for cell in cells), setting.description))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def test_settings_page_has_the_current_table() -> None:
    """`python -m tests.cli.test_settings` prints it."""
    assert format_settings_table() in (ROOT / "docs/settings.md").read_text("utf-8")


EVERYWHERE = {"criterion", "format_retries", "pair_timeout"}
"""Settings that every node reads."""
OF_SANDBOXES = {"sandbox_attempts"}


def read_unused_options(err: str) -> list[str]:
    """Return the options and the words in brackets of the notes on options without effect."""
    notes = [line for line in err.splitlines() if line.startswith("note: -")]
    return [re.sub(r" has no effect.*?(\(.*\)|$).*", r" \1", note.removeprefix("note: ")).strip() for note in notes]


@pytest.mark.parametrize(("options", "lines"), [
    (("--timeout", "5"), ["--timeout (open_context, execute)"]),
    (("-c", "pipeline.max_repairs=5", "-c", "pipeline.max_repairs=5"), ["-c pipeline.max_repairs (repair)"]),
    (("--without", "screen", "--model", "screen=heuristic"), ["--model screen=…"]),
    (("-c", "temperature=0.5", "--base-url", "http://[::1]:9"), ["--base-url", "-c temperature"]),
    (("--sandbox", "bwrap", "-c", "sandbox.memory_mb=100", "-c", "runner.sandboxes=2"), [
        f"{flag} (open_context, execute, repair)"
        for flag in ("--sandbox", "-c sandbox.memory_mb", "-c runner.sandboxes")]),
    (("--model", "judge=heuristic", "--unsupported", "judge"), ["--model judge=…"]),
    (("--variant", "ps_tpg_fa", "--model", "judge=heuristic", "--unsupported", "judge"), []),
    (("--variant", "full", "--context", "module", "--without", "open_context"), ["--context (open_context)"]),
    (("--criterion", "half", "--concurrency", "2", "-c", "pipeline.format_retries=1"), []),
])  # fmt: skip
def test_annotate_reports_options_without_effect(agent: Commands, options: tuple[str, ...], lines: list[str]) -> None:
    agent.write("p.jsonl", pairs(1))
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "ps_fa", *options, "-o", "out", "--json")
    assert done.code == 0
    assert read_unused_options(done.err) == lines


def test_ablate_reports_options_without_effect_on_any_variant(agent: Commands) -> None:
    agent.write("p.jsonl", [{**pair, "label": 1} for pair in pairs(1)])
    settings = ("-c", "pipeline.screen_audit_rate=0.5", "-c", "variant=full")
    command = ("ablate", "p.jsonl", "--model", "heuristic", *settings)
    done = agent(*command, "--variants", "single_llm", "-o", "out")
    assert read_unused_options(done.err) == ["-c pipeline.screen_audit_rate (screen)", "-c variant"]
    screen = "screen: {match: end, non_match: end, unclear: judge}"
    agent.write("mine.yaml", f"start: screen\nnodes:\n  {screen}\n  judge: {{decided: end}}\n")
    done = agent(*command[:-2], "--variants", "single_llm,mine.yaml", "-o", "other")
    assert (done.code, read_unused_options(done.err)) == (0, [])


def test_every_setting_is_read_by_some_node() -> None:
    names = {name for node in BUILT_IN.values() for name in getattr(node, "settings", ())}
    assert names | EVERYWHERE | OF_SANDBOXES == set(PipelineConfig.model_fields)
    for name in EVERYWHERE:
        assert find_readers(f"pipeline.{name}") is None
    assert find_readers("pipeline.max_repairs", load_variant("full")) == ["repair"]
    assert find_readers("pipeline.max_repairs", load_variant("ps_fa")) == []
    assert find_readers("sandbox.memory_mb", load_variant("single_llm")) == []


def test_options_override_agent_toml(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(2))
    agent.write("agent.toml", 'model = "nowhere"\nvariant = "single_llm"\nrunner.concurrency = 2\n')
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--rounds", "3", "-o", "out", "--json")
    assert (done.code, done.json["pairs"]) == (0, 2), done.err
    shown = 'model="nowhere", runner.concurrency=2, variant="single_llm"'
    assert re.search(rf"^note: agent\.toml .*{shown}$", done.err, re.M)
    assert re.search(r"^2 pairs .*3 rounds .*variant single_llm", done.err, re.M)


def test_refused_settings_end_the_command_before_anything_runs(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    folders = [f"/{number * 'x'}:/data" for number in range(200)]
    url = "https://key:secret@evil.example/v1"
    agent.write("agent.toml", f'base_url = "{url}"\nrunner.engine = "ray"\nsandbox.mount_ro = {folders}\n')
    agent.write("zoneinfo.py", "open('ran', 'w')\n")
    files = {path.name for path in agent.folder.iterdir()}
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm", "-o", "out")
    assert (done.code, "secret" in done.err) == (2, False)
    refused = ("evil.example, from", 'runner.engine = "ray"', *folders)
    allowed = ("test-driven-annotator/agent.toml", "--settings", "AGENT_BASE_URL")
    assert [text for text in (*refused, *allowed) if text not in done.err] == []
    assert {path.name for path in agent.folder.iterdir()} - files == {".out", ".err"}


@pytest.mark.parametrize("options", [
    ("--cache", "mine.sqlite", "--rounds", "2"),
    ("--cache", "mine.sqlite", "-c", "runner={rounds: 2}"),
    ("--settings", "mine.toml"),
])  # fmt: skip
def test_refused_settings_are_ignored_if_the_user_sets_them(agent: Commands, options: tuple[str, ...]) -> None:
    agent.write("p.jsonl", pairs(1))
    agent.write("agent.toml", 'cache = "theirs.sqlite"\nrunner.rounds = 9\n')
    agent.write("mine.toml", 'cache = "mine.sqlite"\nrunner.rounds = 2\n')
    done = agent("annotate", "p.jsonl", "--model", "heuristic", "--variant", "single_llm", "-o", "out", *options)
    assert (done.code, len(read_annotations(agent.folder / "out"))) == (0, 2), done.err
    assert [path.name for path in agent.folder.glob("*.sqlite")] == ["mine.sqlite"]
    assert len(re.findall(r"^note: agent\.toml .*cache, runner\.rounds", done.err, re.M)) == 1


def test_agent_toml_is_part_of_the_run_identity(agent: Commands) -> None:
    agent.write("p.jsonl", pairs(1))
    agent.write("agent.toml", 'model = "heuristic"\nvariant = "single_llm"\n')
    assert agent("annotate", "p.jsonl", "-o", "out").code == 0
    agent.write("agent.toml", 'model = "heuristic"\nvariant = "ps_fa"\n')
    assert "variant" in agent.check_refused("settings", "annotate", "p.jsonl", "-o", "out")


def test_doctor_checks_the_model_of_an_environment_variable(agent: Commands) -> None:
    done = agent("doctor", "--quick", "--sandbox", "bwrap", "--json", AGENT_MODEL="heuristic")
    assert [finding["name"] for finding in done.json if finding["part"] == "model"] == ["heuristic"]


if __name__ == "__main__":
    print(format_settings_table(), end="")
