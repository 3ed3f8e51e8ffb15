"""Settings come from files and variables in a fixed order, and errors name their source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent import Annotator, ScriptedLLM, read_settings
from agent.cli.options import AnnotateOptions
from agent.config import collect_setting_fields
from agent.errors import ConfigError
from agent.settings import Settings, read_settings_by_source


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with both settings files."""
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[tool.agent]\nmodel = "small"\ncache = "replies.sqlite"\nrunner.rounds = 2\n'
    )
    (tmp_path / "agent.toml").write_text('model = "big"\nvariant = "ps_fa"\nsandbox.memory_mb = 512\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_variables_override_agent_toml_which_overrides_pyproject(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX__MEMORY_MB", "256")
    monkeypatch.setenv("AGENT_BASE_URL", "http://localhost:1/v1")
    settings = read_settings(folder)
    assert settings == {
        "model": "big",
        "base_url": "http://localhost:1/v1",
        "cache": folder / "replies.sqlite",
        "config": {"runner.rounds": 2, "variant": "ps_fa", "sandbox.memory_mb": 256},
    }


def test_sources_are_listed_with_their_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TEMPERATURE", "0.5")
    assert {source: list(values) for source, values in read_settings_by_source(folder).items()} == {
        f"{folder}/pyproject.toml [tool.agent]": ["cache", "model", "runner.rounds"],
        f"{folder}/agent.toml": ["model", "sandbox.memory_mb", "variant"],
        "the environment": ["temperature"],
    }


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
    (tmp_path / "agent.toml").write_text(
        '[model]\ndefault = "big"\nscreen = "small"\n[sandbox.images]\n"3.9" = "python:3.9-slim"\n'
    )
    monkeypatch.setenv("AGENT_SANDBOX__MOUNT_RO", '["/srv:/data"]')
    settings = read_settings(tmp_path)
    assert settings["model"] == {"default": "big", "screen": "small"}
    assert settings["config"] == {"sandbox.images": {"3.9": "python:3.9-slim"}, "sandbox.mount_ro": ("/srv:/data",)}


def test_a_tool_key_in_pyproject_that_is_not_a_table_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("tool = 1")
    assert read_settings(tmp_path) == {"config": {}}


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text('prompts = "own"\ncache = "/c.sqlite"\n[sandbox]\nrequirements = "r.txt"\n')
    settings = read_settings(tmp_path)
    assert (settings["prompts"], settings["cache"]) == (tmp_path / "own", Path("/c.sqlite"))
    assert settings["config"] == {"sandbox.requirements": str(tmp_path / "r.txt")}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "agent.toml",
            'modle = "x"',
            r"agent\.toml: .*'modle'.*model\?.*base_url, .* -c help",
        ),
        ("agent.toml", "[runner]\nconcurency = 3", r"agent\.toml: .*'runner\.concurency'"),
        ("agent.toml", "runner.concurrency = 0", r"agent\.toml: setting runner\.concurrency: .*not 0"),
        ("agent.toml", 'api_key = "sk-1"', r"agent\.toml: .*'api_key'"),
        ("agent.toml", "sandbox = 5", r"agent\.toml: setting sandbox .*sandbox\.NAME"),
        ("agent.toml", "model = \n", r"agent\.toml: .*TOML: .*line 1"),
        ("agent.toml", b"\xff", r"agent\.toml: .*TOML: .*utf-8"),
        (
            "pyproject.toml",
            "[tool.agent]\nvariante = 1",
            r"pyproject\.toml \[tool\.agent\]: .*'variante'",
        ),
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
        ("AGENT_SANDBOX", "bwrap", r'"sandbox".*AGENT_SANDBOX__BACKEND'),
    ],
)
def test_an_error_in_a_variable_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        read_settings(tmp_path)


def test_every_option_of_a_run_is_a_setting() -> None:
    assert set(AnnotateOptions.flags.values()) <= set(collect_setting_fields(Settings))


def test_pydantic_settings_is_imported_only_for_variables(tmp_path: Path) -> None:
    code = "import sys, agent; agent.read_settings(); print('pydantic_settings' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_")}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "False\n"


def test_the_example_in_the_documentation_works(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs/your-model.md").read_text()
    (tmp_path / "agent.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    settings = read_settings(tmp_path)
    assert set(settings) == {"model", "base_url", "cache", "config"}
    assert settings["config"]["runner.budget_usd"] == 20
