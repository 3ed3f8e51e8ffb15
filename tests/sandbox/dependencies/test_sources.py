"""uv and the index rule use pip's settings unless one of uv's environment variables names an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.sandbox.dependencies.sources import DEFAULT_INDEX, PackageSources, read_sources


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user without settings."""
    monkeypatch.setattr("agent.sandbox.dependencies.sources._SYSTEM_FILE", tmp_path / "none")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def read(**environ: str) -> PackageSources:
    return read_sources({"XDG_CONFIG_DIRS": "/none", **environ})


def configure(home: Path, text: str, file: str = ".config/pip/pip.conf") -> None:
    path = home / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.usefixtures("home")
def test_without_settings_packages_come_from_pypi() -> None:
    sources = read()
    assert (sources.indexes, sources.find_links) == ((DEFAULT_INDEX,), ())


def test_files_are_merged_and_variables_override_them(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://one/simple\nproxy = http://proxy:3128\ntimeout = 7.5\n")
    configure(home, "[install]\nextra_index_url =\n    https://two/simple\n    https://three/simple\n", ".pip/pip.conf")
    sources = read(PIP_INDEX_URL="https://me:s3cret@four/simple", PIP_CERT="/etc/own.pem", PIP_TRUSTED_HOST="four five")
    assert sources.indexes == ("https://me:s3cret@four/simple", "https://two/simple", "https://three/simple")
    assert sources.redacted_urls == ("https://four/simple", "https://two/simple", "https://three/simple")
    assert (sources.certificates, sources.proxy) == ("/etc/own.pem", "http://proxy:3128")
    assert sources.trusted_hosts == ("four", "five")
    assert sources.environment == {
        "UV_SYSTEM_CERTS": "true",
        "UV_INDEX": "https://me:s3cret@four/simple https://two/simple",
        "UV_DEFAULT_INDEX": "https://three/simple",
        "UV_INSECURE_HOST": "four five",
        "UV_HTTP_TIMEOUT": "7",
        "SSL_CERT_FILE": "/etc/own.pem",
        "NETRC": f"{home}/.netrc",
        "HTTP_PROXY": "http://proxy:3128",
        "HTTPS_PROXY": "http://proxy:3128",
    }


def test_pip_config_file_replaces_the_user_file_or_disables_all_files(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://user/simple\n")
    configure(home, "[global]\nindex-url = https://own/simple\n", "own.conf")
    assert read(PIP_CONFIG_FILE=str(home / "own.conf")).indexes == ("https://own/simple",)
    assert read(PIP_CONFIG_FILE=os.devnull).indexes == (DEFAULT_INDEX,)


def test_a_missing_find_links_folder_is_skipped(home: Path) -> None:
    sources = read(PIP_NO_INDEX="1", PIP_FIND_LINKS=f"{home} {home}/gone https://me:s3cret@links/x.html")
    assert (sources.indexes, sources.folders) == ((), (str(home),))
    assert sources.environment["UV_FIND_LINKS"] == "https://me:s3cret@links/x.html"
    assert "UV_DEFAULT_INDEX" not in sources.environment


def test_an_index_in_a_variable_of_uv_replaces_pips_indexes(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://pip/simple\ncert = /etc/own.pem\nfind-links = /etc\n")
    variables = {"UV_INDEX": "own=https://uv/simple", "UV_INDEX_OWN_PASSWORD": "s3cret", "UV_SYSTEM_CERTS": "0"}
    sources = read(**variables, UV_OFFLINE="1")
    assert sources.indexes == ("https://uv/simple", DEFAULT_INDEX)
    assert (sources.folders, sources.certificates) == ((), "/etc/own.pem")
    assert sources.environment == {**variables, "SSL_CERT_FILE": "/etc/own.pem", "NETRC": f"{home}/.netrc"}


def test_malformed_settings_are_reported_with_their_file(home: Path) -> None:
    configure(home, "index-url = https://nowhere/\n")
    with pytest.raises(UsageError, match=r"pip\.conf: "):
        read()
