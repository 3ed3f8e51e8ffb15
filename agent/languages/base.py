"""The interface between the pipeline and a programming language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NoReturn

from pydantic import Field

from agent.errors import UnsupportedLanguage
from agent.sandbox.base import Packages, RunResult, SandboxJob, Toolchain
from agent.types import Cause, Count, Frozen, Origin, TestReport

MAX_CASES = 50
"""Maximum number of test cases in a program."""
MAX_OUTLINE = 16_000
"""Maximum length of the outline of a snippet's module, in characters."""

HONEST = "an honest program"
"""The name of the program in `Language.attacks` that must pass."""

CodeView = Literal["no-docstring", "signature", "body"]
"""A part of a snippet: without documentation, only the headers, or without documentation and headers."""


class MalformedProgram(ValueError):
    """Raised if the marker, the syntax or the test cases of a generated program are wrong.

    The model receives the message.
    """


def find_marker(lines: Sequence[str], marker: str) -> int:
    """Return the index of the only line of a template that consists of the marker, apart from spaces and tabs.

    Raises:
        MalformedProgram: there is no such line, or there are several.
    """
    rows = [row for row, line in enumerate(lines) if line.strip(" \t") == marker]
    if len(rows) == 1:
        return rows[0]
    place = f"appears {len(rows)} times" if rows else "is missing"
    raise MalformedProgram(
        f"the `{marker}` line {place}; it must appear exactly once, with nothing else on the line, in the place where "
        "the candidate goes"
    )


def check_cases(names: Sequence[str], advice: str) -> None:
    """Check the names of a program's test cases. `advice` tells the model how to write cases if there are none.

    Raises:
        MalformedProgram: there are no cases or too many, or two cases have the same name.
    """
    if not names:
        raise MalformedProgram(f"the program has no test case: {advice}")
    if len(names) > MAX_CASES:
        raise MalformedProgram(f"the program has {len(names)} test cases; keep the {MAX_CASES} most informative ones")
    for name in names:
        if names.count(name) > 1:
            raise MalformedProgram(f"two test cases are named `{name}`; only one of them would run")


class Program(Frozen):
    """A test program. Lines `first_line` to `last_line` (1-based, inclusive) contain the snippet verbatim.

    `template` is the program as the model wrote it, including the marker for the snippet. `imports` are the modules
    outside the standard library that the program or the snippet imports. `stand_ins` are the names that the
    model lists as stand-ins, or that the program defines for the snippet. `introspection` lists names in the snippet's
    module through which code could reach the test harness.
    """

    kind: Literal["program"] = "program"
    template: str
    source: str
    first_line: Count
    last_line: Count
    cases: tuple[str, ...]
    imports: tuple[str, ...] = ()
    options: dict[str, str] = Field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()
    introspection: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)

    def with_stand_ins(self, stand_ins: Iterable[str]) -> Program:
        """Return the program with these stand-ins (`Name` or `Name: description`) listed before its existing ones."""
        distinct = tuple(dict.fromkeys(stand_ins))
        names = {stand_in.partition(":")[0].strip() for stand_in in distinct}
        others = (name for name in self.stand_ins if name not in names)
        return self.model_copy(update={"stand_ins": (*distinct, *others)})


class ModuleUnusable(ValueError):
    """Raised if a snippet cannot run in its module. The message is the reason."""


@dataclass(frozen=True)
class Module:
    """A snippet's own module, as a probe found it.

    `outline` describes the module to the model that writes programs. `introspection` lists names in the module's source
    through which code could reach the test harness.
    """

    origin: Origin
    outline: str
    introspection: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snippet:
    """Static information about a snippet.

    `problem` is the reason why the snippet cannot be tested, or None. `cause` is the cause that the report then states.
    `advice` contains sentences for the test generator, for example about Python 2 names that need stand-ins.
    """

    code: str
    problem: str | None = None
    advice: tuple[str, ...] = ()
    cause: Cause = Cause.SNIPPET


@dataclass(frozen=True)
class FoundFunction:
    """A function or method in a source file.

    `class_name` is dotted for nested classes, and None outside classes. `docstring` is the text of its documentation
    without comment signs and common indentation. Lines are 1-based and inclusive, and include decorators and a comment
    after the last statement. `code` is None if the function cannot be moved to column 0 without changing it. `name` is
    empty if the whole source is one function without a name. `has_input` and `returns_value` say whether the function
    has a parameter and a `return` with a value. They are None if this is unknown.
    """

    name: str
    class_name: str | None
    docstring: str | None
    code: str | None
    start_line: int
    end_line: int
    has_input: bool | None = None
    returns_value: bool | None = None


class MutantKind(StrEnum):
    """Kinds of mutants that are wrong for any query."""

    RETURNS_NOTHING = "returns_nothing"
    RETURNS_FIRST_ARGUMENT = "returns_first_argument"
    RAISES = "raises"


@dataclass(frozen=True)
class Mutation:
    """Wrong code that replaces a snippet. A sound test program fails on such code.

    `kind` is a `MutantKind`, or names a change to the snippet, such as `swapped_comparison`. A changed snippet may be
    right by chance. `change` describes the difference from the snippet.
    """

    kind: str
    change: str
    snippet: Snippet


class Language:
    """A programming language. Its methods are pure and perform no I/O.

    The base class represents a language whose pairs are labelled without a test. A language with tests overrides
    `marker`, `insert`, `job` and `report`, and any other methods that it supports. Any exception that is not documented
    here ends the pair with a `NodeError`.
    """

    name: str
    """The name of the language, as used in pairs."""
    fence: str
    """The info string of a fenced code block."""
    program_fence: str | None = None
    """The info string of a fenced block with a test program. None: `fence`."""
    suffixes: tuple[str, ...] = ()
    """The suffixes of source files, in lower case. Requires `outline`."""
    marker: str = ""
    """The line in a program that the snippet replaces."""
    toolchain: Toolchain | None = None
    """The program that runs the tests. None: the sandbox's Python interpreter."""
    packages: Packages | None = None
    """The ecosystem of the packages that programs may import. None: no packages can be installed."""
    attacks: Mapping[str, tuple[str, str]] = {}
    """Programs with which `agent doctor` attacks a sandbox: names, mapped to a template and a snippet.

    An attack succeeds if its program passes. One program, named `HONEST`, is required and must pass. A pass of a
    program with the same snippet counts only if a sentinel run confirms it. In snippets, `HOST.canary`, `HOST.tcp` and
    so on become the values of `Canaries.public_facts`.
    """
    prompt_rules: str = ""
    """Instructions for the roles that write or repair programs: what a case is, and where the marker may stand.

    Prompts show them as trusted text. "": the prompts for Python.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is not None:
            self.name = self.fence = name

    def check_support(self) -> None:
        """Check that snippets can be tested with the libraries of this process. Called before any model call.

        Raises:
            UnsupportedLanguage: the language has no tests, or lacks something. The message explains the remedy.
            ExtraMissing: a library is not installed.
        """
        if not self.marker:
            self._refuse()

    def inspect(self, code: str) -> Snippet:
        """Parse a snippet, and collect advice for the test generator.

        Raises:
            SnippetTooLarge: the snippet is too long or too deeply nested to be parsed.
        """
        return Snippet(code)

    def insert(self, template: str, snippet: Snippet) -> Program:  # noqa: ARG002
        """Replace the marker in a program with the snippet, without changing the snippet.

        Raises:
            MalformedProgram: the template does not have exactly one marker, has no test case, or cannot be parsed.
        """
        self._refuse()

    def build_probe(self, snippet: Snippet, origin: Origin) -> Program:  # noqa: ARG002
        """Return the program that imports the snippet's module and reports its source.

        Raises:
            ModuleUnusable: the origin is not sufficient, or the language does not support modules.
        """
        raise ModuleUnusable(f"tests in {self.name} do not run in modules")

    def read_module(self, probe: Program, result: RunResult, origin: Origin, max_lines: int) -> Module:  # noqa: ARG002
        """Return the module that a probe found. The outline has at most `max_lines` lines.

        Raises:
            ModuleUnusable: the module does not contain the snippet, cannot be imported, or does not keep the snippet.
        """
        raise ModuleUnusable(f"tests in {self.name} do not run in modules")

    def insert_in_module(self, template: str, snippet: Snippet, module: Module) -> Program:  # noqa: ARG002
        """Return a program that runs with the snippet in its module, without changing the snippet.

        Raises:
            MalformedProgram: see `insert`.
        """
        self._refuse()

    def job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob:  # noqa: ARG002
        """Return the sandbox job for a program."""
        self._refuse()

    def report(self, program: Program, result: RunResult) -> TestReport:  # noqa: ARG002
        """Return the test report of a run: the outcomes of the cases, the status and the cause.

        Raises:
            MalformedProgram: the program comes from imported evidence, not from `insert`, and cannot be parsed.
        """
        self._refuse()

    def sentinel_job(self, program: Program, *, environment: str | None, timeout: float) -> SandboxJob | None:  # noqa: ARG002
        """Return a job in which every function of the snippet raises an exception when it is called.

        If a case still passes, it never called the snippet. Returns None if the snippet has no functions. A pass then
        needs no such proof.
        """
        return None

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:  # noqa: ARG002
        """Return the import names that could not be found in a run."""
        return ()

    def requirement(self, import_name: str) -> str | None:  # noqa: ARG002
        """Return the requirement that provides an import name, or None if the requirement is unknown."""
        return None

    def outline(self, source: str, limit: int = 1_000_000) -> Iterable[FoundFunction]:  # noqa: ARG002
        """Find the functions of a source file or a snippet, in order. `limit` is the maximum number of characters.

        Raises:
            ValueError: the source is too long, too deeply nested or malformed.
        """
        raise UnsupportedLanguage(f"functions in {self.name!r} cannot be extracted from source files")

    def signature(self, snippet: Snippet) -> str | None:  # noqa: ARG002
        """Return the snippet without the bodies of its functions, or None if this is not supported."""
        return None

    def extract_view(self, code: str, name: CodeView) -> str | None:
        """Return a part of a snippet, or None if the snippet does not parse.

        Raises:
            UnsupportedLanguage: the language does not support this view.
        """
        if name == "signature" and type(self).signature is not Language.signature:
            return self.signature(self.inspect(code))
        if name != "no-docstring":
            raise UnsupportedLanguage(f"snippets in {self.name!r} have no view {name!r}")
        try:
            functions = list(self.outline(code))
        except ValueError:
            return None
        return functions[0].code if len(functions) == 1 and functions[0].docstring else code

    def reformat(self, code: str) -> str:
        """Return code in the formatting of its mutants, so that formatting does not tell them apart.

        Raises:
            ValueError: the code does not parse.
        """
        return code

    def mutants(self, snippet: Snippet, limit: int) -> tuple[Mutation, ...]:  # noqa: ARG002
        """Return at most `limit` mutants of a snippet, starting with those that are certainly wrong. Never raises.

        The result is empty if mutants are not supported. Identical snippets have identical mutants.
        """
        return ()

    def _refuse(self) -> NoReturn:
        raise UnsupportedLanguage(
            f"programs in {self.name!r} cannot be run. Pass a Language object for it, or choose a variant without tests"
        )
