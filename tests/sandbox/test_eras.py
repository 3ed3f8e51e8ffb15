"""A pair with a year gets the Python and the packages of that year, or an error; never a label by another Python."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from agent import Annotator, Pair, ScriptedLLM
from agent.config import Config, SandboxConfig
from agent.errors import UsageError
from agent.sandbox.eras import Era, era_of, read_moment
from agent.sandbox.select import choose
from agent.store.run_view import load_run
from tests.pythons import build_image, copied, remove_image
from tests.sandbox.conftest import BACKENDS, need
from tests.sandbox.wheelhouse import make_wheel, project_page, use_index
from tests.scripts import label, program, screen

TAG = "agent-tests:eras"


@pytest.mark.parametrize(
    ("year", "python", "newest"),
    [
        ("2020", "3.9", 2021),
        ("2020-02-03T10:00:00Z", "3.9", 2021),
        (1995, "3.8", 1996),
        (2019, "3.8", 2020),
        (2031, "3.14", 2032),
    ],
)
def test_a_year_means_the_newest_python_before_its_end(year: object, python: str, newest: int) -> None:
    assert era_of(year) == Era(python, datetime(newest, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "year", [None, True, 2020.0, "", "about 2020", "20", 1, -5, 9999, 10**30, [2020], {"year": 2020}]
)
def test_anything_else_is_no_year(year: object) -> None:
    assert era_of(year) is None


async def test_an_image_is_of_one_era() -> None:
    with pytest.raises(UsageError, match="asks for that of each pair's year"):
        await choose(SandboxConfig(image="python:3", era="pair"), print)


@pytest.fixture(scope="module")
def other() -> Iterator[Path]:
    """A folder with the Python of 2020, which every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="agent-python-"))
    folder.chmod(0o755)
    try:
        yield copied("3.9", folder)
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def image(other: Path) -> Iterator[str]:
    """An image with the Python of 2020."""
    need("docker")
    build_image("3.9", other, TAG)
    yield TAG
    remove_image(TAG)


@pytest.fixture(params=BACKENDS)
def config(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, open_folder: Path, httpserver: HTTPServer
) -> Config:
    """Settings with which the Python of 2020 is found, and an index that got a project's version 2 after that year."""
    need(request.param)
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_folder / "cache"))
    uploads = {"1.0": "2015-05-05T00:00:00Z", "2.0": "2021-05-05T00:00:00Z"}
    httpserver.expect_request("/simple/six/").respond_with_json(
        project_page("six", uploads), content_type="application/vnd.pypi.simple.v1+json"
    )
    for version in uploads:
        wheel = make_wheel(open_folder, "six", version)
        httpserver.expect_request(f"/simple/six/{wheel.name}").respond_with_data(wheel.read_bytes())
    use_index(monkeypatch, f"http://127.0.0.1:{httpserver.port}/simple")
    images = {}
    if request.param == "docker":
        images = {"3.9": request.getfixturevalue("image")}
    else:
        monkeypatch.setenv("PATH", f"{request.getfixturevalue('other')}/bin:/usr/bin:/bin")
    return Config(sandbox=SandboxConfig(backend=request.param, era="pair", images=images, pool=1))


SAYS = """import sys
import six

print(sys.version_info[:2])


# <candidate>


def test_it():
    assert add(1, 2) == 3
"""


def pair(number: str, **meta: Any) -> Pair:
    return Pair(id=number, query="add two numbers", code="def add(a, b):\n    return a + b\n", meta=meta)


@pytest.mark.pyenv
async def test_each_pair_runs_in_its_own_era(config: Config, tmp_path: Path) -> None:
    pairs = [pair("then", year=2020), pair("now"), pair("again", year="2020-07-01"), pair("never", year=2023)]
    model = ScriptedLLM(lambda call: {"screen": screen(), "generate_test": program(SAYS)}.get(call.role, label(1)))
    async with Annotator(model=model, config=config, run_dir=tmp_path / "run") as annotator:
        found = {each.id: each async for each in annotator.annotate(pairs)}
    assert {name: each.label for name, each in found.items()} == {"then": 1, "now": 1, "again": 1, "never": None}
    assert found["then"].installed == found["again"].installed == ("six==1.0",)
    assert found["now"].installed == ("six==2.0",)
    assert found["never"].error is not None
    assert found["never"].error.type == "EraUnavailable"
    assert "Python 3.12" in found["never"].error.message
    with load_run(tmp_path / "run") as view:
        kept = {name: view.evidence(name) for name in ("then", "now", "again")}
    stdout = {name: each.executions[-1].stdout for name, each in kept.items() if each is not None}
    assert stdout["then"] == stdout["again"] == "(3, 9)\n"
    assert stdout["now"] != "(3, 9)\n"


@pytest.mark.pyenv
async def test_a_pair_that_runs_nothing_needs_no_python_of_its_year(config: Config) -> None:
    model = ScriptedLLM(lambda _call: screen("match"))
    async with Annotator(model=model, config=config) as annotator:
        assert [each.label async for each in annotator.annotate([pair("p", year=2023)])] == [1]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2016-12-31", "2017-01-01T00:00:00+00:00"),
        (" 20161231 ", "2017-01-01T00:00:00+00:00"),
        ("2016-12-31T12:00:00Z", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31 12:00:00", "2016-12-31T12:00:00+00:00"),
        ("2016-12-31T23:30:00-02:00", "2017-01-01T01:30:00+00:00"),
    ],
)
def test_a_date_is_read(text: str, moment: str) -> None:
    assert read_moment(text).isoformat() == moment


@pytest.mark.parametrize("text", ["", "2016", "31.12.2016", "2016-13-01", "yesterday", "0001-01-01T00:00:00+14:00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no date: expected one such as 2016-12-31"):
        read_moment(text)
