"""Runs inside a throwaway builder: installs wheels into a staging folder of the store and publishes it by rename.

Standard library only; its source is sent to the container. Arguments: the store, the staging folder, the key. The last
line of its output is a JSON object: `installed` (the lock), or `no_pip`, or `refused` (what pip said).
"""

from __future__ import annotations

import compileall
import importlib.metadata
import importlib.util
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

LOCK, SIZE = ".lock.json", ".size"
_STALE = 24 * 3600.0
_PIP = ["install", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--no-input", "--quiet"]
_PIP += ["--disable-pip-version-check", "--no-warn-script-location", "--root-user-action", "ignore"]


def main(store: Path, staging: Path, key: str, pip: Path | None = None) -> dict[str, object]:
    """Install what `staging/wheels` holds, by the interpreter's own pip or the one given, and publish it."""
    os.umask(0o022)
    drop_stale(staging)
    try:
        if pip is None and importlib.util.find_spec("pip") is None:
            return {"no_pip": True}
        refused = _install(staging, pip)
        if refused is not None:
            return {"refused": refused}
        return {"installed": _publish(staging / "site", store / key)}
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def drop_stale(staging: Path) -> None:
    """Remove what builders left that were killed long ago."""
    for other in staging.parent.iterdir():
        try:
            stale = other != staging and other.stat().st_mtime < time.time() - _STALE
        except FileNotFoundError:
            continue  # another builder has finished meanwhile
        if stale:
            shutil.rmtree(other, ignore_errors=True)


def _install(staging: Path, pip: Path | None) -> str | None:
    """Return None, or what pip says against it."""
    temporary = staging / "tmp"
    temporary.mkdir()
    wheels = sorted(str(path) for path in (staging / "wheels").iterdir())
    run_pip = ["-m", "pip"] if pip is None else [str(pip)]
    command = [sys.executable, "-I", *run_pip, *_PIP, "--target", str(staging / "site"), *wheels]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(temporary), "HOME": str(temporary)}
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip().splitlines()
        return "\n".join(said[-10:]) or f"pip ended with {ended.returncode}"
    return None


def _publish(site: Path, target: Path) -> list[str]:
    compileall.compile_dir(site, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    found = importlib.metadata.distributions(path=[str(site)])
    lock = sorted(f"{re.sub(r'[-_.]+', '-', each.metadata['Name']).lower()}=={each.version}" for each in found)
    (site / LOCK).write_text(json.dumps(lock), encoding="utf-8")
    size = sum(path.lstat().st_blocks * 512 for path in site.rglob("*"))
    (site / SIZE).write_text(str(size), encoding="utf-8")
    try:
        site.rename(target)
    except OSError:
        if not (target / LOCK).is_file():
            raise
        lock = json.loads((target / LOCK).read_text(encoding="utf-8"))
    return lock


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(Path, sys.argv[4:]))), flush=True)
