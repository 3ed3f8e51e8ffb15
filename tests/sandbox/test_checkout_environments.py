"""Programs import the modules of a repository at a commit."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import DependencyUnavailable
from agent.sandbox.base import SandboxBackend
from agent.sandbox.dependencies.checkouts import Checkouts
from agent.sandbox.dependencies.environments import DependencyPolicy
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.session import SandboxSession
from agent.types import Origin
from tests.sandbox.conftest import make_job, passes
from tests.sandbox.dependencies.repositories import commit_files, make_clone
from tests.sandbox.stores import replace_environments, run_in_store
from tests.sandbox.wheelhouse import make_wheel, use_folder

BASE = f"based-{secrets.token_hex(4)}"
FILES = {
    "setup.py": "open('/work/canary', 'w')\n",
    "src/shapes/__init__.py": "",
    "src/shapes/disc.py": f"import {BASE.replace('-', '_')}, shapes.units\ndef area():\n    return shapes.units.ONE\n",
    "src/shapes/units.py": "ONE = 1\n",
    "src/shapes/broken.py": "def (\n",
    "shapes_data/words.txt": "seven\n",
}
PROGRAM = make_job("""
import importlib.util, os
import shapes.disc

def test_a():
    assert shapes.disc.area() == 1
    assert shapes.disc.__file__.startswith("/envs/")
    assert os.path.isfile(shapes.disc.__cached__) and os.path.isfile(shapes.units.__cached__)
    assert not hasattr(shapes, "old") and importlib.util.find_spec("shapes.wheel") is None
    assert not os.path.exists("/work/canary") and os.path.exists("/envs")
""")


async def test_a_program_imports_a_module_of_a_clone(
    backend: SandboxBackend, open_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = BASE.replace("-", "_")
    make_wheel(open_folder, BASE, files={f"{module}.py": "", "shapes/__init__.py": "old = 1", "shapes/wheel.py": ""})
    use_folder(monkeypatch, open_folder)
    # the commits of two tests in the same second would be equal
    commit = make_clone(
        tmp_path / "clones" / "a", {**FILES, "name": backend.name}, url="https://example.org/owner/name"
    )
    later = commit_files(tmp_path / "clones" / "a", {"src/shapes/units.py": "ONE = 2\n"})
    session = SandboxSession(backend)

    def use_clones(checkouts: Checkouts | None) -> None:
        policy = DependencyPolicy(rule=IndexRule(None), base_requirements=(BASE,), checkouts=checkouts)
        replace_environments(monkeypatch, backend, open_folder, policy)

    use_clones(None)
    with pytest.raises(DependencyUnavailable, match="checkouts"):
        await session.build_environment([f"owner/name=={commit}:src"])
    use_clones(Checkouts(tmp_path / "clones"))
    origin = Origin(repository="Owner/Name", commit=commit, name="area", path="src/shapes/disc.py")
    checkout = await session.find_checkout(origin)
    assert checkout is not None
    environment = await session.build_environment([checkout.requirement])
    assert environment.installed == tuple(sorted((f"{BASE}==1.0", f"owner/name=={commit}:src")))
    assert (await session.build_environment(environment.installed)).key == environment.key
    assert passes(await session.run(replace(PROGRAM, environment=environment.key)), "test_a")
    assert "words.txt" in await run_in_store(backend, f"ls {environment.key}/shapes_data")

    other = await session.build_environment([f"owner/name=={later}:src"])
    assert not passes(await session.run(replace(PROGRAM, environment=other.key)), "test_a")

    await run_in_store(backend, f"rm -r {environment.key}")
    assert passes(await session.run(replace(PROGRAM, environment=environment.key)), "test_a")
    for malformed in (f"={commit[:12]}", f"={commit}:../x;y", f"/x=={commit}", ""):
        with pytest.raises(DependencyUnavailable):
            await session.build_environment([f"owner/name{malformed}"])
    await session.close()
