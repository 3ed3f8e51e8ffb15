"""Reads package sources from pip's settings or uv's environment variables, for uv and for the index rule.

This module parses pip's configuration files and environment variables itself, but only these options: `index-url`,
`extra-index-url`, `no-index`, `find-links`, `cert`, `client-cert`, `proxy`, `trusted-host` and `timeout`. If one of
uv's environment variables names an index, pip's indexes are ignored. By default, the system's certificates are trusted.
"""

from __future__ import annotations

import configparser
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from agent.errors import UsageError

DEFAULT_INDEX = "https://pypi.org/simple"
"""The index that is used if no setting names an index."""

_log = logging.getLogger(__name__)
_SYSTEM_FILE = Path("/etc/pip.conf")
_REMOTE = ("http://", "https://")
_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_FORWARDED = ("UV_SYSTEM_CERTS", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(frozen=True)
class PackageSources:
    """Index URLs in lookup order, and the connection options for these indexes.

    Both uv and the index rule use the first index that has a project. The settings are passed to uv as environment
    variables (`environment`), because other users can read command lines. URLs may contain credentials, so print
    only `redacted_urls`.
    """

    indexes: tuple[str, ...] = (DEFAULT_INDEX,)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    certificates: str | None = None
    client_certificate: str | None = None
    proxy: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def remote_indexes(self) -> tuple[str, ...]:
        """The indexes with an HTTP or HTTPS URL."""
        return tuple(dict.fromkeys(index for index in self.indexes if index.startswith(_REMOTE)))

    @property
    def folders(self) -> tuple[str, ...]:
        """The local folders of `find_links`."""
        return tuple(link for link in self.find_links if not link.startswith(_REMOTE))

    @property
    def redacted_urls(self) -> tuple[str, ...]:
        """The indexes and `find_links` without credentials."""
        return tuple(map(_strip_credentials, (*self.indexes, *self.find_links)))


def _strip_credentials(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_sources(environ: Mapping[str, str] = os.environ) -> PackageSources:
    """Read the package sources that this user and this machine have configured.

    Raises:
        UsageError: one of pip's configuration files cannot be parsed.
    """
    pip = _read_pip_settings(environ)
    files = _collect_files(pip, environ)
    variables = {
        "UV_SYSTEM_CERTS": "true",
        **{name: environ[name] for upper in _FORWARDED for name in (upper, upper.lower()) if name in environ},
        **files,
    }
    if any(environ.get(name) for name in _INDEX_VARIABLES):
        indexes, links = _list_uv_indexes(environ)
        variables |= {name: value for name, value in environ.items() if name in _INDEX_VARIABLES[:-1]}
        variables |= {name: value for name, value in environ.items() if name.startswith("UV_INDEX_")}
    else:
        indexes, links = _list_pip_indexes(pip)
        if indexes:
            # uv queries its default index last
            variables |= {"UV_INDEX": " ".join(indexes[:-1]), "UV_DEFAULT_INDEX": indexes[-1]}
    find_links = tuple(_iterate_existing(links))
    trusted_hosts = (*pip.get("trusted-host", "").split(), *environ.get("UV_INSECURE_HOST", "").split())
    proxy = pip.get("proxy")
    if proxy:
        variables |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    variables |= {
        "UV_FIND_LINKS": ",".join(link for link in find_links if link.startswith(_REMOTE)),
        "UV_INSECURE_HOST": " ".join(trusted_hosts),
        "UV_HTTP_TIMEOUT": environ.get("UV_HTTP_TIMEOUT") or pip.get("timeout", "").partition(".")[0],
    }
    return PackageSources(
        indexes=indexes,
        find_links=find_links,
        trusted_hosts=trusted_hosts,
        certificates=files.get("SSL_CERT_FILE") or files.get("SSL_CERT_DIR"),
        client_certificate=files.get("SSL_CLIENT_CERT"),
        proxy=proxy,
        environment={name: value for name, value in variables.items() if value},
    )


def _collect_files(pip: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for uv whose values are paths.

    The paths are absolute because uv runs in another folder.
    """
    certificates = (
        pip.get("cert")
        or environ.get("SSL_CERT_FILE")
        or environ.get("REQUESTS_CA_BUNDLE")
        or environ.get("CURL_CA_BUNDLE")
        or ""
    )
    paths = {
        "SSL_CERT_DIR" if certificates and Path(certificates).is_dir() else "SSL_CERT_FILE": certificates,
        "SSL_CLIENT_CERT": pip.get("client-cert") or environ.get("SSL_CLIENT_CERT"),
        "NETRC": environ.get("NETRC") or "~/.netrc",
    }
    return {name: _make_absolute(path) for name, path in paths.items() if path}


def _make_absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _iterate_existing(links: Iterable[str]) -> Iterator[str]:
    """Iterate over the `find-links` entries that exist. pip skips missing folders, but uv fails if one is missing."""
    for link in links:
        path = _make_absolute(link.removeprefix("file://"))
        if link.startswith(_REMOTE):
            yield link
        elif Path(path).exists():
            yield path
        else:
            _log.info("skipping find-links folder %s, which does not exist", path)


def _list_pip_indexes(pip: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    links = tuple(pip.get("find-links", "").split())
    if pip.get("no-index", "0").lower() not in ("", "0", "false", "no", "off", "n", "f"):
        return (), links
    indexes = (pip.get("index-url") or DEFAULT_INDEX, *pip.get("extra-index-url", "").split())
    return tuple(index if "://" in index else Path(index).absolute().as_uri() for index in indexes), links


def _list_uv_indexes(environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    default = environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or DEFAULT_INDEX
    extra = f"{environ.get('UV_INDEX', '')} {environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    links = environ.get("UV_FIND_LINKS", "").replace(",", " ").split()
    entries = (*extra, default)  # an entry may be NAME=URL
    urls = (entry.partition("=")[2] if "=" in entry.partition("://")[0] else entry for entry in entries)
    return tuple(urls), tuple(links)


def _read_pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Merge the options for `pip install` from pip's configuration files and environment variables."""
    settings: dict[str, str] = {}
    for path in _iterate_pip_files(environ):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: pip's settings cannot be parsed ({type(error).__name__})") from error
        for section in ("global", "install"):
            if parser.has_section(section):
                settings |= {_normalise_option(name): value for name, value in parser.items(section)}
    variables = {name: value for name, value in environ.items() if name.startswith("PIP_") and value}
    return settings | {_normalise_option(name.removeprefix("PIP_")): value for name, value in variables.items()}


def _normalise_option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _iterate_pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Iterate over pip's configuration files. Later files override earlier ones."""
    config_file = environ.get("PIP_CONFIG_FILE", "")
    if config_file == os.devnull:
        return
    home = Path("~").expanduser()
    mac = sys.platform == "darwin"
    folders = environ.get("XDG_CONFIG_DIRS") or ("/Library/Application Support" if mac else "/etc/xdg")
    yield from (Path(folder, "pip", "pip.conf") for folder in reversed(folders.split(":")))
    yield _SYSTEM_FILE
    if not Path(config_file or "/nowhere").exists():
        yield home / ".pip" / "pip.conf"
        application = home / "Library" / "Application Support"
        config_home = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        yield (application if mac and (application / "pip").is_dir() else config_home) / "pip" / "pip.conf"
    yield Path(sys.prefix, "pip.conf")
    if config_file:
        yield Path(config_file)
