"""Client for the Docker API. Only this module imports docker-py. Calls block, so callers run them in threads."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, ImageNotFound, InvalidVersion, NotFound
from docker.utils import version_lt

from agent.errors import EngineLost, SandboxError, SandboxUnavailable
from agent.sandbox.base import Notify
from agent.sandbox.dependencies.tool import mask_secrets
from agent.sandbox.docker.attach import as_plain_socket
from agent.sandbox.owner import KIND

MINIMUM_API = "1.40"
CONNECT_TIMEOUT = 10
CALL_TIMEOUT = 60
BUILD_TIMEOUT = 900
CONNECTIONS = 64

_FAILURES = (DockerException, requests.RequestException, urllib3.exceptions.HTTPError, OSError)
_CONNECTION_ERRORS = (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError, OSError)
_NOT_FOUND, _CONFLICT = 404, 409


@dataclass(frozen=True)
class ContainerState:
    """A container's state according to the engine. `exit_code` is valid only if `running` is false."""

    running: bool
    exit_code: int
    oom_killed: bool


class DockerEngine:
    """A container engine, such as Docker, Podman or Colima. It may be remote.

    Methods raise `SandboxError` if a call fails, unless their docstrings name another error.
    """

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client
        self._api = client.api
        with _translate_errors("report its version"):
            version, info = self._api.version(), self._api.info()
        self.api_version = self._api.api_version
        machine = str(version.get("Arch") or info.get("Architecture") or "")
        self.machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
        self.system = str(info.get("OSType") or version.get("Os") or "linux").lower()
        self.cpus = float(info.get("NCPU") or 1)
        self.id = str(info.get("ID") or self._api.base_url)
        self.platform = f"{self.system}/{self.machine}"
        components = version.get("Components") or [{}]
        self.name = f"{_name_product(components[0].get('Name'))} {version.get('Version', '?')}"

    @property
    def is_local(self) -> bool:
        """Whether the engine is reached through a Unix socket and therefore probably shares this machine's files."""
        return str(self._api.base_url).startswith(("unix://", "http+unix://", "http+docker://localhost"))

    @classmethod
    def connect(cls, environment: Mapping[str, str] = os.environ) -> DockerEngine:
        """Connect to the engine that Docker's command line uses, or to a compatible engine on its default socket.

        Raises:
            SandboxUnavailable: no engine responds, or the engine denies access, is too old or runs Windows containers.
                The message says what to do.
        """
        try:
            client = docker.DockerClient.from_env(
                environment=environment, max_pool_size=CONNECTIONS, timeout=CONNECT_TIMEOUT
            )
        except _FAILURES as error:
            client = _connect_elsewhere(environment, error)
        try:
            engine = cls(client)
        except SandboxError as error:
            raise SandboxUnavailable(str(error)) from error
        client.api.timeout = CALL_TIMEOUT
        if engine.system != "linux":
            raise SandboxUnavailable(
                "the Docker engine runs Windows containers. Switch the engine to Linux containers."
            )
        if version_lt(engine.api_version, MINIMUM_API):
            raise SandboxUnavailable(
                f"the Docker engine is too old: its API version is {engine.api_version}, but at least {MINIMUM_API} is "
                "needed (Docker 19.03 or Podman 4)"
            )
        return engine

    def close(self) -> None:
        """Close the connections to the engine."""
        self._client.close()

    def ping(self) -> bool:
        """Return whether the engine responds. Never raises an error."""
        try:
            return bool(self._api.ping())
        except _FAILURES:
            return False

    def find_image_id(self, name: str) -> str | None:
        """Return the id of a local image, or None if the engine does not have the image."""
        with _translate_errors(f"look up the image {name}"):
            try:
                return str(self._api.inspect_image(name)["Id"])  # type: ignore[no-untyped-call]
            except ImageNotFound:
                return None

    def list_image_names(self) -> list[str]:
        """Return the names of all local images."""
        with _translate_errors("list images"):
            return [str(name) for image in self._api.images() for name in image.get("RepoTags") or ()]

    def pull(self, name: str) -> None:
        """Pull an image. Raises `SandboxUnavailable` if the pull fails."""
        try:
            for line in self._api.pull(name, stream=True, decode=True):
                if "error" in line:
                    raise SandboxUnavailable(_explain_missing_image(name, str(line["error"])))
        except _FAILURES as error:
            raise SandboxUnavailable(_explain_missing_image(name, _extract_message(error))) from error

    def build(self, context: BinaryIO, tag: str, progress: Notify) -> None:
        """Build an image from a tar stream, without network access. Raises `SandboxUnavailable` if a step fails."""
        output: list[str] = []
        try:
            lines = self._api.build(
                fileobj=context, custom_context=True, tag=tag, network_mode="none", use_config_proxy=False,
                labels={KIND: "image"}, rm=True, forcerm=True, timeout=BUILD_TIMEOUT, decode=True,
            )  # fmt: skip
            for line in lines:
                output += mask_secrets(str(line.get("error") or line.get("stream") or "")).strip().splitlines()
                if "error" in line:
                    raise SandboxUnavailable(f"the sandbox image {tag} could not be built:\n" + "\n".join(output[-10:]))
                if output and str(line.get("stream", "")).startswith("Step "):
                    progress(f"  {' '.join(output[-1].split()):.100}")
        except _FAILURES as error:
            raise SandboxUnavailable(
                f"the sandbox image {tag} could not be built: {_extract_message(error)}"
            ) from error

    def ensure_volume(self, name: str) -> None:
        """Create a named volume unless it already exists."""
        with _translate_errors(f"create the volume {name}"):
            self._api.create_volume(name, labels={KIND: "environments"})

    def create(self, config: Mapping[str, Any], name: str) -> None:
        """Create a container."""
        with _translate_errors("create a container"):
            self._api.create_container_from_config(dict(config), name)  # type: ignore[no-untyped-call]

    def attach(self, name: str) -> socket.socket:
        """Connect to a created container's standard streams."""
        parameters = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "detachKeys": ""}
        with _translate_errors(f"attach to container {name}"):
            return as_plain_socket(self._api.attach_socket(name, params=parameters))

    def start(self, name: str) -> None:
        """Start a created container."""
        with _translate_errors(f"start container {name}"):
            self._api.start(name)

    def remove(self, name: str) -> None:
        """Kill and remove a container. Does nothing if the container is already gone."""
        with _translate_errors(f"remove container {name}"):
            for last in (False, False, True):
                try:
                    self._api.remove_container(name, v=True, force=True)
                    return
                except APIError as error:
                    if error.status_code == _NOT_FOUND or "already in progress" in str(error):
                        return
                    # the container exited before the engine could kill it, so the next attempt removes it
                    if error.status_code != _CONFLICT or last:
                        raise

    def inspect_container(self, name: str) -> ContainerState | None:
        """Return a container's state, or None if the container does not exist."""
        with _translate_errors(f"inspect container {name}"):
            try:
                state = self._api.inspect_container(name)["State"]
            except NotFound:
                return None
        return ContainerState(bool(state["Running"]), int(state["ExitCode"]), bool(state.get("OOMKilled")))

    def list_containers(self) -> list[tuple[str, Mapping[str, str]]]:
        """Return the id and the labels of every container that test-driven-annotator created, running or stopped."""
        with _translate_errors("list containers"):
            return [
                (str(container["Id"]), container.get("Labels") or {})
                for container in self._api.containers(all=True, filters={"label": KIND})
            ]

    def upload(self, name: str, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar stream into a folder in a container. The container need not be running."""
        with _translate_errors(f"copy files to container {name}"):
            self._api.put_archive(name, folder, archive)


def _connect_elsewhere(environment: Mapping[str, str], error: Exception) -> docker.DockerClient:
    """Try the sockets of rootless Docker, Podman, Colima and Docker Desktop if the default socket does not exist."""
    chosen = environment.get("DOCKER_HOST") or environment.get("DOCKER_CONTEXT")
    if not chosen and _is_caused_by(error, FileNotFoundError):
        for path in _list_usual_sockets(environment):
            if path.is_socket():
                try:
                    return docker.DockerClient(
                        base_url=f"unix://{path}", max_pool_size=CONNECTIONS, timeout=CONNECT_TIMEOUT
                    )
                except _FAILURES as other:
                    error = other
    raise _explain_unavailable(error, environment) from error


def _list_usual_sockets(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME") or "/nonexistent")
    runtime = Path(environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    return [
        runtime / "docker.sock",
        home / ".docker/run/docker.sock",
        home / ".docker/desktop/docker.sock",
        home / ".colima/default/docker.sock",
        runtime / "podman/podman.sock",
        Path("/run/podman/podman.sock"),
    ]


def _explain_unavailable(error: Exception, environment: Mapping[str, str]) -> SandboxUnavailable:
    address = environment.get("DOCKER_HOST") or environment.get("DOCKER_CONTEXT") or "the default socket"
    if _is_caused_by(error, PermissionError):
        return SandboxUnavailable(
            f"permission to use the Docker engine at {address} was denied. Add your user to the docker group "
            "(sudo usermod -aG docker $USER, then log in again), or use rootless Docker or Podman."
        )
    if isinstance(error, InvalidVersion):
        return SandboxUnavailable(
            f"the Docker engine is too old ({error}): at least API version {MINIMUM_API} is needed"
        )
    return SandboxUnavailable(
        f"no Docker engine responds at {address}. Start an engine, or set DOCKER_HOST. Cause: {_extract_message(error)}"
    )


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an exception and its causes, including exceptions that the requests library stores in `args`."""
    pending: list[object] = [error]
    visited: set[int] = set()
    while pending:
        cause = pending.pop()
        if isinstance(cause, BaseException) and id(cause) not in visited:
            visited.add(id(cause))
            yield cause
            pending += [cause.__cause__, cause.__context__, *cause.args]


def _is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in _iterate_causes(error))


@contextmanager
def _translate_errors(action: str) -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        is_reply = isinstance(error, DockerException) or not isinstance(error, _CONNECTION_ERRORS)
        kind = SandboxError if is_reply else EngineLost
        raise kind(f"the Docker engine could not {action}: {_extract_message(error)}") from error


def _extract_message(error: Exception) -> str:
    explanation = getattr(error, "explanation", None)
    system = (
        cause.strerror for cause in _iterate_causes(error) if isinstance(cause, OSError) and cause.errno is not None
    )
    return str(explanation or next(system, None) or error)


def _explain_missing_image(name: str, reason: str) -> str:
    return (
        f"the engine does not have the image {name} and could not pull it ({reason}). Pull it on a machine with "
        f"network access (docker pull {name}) and copy it here (docker save, docker load)."
    )


def _name_product(component: str | None) -> str:
    """Return an engine's product name. Docker reports only `Engine` as the name of its component."""
    return "Docker" if component in (None, "Engine") else component.removesuffix(" Engine")
