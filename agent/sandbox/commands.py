"""Parses the commands that the model suggests to repair a program. No command is passed to a shell.

A `pip install` or `npm install` command becomes requirements for the environment builder. Commands that cannot work in
a sandbox are refused with a reason for the model. All other commands run in the pair's sandbox.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.sandbox.base import Packages
from agent.sandbox.dependencies.imports import find_distribution
from agent.sandbox.dependencies.npm import parse_word
from agent.sandbox.dependencies.requirements import MalformedRequirement, normalise_requirement, parse_requirement

MAX_COMMANDS = 10
MAX_LENGTH = 2000
_MAX_REQUIREMENTS = 20


@dataclass(frozen=True)
class Install:
    """A request to install at least one distribution or npm package. Requirements may have extras and versions."""

    requirements: tuple[str, ...]


@dataclass(frozen=True)
class RunCommand:
    """A command to run in the pair's sandbox. `argv` has at least one word and contains no NUL characters."""

    argv: tuple[str, ...]


@dataclass(frozen=True)
class Refuse:
    """A command that is refused. `reason` explains the refusal to the model."""

    reason: str


Plan = Install | RunCommand | Refuse

_WORD_OPERATORS = frozenset("<>[]*?~{}")  # shell operators that may also occur in an unquoted requirement
_NO_SHELL = (
    "there is no shell: write plain commands, one per line, without variables, pipes, redirections, globs or lists"
)
_EMPTY = Refuse("the command is empty")
_PACKAGES = "only Python packages can be installed, with `pip install NAME`"
_NETWORK = "the sandbox has no network; install Python packages with `pip install NAME`"
_NPM_PACKAGES = "there is no network, and only npm packages can be installed, with `npm install NAME`"
_PRIVILEGES = "commands run as an unprivileged user and cannot switch to another user; omit this command"
_NO_PACKAGES = "no packages can be installed for this language"
_SHELL_STATE = (
    "each command runs separately, without a shell, so it cannot change the folder or the variables for later commands"
)
_REFUSED: Mapping[str, str] = {
    name: reason
    for reason, names in {
        _PRIVILEGES: "sudo su doas pkexec chroot mount umount",
        _PACKAGES: "apt apt-get aptitude dpkg yum dnf rpm apk pacman zypper brew snap port choco npm yarn gem cargo go "
        "systemctl conda mamba micromamba poetry pipenv pdm pipx uv uvx easy_install",
        _NETWORK: "curl wget git hg svn ssh scp sftp rsync ftp nc telnet",
        _SHELL_STATE: "cd export unset set source . alias eval ulimit umask",
        _NO_SHELL: "sh bash dash zsh ksh csh fish busybox exec command if for while until case function then do fi "
        "done time",
    }.items()
    for name in names.split()
}

_PROMPT = re.compile(r"(?:\$|%)\s+|[!%]\s*(?=\w)|#\s+(?=(?:sudo|pip3?|python3?|uv|npm|apt|apt-get)\s)")
_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?)?|py")
_PIP = re.compile(r"pip(?:\d+(?:\.\d+)?)?")
_NPM, _NPM_VERBS = ("npm", "yarn", "pnpm"), ("install", "i", "add")
_ASSIGNMENT = re.compile(r"\w+=")

_FLAGS = """
-q -qq -qqq -v -vv -U -I -y --yes --quiet --verbose --upgrade --user --pre --no-cache-dir --no-cache --no-input
--no-color --disable-pip-version-check --force-reinstall --no-deps --ignore-installed --prefer-binary --system
--break-system-packages --no-warn-script-location --isolated --no-build-isolation --no-python-version-warning
"""
_WITH_VALUE = """
--progress-bar --upgrade-strategy --timeout --default-timeout --retries --root-user-action --only-binary --trusted-host
--cache-dir
"""
_IGNORED_FLAGS = frozenset(_FLAGS.split())
_IGNORED_WITH_VALUE = frozenset(_WITH_VALUE.split())


def read_commands(commands: Iterable[str], packages: Packages | None = "pypi") -> tuple[tuple[str, Plan], ...]:
    """Return the planned steps in order, each with its source text. `packages` is the ecosystem of the program.

    Every line is a separate step. A line such as `a && b` becomes two steps, or one refusal if either part is refused.
    Blank lines and comments are skipped. After `MAX_COMMANDS` steps, a single refusal replaces the remaining steps.
    """
    steps: list[tuple[str, Plan]] = []
    for text in commands:
        for part in _iterate_parts(text, packages):
            if len(steps) == MAX_COMMANDS:
                return (*steps, (part, Refuse(f"only the first {MAX_COMMANDS} commands of a reply are run")))
            steps.append((part, plan(part, packages)))
    return tuple(steps)


def plan(command: str, packages: Packages | None = "pypi") -> Plan:
    """Parse one command and decide what to do with it. Never raises."""
    if len(command) > MAX_LENGTH:
        return Refuse(f"the command has {len(command)} characters; at most {MAX_LENGTH} are allowed")
    command = _strip_prompt(command)
    if not command or command.startswith("#"):
        return _EMPTY
    try:
        tokens = _tokenise(command)
        words = shlex.split("".join(text for _kind, text in tokens), posix=True)
    except ValueError as error:
        return Refuse(f"the command cannot be parsed: {str(error).lower()}")
    operators = _find_operators(tokens)
    if not operators <= _WORD_OPERATORS:
        return Refuse(_NO_SHELL)
    if not words or not words[0]:
        return _EMPTY
    # `python -c` may need newlines and tabs, but other unprintable characters are not allowed
    if not all(word.replace("\n", "").replace("\t", "").isprintable() for word in words):
        return Refuse("the command contains unprintable characters")
    pip_words = _strip_installer(words)
    if packages == "npm":
        if words[0] in _NPM:
            return _plan_npm(words[1:])
        if pip_words is not None or _REFUSED.get(words[0]) in (_PACKAGES, _NETWORK):
            return Refuse(_NPM_PACKAGES)
    elif pip_words is not None:
        return _plan_pip(pip_words, operators) if packages == "pypi" else Refuse(_NO_PACKAGES)
    return _plan_run(words, operators, packages)


def _plan_npm(words: list[str]) -> Plan:
    verbs = [word for word in words if not word.startswith("-")]
    requirements = [parse_word(word) for word in verbs[1:]]
    if len(verbs) < 2 or verbs[0] not in _NPM_VERBS or None in requirements or len(verbs) > _MAX_REQUIREMENTS + 1:
        return Refuse(f"{_NPM_PACKAGES} or `npm install NAME@VERSION`, at most {_MAX_REQUIREMENTS} packages at a time")
    return Install(tuple(dict.fromkeys(filter(None, requirements))))


def _plan_run(words: list[str], operators: frozenset[str], packages: Packages | None) -> Plan:
    if _ASSIGNMENT.match(words[0]):
        return Refuse(_SHELL_STATE)
    program = words[0].rpartition("/")[2]
    if (reason := _REFUSED.get(program)) is not None:
        if reason in (_PACKAGES, _NETWORK):
            reason = reason if packages == "pypi" else _NO_PACKAGES
        return Refuse(f"{program}: {reason}")
    if operators:
        return Refuse(_NO_SHELL)
    return RunCommand(tuple(words))


def _strip_installer(words: list[str]) -> list[str] | None:
    program = words[0].rpartition("/")[2]
    if _PIP.fullmatch(program):
        return words[1:]
    if program == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    if _PYTHON.fullmatch(program) and words[1:2] == ["-m"] and words[2:3] in (["pip"], ["pip3"]):
        return words[3:]
    return None


def _plan_pip(words: list[str], operators: frozenset[str]) -> Plan:
    names: list[str] = []
    rest = iter(words)
    for word in rest:
        if word.startswith("-"):
            if reason := _check_option(word, rest):
                return Refuse(reason)
        else:
            names.append(word)
    if not names or names[0] != "install":
        return Refuse("pip: only `pip install NAME ...` is supported; packages cannot be uninstalled")
    if len(names) == 1:
        return Refuse("pip install: name at least one package")
    if len(names) > _MAX_REQUIREMENTS + 1:
        return Refuse(f"pip install: name at most {_MAX_REQUIREMENTS} packages")
    try:
        return Install(tuple(dict.fromkeys(_parse_requirement(name) for name in names[1:])))
    except MalformedRequirement as error:
        return Refuse(_NO_SHELL if operators & {"<", ">"} else f"pip install: {error}")


def _check_option(word: str, rest: Iterator[str]) -> str | None:
    option, equals, _value = word.partition("=")
    if option in _IGNORED_WITH_VALUE:
        if not equals:
            next(rest, None)
        return None
    if word in _IGNORED_FLAGS:
        return None
    return f"pip install: the option {option[:40]!r} is not supported; name packages from the package index"


def _parse_requirement(word: str) -> str:
    requirement = parse_requirement(word)
    if requirement.marker is not None:
        raise MalformedRequirement(f"{word[:80]!r} has an environment marker; remove the marker")
    requirement.name = find_distribution(requirement.name)
    return normalise_requirement(requirement)


def _strip_prompt(command: str) -> str:
    command = command.strip()
    prompt = _PROMPT.match(command)
    return command[prompt.end() :].strip() if prompt else command


_TOKEN = re.compile(
    r"""(?P<quoted>'[^']*')"""
    r"""|(?P<double>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<escaped>\\.)"""
    r"""|(?P<comment>(?<!\S)\#[^\n]*)"""
    r"""|(?P<break>&&|\n)"""
    r"""|(?P<operator>[|&;<>()`$*?\[\]{}~])"""
    r"""|(?P<plain>[^'"\\])""",
    re.DOTALL | re.VERBOSE,
)


def _tokenise(command: str) -> list[tuple[str, str]]:
    """Split a command into (kind, text) tokens in the same way as a shell. Removes comments.

    Raises:
        ValueError: a quoted string is not closed.
    """
    tokens = []
    position = 0
    while position < len(command):
        match = _TOKEN.match(command, position)
        if match is None:
            raise ValueError("No closing quotation")
        starts_line = position == 0 or command[position - 1] == "\n"
        if match.lastgroup != "comment" or (starts_line and _PROMPT.match(match.group())):
            tokens.append((match.lastgroup or "", match.group()))
        position = match.end()
    return tokens


def _find_operators(tokens: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the operators that a shell would interpret. Within double quotes, only `$` and backticks are included."""
    operators = set()
    for kind, text in tokens:
        if kind in ("break", "operator"):
            operators.add(text)
        elif kind == "double":
            operators.update(re.findall(r"[$`]", re.sub(r"\\.", "", text, flags=re.DOTALL)))
    return frozenset(operators)


def _iterate_parts(text: str, packages: Packages | None) -> Iterator[str]:
    """Split a text at unquoted newlines, and split each line at `&&` unless one of the line's parts is refused.

    Blank lines and comments are skipped.
    """
    text = text.replace("\r\n", "\n").replace("\\\n", " ").strip()
    if len(text) > MAX_LENGTH * MAX_COMMANDS:
        yield text
        return
    for line in _split_at(text, "\n"):
        parts = _split_at(line, "&&")
        simple = all(not isinstance(plan(part, packages), Refuse) for part in parts)
        yield from parts if simple else [line]


def _split_at(text: str, separator: str) -> list[str]:
    try:
        tokens = _tokenise(text)
    except ValueError:
        parts = text.split(separator)
    else:
        parts = [""]
        for kind, token in tokens:
            if kind == "break" and token == separator:
                parts.append("")
            else:
                parts[-1] += token
    return [part.strip() for part in parts if part.strip()]
