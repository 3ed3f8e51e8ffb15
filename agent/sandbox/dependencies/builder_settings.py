"""What the host's pip is configured to do, made fit for a pip in a builder: where it may go and what it must know.

Credentials of an index go into the builder with its URL, since the index asks for them; a client certificate as well.
Builders run pip alone and are gone afterwards: no program that is tested ever sees them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass, url2pathname

from agent.errors import SandboxError
from agent.sandbox.dependencies.egress import Upstream
from agent.sandbox.dependencies.egress_request import Place, host_name
from agent.sandbox.dependencies.folder_pages import FOLDER_HOST
from agent.sandbox.dependencies.pip_options import PipOptions, read_options
from agent.sandbox.dependencies.pip_process import clean

SETTINGS = "/tmp/pip-settings"
"""Where a builder keeps the files that settings name."""

_FILE_HOSTS = {"pypi.org": "files.pythonhosted.org", "test.pypi.org": "test-files.pythonhosted.org"}
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PORTS = {"http": 80, "https": 443}


@dataclass
class BuilderSettings:
    """What a builder's pip is given, and what the proxy before it allows: places, each with the scheme of its URLs.

    Of `folders` it gets pages and wheels, of `heaps` wheels alone.
    """

    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    allowed: dict[Place, str] = field(default_factory=dict)
    upstreams: dict[Place, Upstream] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    heaps: list[Path] = field(default_factory=list)


async def read_settings() -> BuilderSettings:
    """Ask the host's pip.

    Raises:
        SandboxError: there is no pip, it cannot read its settings, or they name something that cannot be used.
    """
    options = await read_options()
    try:
        return await asyncio.to_thread(settings_from, options)
    except (ValueError, OSError) as error:
        raise SandboxError(f"pip's settings cannot be used: {clean(str(error))}") from error


def settings_from(options: PipOptions) -> BuilderSettings:
    """Return the settings for the options of the host's pip. Reads files and variables.

    Raises:
        ValueError: a URL is malformed.
        OSError: a file that is named cannot be read.
        SandboxError: the host's proxy is of a kind that is not known here.
    """
    settings = BuilderSettings()
    given = settings.environment
    if options.indexes:
        first, *others = [_index(settings, options, url) for url in options.indexes]
        given["PIP_INDEX_URL"] = first
        given["PIP_EXTRA_INDEX_URL"] = " ".join(others)
    else:
        given["PIP_NO_INDEX"] = "1"
    given["PIP_FIND_LINKS"] = " ".join(_links(settings, options, place) for place in options.find_links)
    given["PIP_CONSTRAINT"] = " ".join(_constraints(settings, options))
    given["PIP_TRUSTED_HOST"] = " ".join([*options.trusted_hosts, FOLDER_HOST])
    for value, variable in ((options.timeout, "PIP_TIMEOUT"), (options.uploaded_prior_to, "PIP_UPLOADED_PRIOR_TO")):
        if value is not None:
            given[variable] = str(value)
    if options.pre:
        given["PIP_PRE"] = "1"
    for variable, path in (("PIP_CERT", _bundle(options)), ("PIP_CLIENT_CERT", options.client_cert)):
        if path is not None:
            given[variable] = _file(settings, variable.lower(), path)
    settings.environment = {name: value for name, value in given.items() if value}
    _use_proxies(settings, options.proxy)
    return settings


def _index(settings: BuilderSettings, options: PipOptions, url: str) -> str:
    if "://" in url and not url.startswith("file:"):
        return _remote(settings, options, url)
    folder = _local(url)
    settings.folders.append(folder)
    if folder.parent != Path(folder.anchor):
        # files often lie next to the pages of an index: `../../files/x.whl`
        settings.heaps.append(folder.parent)
    return f"http://{FOLDER_HOST}{quote(str(folder))}"


def _links(settings: BuilderSettings, options: PipOptions, place: str) -> str:
    if "://" in place and not place.startswith("file:"):
        return _remote(settings, options, place)
    path = _local(place)
    is_file = path.is_file()
    settings.folders.append(path.parent if is_file else path)
    return f"http://{FOLDER_HOST}{quote(str(path))}{'' if is_file else '/'}"


def _constraints(settings: BuilderSettings, options: PipOptions) -> Iterator[str]:
    for number, place in enumerate(options.constraints):
        if place.startswith(("http:", "https:")):
            yield _remote(settings, options, place)
        else:
            yield _file(settings, f"constraint-{number}.txt", str(_local(place)))


def _remote(settings: BuilderSettings, options: PipOptions, url: str) -> str:
    """Allow a URL's host; return the URL with the credentials that pip has for it."""
    parts = _split(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{clean(url)} is no URL of a package index")
    host, port = host_name(parts.hostname), parts.port or _PORTS[parts.scheme]
    settings.allowed[host, port] = parts.scheme
    if port == _PORTS["http"]:
        settings.allowed[host, _PORTS["https"]] = "https"  # where plain indexes send their visitors
    if host in _FILE_HOSTS:
        settings.allowed[_FILE_HOSTS[host], _PORTS["https"]] = "https"
    return options.with_credentials(url)


def _split(url: str) -> SplitResult:
    """Take a URL apart; the standard library's own error quotes what may be a part of a password.

    Raises:
        ValueError: it is malformed.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"{clean(url)} is no URL; if there is a / or @ in its password, write %2F or %40 instead"
        ) from None
    return parts


def _local(place: str) -> Path:
    path = url2pathname(urlsplit(place).path) if place.startswith("file:") else place
    return Path(os.path.normpath(Path(path).expanduser().absolute()))


def _file(settings: BuilderSettings, name: str, path: str) -> str:
    inside = f"{SETTINGS}/{name}"
    settings.files[inside] = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    return inside


def _bundle(options: PipOptions) -> str | None:
    """Return the file of certificates that the host's pip trusts; None leaves the choice to the builder's."""
    chosen = options.cert or next(filter(None, map(os.environ.get, _BUNDLE_VARIABLES)), None)
    if chosen:
        return str(chosen)
    usual = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((path for path in usual if path and Path(path).is_file()), None)


def _use_proxies(settings: BuilderSettings, option: str | None) -> None:
    """Note which of the allowed places are reached through the host's own proxy."""
    proxies = getproxies()
    for (host, port), scheme in settings.allowed.items():
        url = option or proxies.get(scheme) or proxies.get("all")
        if url and (option or not proxy_bypass(f"{host}:{port}")):
            settings.upstreams[host, port] = _upstream(url)


def _upstream(url: str) -> Upstream:
    parts = _split(url if "://" in url else f"http://{url}")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SandboxError(f"only HTTP proxies can be used to fetch dependencies, not {clean(url)}")
    secret = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Upstream(parts.hostname, parts.port or _PORTS[parts.scheme], secret, parts.scheme == "https")
