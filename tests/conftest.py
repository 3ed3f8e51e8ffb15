"""What this machine can run decides which tests run; the closing lines say what was skipped and why.

`AGENT_TEST_REQUIRE=docker,bwrap` turns a missing ability into a failure of the whole session.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import uv
from hypothesis import settings

# What is made by imports and by collecting the tests stays: looking for garbage among it takes seconds.
gc.disable()
settings.register_profile("untimed", deadline=None, max_examples=40)
settings.load_profile("untimed")
pytest.register_assert_rewrite("tests.sandbox", "tests.cli.commands", "tests.scripts")

ABILITIES = ("docker", "bwrap", "real_data", "network", "chromium", "embed", "pyenv")


def list_required() -> list[str]:
    """Return the abilities this session may not lack."""
    return [ability for ability in os.environ.get("AGENT_TEST_REQUIRE", "").split(",") if ability]


@cache
def explain_missing(ability: str) -> str | None:
    """Say why tests with this marker cannot run here; None when they can."""
    checks = {
        "docker": _check_docker,
        "bwrap": _check_bwrap,
        "real_data": _check_real_data,
        "network": _check_network,
        "chromium": _check_chromium,
        "embed": _check_embed,
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
        return f"no Docker engine answers ({type(error).__name__})"
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
        return "AGENT_REAL_DATA names no folder of real pairs"
    return None if Path(folder, "cosqa_dev.jsonl").is_file() else f"no cosqa_dev.jsonl in {folder}"


def _check_network() -> str | None:
    command = [
        uv.find_uv_bin(),
        "pip",
        "install",
        "--dry-run",
        "--no-config",
        "--no-cache",
        "--target",
        "/tmp/none",
        "six",
    ]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "UV_HTTP_RETRIES": "0"})
    return None if done.returncode == 0 else "no package index answers"


def _check_chromium() -> str | None:
    return None if find_browser() else "no Chromium or Chrome is installed"


def _check_embed() -> str | None:
    missing = [name for name in ("torch", "transformers", "sentence_transformers") if find_spec(name) is None]
    return f"{' and '.join(missing)} not installed: scripts/set-up embed" if missing else None


def _check_pyenv() -> str | None:
    return None if any(Path("~/.pyenv/versions").expanduser().glob("3.9.*")) else "pyenv has no Python 3.9 to be copied"


def find_browser() -> str | None:
    """Return the path of the Chromium or Chrome of this machine, None when there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


def pytest_configure() -> None:
    """Heed SIGINT, and have what is started heed it: in the background of a script it comes ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Note what a test needs where its report shows it: keywords also hold the names of folders."""
    item.user_properties += [(_NEEDS, ability) for ability in ABILITIES if item.get_closest_marker(ability)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that hold slow tests, so that none of them is the last to end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Have garbage looked for among what tests make only."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose machine lacks what its marker names."""
    for ability in ABILITIES:
        if item.get_closest_marker(ability) and (why := explain_missing(ability)):
            pytest.skip(f"needs {ability}: {why}")


def pytest_sessionstart() -> None:
    """Refuse to start when a required ability is missing."""
    for ability in list_required():
        if why := explain_missing(ability):
            pytest.exit(f"AGENT_TEST_REQUIRE names {ability}, but {why}", returncode=1)


_NEEDS = "needs"
_UNWANTED_SKIPS: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a skipped test that a required ability marks, unless it needs another one too that is not here."""
    needs = {ability for name, ability in report.user_properties if name == _NEEDS}
    excused = any(explain_missing(ability) for ability in needs - set(list_required()))
    if report.skipped and not hasattr(report, "wasxfail") and needs & set(list_required()) and not excused:
        _UNWANTED_SKIPS.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session in which a required test was skipped."""
    if _UNWANTED_SKIPS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what was skipped, by reason."""
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    terminalreporter.section("skipped, and why")
    for reason, count in skipped.most_common():
        terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''}: {reason.removeprefix('Skipped: ')}")
    if not skipped:
        terminalreporter.write_line("nothing")
    for name in _UNWANTED_SKIPS:
        terminalreporter.write_line(f"AGENT_TEST_REQUIRE does not allow skipping {name}", red=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real pairs (tests that ask for it are marked `real_data`)."""
    return Path(os.environ["AGENT_REAL_DATA"])


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder for the PATH with the command `agent`, which takes milliseconds to start."""
    from tests.cli.commands import serving

    with serving() as folder:
        yield folder


@pytest.fixture
def store() -> Iterator[Path]:
    """A folder for a store, in folders that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="agent-test-store-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder in which programs can be shown files: every user may enter it."""
    with tempfile.TemporaryDirectory(prefix="agent-open-") as name:
        Path(name).chmod(0o755)
        yield Path(name).resolve()


@pytest.fixture
async def loop_errors() -> list[str]:
    """What the event loop has to tell of errors that nobody took."""
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: messages.append(str(context)))
    return messages
