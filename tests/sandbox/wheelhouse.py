"""A package index with tiny distributions, for tests without network."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel that provides the module `name`, or `files`."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
    ]
    contents = {
        **(files or {f"{name.replace('-', '_')}.py": f"VERSION = {version!r}\n"}),
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in contents.items()]
    contents[f"{stem}.dist-info/RECORD"] = "\n".join([*record, f"{stem}.dist-info/RECORD,,"]) + "\n"
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_inside, text in contents.items():
            archive.writestr(name_inside, text)
    return path


def make_sdist(folder: Path, name: str, version: str = "1.0", *, canary: Path | None = None) -> Path:
    """Write a source distribution that creates the file `canary` when it is built."""
    stem = f"{name}-{version}"
    act = f"open({str(canary)!r}, 'w').close()\n" if canary else "pass\n"
    contents = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": act,
    }
    path = folder / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for inside, text in contents.items():
            entry = tarfile.TarInfo(f"{stem}/{inside}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def serve_project(
    server: HTTPServer, folder: Path, name: str, uploads: Mapping[str, str], *, under: str = "simple"
) -> None:
    """Serve a project and its wheels with the JSON simple API."""
    page = server.expect_request(f"/{under}/{name}/")
    page.respond_with_json(make_project_page(name, uploads), content_type="application/vnd.pypi.simple.v1+json")
    for version in uploads:
        wheel = make_wheel(folder, name, version)
        server.expect_request(f"/{under}/{name}/{wheel.name}").respond_with_data(wheel.read_bytes())


def use_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Configure pip to use only this folder."""
    clear_settings(monkeypatch)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Configure pip to use only this index."""
    clear_settings(monkeypatch)
    monkeypatch.setenv("PIP_INDEX_URL", url)


def clear_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's pip settings."""
    names = ("FIND_LINKS", "NO_INDEX", "INDEX_URL", "EXTRA_INDEX_URL", "TRUSTED_HOST", "CONSTRAINT", "PROXY", "CERT")
    certificates = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    for name in (*certificates, *(f"PIP_{name}" for name in names)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def make_project_page(name: str, uploads: Mapping[str, str], *, yanked: Collection[str] = ()) -> dict[str, Any]:
    """Return the JSON page of a project (PEP 691, PEP 700). `uploads` maps versions to upload times."""
    stem = name.replace("-", "_")
    files = [
        {
            "filename": f"{stem}-{version}-py3-none-any.whl",
            "url": f"{stem}-{version}-py3-none-any.whl",
            "hashes": {},
            "upload-time": moment,
            "yanked": version in yanked and "broken",
        }
        for version, moment in uploads.items()
    ]
    return {"meta": {"api-version": "1.1"}, "name": name, "versions": list(uploads), "files": files}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
