"""Creates the host folders that bubblewrap sandboxes use. The sandbox's user can read these folders."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.errors import SandboxUnavailable
from agent.sandbox.bwrap.process import EMPTY
from agent.sandbox.inside import read_source
from agent.sandbox.interpreter import UNPRIVILEGED, Interpreter, as_unprivileged

INSIDE = "/inside"
"""The path of the folder with compiled sources in a sandbox."""

_SOURCES = ("supervisor", "python_harness")
_ETC = {
    "passwd": f"root:x:0:0:root:/root:/bin/sh\nnobody:x:{UNPRIVILEGED}:{UNPRIVILEGED}:nobody:/tmp:/bin/sh\n",
    "group": f"root:x:0:\nnogroup:x:{UNPRIVILEGED}:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    EMPTY: "",
}
_COMPILE = """
import importlib.util, marshal, sys
code = compile(sys.stdin.buffer.read(), sys.argv[1], "exec", dont_inherit=True)
sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
"""


class BwrapFolders:
    """The folders below `root` for one interpreter: `envs`, `staging`, `etc` and `inside` (compiled sources).

    All interpreters share the `leases` folder, because the keys of their environments differ.

    Raises:
        SandboxUnavailable: a folder is not writable, or the interpreter cannot compile the sources.
    """

    def __init__(self, root: Path, interpreter: Interpreter) -> None:
        self.base = root / "bwrap" / str(interpreter.tag)
        self.envs = self.base / "envs"
        self.staging = self.base / "staging"
        self.leases = root / "leases"
        try:
            for folder in (root, root / "bwrap", self.base, self.envs, self.staging):
                make_readable(folder)
            self.etc = self._write_folder("etc", _ETC, "", lambda folder: (folder / "alternatives").mkdir())
            sources = {name: read_source(name) for name in _SOURCES}
            self.inside = self._write_folder("inside", sources, f"{interpreter}", partial(_compile_all, interpreter))
        except OSError as error:
            raise SandboxUnavailable(f"cannot create the folder {root} for bubblewrap sandboxes: {error}") from error

    def list_environment_folders(self) -> list[Path]:
        """Return the environment folders of all interpreters."""
        return sorted(self.base.parent.glob("*/envs"))

    @staticmethod
    def locate_compiled(name: str) -> str:
        """Return the path of a compiled source in a sandbox."""
        return f"{INSIDE}/{name}.pyc"

    def _write_folder(self, name: str, files: dict[str, str], salt: str, finish: Callable[[Path], None]) -> Path:
        """Write files into a folder named after a hash of the files and `salt`. Does nothing if the folder exists.

        The files are written to a temporary folder, which is then renamed, because other processes may create the same
        folder at the same time.
        """
        digest = hashlib.sha256(f"{salt}{sorted(files.items())}".encode()).hexdigest()[:16]
        folder = self.base / f"{name}-{digest}"
        if folder.is_dir():
            return folder
        temporary = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
        make_readable(temporary)
        try:
            for file, text in files.items():
                (temporary / file).write_text(text, encoding="utf-8")
            finish(temporary)
            for path in temporary.rglob("*"):
                path.chmod(0o755 if path.is_dir() else 0o644)
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder


def make_readable(folder: Path) -> None:
    """Create a folder if needed. As root, let the sandbox's user enter it."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        folder.chmod(0o755)


def _compile_all(interpreter: Interpreter, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        command = [interpreter.path, "-I", "-S", "-c", _COMPILE, f"{path.name}.py"]
        with path.open("rb") as text:
            process = subprocess.run(
                command, stdin=text, capture_output=True, cwd="/", check=False, **as_unprivileged()
            )
        if process.returncode != 0:
            stderr = process.stderr.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(f"{interpreter.path} cannot compile the sources for sandboxes: {stderr}")
        path.with_name(f"{path.name}.pyc").write_bytes(process.stdout)
        path.unlink()
