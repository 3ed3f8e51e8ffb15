from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from agent.sandbox.commands import MAX_COMMANDS, MAX_LENGTH, Install, Refuse, RunCommand, plan, read_commands


@pytest.mark.parametrize(
    ("command", "requirements"),
    [
        ("pip install a b==1.2", ("a", "b==1.2")),
        ("pip3.11 --no-cache-dir install --user six", ("six",)),
        ("/usr/bin/python3 -m pip install --upgrade six", ("six",)),
        ("uv pip install --system six", ("six",)),
        ("%pip install six", ("six",)),
        ("# pip install six", ("six",)),
        ("pip install six  # for the imports", ("six",)),
        ("pip install 'six>=1.10,<2'", ("six<2,>=1.10",)),
        ("pip install numpy==1.*", ("numpy==1.*",)),
        ("pip install requests[socks]", ("requests[socks]",)),
        ("pip install --progress-bar off six", ("six",)),
    ],
)
def test_pip_install_is_parsed_into_requirements(command: str, requirements: tuple[str, ...]) -> None:
    assert plan(command) == Install(requirements)


@pytest.mark.parametrize(
    ("command", "requirements"),
    [
        ("npm install lodash @types/node@20 lodash", ("lodash@latest", "@types/node@20")),
        ("npm i --save-dev 'a@>=1 <2'", ("a@>=1 <2",)),
        ("yarn add a@^1", ("a@^1",)),
        *((f"npm {text}", None) for text in ("install", "test", "install ./a", "install a@npm:b", "install a>b@1.0.0")),
        *((text, None) for text in ("pip install six", "apt-get install nodejs", "npm install -g git+ssh://x")),
    ],
)
def test_programs_in_javascript_get_npm_packages_only(command: str, requirements: tuple[str, ...] | None) -> None:
    ((_, step),) = read_commands([command], "npm")
    assert step == Install(requirements) if requirements else isinstance(step, Refuse)
    assert isinstance(plan(command), Install if command.startswith("pip") else Refuse)


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("cv2", "opencv-python-headless"),
        ("sklearn==1.4", "scikit-learn==1.4"),
        ("psycopg2", "psycopg2-binary"),
        ("flask", "flask"),
    ],
)
def test_pip_install_maps_an_import_name_to_its_distribution(name: str, distribution: str) -> None:
    assert plan(f"pip install {name}") == Install((distribution,))


@pytest.mark.parametrize(
    "argument",
    [
        *("-r requirements.txt", "-rrequirements.txt", "requirements.txt", "-e .", ".", "./x", "../x", "/x", "x/y"),
        *("git+https://host/x", "https://host/x.whl", "x.whl", "x.tar.gz", "file:///x", "x@https://host/x.whl"),
        *("x @ https://host/x", "--index-url https://host x", "-i https://host x", "--extra-index-url=https://h x"),
        *("-f /wheels x", "--target /tmp x", "--no-binary :all: x", "--config-settings=a=b x", "--proxy=p x", "-- -r"),
        *("'x; python_version<\"4\"'", "x===1", "a=1", "a,", "", "ünïcode", "'a b'", "x" * 300),
    ],
)
def test_only_package_names_can_be_installed(argument: str) -> None:
    assert isinstance(plan(f"pip install {argument}"), Refuse)


@pytest.mark.parametrize(
    "name", ["urllib2", "ConfigParser", "StringIO", "Tkinter", "tkinter", "asyncio", "typing", "JSON"]
)
def test_standard_library_modules_are_not_installed(name: str) -> None:
    step = plan(f"pip install {name}")
    assert isinstance(step, Refuse)
    assert repr(name) in step.reason


@pytest.mark.parametrize(
    "command",
    [
        *("ls | wc", "a; b", "a & b", "a || b", "echo $HOME", 'echo "$HOME"', "echo `id`", "echo $(id)", "cat < x"),
        *("echo x > y", "ls *.py", "ls x?", "ls ~", "echo {a,b}", "bash -c 'pip install x'", "sh x.sh", "a\nb"),
        *("pip install x | tee log", "pip install x > /dev/null", "pip install x 2>&1", "cd x && pip install y"),
    ],
)
def test_shell_syntax_is_refused(command: str) -> None:
    step = plan(command)
    assert isinstance(step, Refuse)
    assert "shell" in step.reason


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("apt-get install -y libfoo", "pip install"),
        ("sudo pip install six", "unprivileged"),
        ("conda install numpy", "pip install"),
        ("curl -O https://host/x", "network"),
        ("cd /tmp", "variables"),
        ("X=1 python a.py", "variables"),
        ("pip uninstall six", "uninstalled"),
        ("pip install", "at least one"),
        ("echo 'x", "quotation"),
        ("", "empty"),
        ("a\0b", "unprintable"),
        ("x" * (MAX_LENGTH + 1), str(MAX_LENGTH)),
        ("pip install " + " ".join(f"p{number}" for number in range(30)), "20"),
    ],
)
def test_a_refusal_has_a_reason(command: str, reason: str) -> None:
    step = plan(command)
    assert isinstance(step, Refuse)
    assert reason in step.reason


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("mkdir -p data", ("mkdir", "-p", "data")),
        ("python -c 'import os; print(1 > 0)'", ("python", "-c", "import os; print(1 > 0)")),
        ('python -c "a = 1\nb = 2"', ("python", "-c", "a = 1\nb = 2")),
    ],
)
def test_any_other_simple_command_runs_in_the_sandbox(command: str, argv: tuple[str, ...]) -> None:
    assert plan(command) == RunCommand(argv)


@pytest.mark.parametrize("packages", ["npm", None])
@pytest.mark.parametrize("command", ["pip install redis", "python -m pip install redis", "wget x"])
def test_python_packages_are_not_installed_for_other_languages(command: str, packages: Literal["npm"] | None) -> None:
    ((_, step),) = read_commands([command], packages)
    assert isinstance(step, Refuse)
    assert "pip install" not in step.reason
    assert plan("mkdir data", packages) == RunCommand(("mkdir", "data"))
    assert isinstance(plan("npm install redis", packages), Install if packages else Refuse)


def test_a_list_of_simple_commands_is_split() -> None:
    steps = read_commands(["pip install a && python -c 'x && y'\n# a remark\n\n# pip install b", "mkdir \\\n c"])
    assert [step for _text, step in steps] == [
        Install(("a",)),
        RunCommand(("python", "-c", "x && y")),
        Install(("b",)),
        RunCommand(("mkdir", "c")),
    ]


def test_a_list_with_a_refused_part_is_refused_as_a_whole() -> None:
    assert [type(step) for _text, step in read_commands(["cd x && pip install y"])] == [Refuse]


def test_commands_beyond_the_limit_are_refused_once() -> None:
    steps = read_commands([f"touch {number}" for number in range(50)])
    assert len(steps) == MAX_COMMANDS + 1
    assert all(isinstance(step, RunCommand) for _text, step in steps[:-1])
    assert isinstance(steps[-1][1], Refuse)


_WORDS = "pip install python -m && -r $ ! ' \" \\ > = a>=1 x==2.*"
_HOSTILE = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(), max_size=30).map("pip install ".__add__),
    st.lists(st.sampled_from(["\n", "# ", *_WORDS.split()]), max_size=9).map(" ".join),
)


@given(_HOSTILE)
@example("pip install 0_")
def test_no_text_crashes_or_bypasses_the_parser(text: str) -> None:
    for step in (plan(text), *(step for _text, step in read_commands([text]))):
        match step:
            case Install(requirements):
                assert requirements
                for name in requirements:
                    parsed = Requirement(name)
                    assert not name.startswith("-")
                    assert parsed.url is None
                    assert parsed.marker is None
            case RunCommand(argv):
                assert argv
                assert argv[0]
                assert not any("\0" in word for word in argv)
            case Refuse(reason):
                assert reason
