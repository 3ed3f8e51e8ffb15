"""Finds where source files come from: their repository, commit and licence. Runs no program.

The texts of common licences are recognised by hashes of their words. Any other text stays unknown.
"""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from email import message_from_string
from hashlib import sha256
from itertools import dropwhile
from pathlib import Path
from urllib.parse import urlsplit

from agent.datasets.sources import open_regular

Origin = Mapping[str, str | None]
"""The `repository`, `commit`, `module` (import path) and `licence` of a file. Unknown values are None."""

UNKNOWN: Origin = {"repository": None, "commit": None, "module": None, "licence": None}

_MAX_BYTES = 16 << 20
_MAX_LICENCE_BYTES = 1 << 18
_MAX_LICENCE_LENGTH = 80
_LINES_WITH_LICENCE = 20
_ORIGIN_URL = re.compile(
    r'^\[remote "origin"\][ \t]*\n(?:(?!\[).*\n)*?[ \t]*url[ \t]*=[ \t]*(\S+)[ \t]*$', re.MULTILINE
)
_SSH_URL = re.compile(r"\A(?:[\w.-]+@)?([\w-]+(?:\.[\w-]+)+):(\w[\w./~-]*)\Z")
_URL_SCHEMES = ("https", "http", "ssh", "git")
_LICENCE_FILE = re.compile(
    r"(?!.*\.(?:py\w?|ipynb|json|ya?ml|toml|html?|js|c|h)$)(?:(?:un)?licen[cs]e|copying)(?:[-_.].*)?", re.IGNORECASE
)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SPDX = re.compile(r"(?:#|//|/?\*|--).*SPDX-License-Identifier:[ \t]*([A-Za-z0-9(][A-Za-z0-9.+() :-]*)")


class Origins:
    """Finds the origins of files. Reads each folder once."""

    def __init__(self) -> None:
        self._folders: dict[Path, _Folder] = {}

    def find(self, file: Path, root: Path | None = None) -> Origin:
        """Return the origin of a file, from the nearest git repository or `*.dist-info` folder that lists the file.

        In a git repository, `repository` is the URL of the remote `origin` without credentials, and `commit` is the
        commit of HEAD, even if the file was changed later. Worktrees and submodules have no known origin. For a file of
        an installed distribution, these fields are the name and the version of the distribution.

        A file of an installed distribution is imported from the folder that contains its `*.dist-info` folder. In a git
        repository, a file is imported from the nearest folder `src` that is no package, or else from the folder that
        contains its packages, or else from the root of the repository.

        `licence` comes from `pyproject.toml`, `package.json` or the licence texts of the nearest folder that has one,
        or else from the distribution. An unrecognised text makes it unknown. Outside of repositories, the search ends
        at `root` (by default the folder of the file) or, if `root` is a package, at the folder that contains the
        package.
        """
        root = root or file.parent
        while (root / "__init__.py").is_file():
            root = root.parent
        licence: str | None = None
        own: str | None = None  # not above root
        for path in file.parents:
            if path not in self._folders:
                self._folders[path] = _Folder(path)
            folder = self._folders[path]
            licence = folder.licence if licence is None else licence
            own = licence if path.is_relative_to(root) else own
            if (origin := folder.distributions.get(file, folder.origin)) is not None:
                base = path if file in folder.distributions else _find_import_root(file, path)
                known = {**origin, "module": _name_module(file, base)}
                return {**known, "licence": origin["licence"] if licence is None else licence or None}
        return {**UNKNOWN, "licence": own or None}


class _Folder:
    """What a folder says about the files in it.

    `licence` is empty if it has a licence text that is not recognised. `origin` is None if a folder above decides.
    """

    def __init__(self, path: Path) -> None:
        is_site = path.name in ("site-packages", "dist-packages")
        self.distributions = _read_distributions(path)
        self.licence = None if is_site or self.distributions else _find_licence(path)
        repository = _read_repository(path / ".git") if os.path.lexists(path / ".git") else None
        self.origin = UNKNOWN if is_site else repository


def _find_import_root(file: Path, repository: Path) -> Path | None:
    """Return the folder in a repository from which a file is imported, or None if nothing names it."""
    folders = [file.parent, *file.parent.parents]
    inside = folders[: folders.index(repository) + 1]
    top = next((path for path in inside if not (path / "__init__.py").is_file()), repository)
    sources = (path for path in inside[inside.index(top) : -1] if path.name == "src")
    return next(sources, top if top in (repository, *file.parent.parents) else None)


def _name_module(file: Path, root: Path | None) -> str | None:
    if root is None or file.suffix != ".py":
        return None
    parts = file.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) if parts and all(map(str.isidentifier, parts)) else None


def find_licence(source: str) -> str | None:
    """Return the licence in an `SPDX-License-Identifier:` comment in the first 20 lines of a file."""
    match = _SPDX.search("\n".join(source.split("\n", _LINES_WITH_LICENCE)[:_LINES_WITH_LICENCE]))
    return match[1].strip(" -") if match and len(match[1]) <= _MAX_LICENCE_LENGTH else None


def _read_repository(git: Path) -> Origin:
    url = _ORIGIN_URL.search(_read_text(git / "config"))
    head = _read_text(git / "HEAD").strip()
    if head.startswith("ref: refs/") and ".." not in head:
        name = head.removeprefix("ref: ")
        packed = re.search(rf"^(\w+) {re.escape(name)}$", _read_text(git / "packed-refs"), re.MULTILINE)
        head = _read_text(git / name).strip() or (packed[1] if packed else "")
    commit = head if _COMMIT.fullmatch(head) else None
    return {**UNKNOWN, "repository": _clean_url(url[1]) if url else None, "commit": commit}


def _find_licence(folder: Path) -> str | None:
    """Return the licence that `pyproject.toml`, `package.json` or licence texts in a folder name.

    If there are texts, it may be empty. The texts count only if all are recognised.
    """
    try:
        project = tomllib.loads(_read_text(folder / "pyproject.toml", _MAX_LICENCE_BYTES)).get("project", {})
        licence = project.get("license")
        text = licence.get("text") if isinstance(licence, dict) else licence
        npm = json.loads(_read_text(folder / "package.json", _MAX_LICENCE_BYTES) or "{}").get("license")
        if name := _choose_licence([text, npm if isinstance(npm, str) else None], project.get("classifiers", [])):
            return name
    except (AttributeError, RecursionError, TypeError, ValueError):
        pass  # not the expected structure
    files = [path for path in folder.glob("*") if _LICENCE_FILE.fullmatch(path.name) and not path.is_dir()]
    found = {recognise_licence(_read_text(path, _MAX_LICENCE_BYTES)) or "" for path in files}
    return None if not files else "" if "" in found else ", ".join(sorted(found))


def _read_text(path: Path, limit: int = _MAX_BYTES) -> str:
    """Return the text of a file, or an empty text if it is missing, unusual, too long or behind a link."""
    try:
        if path.parent.is_symlink() or path.is_symlink():
            return ""
        with open_regular(path) as file:
            content = file.read(limit + 1)
        return content.decode("utf-8", "replace") if len(content) <= limit else ""
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
    for info in sorted(folder.glob("*.dist-info")):
        metadata = message_from_string(_read_text(info / "METADATA"))
        try:
            rows = list(csv.reader(_read_text(info / "RECORD").splitlines()))
        except csv.Error:
            continue
        values = metadata["License-Expression"], metadata["License"]
        licence = _choose_licence(values, metadata.get_all("Classifier", []))
        licence = licence or _find_licence(info) or _find_licence(info / "licenses") or None
        origin = {"repository": metadata["Name"], "commit": metadata["Version"], "licence": licence}
        files = [folder / row[0] for row in rows if row and row[0].endswith((".py", ".ipynb"))]
        installed |= dict.fromkeys(files, origin)
    return installed


def _choose_licence(values: Sequence[object], classifiers: Iterable[str]) -> str | None:
    """Return the first value that is short, or else the licences in the classifiers."""
    names = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")]
    for value in (*values, ", ".join(name for name in names if name != "OSI Approved")):
        text = str(value or "").strip()
        is_known = text.upper() not in ("", "UNKNOWN") and not text.upper().startswith("SEE LICENSE")
        if is_known and len(text) <= _MAX_LICENCE_LENGTH and "\n" not in text:
            return text
    return None


_HASHES: dict[str, str] = {
    "25a274d52b3014d9": "0BSD",
    "9d0206d9ff177c23": "AGPL-3.0",
    "bf79c817f9d5f473": "Apache-2.0",
    "312ea33736a8c485": "BSD-2-Clause",
    "cc2d821900825032": "BSD-3-Clause",
    "873825822e1333fc": "BSL-1.0",
    "07793250413cbc0a": "CC-BY-4.0",
    "4e19e5334b015a4d": "CC-BY-SA-4.0",
    "9df98c7be9808093": "CC0-1.0",
    "c0b9eb61139c5573": "GPL-2.0",
    "1c31b5b4f6bb62cb": "GPL-3.0",
    "217da0747cec63a2": "ISC",
    "0d2abd5ebf7f9e8f": "LGPL-2.1",
    "7f9e89fc71737138": "LGPL-3.0",
    "602556cb49dcc20b": "MIT",
    "72ccb554a188e644": "MPL-2.0",
    "7a4d92cdb11d2549": "Unlicense",
    "9ddc78a5797b5008": "Zlib",
}
# the lines above a text: its title, and who has the rights
_HEADER = re.compile(
    r"(?!.*\b(?:commercial|except|not?|only|use)\b)"
    r"\W*(?:.*(?:copyright|\(c\)|©).{0,80}|all rights reserved|(?:the )?[\w .-]{0,40}licen[cs]e[\w (),.:-]{0,30})?\W*"
)
_MAX_HEADER_LENGTH = 200
_LIST_MARKER = re.compile(r"^[ \t]*(?:[-*•]|\(?[0-9a-d][.)])\s", re.MULTILINE)
_OWNER = re.compile(r"(?<=neither the name )of .{1,120}?(?= nor the names)|(?<=copyright holder)s|(?<=http)s")
_APACHE_APPENDIX = re.compile(
    r"(?<=additional liability)(?: end of terms and conditions)?(?: appendix how to .{0,560})?"
    r"(?: copyright .{0,90}licensed under the apache license version 2 0 .{0,480}limitations under the license)?$"
)


def _is_header(line: str) -> bool:
    return len(line) <= _MAX_HEADER_LENGTH and _HEADER.fullmatch(line.strip()) is not None


def recognise_licence(text: str) -> str | None:
    """Return the SPDX id of a licence text. GPL texts do not say whether later versions apply, so their ids do not.

    Titles, copyright lines, list markers and the owner's name may differ from the published text, and no other word.
    """
    lines = dropwhile(_is_header, text.lower().splitlines())
    words = " ".join(re.findall(r"[a-z0-9]+", _LIST_MARKER.sub("", "\n".join(lines))))
    words = _APACHE_APPENDIX.sub("", _OWNER.sub("", words.replace("copyright owner", "copyright holder")))
    return _HASHES.get(sha256(words.encode()).hexdigest()[:16])
