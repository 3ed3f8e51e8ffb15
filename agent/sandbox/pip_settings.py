"""What the host's pip is configured to do, made fit for a pip in a builder: where it may go and what it must know.

Credentials of an index go into the builder with its URL, since the index asks for them; a client certificate as well.
Builders run pip alone and are gone afterwards: no program that is tested ever sees them.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass, url2pathname

from agent.errors import SandboxError
from agent.sandbox.egress import Upstream
from agent.sandbox.egress_request import Place, host_name
from agent.sandbox.folder_pages import FOLDER_HOST
from agent.sandbox.pip_process import NO_PIP, clean, pip_environment

SETTINGS = "/tmp/pip-settings"
"""Where a builder keeps the files that settings name."""

# pip itself merges its files, variables and sections, and knows where passwords are
_ASK = """\
import json
from pip._internal.commands import create_command
from pip._internal.network.auth import MultiDomainBasicAuth
options = vars(create_command("download").parser.parse_args([])[0])
names = ("index_url extra_index_urls find_links no_index trusted_hosts cert client_cert proxy constraints timeout pre "
         "uploaded_prior_to")
told = {name: options.get(name) for name in names.split()}
indexes = [] if told["no_index"] else [told["index_url"], *told["extra_index_urls"]]
provider = {"keyring_provider": options["keyring_provider"]} if "keyring_provider" in options else {}
auth = MultiDomainBasicAuth(prompting=False, index_urls=indexes, **provider)
told["credentials"] = {
    url: auth._get_new_credentials(url, allow_netrc=True, allow_keyring=getattr(auth, "use_keyring", False))
    for url in [*indexes, *told["find_links"]] if url.startswith(("http://", "https://"))
}
print("\\n" + json.dumps(told, default=str))
"""
_FILE_HOSTS = {"pypi.org": "files.pythonhosted.org", "test.pypi.org": "test-files.pythonhosted.org"}
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PORTS = {"http": 80, "https": 443}


@dataclass
class PipSettings:
    """What a builder's pip is given, and what the proxy before it allows: places, each with the scheme of its URLs."""

    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    allowed: dict[Place, str] = field(default_factory=dict)
    upstreams: dict[Place, Upstream] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)


async def read_settings() -> PipSettings:
    """Ask the host's pip.

    Raises:
        SandboxError: there is no pip, it cannot read its settings, or they name something that cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="agent-pip-") as work:
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _ASK),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=work,
                env=pip_environment(Path(work)),
            )
        except OSError as error:
            raise SandboxError(f"pip cannot be started to read its settings: {error.strerror}") from error
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await asyncio.shield(process.wait())
            raise
    said = clean(err.decode("utf-8", "replace"))
    if "No module named 'pip'" in said:
        raise SandboxError(NO_PIP)
    try:
        told = json.loads(out.splitlines()[-1])
        return await asyncio.to_thread(settings_from, told)
    except (ValueError, IndexError, OSError) as error:
        why = said.strip().splitlines()[-1:] or [clean(str(error))]
        raise SandboxError(f"pip's settings cannot be used: {why[0]}") from error


def settings_from(told: Mapping[str, Any]) -> PipSettings:
    """Return the settings for what pip told of its options. Reads files and variables.

    Raises:
        ValueError: a URL is malformed.
        OSError: a file that is named cannot be read.
        SandboxError: the host's proxy is of a kind that is not known here.
    """
    settings = PipSettings()
    given = settings.environment
    if told["no_index"]:
        given["PIP_NO_INDEX"] = "1"
    else:
        indexes = [_index(settings, told, url) for url in (told["index_url"], *told["extra_index_urls"])]
        given["PIP_INDEX_URL"] = indexes[0]
        given["PIP_EXTRA_INDEX_URL"] = " ".join(indexes[1:])
    given["PIP_FIND_LINKS"] = " ".join(_links(settings, told, place) for place in told["find_links"])
    given["PIP_CONSTRAINT"] = " ".join(_constraints(settings, told))
    given["PIP_TRUSTED_HOST"] = " ".join([*told["trusted_hosts"], FOLDER_HOST])
    for name, variable in (("timeout", "PIP_TIMEOUT"), ("uploaded_prior_to", "PIP_UPLOADED_PRIOR_TO")):
        if told[name] is not None:
            given[variable] = str(told[name])
    if told["pre"]:
        given["PIP_PRE"] = "1"
    for variable, path in (("PIP_CERT", _bundle(told)), ("PIP_CLIENT_CERT", told["client_cert"])):
        if path is not None:
            given[variable] = _file(settings, variable.lower(), path)
    settings.environment = {name: value for name, value in given.items() if value}
    _use_proxies(settings, told["proxy"])
    return settings


def _index(settings: PipSettings, told: Mapping[str, Any], url: str) -> str:
    if "://" in url and not url.startswith("file:"):
        return _remote(settings, told, url)
    folder = _local(url)
    # files often lie next to the pages of an index: `../../files/x.whl`
    settings.folders.append(folder if folder.parent == Path(folder.anchor) else folder.parent)
    return f"http://{FOLDER_HOST}{quote(str(folder))}"


def _links(settings: PipSettings, told: Mapping[str, Any], place: str) -> str:
    if "://" in place and not place.startswith("file:"):
        return _remote(settings, told, place)
    path = _local(place)
    is_file = path.is_file()
    settings.folders.append(path.parent if is_file else path)
    return f"http://{FOLDER_HOST}{quote(str(path))}{'' if is_file else '/'}"


def _constraints(settings: PipSettings, told: Mapping[str, Any]) -> Iterator[str]:
    for number, place in enumerate(told["constraints"]):
        if place.startswith(("http:", "https:")):
            yield _remote(settings, told, place)
        else:
            yield _file(settings, f"constraint-{number}.txt", str(_local(place)))


def _remote(settings: PipSettings, told: Mapping[str, Any], url: str) -> str:
    """Allow a URL's host; return the URL with the credentials that pip has for it."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{clean(url)} is no URL of a package index")
    host, port = host_name(parts.hostname), parts.port or _PORTS[parts.scheme]
    settings.allowed[host, port] = parts.scheme
    if port == _PORTS["http"]:
        settings.allowed[host, _PORTS["https"]] = "https"  # where plain indexes send their visitors
    if host in _FILE_HOSTS:
        settings.allowed[_FILE_HOSTS[host], _PORTS["https"]] = "https"
    user, password = told["credentials"].get(url, (None, None))
    if user is None:
        return url
    secret = quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
    return parts._replace(netloc=f"{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def _local(place: str) -> Path:
    path = url2pathname(urlsplit(place).path) if place.startswith("file:") else place
    return Path(os.path.normpath(Path(path).expanduser().absolute()))


def _file(settings: PipSettings, name: str, path: str) -> str:
    inside = f"{SETTINGS}/{name}"
    settings.files[inside] = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    return inside


def _bundle(told: Mapping[str, Any]) -> str | None:
    """Return the file of certificates that the host's pip trusts; None leaves the choice to the builder's."""
    chosen = told["cert"] or next(filter(None, map(os.environ.get, _BUNDLE_VARIABLES)), None)
    if chosen:
        return str(chosen)
    usual = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((path for path in usual if path and Path(path).is_file()), None)


def _use_proxies(settings: PipSettings, option: str | None) -> None:
    """Note which of the allowed places are reached through the host's own proxy."""
    proxies = getproxies()
    for (host, port), scheme in settings.allowed.items():
        url = option or proxies.get(scheme) or proxies.get("all")
        if url and (option or not proxy_bypass(f"{host}:{port}")):
            settings.upstreams[host, port] = _upstream(url)


def _upstream(url: str) -> Upstream:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SandboxError(f"only HTTP proxies can be used to fetch dependencies, not {clean(url)}")
    secret = "" if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Upstream(parts.hostname, parts.port or _PORTS[parts.scheme], secret, parts.scheme == "https")
