"""What bubblewrap is told: which namespaces are fresh, and the little of the host that a sandbox sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.sandbox.inside import ENVIRONMENT
from agent.sandbox.interpreter import UNPRIVILEGED, Interpreter

WORK = "/work"
"""A sandbox's folder for what its programs write."""

EMPTY = "ld.so.cache"
"""The file of a sandbox's /etc that is empty."""

_SYSTEM = ("/usr", "/lib", "/lib32", "/libx32", "/lib64", "/bin", "/sbin")
_FORBIDS_NAMESPACES = (0, 8)
_PROFILE = """\
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}"""


@dataclass(frozen=True)
class Bubblewrap:
    """An installed bubblewrap and the interpreter to run in it.

    `etc` is the folder shown as /etc; `filter` a program for seccomp, which holds for all that runs inside.
    """

    executable: str
    version: tuple[int, ...]
    interpreter: Interpreter
    etc: Path
    filter: Path | None = None

    def arguments(
        self, argv: Sequence[str], *, shown: Mapping[Path, str], tmpfs: Mapping[str, int], kept: Mapping[Path, str]
    ) -> list[str]:
        """Return what to call it with to run `argv` as the first process of fresh namespaces, without network.

        `shown` maps host folders to where they are to be read, `kept` to where they may be written as well; `tmpfs`
        maps empty folders to their size in bytes. Nothing else can be written.
        """
        options = [*self._isolation(), *self._system()]
        for folder, size in tmpfs.items():
            options += ["--size", str(size), "--tmpfs", folder]
        # after the empty folders, which would hide an interpreter below them
        for name in self.interpreter.folders:
            options += ["--ro-bind", name, name]
        for name in ("/usr", *self.interpreter.folders):
            if (settings := Path(name) / "pip.conf").is_file():  # may hold an index's password
                options += ["--ro-bind", str(self.etc / EMPTY), str(settings)]
        for host, inside in shown.items():
            options += ["--ro-bind", str(host), inside]
        for host, inside in kept.items():
            options += ["--bind", str(host), inside]
        # a tmpfs of bubblewrap's own has no size limit
        options += ["--remount-ro", "/dev", "--remount-ro", "/"]
        return [*options, "--", *argv]

    def _isolation(self) -> list[str]:
        options = ["--unshare-all", "--unshare-user", "--uid", str(UNPRIVILEGED), "--gid", str(UNPRIVILEGED)]
        if self.version >= _FORBIDS_NAMESPACES:
            options.append("--disable-userns")
        options += ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
        options.append("--clearenv")
        bin_folder = str(Path(self.interpreter.path).parent)
        folders = dict.fromkeys([bin_folder, *ENVIRONMENT["PATH"].split(":")])
        for name, value in {**ENVIRONMENT, "PATH": ":".join(folders)}.items():
            options += ["--setenv", name, value]
        return options

    def _system(self) -> list[str]:
        options = ["--proc", "/proc", "--dev", "/dev", "--ro-bind", str(self.etc), "/etc"]
        for name in ("/etc/ld.so.cache", "/etc/alternatives"):
            options += ["--ro-bind-try", name, name]
        for folder in map(Path, _SYSTEM):
            if folder.is_symlink():
                options += ["--symlink", str(folder.readlink()), str(folder)]
            elif folder.is_dir():
                options += ["--ro-bind", str(folder), str(folder)]
        return options


def trouble(printed: str) -> str:
    """Say what to do about a bubblewrap that printed this and ended."""
    if "Unknown option" in printed:
        return "bubblewrap 0.7 or later is needed (Debian 12, Ubuntu 23.04): install a later one, or use Docker"
    if _restricted_by_apparmor() and ("uid map" in printed or "RTM_NEWADDR" in printed or "not permitted" in printed):
        return (
            "AppArmor keeps user namespaces from it, as Ubuntu does since 23.10. Allow them to bubblewrap alone: put\n"
            f"{_PROFILE}\ninto /etc/apparmor.d/bwrap, then: sudo apparmor_parser -r /etc/apparmor.d/bwrap"
        )
    if "Can't find source path" in printed:
        return "started by root it runs as nobody: that path must lie in folders that everybody may enter"
    if "namespace" in printed:
        return (
            "this system allows no user namespaces: sudo sysctl -w user.max_user_namespaces=15000, on older Debian "
            "also sudo sysctl -w kernel.unprivileged_userns_clone=1; inside a container its engine must allow them"
        )
    if "/proc" in printed:
        return "inside a container, its engine must leave /proc unmasked (--security-opt systempaths=unconfined)"
    return "try it by hand: bwrap --unshare-all --ro-bind / / true"


def _restricted_by_apparmor() -> bool:
    try:
        text = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text(encoding="ascii")
    except OSError:
        return False
    return text.strip() == "1"
