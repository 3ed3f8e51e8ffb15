"""Languages are found by name: built-in ones, and those of installed packages."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.errors import ConfigError, DependencyUnavailable, InputError, RunFolderError
from agent.languages.base import Language
from agent.languages.python.language import PythonLanguage
from agent.languages.registry import Languages
from agent.runs.spec import RunSpec
from agent.runs.store.merge import merge
from agent.runs.store.run_view import load_run
from tests.cli.commands import ADD
from tests.languages.packages import install, lua, run_agent
from tests.scripts import PROGRAM, commands, fail_import, label, make_replies, pass_all, program, screen

__all__ = ["lua"]
NAMES = ("python", "lua", "unusable")


@pytest.mark.usefixtures("lua")
def test_languages_are_loaded_on_first_use() -> None:
    languages = Languages()
    assert set(NAMES) <= set(languages)
    assert "lua_lang" not in sys.modules
    assert type(languages["python"]) is PythonLanguage
    assert (languages["lua"].name, languages["lua"]) == ("lua", languages["lua"])
    assert [languages.describe_package(name) for name in NAMES] == ["", "lua-lang 1.2", "lua-lang 1.2"]
    own = Language("lua")
    assert (Languages({"lua": own})["lua"], Languages({"lua": own}).describe_package("lua")) == (own, "")
    assert type(pickle.loads(pickle.dumps(languages["lua"]))) is type(languages["lua"])


@pytest.mark.parametrize(
    ("entry_points", "name", "words"),
    [
        ({"python": "other:Lua"}, "python", ("test-driven-annotator", "other-lang 1.2")),
        ({"py": "other:Lua"}, "python", ("test-driven-annotator", "other-lang 1.2")),
        ({"lua": "other:Lua"}, "lua", ("lua-lang 1.2", "other-lang 1.2")),
        ({"moon": "absent:Moon"}, "moon", ("other-lang 1.2", "ModuleNotFoundError")),
        ({"moon": "other:Lua"}, "moon", ("other-lang 1.2", "'moon'")),
        ({"moon": "other:dict"}, "moon", ("other-lang 1.2", "'moon'")),
    ],
)
def test_a_clash_or_a_broken_package_is_an_error_when_its_language_is_used(
    lua: Path, entry_points: Mapping[str, str], name: str, words: tuple[str, ...]
) -> None:
    install(lua, "other-lang", entry_points, other="from lua_lang import Lua\n")
    languages = Languages()
    assert name in languages
    assert languages["python" if name == "lua" else "lua"]
    with pytest.raises(ConfigError) as raised:
        languages[name]
    assert all(word in str(raised.value) for word in words)


async def annotate(run: Path | None, *languages: str, **options: Any) -> list[Annotation]:
    pairs = [Pair(id=f"{name}-{number}", query="add", code=ADD, language=name) for number, name in enumerate(languages)]
    replies = {"screen": screen(), "generate_test": program(), "arbitrate": label(1), "judge": label(0)}
    model = ScriptedLLM(lambda call: replies[call.role])
    more: dict[str, Any] = {"variant": "ps_tpg_fa", "sandbox": ScriptedSandbox(pass_all), "run_dir": run, **options}
    async with Annotator(model=model, **more) as annotator:
        return [annotation async for annotation in annotator.annotate(pairs, ordered=True)]


def read_manifest(run: Path) -> dict[str, Any]:
    with load_run(run) as view:
        return dict(view.manifest)


@pytest.mark.usefixtures("lua")
async def test_a_run_records_the_languages_of_its_pairs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert [annotation.label for annotation in await annotate(run, "python")] == [1]
    plain = read_manifest(run)
    assert "languages" not in plain["identity"] | plain["segments"][0]["environment"]
    await annotate(run, "python", "lua")
    manifest = read_manifest(run)
    added = manifest["identity"].pop("languages")
    assert list(added) == ["lua"]
    assert re.fullmatch(r"lua-lang 1\.2 [0-9a-f]{64}", added["lua"])
    assert manifest["segments"][-1]["environment"]["languages"] == {"lua": "lua-lang 1.2"}
    assert manifest["identity"] | {"input_sha256": ""} == plain["identity"] | {"input_sha256": ""}


async def test_pairs_in_a_new_language_extend_a_run_unless_its_earlier_pairs_were_judged(
    lua: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await annotate(tmp_path / "python", "python")
    await annotate(tmp_path / "lua", *("python", "lua"))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [entry for entry in sys.path if entry != str(lua)])
        assert [one.decided_by for one in await annotate(tmp_path / "judged", "lua", unsupported="judge")] == ["judge"]
    with pytest.raises(RunFolderError, match="languages"):
        await annotate(tmp_path / "judged", "lua", "python", unsupported="judge")
    merged = merge([tmp_path / "python", tmp_path / "lua"], tmp_path / "merged")
    assert merged.pairs == 2
    assert read_manifest(tmp_path / "merged")["identity"]["languages"].keys() == {"lua"}
    await annotate(tmp_path / "judged-python", "python", unsupported="judge")
    with pytest.raises(RunFolderError, match="languages"):
        merge([tmp_path / name for name in ("judged-python", "judged", "lua")], tmp_path / "refused")


@pytest.mark.usefixtures("lua")
@pytest.mark.parametrize("name", ["cobol", "unusable", "lacking"])
async def test_a_language_that_cannot_run_here_is_refused_judged_or_skipped(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name):
        await annotate(tmp_path / "run", "python", name)
    (judged,), (skipped,) = [await annotate(None, name, unsupported=mode) for mode in ("judge", "skip")]
    assert (judged.label, judged.decided_by, skipped.label, skipped.error) == (0, "judge", None, None)
    assert [one.label for one in await annotate(tmp_path / "plain", name, variant="single_llm")] == [0]
    assert "languages" not in read_manifest(tmp_path / "plain")["identity"]


@pytest.mark.usefixtures("lua")
@pytest.mark.parametrize("packages", ["npm", None])
async def test_programs_follow_the_rules_of_their_language(packages: Literal["npm"] | None) -> None:
    language = Languages()["lua"]
    language.packages = packages
    sandbox = ScriptedSandbox(lambda _job: fail_import("redis"), environments=lambda _: DependencyUnavailable("no"))
    model = ScriptedLLM(make_replies("import redis\n" + PROGRAM, repair=[commands("pip install redis", "npm i redis")]))
    async with Annotator(model=model, variant="full", sandbox=sandbox, languages=[language]) as annotator:
        annotation = await anext(annotator.annotate([Pair(id="1", query="add", code=ADD, language="lua")]))
    assert (annotation.error, annotation.installed, annotation.repairs) == (None, (), 0)
    prompts = {call.role: call.messages[0].content for call in model.calls}
    assert language.prompt_rules in prompts["generate_test"]
    assert "```python" in prompts["generate_test"]
    assert ("repair" in prompts) == (packages == "npm"), "only a language with packages needs a call"
    repair = prompts.get("repair", "npm install")
    assert ("npm install" in repair, "pip install" in repair) == (True, False)


@pytest.mark.bwrap
def test_exec_and_doctor_know_installed_languages(lua: Path) -> None:
    (lua / "t.lua").write_text(PROGRAM)
    (lua / "add.lua").write_text(ADD)
    command = ("exec", "t.lua", "--sandbox", "bwrap")
    result = run_agent(lua, lua, *command, "--code", "add.lua", "--language", "LUA")
    assert (result.returncode, json.loads(result.stdout)["status"]) == (0, "passed"), result.stderr
    for more in (("--language", "lua"), ("--code", "add.lua", "--language", "unusable")):
        assert run_agent(lua, lua, *command, *more).returncode == 2
    findings = json.loads(run_agent(lua, lua, "doctor", "--quick", "--sandbox", "bwrap").stdout)
    languages = {finding["name"]: finding for finding in findings if finding["part"] == "language"}
    assert {name: languages[name]["works"] for name in NAMES} == {"python": True, "lua": True, "unusable": False}
    assert "lua-lang 1.2" in languages["lua"]["detail"]


def test_the_identity_of_python_pairs_does_not_depend_on_the_languages_of_the_input() -> None:
    spec = RunSpec.of({"model": "heuristic"})
    assert spec.identity(["python"]) == spec.identity()
