"""An image is built again only if its folder changes. The host installs its packages."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest

from agent.config import find_data_folder
from agent.errors import SandboxUnavailable
from agent.sandbox.base import Notify
from agent.sandbox.docker.engine import DockerEngine
from agent.sandbox.docker.images import ImageSource, ensure_built, install_packages
from agent.sandbox.interpreter import InterpreterTag
from tests.sandbox.wheelhouse import make_wheel, use_folder

DOCKERFILE = "FROM python:3.11-slim-bookworm\nCOPY packages /packages\n"


class Engine:
    """A fake engine that stores image names and build contexts."""

    machine = "x86_64"

    def __init__(self, *images: str) -> None:
        self.images = set(images)
        self.contexts: list[bytes] = []

    def find_image_id(self, name: str) -> str | None:
        return "sha256:1" if name in self.images else None

    def pull(self, name: str) -> None:
        if not name.startswith("python:"):
            raise SandboxUnavailable(f"no image {name}")
        self.images.add(name)

    def build(self, context: BinaryIO, tag: str, progress: Notify) -> None:
        self.contexts.append(context.read())
        progress("Step 1/1")
        self.images.add(tag)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "python" / "requirements.txt").write_text("# for programs\nthing==1.0  # pinned\n")
    return tmp_path / "python"


async def install(requirements: Path, interpreter: InterpreterTag, into: Path) -> None:
    """Install a single module that is named after the interpreter."""
    assert requirements.name == "requirements.txt"
    (into / "thing").mkdir(parents=True)
    (into / "thing" / f"{interpreter.version}-{interpreter.machine}.py").write_bytes(b"")


async def test_an_unchanged_folder_is_built_once(folder: Path) -> None:
    engine, messages = Engine("python:3.11-slim-bookworm"), list[str]()
    tag = await ensure_built(engine, ImageSource(folder), messages.append, install=install)
    assert tag.startswith("test-driven-annotator/python:")
    assert await ensure_built(engine, ImageSource(folder), messages.append, install=install) == tag
    assert len(engine.contexts) == 1
    assert tag in messages[0]
    assert "Step 1/1" in messages


async def test_the_build_context_contains_folder_and_packages(folder: Path) -> None:
    (folder / ".hidden").write_text("x")
    engine = Engine("python:3.11-slim-bookworm")
    await ensure_built(engine, ImageSource(folder), print, install=install)
    with tarfile.open(fileobj=io.BytesIO(engine.contexts[0])) as context:
        names = context.getnames()
    assert names == ["Dockerfile", "requirements.txt", "packages", "packages/thing/3.11-x86_64.py"]


async def test_a_missing_base_image_is_pulled_and_an_unavailable_one_raises(folder: Path) -> None:
    engine, messages = Engine(), list[str]()
    await ensure_built(engine, ImageSource(folder), messages.append, install=install)
    assert "Pulling python:3.11-slim-bookworm" in messages
    (folder / "Dockerfile").write_text("FROM elsewhere/python:3.11\n")
    with pytest.raises(SandboxUnavailable, match=r"elsewhere/python:3\.11"):
        await ensure_built(engine, ImageSource(folder), messages.append, install=install)


async def test_packages_come_from_the_sources_in_the_host_settings(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(open_folder, "thing")
    use_folder(monkeypatch, open_folder)
    into = open_folder / "into"
    await install_packages(folder / "requirements.txt", InterpreterTag("3.11"), into)
    assert sorted(path.name for path in into.iterdir()) == ["thing-1.0.dist-info", "thing.py"]


@pytest.mark.parametrize("line", ["nowhere-to-be-found==1.0", "!!!"])
async def test_unavailable_packages_raise_an_error_with_a_remedy(
    folder: Path, open_folder: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    use_folder(monkeypatch, open_folder)
    (folder / "requirements.txt").write_text(f"{line}\n")
    with pytest.raises(SandboxUnavailable, match=r"(?s)requirements\.txt.*PIP_INDEX_URL"):
        await install_packages(folder / "requirements.txt", InterpreterTag("3.11"), open_folder / "into")


def test_the_bundled_image_has_python_3_11_and_pins_all_packages() -> None:
    source = ImageSource(find_data_folder("sandbox_images") / "python")
    assert source.parse_base() == ("python:3.11-slim-bookworm", "3.11")
    requirements = source.find_requirements_file()
    lines = [line for line in requirements.read_text().splitlines() if not line.startswith("#")]
    assert any(line.startswith("pytest==") for line in lines)
    assert all("==" in line for line in lines)


@pytest.mark.docker
async def test_a_build_has_no_network_and_a_failed_step_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "offline"
    folder.mkdir()
    check = "import os, sys; sys.exit(str(os.listdir('/sys/class/net')))"
    (folder / "Dockerfile").write_text(f'FROM python:3.11-slim-bookworm\nRUN python3 -c "{check}"\n')
    engine = DockerEngine.connect()
    messages: list[str] = []
    with pytest.raises(SandboxUnavailable, match=r"\n\['lo'\]"):
        await ensure_built(engine, ImageSource(folder), messages.append)
    assert any("Step 2/" in line for line in messages)
    assert engine.find_image_id(ImageSource(folder).compute_tag()) is None
    engine.close()
