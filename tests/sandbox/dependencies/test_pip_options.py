"""The host's pip tells where packages come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import SandboxError
from agent.sandbox.dependencies.pip_options import DEFAULT_INDEX, PipOptions, read_options
from tests.sandbox.wheelhouse import plain_settings


async def test_where_packages_come_from_is_read_from_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_settings(monkeypatch)
    monkeypatch.delenv("PIP_CERT", raising=False)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://me:pw%%41@one.invalid/simple\ncert = /ca.pem\nproxy = http://p.invalid:1\n"
        "extra-index-url = https://two.invalid/simple\n    file:///opt/simple\n"
        "[download]\nindex-url = https://three.invalid/simple\n[install]\nproxy = http://q.invalid\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    found = await read_options()
    assert found.indexes == ("https://three.invalid/simple", "https://two.invalid/simple", "file:///opt/simple")
    assert found.remote_indexes == ("https://three.invalid/simple", "https://two.invalid/simple")
    assert (found.cert, found.proxy) == ("/ca.pem", "http://p.invalid:1")
    monkeypatch.setenv("PIP_INDEX_URL", "https://four.invalid/simple")
    assert (await read_options()).indexes[0] == "https://four.invalid/simple"


async def test_no_index_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_settings(monkeypatch)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert (await read_options()).indexes == ()


async def test_settings_that_pip_cannot_read_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_settings(monkeypatch)
    (tmp_path / "pip.conf").write_text("no section")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    with pytest.raises(SandboxError, match="cannot be read"):
        await read_options()


def test_credentials_are_put_into_the_url_they_are_for() -> None:
    options = PipOptions(
        ("https://a.example/s", "https://b.example/s"), credentials={"https://a.example/s": ("me", "p@")}
    )
    assert options.remote_indexes == ("https://me:p%40@a.example/s", "https://b.example/s")
    assert PipOptions().indexes == (DEFAULT_INDEX,)


def test_sources_name_no_secret() -> None:
    options = PipOptions(("https://me:S3cr/et@host/simple", "/local"), find_links=("https://a@b@other/links",))
    assert options.sources == ("https://host/simple", "/local", "https://other/links")
