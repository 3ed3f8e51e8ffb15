"""Finds where source files come from: their repository, commit and licence. Runs no program."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from email.message import Message
from importlib.metadata import distributions
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from agent.datasets.sources import open_regular

Origin = Mapping[str, str | None]
"""The `repository`, `commit` and `licence` of a file. Unknown values are None."""

UNKNOWN: Origin = {"repository": None, "commit": None, "licence": None}

_MAX_BYTES = 16 << 20
_MAX_LICENCE_LENGTH = 80
_LINES_WITH_LICENCE = 20
_ORIGIN_URL = re.compile(
    r'^\[remote "origin"\][ \t]*\n(?:(?!\[).*\n)*?[ \t]*url[ \t]*=[ \t]*(\S+)[ \t]*$', re.MULTILINE
)
_SSH_URL = re.compile(r"\A(?:[\w.-]+@)?([\w-]+(?:\.[\w-]+)+):(\w[\w./~-]*)\Z")
_URL_SCHEMES = ("https", "http", "ssh", "git")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SPDX = re.compile(r"#.*SPDX-License-Identifier:[ \t]*([A-Za-z0-9(][A-Za-z0-9.+() :-]*)")


class Origins:
    """Finds the origins of files. Reads each repository and each folder of installed distributions once."""

    def __init__(self) -> None:
        self._repositories: dict[Path, Origin | None] = {}
        self._installed: dict[Path, dict[Path, Origin]] = {}

    def find(self, file: Path) -> Origin:
        """Return the origin of a file, from the nearest `site-packages` folder or git repository that contains it.

        In a git repository, `repository` is the URL of the remote `origin` without credentials, and `commit` is the
        commit of HEAD, even if the file was changed later. Worktrees and submodules have no known origin. For a file of
        an installed distribution, these fields are the name and the version of the distribution.
        """
        for folder in file.parents:
            if folder.name in ("site-packages", "dist-packages"):
                if folder not in self._installed:
                    self._installed[folder] = _read_distributions(folder)
                return self._installed[folder].get(file, UNKNOWN)
            if folder not in self._repositories:
                git = folder / ".git"
                self._repositories[folder] = _read_repository(git) if os.path.lexists(git) else None
            if (origin := self._repositories[folder]) is not None:
                return origin
        return UNKNOWN


def find_licence(source: str) -> str | None:
    """Return the licence in an `SPDX-License-Identifier:` comment in the first 20 lines of a file."""
    match = _SPDX.search("\n".join(source.split("\n", _LINES_WITH_LICENCE)[:_LINES_WITH_LICENCE]))
    return match[1].strip(" -") if match and len(match[1]) <= _MAX_LICENCE_LENGTH else None


def _read_repository(git: Path) -> Origin:
    url, head = _ORIGIN_URL.search(_read_text(git / "config")), _read_text(git / "HEAD").strip()
    if head.startswith("ref: refs/") and ".." not in head:
        name = head.removeprefix("ref: ")
        packed = re.search(rf"^(\w+) {re.escape(name)}$", _read_text(git / "packed-refs"), re.MULTILINE)
        head = _read_text(git / name).strip() or (packed[1] if packed else "")
    commit = head if _COMMIT.fullmatch(head) else None
    return {**UNKNOWN, "repository": _clean_url(url[1]) if url else None, "commit": commit}


def _read_text(path: Path) -> str:
    """Return the text of a file in a `.git` folder, or an empty text if it is missing, unusual or behind a link."""
    try:
        if path.parent.is_symlink() or path.is_symlink():
            return ""
        with open_regular(path) as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _clean_url(url: str) -> str | None:
    """Remove the user, the password, the query and the fragment. Return None for local paths and unusual URLs."""
    try:
        parts = urlsplit(_SSH_URL.sub(r"ssh://\1/\2", url))
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme in _URL_SCHEMES and host else None


def _read_distributions(folder: Path) -> dict[Path, Origin]:
    installed: dict[Path, Origin] = {}
    for distribution in distributions(path=[str(folder)]):
        try:
            rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
            files = [folder / row[0] for row in rows if row and row[0].endswith((".py", ".ipynb"))]
            metadata = cast("Message", distribution.metadata)
        except (OSError, ValueError, TypeError, csv.Error):  # TypeError: it has no metadata
            continue
        origin = {"repository": metadata["Name"], "commit": metadata["Version"], "licence": _get_licence(metadata)}
        installed |= dict.fromkeys(files, origin)
    return installed


def _get_licence(metadata: Message) -> str | None:
    classifiers = [text for text in metadata.get_all("Classifier", []) if text.startswith("License ::")]
    names = [text.rpartition(" :: ")[2] for text in classifiers if text != "License :: OSI Approved"]
    for value in (metadata["License-Expression"], metadata["License"], ", ".join(names)):
        text = str(value or "").strip()
        if text.upper() not in ("", "UNKNOWN") and len(text) <= _MAX_LICENCE_LENGTH and "\n" not in text:
            return text
    return None
