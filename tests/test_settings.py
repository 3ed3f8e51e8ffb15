"""Settings come from files and variables in a fixed order, and errors name their source."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import Annotator, ScriptedLLM, read_settings
from agent.config import InFolder, collect_setting_fields
from agent.errors import ConfigError, SettingsRefused
from agent.settings import Settings, describe_value, find_rule

USER_FILE = "config/test-driven-annotator/agent.toml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with both settings files, next to the user's folder of settings."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.agent]\nmodel = "small"\nrunner.concurrency = 2\n'
    )
    (folder / "agent.toml").write_text('model = "big"\nvariant = "ps_fa"\nsandbox.memory_mb = 512\n')
    (tmp_path / USER_FILE).parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(folder)
    return folder


def test_trusted_sources_override_files_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / USER_FILE).write_text("sandbox.memory_mb = 2048\nrunner.rounds = 2\nattempts = 9\n")
    (folder / "mine.toml").write_text("runner.rounds = 3\nattempts = 8\n")
    monkeypatch.setenv("AGENT_ATTEMPTS", "7")
    monkeypatch.setenv("AGENT_BASE_URL", "http://localhost:1/v1")
    config = {"runner.concurrency": 2, "variant": "ps_fa", "sandbox.memory_mb": 2048, "runner.rounds": 3}
    expected = {"model": "big", "base_url": "http://localhost:1/v1", "attempts": 7, "config": config}
    assert read_settings(folder, file="mine.toml") == expected


REFUSED = [
    'base_url = "https://evil.example/v1"', "extra_body = {n = 9}", "attempts = 7", 'model = "replay:replies.jsonl"',
    'model = " replay:replies.jsonl"', 'model = "screen=replay:replies.jsonl"',
    'model = {default = "m", screen = "replay:replies.jsonl"}', 'prices = "prices.yaml"', 'prompts = "prompts"',
    'cache = "cache.sqlite"', 'variant = "mine.yaml"', 'variant = "../mine.yml/."', "pipeline.test_timeout = 15.5",
    'runner.engine = "ray"', 'runner.address = "auto"', "runner.rounds = 2", "sandbox.cpus = 1.5",
    'sandbox.image = "evil"', 'sandbox.images = {"3.9" = "evil"}', 'sandbox.mount_ro = ["/root:/data"]',
    'sandbox.requirements = "r.txt"', 'sandbox.checkouts = "/root"', "sandbox.install_packages = true",
    "sandbox.index_rule = false", "tracing.otel = true",
]  # fmt: skip
"""Settings with which a stranger's file would send, run, read, mount, spend or weaken something."""


@pytest.mark.parametrize("line", REFUSED)
def test_a_file_in_the_working_folder_may_not_set_what_a_stranger_could_misuse(folder: Path, line: str) -> None:
    key = line.split(" = ")[0]
    for name, text in (("agent.toml", line), ("pyproject.toml", f"tool.agent.{line}")):
        (folder / name).write_text(text)
        with pytest.raises(SettingsRefused) as refused:
            read_settings(folder)
        assert refused.value.settings == (key,)
        (folder / name).unlink()
    (folder.parent / USER_FILE).write_text(line)
    mine = folder / "agent.toml"
    mine.write_text(line)
    for settings in (read_settings(folder.parent / "elsewhere"), read_settings(folder, file=mine)):
        assert key in {*settings, *settings["config"]}


@pytest.mark.parametrize("line", [
    'model = "org/model:70b"', 'model = {default = "m", screen = "small"}', 'variant = "cosqa"', "call_timeout = 60",
    "attempts = 6", "pipeline.format_retries = 0", "runner.concurrency = 16", "runner.rounds = 1",
    "runner.budget_usd = 20",
])  # fmt: skip
def test_a_file_in_the_working_folder_may_set_names_and_lower_limits(tmp_path: Path, line: str) -> None:
    (tmp_path / "agent.toml").write_text(line)
    settings = read_settings(tmp_path)
    assert line.split(" = ")[0] in {*settings, *settings["config"]}


def test_every_setting_has_a_rule_and_few_may_have_any_value_in_the_working_folder() -> None:
    settings = defaultdict(set)
    for key, field in collect_setting_fields(Settings).items():
        settings[find_rule(field)].add(key)
    assert settings.keys() == set(InFolder)
    assert settings[InFolder.NAME] == {"model", "variant"}
    assert settings[InFolder.FREE] == {
        "reply_format", "temperature", "pipeline.pair_timeout", "pipeline.criterion",
        "runner.concurrency", "runner.calls_per_minute", "runner.tokens_per_minute", "runner.budget_usd",
        "runner.max_tokens_total", "runner.deadline",
    }  # fmt: skip


def test_a_setting_without_a_rule_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect_setting_fields(Settings)["variant"], "metadata", [])
    with pytest.raises(SettingsRefused) as refused:
        read_settings(folder)
    assert refused.value.settings == ("variant",)


def test_a_refused_setting_is_ignored_if_a_trusted_source_sets_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "agent.toml").write_text(
        'cache = "c"\nbase_url = "https://evil.example"\nsandbox.images = {"3" = "evil"}'
    )
    (folder.parent / USER_FILE).write_text('base_url = "https://mine.example/v1"\n')
    monkeypatch.setenv("AGENT_CACHE", "mine.sqlite")
    with pytest.raises(SettingsRefused) as refused:
        read_settings(folder)
    assert refused.value.settings == ("sandbox.images",)
    (folder / "mine.toml").write_text('sandbox.images = {"3.10" = "mine"}\n')
    settings = read_settings(folder, file=folder / "mine.toml")
    assert (settings["base_url"], settings["cache"]) == ("https://mine.example/v1", Path("mine.sqlite"))
    assert settings["config"]["sandbox.images"] == {"3.10": "mine"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("https://u:secret@evil.example/v1", 'evil.example, from "https://evil.example/v1"'),
        ("https://api.example.org%2Fv1@evil.example/", 'evil.example, from "https://evil.example/"'),
        (r"https://a.example\"@evil.example/", 'evil.example, from "https://evil.example/"'),
        (f"https://{'a' * 300}@evil.example/{'b' * 300}", f'evil.example, from "https://evil.example/{"b" * 300}"'),
        ("http://[::1", '"http://[::1"'),
        ("\x1b[2K\x7f\u202e\u0430\n", r'"\u001b[2K\u007f\u202e\u0430\n"'),
        ({"to": ["https://u:secret@a.example", "b@c"]}, '{"to": ["https://a.example", "b@c"]}'),
    ],
)
def test_values_are_shown_in_full_without_user_information(value: object, shown: str) -> None:
    assert describe_value(value) == shown


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)])
def test_a_settings_file_must_be_a_regular_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "agent.toml")
    with pytest.raises(ConfigError, match=r"agent\.toml: "):
        read_settings(tmp_path)


def test_a_settings_file_that_the_user_names_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: "):
        read_settings(tmp_path, file=tmp_path / "none.toml")


def test_settings_are_arguments_of_an_annotator(folder: Path) -> None:
    annotator = Annotator(**{**read_settings(folder), "model": ScriptedLLM([])})
    assert annotator.identity()["variant"]["name"] == "ps_fa"


@pytest.mark.usefixtures("folder")
def test_an_annotator_reads_neither_files_nor_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_VARIANT", "single_llm")
    assert Annotator(model=ScriptedLLM([])).identity()["variant"]["name"] == "full"


def test_unrelated_variables_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGENT_REAL_DATA", "AGENT_TEST_REQUIRE", "AGENT_NAME", "AGENT_ID"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AGENT_MODEL", "")
    assert read_settings(tmp_path) == {"config": {}}


def test_models_by_role_and_tables_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(
        '[model]\ndefault = "big"\nscreen = "small"\n[sandbox.images]\n"3.9" = "python:3.9-slim"\n'
    )
    monkeypatch.setenv("AGENT_SANDBOX__MOUNT_RO", '["/srv:/data"]')
    settings = read_settings(tmp_path, file=tmp_path / "mine.toml")
    assert settings["model"] == {"default": "big", "screen": "small"}
    assert settings["config"] == {"sandbox.images": {"3.9": "python:3.9-slim"}, "sandbox.mount_ro": ("/srv:/data",)}


def test_a_tool_key_in_pyproject_that_is_not_a_table_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("tool = 1")
    assert read_settings(tmp_path) == {"config": {}}


def test_paths_in_a_file_are_relative_to_its_folder(folder: Path) -> None:
    (folder.parent / USER_FILE).write_text(
        'prompts = "own"\ncache = "/c.sqlite"\nvariant = "v.yaml"\nsandbox.requirements = "r.txt"\n'
        'sandbox.checkouts = "g"\n[model]\ndefault = "replay:a.jsonl"\nscreen = "x-replay:7b"\n'
    )
    settings, home = read_settings(folder.parent), (folder.parent / USER_FILE).parent
    assert (settings["prompts"], settings["cache"]) == (home / "own", Path("/c.sqlite"))
    assert settings["model"] == {"default": f"replay:{home}/a.jsonl", "screen": "x-replay:7b"}
    names = {"sandbox.requirements": "r.txt", "sandbox.checkouts": "g", "variant": "v.yaml"}
    assert settings["config"] == {key: str(home / name) for key, name in names.items()}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("agent.toml", 'modle = "x"', r"agent\.toml: .*'modle'.*model\?.* -c help"),
        ("agent.toml", "[runner]\nconcurency = 3", r"agent\.toml: .*'runner\.concurency'"),
        ("agent.toml", "[pipeline]\nreasks = 3", r"agent\.toml: .*'pipeline\.reasks'.*'pipeline\.format_retries'"),
        ("agent.toml", "runner.concurrency = 0", r"agent\.toml: setting runner\.concurrency: .*not 0"),
        ("agent.toml", 'api_key = "sk-1"', r"agent\.toml: .*'api_key'"),
        ("agent.toml", "sandbox = 5", r"agent\.toml: setting sandbox .*sandbox\.NAME"),
        ("agent.toml", "model = \n", r"agent\.toml: .*TOML: .*line 1"),
        ("agent.toml", b"\xff", r"agent\.toml: .*TOML: .*utf-8"),
        ("pyproject.toml", "[tool.agent]\nvariante = 1", r"pyproject\.toml \[tool\.agent\]: .*'variante'"),
        ("pyproject.toml", "tool.agent = 1", r"pyproject\.toml \[tool\.agent\]: 1 .*table"),
    ],
)
def test_an_error_in_a_file_names_file_and_key(tmp_path: Path, file: str, text: str | bytes, message: str) -> None:
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("AGENT_RUNNER__CONCURRENCY", "many", r"AGENT_RUNNER__CONCURRENCY: .*integer.*'many'"),
        ("AGENT_RUNNER__CONCURENCY", "3", r"AGENT_RUNNER__CONCURENCY: "),
        ("AGENT_PIPELINE__MAX_TRY_TIME", "3", r"AGENT_PIPELINE__MAX_TRY_TIME: .*'pipeline\.max_repairs'"),
        ("AGENT_SANDBOX", "bwrap", r'"sandbox".*AGENT_SANDBOX__BACKEND'),
    ],
)
def test_an_error_in_a_variable_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        read_settings(tmp_path)


def test_pydantic_settings_is_imported_only_for_variables(tmp_path: Path) -> None:
    code = "import sys, agent; agent.read_settings(); print('pydantic_settings' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_the_examples_in_the_documentation_work(folder: Path) -> None:
    page = (Path(__file__).parent.parent / "docs/your-model.md").read_text()
    user_file, project_file = (part.split("```")[0] for part in page.split("```toml\n")[1:])
    (folder.parent / USER_FILE).write_text(user_file)
    (folder / "agent.toml").write_text(project_file)
    settings = read_settings(folder)
    assert set(settings) == {"model", "base_url", "cache", "config"}
    assert settings["config"]["runner.budget_usd"] == 20
