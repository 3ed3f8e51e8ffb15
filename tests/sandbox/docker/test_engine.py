"""If no engine is available, the message names the reason and the remedy."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread

import docker
import pytest
import requests
import urllib3
from docker.errors import DockerException
from pytest_httpserver import HTTPServer

from agent.errors import SandboxUnavailable
from agent.sandbox.docker.engine import DockerEngine


def environment(server: HTTPServer) -> Mapping[str, str]:
    return {"DOCKER_HOST": f"tcp://{server.host}:{server.port}"}


def serve(server: HTTPServer, api: str, info: Mapping[str, object], component: str = "Podman Engine") -> None:
    """Serve responses like an engine that has this API version."""
    version = {"ApiVersion": api, "Version": "5.0", "Arch": "arm64", "Components": [{"Name": component}]}
    server.expect_request("/version").respond_with_json(version)
    server.expect_request(f"/v{api}/version").respond_with_json(version)
    server.expect_request(f"/v{api}/info").respond_with_json(info)


@pytest.mark.parametrize(("component", "name"), [("Podman Engine", "Podman 5.0"), ("Engine", "Docker 5.0")])
def test_an_engine_has_name_platform_and_cpus(httpserver: HTTPServer, component: str, name: str) -> None:
    serve(httpserver, "1.41", {"OSType": "linux", "NCPU": 3}, component)
    engine = DockerEngine.connect(environment(httpserver))
    assert (engine.name, engine.platform, engine.cpus) == (name, "linux/aarch64", 3.0)
    engine.close()


def test_a_container_that_exits_while_it_is_killed_is_removed(httpserver: HTTPServer) -> None:
    serve(httpserver, "1.41", {})
    conflict = {"message": "Could not kill running container x, cannot remove - Container x is not running"}
    request = {"uri": "/v1.41/containers/x", "method": "DELETE"}
    httpserver.expect_oneshot_request(**request).respond_with_json(conflict, status=409)
    httpserver.expect_request(**request).respond_with_data(status=204)
    engine = DockerEngine.connect(environment(httpserver))
    engine.remove("x")
    engine.close()
    assert len([sent for sent, _ in httpserver.log if sent.method == "DELETE"]) == 2


def test_an_old_engine_is_refused(httpserver: HTTPServer) -> None:
    serve(httpserver, "1.39", {"OSType": "linux"})
    with pytest.raises(SandboxUnavailable, match=r"1\.39.*1\.40"):
        DockerEngine.connect(environment(httpserver))


def test_windows_containers_are_refused(httpserver: HTTPServer) -> None:
    serve(httpserver, "1.43", {"OSType": "windows"})
    with pytest.raises(SandboxUnavailable, match="Windows"):
        DockerEngine.connect(environment(httpserver))


def test_a_server_that_is_not_an_engine_is_refused(httpserver: HTTPServer) -> None:
    with pytest.raises(SandboxUnavailable, match=r"tcp://.*DOCKER_HOST"):
        DockerEngine.connect(environment(httpserver))


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("unix:///nonexistent/docker.sock", "No such file or directory"),
        ("tcp://127.0.0.1:1", "Connection refused"),
        ("nonsense://x", "nonsense"),
        ("ssh://x", "paramiko"),
    ],
)
def test_an_unreachable_engine_is_reported_with_address_and_reason(host: str, reason: str) -> None:
    with pytest.raises(SandboxUnavailable, match=f"{host}\\. .*DOCKER_HOST.*{reason}"):
        DockerEngine.connect({"DOCKER_HOST": host})


def test_missing_permission_for_the_socket_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can open any socket, so the test itself raises the error that requests and docker-py would raise."""

    def refuse(**_settings: object) -> docker.DockerClient:
        aborted = urllib3.exceptions.ProtocolError("Connection aborted.", PermissionError(13, "Permission denied"))
        try:
            raise requests.exceptions.ConnectionError(aborted)
        except requests.exceptions.ConnectionError as error:
            raise DockerException("Error while fetching server API version") from error

    monkeypatch.setattr(docker.DockerClient, "from_env", refuse)
    with pytest.raises(SandboxUnavailable, match="usermod"):
        DockerEngine.connect({})


class Handler(BaseHTTPRequestHandler):
    """Answers every request with the same object, which is a valid response to /version and /info."""

    def do_GET(self) -> None:
        body = json.dumps({"ApiVersion": "1.41", "Version": "1", "Arch": "amd64", "OSType": "linux"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_sockets_of_compatible_engines_are_tried_if_the_default_does_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def raise_missing(**_settings: object) -> docker.DockerClient:
        raise DockerException("nothing there") from FileNotFoundError(2, "No such file")

    monkeypatch.setattr(docker.DockerClient, "from_env", raise_missing)
    path = tmp_path / ".colima/default/docker.sock"
    path.parent.mkdir(parents=True)
    variables = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        engine = DockerEngine.connect(variables)
        assert engine.platform == "linux/x86_64"
        engine.close()
        with pytest.raises(SandboxUnavailable, match=r"\bchosen\b"):
            DockerEngine.connect({**variables, "DOCKER_CONTEXT": "chosen"})
        server.shutdown()
