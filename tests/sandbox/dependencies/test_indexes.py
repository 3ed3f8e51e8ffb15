"""uv and the index rule use the same index for a project and trust the same certificates."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from agent.errors import DependencyUnavailable
from agent.sandbox.dependencies.environments import DependencyPolicy, WheelEnvironments
from agent.sandbox.dependencies.index_rule import IndexRule
from agent.sandbox.dependencies.package_index import PackageIndex
from agent.sandbox.dependencies.uv import Uv
from tests.sandbox.dependencies.test_environments import MemoryStore
from tests.sandbox.wheelhouse import clear_settings, serve_project, use_index

OLD = {f"1.{number}": f"20{10 + number}-01-01T00:00:00Z" for number in range(5)}
NEW = {"99.0": (datetime.now(UTC) - timedelta(days=1)).isoformat()}


@pytest.fixture
def builder(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> WheelEnvironments:
    """A builder that uses uv and the index rule, like the builder in a run."""
    clear_settings(monkeypatch)
    store = MemoryStore(open_folder)
    policy = DependencyPolicy(rule=IndexRule(PackageIndex()))
    return WheelEnvironments(store, policy=policy, uv=Uv(open_folder / "uv"), resolutions=open_folder / "answers")


@pytest.fixture(params=[("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"), ("UV_INDEX", "UV_DEFAULT_INDEX")])
def builder_with_two_indexes(
    builder: WheelEnvironments, request: pytest.FixtureRequest, httpserver: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> WheelEnvironments:
    """The builder with the indexes `main` and `other`, in this order."""
    for variable, index in zip(request.param, ("main", "other"), strict=True):
        monkeypatch.setenv(variable, httpserver.url_for(f"/{index}"))
    return builder


@pytest.mark.parametrize("name", ["venerable-thing", "six"])  # the second project is in the import map
async def test_the_first_index_that_has_a_project_supplies_it(
    builder_with_two_indexes: WheelEnvironments, httpserver: HTTPServer, open_folder: Path, name: str
) -> None:
    serve_project(httpserver, open_folder, name, OLD, under="main")
    serve_project(httpserver, open_folder, name, NEW, under="other")
    assert (await builder_with_two_indexes.build([name])).installed == (f"{name}==1.4",)


async def test_a_project_that_only_a_later_index_has_is_checked_on_that_index(
    builder_with_two_indexes: WheelEnvironments, httpserver: HTTPServer, open_folder: Path
) -> None:
    serve_project(httpserver, open_folder, "venerable-thing", OLD, under="other")
    serve_project(httpserver, open_folder, "new-thing", NEW, under="other")
    for path in ("/main/venerable-thing/", "/main/new-thing/"):
        httpserver.expect_request(path).respond_with_data("", status=404)
    assert (await builder_with_two_indexes.build(["venerable-thing"])).installed == ("venerable-thing==1.4",)
    with pytest.raises(DependencyUnavailable, match="new-thing"):
        await builder_with_two_indexes.build(["new-thing"])


@pytest.fixture
def authority(open_folder: Path) -> Path:
    """An unknown certificate authority. `server.pem` in the same folder is its certificate for localhost."""
    script = """
    set -e
    options="-newkey rsa:2048 -nodes -days 30"
    openssl req -x509 $options -keyout ca.key -out ca.pem -subj /CN=tests -addext basicConstraints=critical,CA:TRUE
    openssl req $options -keyout server.key -out server.csr -subj /CN=localhost
    echo subjectAltName=DNS:localhost >names
    openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 30 -out signed.pem
    cat signed.pem server.key >server.pem
    """
    try:
        subprocess.run(["/bin/sh", "-c", script], cwd=open_folder, capture_output=True, check=True)
    except subprocess.CalledProcessError:
        pytest.skip("needs the command openssl")
    return open_folder / "ca.pem"


@pytest.fixture
def https(authority: Path) -> Iterator[HTTPServer]:
    """An index with a certificate that the unknown authority issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.with_name("server.pem"))
    with HTTPServer(ssl_context=context) as server:
        yield server


@pytest.mark.filterwarnings("ignore:Unverified HTTPS")
@pytest.mark.parametrize("setting", ["SSL_CERT_FILE", "PIP_CERT", "PIP_TRUSTED_HOST"])
async def test_a_configured_authority_is_trusted_by_uv_and_the_rule(
    builder: WheelEnvironments,
    https: HTTPServer,
    authority: Path,
    open_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    serve_project(https, open_folder, "venerable-thing", OLD)
    use_index(monkeypatch, https.url_for("/simple"))
    monkeypatch.setenv(setting, "localhost" if setting == "PIP_TRUSTED_HOST" else str(authority))
    assert (await builder.build(["venerable-thing"])).installed == ("venerable-thing==1.4",)
