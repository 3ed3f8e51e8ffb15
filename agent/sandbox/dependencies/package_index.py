"""Asks package indexes for a project, by the JSON form of the simple API (PEP 691, PEP 700)."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, Field, ValidationError

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.index_rule import Project
from agent.sandbox.dependencies.pip_options import PipOptions, read_options
from agent.sandbox.dependencies.project_cache import ProjectCache
from agent.sandbox.flights import Flights

if TYPE_CHECKING:
    import httpx

_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = frozenset({"text/html", "application/vnd.pypi.simple.v1+html"})
_ABSENT = frozenset({404, 410})
_REFUSED = frozenset({401, 403, 407})
_REDIRECTS = 5
_SILENCE = 60.0
_SILENT = "no network, or the package index does not answer: check the connection and pip's settings"
_UNUSABLE = "the package index cannot be asked: check index, proxy and certificates in pip's settings"
_UNDATED = Project(None, 0)


class _File(BaseModel):
    filename: str
    yanked: bool | str = False
    upload_time: datetime | None = Field(default=None, alias="upload-time")


class _Page(BaseModel):
    name: str
    files: list[_File]
    versions: list[str] | None = None


class PackageIndex:
    """A `ProjectIndex` over the indexes of pip's settings; the first that has a project speaks for it.

    Answers are kept in `cache`, and settings are read once. `size` (bytes) and `seconds` limit one question to one
    index; after one that was not answered there is silence for a minute. A local folder (`find-links`, `file://`) has
    no dates and is not asked.
    """

    def __init__(
        self,
        cache: ProjectCache,
        *,
        settings: Callable[[], Awaitable[PipOptions]] = read_options,
        size: int = 32 << 20,
        seconds: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._read_settings = settings
        self._settings: PipOptions | None = None
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._silent: tuple[float, str] | None = None
        self._questions: Flights[Project | None] = Flights()

    async def project(self, name: NormalizedName) -> Project | None:
        """Return what the first index that has a project says of it, or None when none has it.

        Raises:
            DependencyUnavailable: an index does not answer (`temporary`), or with nothing that can be used.
            SandboxError: pip does not tell its settings.
        """
        return await self._questions.join(name, lambda: self._patiently(name))

    async def _patiently(self, name: NormalizedName) -> Project | None:
        if self._silent is not None and self._clock() < self._silent[0]:
            raise DependencyUnavailable(self._silent[1], temporary=True)
        try:
            return await self._project(name)
        except DependencyUnavailable as error:
            if error.temporary:
                self._silent = (self._clock() + _SILENCE, str(error))
            raise

    async def _project(self, name: NormalizedName) -> Project | None:
        if self._settings is None:
            self._settings = await self._read_settings()
        if not self._settings.remote_indexes:
            raise DependencyUnavailable("not among the known distributions, and pip's settings name no package index")
        for url in self._settings.remote_indexes:
            try:
                index, user = _apart(url)
            except ValueError:
                raise DependencyUnavailable(_UNUSABLE, temporary=True) from None
            found = await asyncio.to_thread(self._cache.recall, index, name, now=self._clock())
            if found == "unasked":
                found = await self._ask(f"{index.rstrip('/')}/{name}/", user, name, self._settings)
                await asyncio.to_thread(self._cache.keep, index, name, found, now=self._clock())
            if found is not None:
                return found
        return None

    async def _ask(
        self, url: str, user: tuple[str, str] | None, name: NormalizedName, settings: PipOptions
    ) -> Project | None:
        import httpx

        try:
            async with asyncio.timeout(self._seconds), await _client(url, user, settings) as client:
                return await self._follow(client, url, name)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            # The error may quote an address, and an address a password.
            raise DependencyUnavailable(_SILENT, temporary=True) from None

    async def _follow(self, client: httpx.AsyncClient, url: str, name: NormalizedName) -> Project | None:
        for _ in range(_REDIRECTS):
            async with client.stream("GET", url) as response:
                if not response.has_redirect_location:
                    return await self._read(response, name)
                url = _redirected(url, response.headers["location"])
        raise DependencyUnavailable("the package index sends in circles for it")

    async def _read(self, response: httpx.Response, name: NormalizedName) -> Project | None:
        status, kind = response.status_code, response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if status in _ABSENT:
            return None
        if status in _REFUSED:
            message = "the package index refuses access: check the credentials in pip's settings"
            raise DependencyUnavailable(message, temporary=True)
        if status == 406 or (status == 200 and kind in _HTML):
            return _UNDATED
        if status == 429 or status >= 500:
            raise DependencyUnavailable(_SILENT, temporary=True)
        if status != 200 or kind != _JSON:
            raise DependencyUnavailable(f"the package index answers with status {status} and no page of a project")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._size:
                raise DependencyUnavailable(f"the package index answers with more than {self._size >> 20} MB")
        return await asyncio.to_thread(read_page, bytes(body), name)


def read_page(body: bytes, name: NormalizedName) -> Project:
    """Read the JSON page of a project.

    Raises:
        DependencyUnavailable: it is none, or of another project.
    """
    try:
        page = _Page.model_validate_json(body)
    except ValidationError:
        raise DependencyUnavailable("the package index's answer cannot be read") from None
    if canonicalize_name(page.name) != name:
        raise DependencyUnavailable("the package index answers for another project")
    times = [_aware(file.upload_time) for file in page.files if file.upload_time is not None]
    if page.versions is None or not times:
        return _UNDATED
    listed = {_version(text) for text in page.versions}
    offered = {_version_of(file.filename) for file in page.files if file.yanked is False}
    return Project(min(times), len((listed & offered) - {None}))


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _version_of(filename: str) -> Version | None:
    try:
        return parse_wheel_filename(filename)[1] if filename.endswith(".whl") else parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def _apart(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return a URL without its user and password, and these."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path, parts.query, ""))
    user = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return bare, user


def _redirected(url: str, location: str) -> str:
    # Elsewhere is where a password of pip's settings must not go, and where its owner put no trust.
    with suppress(ValueError):
        target = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(target)
        if (old.scheme, old.hostname, old.port) == (new.scheme, new.hostname, new.port):
            return _apart(target)[0]
    raise DependencyUnavailable("the package index sends elsewhere for it, where nothing is asked")


async def _client(url: str, user: tuple[str, str] | None, settings: PipOptions) -> httpx.AsyncClient:
    import httpx

    options: dict[str, Any] = {
        "auth": None if user is None else httpx.BasicAuth(*user),
        "headers": {"Accept": f"{_JSON}, text/html;q=0.1", "Accept-Encoding": "gzip"},
        "timeout": None,
    }
    try:
        host = urlsplit(url)
        trusted = {host.hostname, host.netloc} & set(settings.trusted_hosts)
        verify = False if trusted else await asyncio.to_thread(_certificates, settings)
        return httpx.AsyncClient(verify=verify, proxy=settings.proxy, **options)
    except (ValueError, ImportError, OSError):
        raise DependencyUnavailable(_UNUSABLE, temporary=True) from None


def _certificates(settings: PipOptions) -> ssl.SSLContext:
    import httpx

    named = settings.cert or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if named is None:
        context = httpx.create_ssl_context()
        context.load_default_certs()
    else:
        folder = Path(named).is_dir()
        context = ssl.create_default_context(cafile=None if folder else named, capath=named if folder else None)
    if settings.client_cert is not None:
        context.load_cert_chain(settings.client_cert)
    return context
