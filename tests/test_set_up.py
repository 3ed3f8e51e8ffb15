"""`scripts/set-up` runs uv with the same version bound and certificates as the package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv has a fake Python that installs a fake uv. Both log their arguments."""
    for name in ("scripts/set-up", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (folder := tmp_path / ".venv/bin").mkdir(parents=True)
    for name, then in (("uv", ""), ("python", "mv .venv/bin/new-uv .venv/bin/uv")):
        path = folder / ("new-uv" if name == "uv" else name)
        path.write_text(f'#!/bin/sh\necho "$UV_SYSTEM_CERTS" "$@" >>{name}.log\n{then}\n')
        path.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("variables", "trusted"), [({}, "true"), ({"UV_SYSTEM_CERTS": "false"}, "false")])
def test_uv_is_installed_within_its_bound_and_trusts_system_certificates(
    checkout: Path, variables: dict[str, str], trusted: str
) -> None:
    environment = {"PATH": os.defpath, **variables}
    subprocess.run(["bash", "scripts/set-up", "run"], cwd=checkout, env=environment, check=True, capture_output=True)
    bound = Requirement((checkout / "python.log").read_text().split()[-1])
    assert (bound.name, "0.13.9" in bound.specifier, "0.14.0" in bound.specifier) == ("uv", True, False)
    assert (checkout / "uv.log").read_text().split()[:2] == [trusted, "sync"]
