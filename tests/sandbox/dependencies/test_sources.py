"""uv and the index rule are given pip's settings, unless a variable of uv's names an index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.errors import UsageError
from agent.sandbox.dependencies.sources import DEFAULT_INDEX, PackageSources, read_sources


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any settings; the system's own are read as well."""
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
    found = read()
    assert (found.indexes, found.find_links) == ((DEFAULT_INDEX,), ())


def test_files_add_up_and_variables_win(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://one/simple\nproxy = http://proxy:3128\ntimeout = 7.5\n")
    configure(home, "[install]\nextra_index_url =\n    https://two/simple\n    https://three/simple\n", ".pip/pip.conf")
    found = read(PIP_INDEX_URL="https://me:s3cret@four/simple", PIP_CERT="/etc/own.pem", PIP_TRUSTED_HOST="four five")
    assert found.indexes == ("https://me:s3cret@four/simple", "https://two/simple", "https://three/simple")
    assert found.redacted_urls == ("https://four/simple", "https://two/simple", "https://three/simple")
    assert (found.certificates, found.proxy) == ("/etc/own.pem", "http://proxy:3128")
    assert found.trusted_hosts == ("four", "five")
    assert found.environment == {
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


def test_a_file_that_a_variable_names_counts_and_none_does_where_it_names_nothing(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://user/simple\n")
    configure(home, "[global]\nindex-url = https://own/simple\n", "own.conf")
    assert read(PIP_CONFIG_FILE=str(home / "own.conf")).indexes == ("https://own/simple",)
    assert read(PIP_CONFIG_FILE=os.devnull).indexes == (DEFAULT_INDEX,)


def test_a_folder_of_wheels_that_is_missing_is_left_out(home: Path) -> None:
    found = read(PIP_NO_INDEX="1", PIP_FIND_LINKS=f"{home} {home}/gone https://me:s3cret@links/x.html")
    assert (found.indexes, found.folders) == ((), (str(home),))
    assert found.environment["UV_FIND_LINKS"] == "https://me:s3cret@links/x.html"
    assert "UV_DEFAULT_INDEX" not in found.environment


def test_a_variable_of_uv_that_names_an_index_takes_the_place_of_pips_indexes(home: Path) -> None:
    configure(home, "[global]\nindex-url = https://pip/simple\ncert = /etc/own.pem\nfind-links = /etc\n")
    given = {"UV_INDEX": "own=https://uv/simple", "UV_INDEX_OWN_PASSWORD": "s3cret", "UV_SYSTEM_CERTS": "0"}
    found = read(**given, UV_OFFLINE="1")
    assert found.indexes == ("https://uv/simple", DEFAULT_INDEX)
    assert (found.folders, found.certificates) == ((), "/etc/own.pem")
    assert found.environment == {**given, "SSL_CERT_FILE": "/etc/own.pem", "NETRC": f"{home}/.netrc"}


def test_settings_that_cannot_be_read_are_named(home: Path) -> None:
    configure(home, "index-url = https://nowhere/\n")
    with pytest.raises(UsageError, match=r"pip\.conf: pip's settings cannot be read"):
        read()
