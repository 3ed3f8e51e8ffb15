"""Exports files from the user's git clones at a recorded commit. Nothing in a clone can run.

Git only decompresses objects (`git cat-file`). It runs in an empty temporary repository that borrows the clone's object
folder, so the clone's configuration, hooks, filters, refs and replacements have no effect. Every object is checked
against its ID, so exported files are those of the commit, whichever clone they come from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Timer

from agent.errors import DependencyUnavailable, UsageError
from agent.sandbox.base import Checkout
from agent.types import Origin

MAX_BYTES, MAX_ENTRIES = 200 << 20, 50_000
"""Limits for one checkout: the total size of its objects, and the number of its files, folders and links."""

_SECONDS = 120.0
_MAX_PATH, _CLONE_DEPTH = 1_000, 3
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_ROOT = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*", re.ASCII)
_REQUIREMENT = re.compile(rf"({_REPOSITORY.pattern})==({_COMMIT.pattern})(?::({_ROOT.pattern}))?", re.ASCII)
_URL = re.compile(rb'^[ \t]*\[remote "origin"\][^\[]*?^[ \t]*url[ \t]*=[ \t]*"?([^\s"]+)', re.MULTILINE)
_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0/]{1,255})\0(.{20})", re.DOTALL)
_FOLDER, _FILES = b"40000", (b"100644", b"100755", b"100664")
_ENVIRONMENT = {
    "PATH": os.defpath,
    "GIT_ALLOC_LIMIT": str(2 * MAX_BYTES),
    "GIT_CONFIG_GLOBAL": os.devnull,
    **dict.fromkeys(("GIT_CONFIG_NOSYSTEM", "GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS"), "1"),
}


def is_checkout(requirement: str) -> bool:
    """Return whether a requirement is a repository at a commit. Such a name is not a valid distribution name."""
    return _REQUIREMENT.fullmatch(requirement) is not None


def normalise_repository(text: str) -> str:
    """Return `owner/name` in lower case for the name or URL of a repository, or an empty string."""
    text = text.strip().lower()
    path = text.partition("://")[2] or text.rpartition(":")[2]
    name = "/".join(path.strip("/").removesuffix(".git").split("/")[-2:])
    return name if _REPOSITORY.fullmatch(name) else ""


class Checkouts:
    """The git clones in a folder.

    A clone belongs to the repository in the URL of its remote `origin`, and to the one in its own path (`owner/name` or
    `owner__name`). Names from pairs are only compared with these names. Links are not followed.

    Raises:
        UsageError: git is not installed, or the folder contains no clones.
    """

    def __init__(self, folder: Path) -> None:
        self._git = shutil.which("git") or ""
        if not self._git:
            raise UsageError("sandbox.checkouts (--checkouts) requires git, which is not installed.")
        self._clones = _find_clones(folder.resolve())
        if not self._clones:
            raise UsageError(f"sandbox.checkouts (--checkouts): {folder} contains no git clones.")

    def find(self, origin: Origin) -> Checkout | None:
        """Return the checkout with a function's module, or None if the origin's commit is not a full commit ID.

        Raises:
            DependencyUnavailable: there is no such clone, commit or file, or the file cannot be imported.
        """
        commit, repository = origin.commit.lower(), normalise_repository(origin.repository)
        if not _COMMIT.fullmatch(commit):
            return None
        with self._open_commit(repository, commit) as (_, files):
            root, module = _find_module(files, origin)
        return Checkout(f"{repository}=={commit}{f':{root}' if root else ''}", module)

    def export(self, requirement: str, into: Path) -> None:
        """Write the repository's files into a folder. Modules replace those of the same name.

        The folder receives the contents of the checkout's root, of `src` and of the repository, in this order of
        precedence. Symbolic links and submodules are omitted.

        Raises:
            DependencyUnavailable: there is no such clone or commit, a limit is exceeded, an object is damaged, or the
                folder has a file in place of a folder, or a folder in place of a file.
        """
        match = _REQUIREMENT.fullmatch(requirement)
        assert match is not None
        repository, commit, root = match.groups("")
        with self._open_commit(repository, commit) as (objects, files):
            targets = _choose_targets(files, root)
            for name in {target.partition("/")[0].removesuffix(".py") for target in targets}:
                if name and {f"{name}.py", f"{name}/__init__.py"} & targets.keys():
                    for path in (into / name, into / f"{name}.py"):
                        shutil.rmtree(path, ignore_errors=True)
                        path.unlink(missing_ok=True)
            for target, blob in targets.items():
                path = into / target
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(objects.read("blob", blob))
                except (FileExistsError, IsADirectoryError, NotADirectoryError):
                    reason = f"{target!r:.200} collides with a file or folder of another package"
                    raise DependencyUnavailable(reason) from None

    @contextmanager
    def _open_commit(self, repository: str, commit: str) -> Iterator[tuple[_Objects, dict[str, str]]]:
        """Yield the objects of the first clone that contains a commit, and the commit's files (see `list_files`)."""
        failure = DependencyUnavailable(f"--checkouts contains no clone of {repository or 'the repository'}")
        for clone in self._clones.get(repository, ()):
            with ExitStack() as stack:
                try:
                    objects = stack.enter_context(_open_objects(self._git, clone))
                    files = objects.list_files(objects.read("commit", commit)[5:45].decode("ascii", "replace"))
                except DependencyUnavailable as error:
                    failure = error
                    continue
                yield objects, files
                return
        raise failure


class _Objects:
    """The objects that a `git cat-file --batch` process serves. The total size of the objects is limited."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._bytes = MAX_BYTES

    def read(self, kind: str, key: str) -> bytes:
        """Return the content of an object.

        Raises:
            DependencyUnavailable: the object is missing or damaged, has another kind, or exceeds the limit.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(BrokenPipeError):  # if git has exited, the header is empty
            os.write(stdin.fileno(), f"{key}\n".encode())
        header = stdout.readline(200).decode("ascii", "replace").split()
        if header[:2] != [key, kind] or len(header) != 3:
            raise DependencyUnavailable(f"the clone has no {kind} {key}, or git cannot read it")
        self._bytes -= int(header[2])
        if self._bytes < 0:
            raise DependencyUnavailable(f"the checkout is larger than {MAX_BYTES >> 20} MB")
        content = stdout.read(int(header[2]) + 1)[:-1]
        if hashlib.sha1(f"{kind} {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest() != key:
            raise DependencyUnavailable(f"the {kind} {key} is damaged")
        return content

    def list_files(self, tree: str) -> dict[str, str]:
        """Return the blobs of all regular files in a tree, keyed by path.

        Raises:
            DependencyUnavailable: see `read`. Also raised if a name is unsafe or a limit is exceeded.
        """
        files, pending, count = dict[str, str](), [("", tree)], 0
        while pending:
            prefix, tree = pending.pop()
            content = self.read("tree", tree)
            entries = [*islice(_ENTRY.finditer(content), MAX_ENTRIES + 1)]
            count += len(entries)
            if count > MAX_ENTRIES or len(prefix) > _MAX_PATH:
                raise DependencyUnavailable(f"the commit has more than {MAX_ENTRIES} files or too long paths")
            names = Counter(os.fsdecode(entry[2]).casefold() for entry in entries)
            if sum(len(entry[0]) for entry in entries) < len(content) or names.keys() & {".", "..", ".git"}:
                raise DependencyUnavailable(f"the folder {prefix!r:.200} of the commit has unsafe file names")
            if len(names) < len(entries):
                twin = prefix + names.most_common(1)[0][0]
                raise DependencyUnavailable(f"the commit has files whose names differ only by case: {twin!r:.200}")
            for mode, name, key in (entry.groups() for entry in entries):
                path = prefix + os.fsdecode(name)
                if mode == _FOLDER:
                    pending.append((f"{path}/", key.hex()))
                elif mode in _FILES:
                    files[path] = key.hex()
        return files


@contextmanager
def _open_objects(git: str, clone: Path) -> Iterator[_Objects]:
    """Start git in an empty repository that borrows the object folder of a clone.

    Raises:
        DependencyUnavailable: the clone borrows objects from another folder, which may be any folder of this machine.
    """
    objects = clone / "objects"
    links = (path.is_symlink() for pattern in ("*", "*/*") for path in objects.glob(pattern))
    if os.path.lexists(objects / "info" / "alternates") or any(links):
        raise DependencyUnavailable("the clone borrows objects from another repository: clone it without --reference")
    with tempfile.TemporaryDirectory(prefix="agent-git-") as name:
        Path(name, "refs").mkdir()
        Path(name, "HEAD").write_text("ref: refs/heads/none\n", encoding="utf-8")
        environment = {**_ENVIRONMENT, "HOME": name, "GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(objects)}
        command, pipe, null = [git, "cat-file", "--batch"], subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, cwd=name, env=environment) as process:
            watchdog = Timer(_SECONDS, process.kill)  # git would wait forever for an object that is a pipe
            watchdog.start()
            try:
                yield _Objects(process)
            finally:
                watchdog.cancel()
                process.kill()


def _find_clones(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the git folders of the clones in a folder, keyed by repository."""
    clones = defaultdict[str, list[Path]](list)
    for path, folders, _ in os.walk(folder):
        place = Path(path).relative_to(folder)
        git = next((git for git in (Path(path, ".git"), Path(path)) if _is_repository(git)), None)
        if git is not None:
            for name in {normalise_repository(_read_url(git)), normalise_repository(str(place).replace("__", "/"))}:
                clones[name].append(git)
        if git is not None or len(place.parts) == _CLONE_DEPTH:
            folders.clear()
    clones.pop("", None)
    return dict(clones)


def _is_repository(path: Path) -> bool:
    head, config, objects = (path / name for name in ("HEAD", "config", "objects"))
    with suppress(OSError):
        is_complete = head.is_file() and config.is_file() and objects.is_dir()
        return is_complete and not any(part.is_symlink() for part in (path, head, config, objects))
    return False


def _read_url(git: Path) -> str:
    """Return the URL of the remote `origin` in a clone's configuration, which git does not read."""
    with suppress(OSError), (git / "config").open("rb") as stream:
        if match := _URL.search(stream.read(64 << 10)):
            return match[1].decode("utf-8", "replace")
    return ""


def _find_module(files: Collection[str], origin: Origin) -> tuple[str, str]:
    """Return the folder from which a function's module is imported, and the module's import path.

    A module belongs to the packages around it, as far as their folders have an `__init__.py`. If the origin names the
    module, that name takes precedence.
    """
    stem = (origin.module or "").replace(".", "/")
    paths = [origin.path] if origin.path else [f"{stem}.py", f"{stem}/__init__.py"]
    path = next((path for path in (*paths, *(f"src/{path}" for path in paths)) if path in files), None)
    if path is None:
        raise DependencyUnavailable(f"commit {origin.commit} has no file {paths[0]!r:.200}")
    first = path.count("/")
    while first > 0 and "/".join([*path.split("/")[:first], "__init__.py"]) in files:
        first -= 1
    names = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if stem and f"/{'/'.join(names)}".endswith(f"/{stem}"):
        first = len(names) - stem.count("/") - 1
    root, module = "/".join(names[:first]), names[first:]
    if path.endswith(".py") and all(name.isidentifier() for name in module) and _ROOT.fullmatch(root or "."):
        return root, ".".join(module)
    raise DependencyUnavailable(f"{path!r:.200} cannot be imported as a module")


def _choose_targets(files: Mapping[str, str], root: str) -> dict[str, str]:
    """Map the path of each exported file to its blob. The first folder that has a top-level name provides it."""
    targets, owners = dict[str, str](), dict[str, str]()
    for base in dict.fromkeys((root, "src", "")):
        prefix = f"{base}/" if base else ""
        for path in files:
            if path.startswith(prefix) and (base == root or not path.startswith(f"{root}/")):
                target = path.removeprefix(prefix)
                if owners.setdefault(target.partition("/")[0].removesuffix(".py").casefold(), base) == base:
                    targets[target] = files[path]
    return targets
