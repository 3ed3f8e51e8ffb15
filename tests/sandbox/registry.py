"""An npm registry with tiny packages, for tests without network."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_httpserver import HTTPServer

Entry = str | bytes | tarfile.TarInfo


class Registry:
    """A registry on this machine."""

    def __init__(self, server: HTTPServer) -> None:
        self.url = server.url_for("/npm/")
        self._server = server
        server.no_handler_status_code = 404

    @property
    def requested_paths(self) -> list[str]:
        return [request.path for request, _response in self._server.log]

    def publish(
        self,
        name: str,
        versions: Sequence[str] = ("1.0.0",),
        *,
        manifest: Mapping[str, Any] | None = None,
        files: Mapping[str, Entry] | None = None,
        dist: Mapping[str, str] | None = None,
        years: int = 2010,
    ) -> None:
        """Serve a package whose module exports the version. A version was published in each year from `years` on."""
        page: dict[str, Any] = {"name": name, "dist-tags": {"latest": versions[-1]}, "versions": {}, "time": {}}
        for year, version in enumerate(versions, years):
            package = {"name": name, "version": version, **(manifest or {})}
            contents = {"package.json": json.dumps(package), "index.js": f"module.exports = '{version}';"}
            archive = make_archive({**contents, **(files or {})})
            path = f"{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
            digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
            package["dist"] = {"tarball": self.url + path, "integrity": f"sha512-{digest}", **(dist or {})}
            page["versions"][version] = package
            page["time"][version] = f"{year}-01-01T00:00:00.000Z"
            self._server.expect_request(f"/npm/{path}").respond_with_data(archive)
        self._server.expect_request(f"/npm/{name}").respond_with_json(page)


def make_archive(contents: Mapping[str, Entry]) -> bytes:
    """Return a package's archive. A `TarInfo` is an entry without content, such as a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, content in contents.items():
            entry = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo()
            entry.name = f"package/{path}"
            data = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else b""
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def make_link(target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """Return an entry for a link."""
    entry = tarfile.TarInfo()
    entry.type, entry.linkname = kind, target
    return entry
