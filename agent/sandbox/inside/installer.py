"""Runs inside a throwaway builder: installs wheels into a staging folder of the store and publishes it by rename.

Standard library only; its source is sent to the container. Arguments: the store, the staging folder, the key, a JSON
object (`lock` to be written down; `size` and `files`, which is all that the wheels may
take, and `memory`, for each process), a pip where the
interpreter has none. The last line of its output is a JSON object: `installed` (the lock), or `no_pip`, or `refused`
(what pip said, or what the wheels took).
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOCK, SIZE = ".lock.json", ".size"
_STALE = 24 * 3600.0
_LOOK_SECONDS = 0.2
_PIP = ["install", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--no-input", "--quiet"]
_PIP += ["--disable-pip-version-check", "--no-warn-script-location", "--root-user-action", "ignore"]
_COMPILE = ["-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"]


class Refused(Exception):
    """The wheels cannot be installed; the message says why."""


def main(store: Path, staging: Path, key: str, job: dict[str, Any], pip: Path | None = None) -> dict[str, object]:
    """Install what `staging/wheels` holds, by the interpreter's own pip or the one given, and publish it."""
    os.umask(0o022)
    drop_stale(staging)
    try:
        if pip is None and importlib.util.find_spec("pip") is None:
            return {"no_pip": True}
        _install(staging, pip, job)
        return {"installed": _publish(staging / "site", store / key, job["lock"])}
    except Refused as error:
        return {"refused": str(error)}
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


def _install(staging: Path, pip: Path | None, job: dict[str, Any]) -> None:
    (staging / "tmp").mkdir()
    wheels = sorted(str(path) for path in (staging / "wheels").iterdir())
    run_pip = ["-m", "pip"] if pip is None else [str(pip)]
    exit_code, printed = _watched([*run_pip, *_PIP, "--target", str(staging / "site"), *wheels], staging, job)
    if exit_code != 0:
        said = printed.decode("utf-8", "replace").strip().splitlines()
        raise Refused("\n".join(said[-10:]) or f"pip ended with {exit_code}")
    # what cannot be compiled, or breaks the compiler, may still be of use: its importer is told
    _watched([*_COMPILE, str(staging / "site")], staging, job)


def _watched(arguments: list[str], staging: Path, job: dict[str, Any]) -> tuple[int, bytes]:
    """Run the interpreter, and end it when it writes too much; return its exit code and what it printed."""
    temporary = str(staging / "tmp")
    with subprocess.Popen(
        [sys.executable, "-I", *arguments],
        env={"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": temporary, "HOME": temporary},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # a wheel says itself how large its files are: none may be larger than all may be together
        preexec_fn=lambda: _limit({resource.RLIMIT_FSIZE: job["size"], resource.RLIMIT_DATA: job["memory"]}),
    ) as process:
        try:
            while True:
                try:
                    printed, _ = process.communicate(timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    _check(staging, job)
            _check(staging, job)
        finally:
            process.kill()
    return process.returncode, printed


def _limit(limits: dict[int, int]) -> None:
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        lower = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (lower, lower))


def _check(staging: Path, job: dict[str, Any]) -> None:
    """Count what was installed so far; pip unpacks into its temporary folder first."""
    size = files = 0
    for name in ("tmp", "site"):
        for parent, folders, names in os.walk(staging / name):
            files += len(folders) + len(names)
            size += sum(_size(Path(parent, each)) for each in names)
            if size > job["size"] or files > job["files"]:
                raise Refused(
                    f"the wheels unpack to more than they say: at least {size} bytes and {files} files, "
                    f"and {job['size']} bytes and {job['files']} files are allowed"
                )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:  # pip moves files while they are counted
        return 0


def _publish(site: Path, target: Path, lock: list[str]) -> list[str]:
    for name in (LOCK, SIZE):
        _make_way(site / name)
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


def _make_way(path: Path) -> None:
    """Remove what a wheel put in the place of a file of ours."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    given = (Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
    print(json.dumps(main(*given, *map(Path, sys.argv[5:]))), flush=True)
