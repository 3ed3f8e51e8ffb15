"""Client for package indexes: looks up projects through the JSON simple API (PEP 691, PEP 700)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from urllib.parse import urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version
from pydantic import BaseModel, Field, ValidationError

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.sources import PackageSources, read_sources

BREAK_SECONDS = 60.0
"""Seconds to wait after a temporary error before the next request to an index."""

UNREACHABLE = "the package index cannot be reached: check the network, the certificates and the settings of pip or npm"
REFUSED = "the package index denied access: check the credentials in the settings of pip or npm"

_JSON = "application/vnd.pypi.simple.v1+json"
SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""System certificate bundles. If none of these paths exists, the requests library uses its own certificates."""

_TIMEOUT = 30.0
_MAX_BYTES = 32 << 20


@dataclass(frozen=True)
class Project:
    """A package index's information about a project.

    `first_upload` is None if the index does not report upload times (PEP 700) or the project has no files. `releases`
    counts the versions with at least one file that is not yanked.
    """

    first_upload: datetime | None
    releases: int


_UNDATED = Project(None, 0)


class _File(BaseModel):
    filename: str
    yanked: bool | str = False
    upload_time: datetime | None = Field(default=None, alias="upload-time")


class _Page(BaseModel):
    name: str
    files: list[_File]
    versions: list[str] | None = None


class IndexBreaker:
    """Circuit breaker: for a minute after a temporary error, all requests fail with the same error."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = 0.0
        self._message = ""

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Raise immediately if the breaker is open. Open the breaker if the `with` block raises a temporary error.

        Raises:
            DependencyUnavailable: the breaker is open. The error is marked as `temporary`.
        """
        if self._clock() < self._until:
            raise DependencyUnavailable(self._message, temporary=True)
        try:
            yield
        except DependencyUnavailable as error:
            if error.temporary:
                self._until, self._message = self._clock() + BREAK_SECONDS, str(error)
            raise


class PackageIndex:
    """Client for the configured indexes. Like uv, it uses only the first index that has a project.

    The settings are read once. After a temporary error, no index is queried for a minute. Local folders are not
    queried, because they have no upload times.
    """

    def __init__(
        self, *, sources: Callable[[], PackageSources] = read_sources, clock: Callable[[], float] = time.time
    ) -> None:
        self._sources = cache(sources)
        self._breaker = IndexBreaker(clock)

    async def find_project(self, name: NormalizedName) -> Project | None:
        """Look up a project on the first index that has the project. Return None if no index has it.

        Raises:
            DependencyUnavailable: an index is unreachable or denies access (`temporary` is set), an index returns an
                invalid response, or no index is configured.
        """
        with self._breaker.guard():
            return await asyncio.to_thread(self._find_project, name)

    def _find_project(self, name: NormalizedName) -> Project | None:
        sources = self._sources()
        if not sources.remote_indexes:
            raise DependencyUnavailable("not a known distribution, and pip's settings do not configure an index")
        for index in sources.remote_indexes:
            if project := _query_index(index, name, sources):
                return project
        return None


def _query_index(index: str, name: NormalizedName, sources: PackageSources) -> Project | None:
    """Look up a project on one index. Blocks."""
    try:
        status, kind, body = _fetch_page(index, name, sources)
    except (OSError, ValueError):
        # the error may quote a URL with a password
        raise DependencyUnavailable(UNREACHABLE, temporary=True) from None
    if status in (404, 410):
        return None
    if status in (401, 403, 407):
        raise DependencyUnavailable(REFUSED, temporary=True)
    if status == 429 or status >= 500:
        raise DependencyUnavailable(UNREACHABLE, temporary=True)
    if status == 406 or (status == 200 and "html" in kind):
        return _UNDATED
    if status != 200 or kind != _JSON:
        raise DependencyUnavailable(f"the package index did not return a project page (status {status})")
    if len(body) > _MAX_BYTES:
        raise DependencyUnavailable(f"the response from the package index exceeds {_MAX_BYTES >> 20} MB")
    return parse_page(body, name)


def _fetch_page(index: str, name: NormalizedName, sources: PackageSources) -> tuple[int, str, bytes]:
    """Fetch a project's page. Return the status code, the content type and the body."""
    import requests  # importing requests takes 0.1 s

    url = urlsplit(index)
    verify = sources.certificates or next(filter(os.path.exists, SYSTEM_CERTIFICATES), True)
    if {url.hostname, url.netloc.rpartition("@")[2]} & set(sources.trusted_hosts):
        verify = False
    deadline = time.monotonic() + _TIMEOUT
    with requests.get(
        f"{index.rstrip('/')}/{name}/",
        headers={"Accept": f"{_JSON}, text/html;q=0.1"},
        proxies={"http": sources.proxy, "https": sources.proxy} if sources.proxy else None,
        verify=verify,
        cert=sources.client_certificate,
        timeout=_TIMEOUT,
        stream=True,
    ) as response:
        body = bytearray()
        for chunk in response.iter_content(1 << 16):
            body += chunk
            if len(body) > _MAX_BYTES:
                break
            if time.monotonic() > deadline:
                raise TimeoutError("the response took too long")
        return response.status_code, response.headers.get("Content-Type", "").partition(";")[0], bytes(body)


def parse_page(body: bytes, name: NormalizedName) -> Project:
    """Parse a project's JSON page.

    Raises:
        DependencyUnavailable: the page is invalid or belongs to another project.
    """
    try:
        page = _Page.model_validate_json(body)
    except ValidationError:
        raise DependencyUnavailable("the response from the package index is invalid") from None
    if canonicalize_name(page.name) != name:
        raise DependencyUnavailable("the package index returned a page for another project")
    times = [file.upload_time for file in page.files if file.upload_time is not None]
    if page.versions is None or not times:
        return _UNDATED
    versions = {_parse_version(file.filename) for file in page.files if file.yanked is False} - {None}
    return Project(min(time if time.tzinfo else time.replace(tzinfo=UTC) for time in times), len(versions))


def _parse_version(filename: str) -> Version | None:
    try:
        return parse_wheel_filename(filename)[1] if filename.endswith(".whl") else parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
