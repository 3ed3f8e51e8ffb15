"""Git clones for tests, including clones that attack whoever reads them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_WHO = {f"GIT_{who}_{what}": "tests@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", **_WHO}


def run_git(clone: Path, *arguments: str, text: bytes = b"") -> str:
    """Run git in a clone and return its output."""
    done = subprocess.run(
        ["git", "-C", clone, *arguments], input=text, capture_output=True, check=True, env=_ENVIRONMENT
    )
    return done.stdout.decode().strip()


def make_clone(clone: Path, files: Mapping[str, str | bytes], *, url: str = "") -> str:
    """Create a clone with one commit of these files, and return the commit's ID."""
    clone.mkdir(parents=True)
    run_git(clone, "init", "-q")
    if url:
        run_git(clone, "remote", "add", "origin", url)
    return commit_files(clone, files)


def commit_files(clone: Path, files: Mapping[str, str | bytes]) -> str:
    """Commit files to a clone, and return the commit's ID."""
    for name, content in files.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-qm", "files")
    return run_git(clone, "rev-parse", "HEAD")


def write_object(clone: Path, content: bytes, kind: str = "blob") -> str:
    """Write an object, which git does not check, and return its ID."""
    return run_git(clone, "hash-object", "-t", kind, "-w", "--literally", "--stdin", text=content)
