"""What the host's pip is configured to do: indexes, proxy, certificates, credentials."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from agent.errors import SandboxError
from agent.sandbox.dependencies.pip_process import NO_PIP, clean, pip_environment

DEFAULT_INDEX = "https://pypi.org/simple"
"""Where pip looks when nobody tells it otherwise."""

_SECONDS = 60.0
_REMOTE = ("http://", "https://")

# pip itself merges its files, variables and sections, and knows where passwords are
_ASK = """\
import json
from pip._internal.commands import create_command
from pip._internal.network.auth import MultiDomainBasicAuth
options = vars(create_command("download").parser.parse_args([])[0])
names = ("find_links trusted_hosts cert client_cert proxy constraints timeout pre uploaded_prior_to")
told = {name: options.get(name) for name in names.split()}
told["indexes"] = [] if options["no_index"] else [options["index_url"], *options["extra_index_urls"]]
provider = {"keyring_provider": options["keyring_provider"]} if "keyring_provider" in options else {}
auth = MultiDomainBasicAuth(prompting=False, index_urls=told["indexes"], **provider)
told["credentials"] = {
    url: auth._get_new_credentials(url, allow_netrc=True, allow_keyring=getattr(auth, "use_keyring", False))
    for url in [*told["indexes"], *told["find_links"]] if url.startswith(("http://", "https://"))
}
print("\\n" + json.dumps(told, default=str))
"""


@dataclass(frozen=True)
class PipOptions:
    """Options of `pip download` as its files, variables and sections add up; named as pip names them.

    `indexes` are in pip's order, URLs or folders; none with `no-index`. `credentials` has the user and the password of
    each URL, where pip knows them: from the URL, `.netrc` or keyring. Nothing here is fit to be printed.
    """

    indexes: tuple[str, ...] = (DEFAULT_INDEX,)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float | None = None
    pre: bool = False
    uploaded_prior_to: str | None = None
    credentials: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    @property
    def remote_indexes(self) -> tuple[str, ...]:
        """The indexes that are asked over HTTP, each URL with its credentials."""
        return tuple(dict.fromkeys(map(self.with_credentials, filter(is_remote, self.indexes))))

    def with_credentials(self, url: str) -> str:
        """Return a URL with the credentials that pip has for it.

        Raises:
            ValueError: it is malformed.
        """
        user, password = self.credentials.get(url, (None, None))
        if user is None:
            return url
        secret = quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
        parts = urlsplit(url)
        return parts._replace(netloc=f"{secret}@{parts.netloc.rpartition('@')[2]}").geturl()

    @property
    def sources(self) -> tuple[str, ...]:
        """The places that wheels come from, without credentials: fit to be written down."""
        return tuple(map(_without_credentials, (*self.indexes, *self.find_links)))


def _without_credentials(place: str) -> str:
    if "://" not in place:
        return place
    scheme, _, rest = place.partition("://")
    # credentials that should be quoted and are not may hold a slash: rather too much is left out than too little
    return f"{scheme}://{rest.rpartition('@')[2]}"


def is_remote(place: str) -> bool:
    """Say whether a place of pip's options is asked over HTTP."""
    return place.startswith(_REMOTE)


async def read_options() -> PipOptions:
    """Ask the host's pip.

    Raises:
        SandboxError: there is no pip, or it cannot read its settings.
    """
    with tempfile.TemporaryDirectory(prefix="agent-pip-") as work:
        out, err = await _ask(Path(work))
    said = clean(err.decode("utf-8", "replace"))
    if "No module named 'pip'" in said:
        raise SandboxError(NO_PIP)
    try:
        told = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError) as error:
        why = said.strip().splitlines()[-1:] or [clean(str(error))]
        raise SandboxError(f"pip's settings cannot be read: {why[0]}") from error
    return _options(told)


async def read_sources() -> tuple[str, ...]:
    """Ask the host's pip where wheels come from.

    Raises:
        SandboxError: there is no pip, or it cannot read its settings.
    """
    return (await read_options()).sources


async def _ask(work: Path) -> tuple[bytes, bytes]:
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-c", _ASK),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=work,
            env=pip_environment(work),
        )
    except OSError as error:
        raise SandboxError(f"pip cannot be started to read its settings: {error.strerror}") from error
    try:
        async with asyncio.timeout(_SECONDS):
            return await process.communicate()
    except TimeoutError:
        raise SandboxError(f"pip does not tell its settings within {_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())


def _options(told: Mapping[str, Any]) -> PipOptions:
    lists = ("indexes", "find_links", "trusted_hosts", "constraints")
    values: dict[str, Any] = {name: tuple(value or ()) if name in lists else value for name, value in told.items()}
    return PipOptions(**{**values, "pre": bool(told["pre"])})
