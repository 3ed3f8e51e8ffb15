"""A builder's pip is told what the host's would do, and its proxy allows what that needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.errors import SandboxError
from agent.sandbox.dependencies.builder_settings import BuilderSettings, read_settings, settings_from
from agent.sandbox.dependencies.egress import Upstream
from agent.sandbox.dependencies.folder_pages import FOLDER_HOST
from agent.sandbox.dependencies.pip_options import DEFAULT_INDEX, PipOptions
from tests.sandbox.wheelhouse import plain_settings


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take this machine's own proxy away."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def settings(*indexes: str, **options: Any) -> BuilderSettings:
    return settings_from(PipOptions(indexes or (DEFAULT_INDEX,), **options))


def test_the_public_index_comes_with_the_host_of_its_files() -> None:
    assert set(settings().allowed) == {("pypi.org", 443), ("files.pythonhosted.org", 443)}


def test_every_place_that_is_configured_is_allowed_and_no_other() -> None:
    made = settings(
        "https://Index.Example./simple",
        "http://[::1]:8080/simple",
        find_links=("http://plain.example/wheels",),
        constraints=("https://limits.example/c.txt",),
    )
    assert set(made.allowed) == {
        *(("index.example", 443), ("::1", 8080), ("plain.example", 80), ("plain.example", 443)),
        ("limits.example", 443),
    }
    assert made.environment["PIP_INDEX_URL"] == "https://Index.Example./simple"
    assert made.environment["PIP_CONSTRAINT"] == "https://limits.example/c.txt"


def test_without_an_index_none_is_allowed(tmp_path: Path) -> None:
    made = settings_from(PipOptions((), find_links=(str(tmp_path),)))
    assert not made.allowed
    assert made.environment["PIP_NO_INDEX"] == "1"
    assert made.environment["PIP_FIND_LINKS"] == f"http://{FOLDER_HOST}{tmp_path}/"
    assert made.folders == [tmp_path]


def test_credentials_stand_in_the_url_they_are_for() -> None:
    url = "https://old@index.example/simple"
    made = settings(url, credentials={url: ("me@home", "a/b:c")})
    assert made.environment["PIP_INDEX_URL"] == "https://me%40home:a%2Fb%3Ac@index.example/simple"


def test_files_that_settings_name_go_along(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificates")
    made = settings(cert=str(tmp_path / "ca.pem"))
    assert made.files[made.environment["PIP_CERT"]] == "certificates"
    with pytest.raises(OSError, match="key"):
        settings(client_cert=str(tmp_path / "key.pem"))


def test_the_hosts_proxy_is_used_as_its_variables_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40w@proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "inner.example")
    made = settings(DEFAULT_INDEX, "https://inner.example/simple", "http://plain.example:8080/simple")
    upstream = Upstream("proxy.example", 3128, "me:p@w")
    assert made.upstreams == {("pypi.org", 443): upstream, ("files.pythonhosted.org", 443): upstream}


def test_the_proxy_of_pips_own_settings_is_used_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    made = settings("http://plain.example/simple", proxy="proxy.example:3128")
    assert set(made.upstreams.values()) == {Upstream("proxy.example", 3128)}
    assert set(made.upstreams) == set(made.allowed)
    with pytest.raises(SandboxError, match="only HTTP proxies"):
        settings(proxy="socks5://me:secret@proxy.example")


async def test_pip_is_asked_for_its_own_reading_of_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_settings(monkeypatch)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a.example/simple\n[download]\nextra-index-url = https://b.example/\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:pw@c.example/simple")
    made = await read_settings()
    assert set(made.allowed) >= {("b.example", 443), ("c.example", 443)}
    assert ("a.example", 443) not in made.allowed
    assert made.environment["PIP_INDEX_URL"] == "https://me:pw@c.example/simple"


@pytest.mark.parametrize("url", ["https://user:S3cr/et@host/simple", "https://user:S3cr]/p@et@host/simple"])
def test_a_password_that_should_have_been_quoted_is_not_told(url: str) -> None:
    for options in (PipOptions((url,)), PipOptions(proxy=url.replace("https", "http"))):
        with pytest.raises(ValueError, match="write %2F or %40 instead") as caught:
            settings_from(options)
        assert "S3cr" not in str(caught.value)
        assert "et@" not in str(caught.value)


def test_beside_an_index_there_are_wheels_and_no_pages(tmp_path: Path) -> None:
    made = settings(str(tmp_path / "index"))
    assert (made.folders, made.heaps) == ([tmp_path / "index"], [tmp_path])
