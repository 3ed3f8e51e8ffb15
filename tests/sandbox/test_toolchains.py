"""A toolchain is found in its wheel or on the PATH of the sandboxes, and its version is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SandboxUnavailable
from agent.sandbox.base import CommandResult, Toolchain
from agent.sandbox.mounts import Mount
from agent.sandbox.scripted import ScriptedSandbox
from agent.sandbox.toolchains import Toolchains

TOOL = Toolchain("tool", "agent_test_tool", (22, 18), "pip install tool")
INSIDE = "/toolchains/tool/tool"


@pytest.fixture
def wheel(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `bin` folder of an installed package that cannot be imported."""
    (folder := open_folder / TOOL.wheel / "bin").mkdir(parents=True)
    (folder / TOOL.command).touch()
    (folder.parent / "__init__.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(open_folder)
    return folder


def make(versions: dict[str, str]) -> tuple[Toolchains, ScriptedSandbox, list[None]]:
    """Return toolchains of sandboxes in which these commands print these versions."""
    renewals: list[None] = []
    backend = ScriptedSandbox(
        commands=lambda argv: CommandResult(0, f"tool v{versions[argv[0]]}\n") if argv[0] in versions
        else CommandResult(127, "tool: 99.0: not found")
    )  # fmt: skip
    return Toolchains(backend.acquire, lambda: renewals.append(None)), backend, renewals


@pytest.mark.parametrize(
    ("versions", "version"), [({INSIDE: "24.1.0", "tool": "20.0"}, "24.1.0"), ({"tool": "22.18.0"}, "22.18.0")]
)
async def test_the_wheel_is_preferred_if_it_works(wheel: Path, versions: dict[str, str], version: str) -> None:
    toolchains, backend, renewals = make(versions)
    for _ in range(2):
        assert await toolchains.require(TOOL) == version
    is_mounted = INSIDE in versions
    assert toolchains.mounts == ((Mount(wheel, "/toolchains/tool"),) if is_mounted else ())
    assert (toolchains.versions, len(renewals)) == ({"tool": version}, is_mounted)
    assert len(backend.commands) == backend.acquired == backend.released == (1 if is_mounted else 2)


@pytest.mark.usefixtures("wheel")
async def test_a_wheel_that_is_not_wanted_is_not_mounted() -> None:
    toolchains, _, _ = make({INSIDE: "24.1.0", "tool": "23.0"})
    assert await toolchains.require(TOOL, use_wheels=False) == "23.0"


@pytest.mark.parametrize(("versions", "found"), [({}, "none"), ({"tool": "22.9.1"}, "22.9.1")])
async def test_a_missing_or_old_toolchain_is_refused_with_its_remedy(versions: dict[str, str], found: str) -> None:
    toolchains, _, _ = make(versions)
    with pytest.raises(SandboxUnavailable) as caught:
        await toolchains.require(TOOL)
    assert all(word in str(caught.value) for word in ("tool", "22.18", found, TOOL.remedy))
