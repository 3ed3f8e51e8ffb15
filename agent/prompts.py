"""Renders the prompt of each role from its template.

A template is a Jinja file `<role>.j2` with the blocks `system` and `user`; parts shared by several begin with `_`. It
is given the variables of its role and nothing else, and may show a text only through the filter `data`, which puts it
between delimiters that the text cannot forge.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from jinja2 import DictLoader, StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent.config import data_folder
from agent.errors import PromptError
from agent.prompt_text import (
    delimited,
    describe_history,
    describe_list,
    describe_report,
    describe_simulation,
    describe_spec,
    fitted,
)
from agent.types import CaseOutcome, CaseResult, Cause, Message, QuerySpec, Reading, Simulated, Status, TestReport

QUERY_VARIABLES = frozenset({"query", "language", "criterion"})
COMMON_VARIABLES = QUERY_VARIABLES | {"code", "fence", "context", "spec"}
ROLE_VARIABLES: Mapping[str, frozenset[str]] = {
    "specify_query": QUERY_VARIABLES,
    "screen": COMMON_VARIABLES,
    "judge": COMMON_VARIABLES,
    "generate_test": COMMON_VARIABLES | {"marker", "advice", "weakness"},
    "scaffold": COMMON_VARIABLES | {"marker", "advice"},
    "generate_blind": QUERY_VARIABLES | {"spec", "fence", "marker", "signature", "surroundings", "weakness"},
    "repair": COMMON_VARIABLES
    | {"program", "report", "output", "installed", "round", "history"}
    | {"marker", "may_correct", "first_line", "last_line"},
    "simulate": COMMON_VARIABLES | {"program"},
    "arbitrate": COMMON_VARIABLES
    | {"program", "report", "output", "simulated", "stand_ins", "installed", "problem"}
    | {"reading", "may_abstain"},
    "reask": frozenset({"cause", "reply"}),
}
_ABILITIES = frozenset({"may_correct", "may_abstain", "first_line", "last_line"})
OPTIONAL_VARIABLES = frozenset({"spec", "reading", "weakness"}) | _ABILITIES
"""What no node need give; it is then None."""
ANY_VARIABLES = frozenset().union(*ROLE_VARIABLES.values())

_RENDER_ERRORS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, RecursionError)
_BLOCKS: Mapping[str, tuple[Literal["system", "user"], ...]] = {"reask": ("user",)}
_DATA = "_data"
_LONGEST_WORD = 20
_PLACE = re.compile("\0([0-9]+)\0")


class Prompts:
    """The templates of all roles, read, compiled and tried once; what changes on disk later has no effect.

    A file in `folder` takes the place of the shipped one of the same name, shared parts included; a name of its own
    adds a role, for a node that asks for it.

    Raises:
        PromptError: a template is missing, unreadable, malformed, or uses what its role is not given.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._sources = {**_read(data_folder("prompts")), **({} if folder is None else _read(folder))}
        self._environment = _environment(self._sources)
        self._parts = {name: self._check(name) for name in self._sources}
        self.roles = frozenset(_role(name) for name in self._sources if not name.startswith("_"))
        for role in sorted(ROLE_VARIABLES.keys() | self.roles):
            self._try(role)

    def render(self, role: str, variables: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return a role's messages: system and user (of `reask`, user alone).

        Raises:
            PromptError: there is no such template, it lacks a variable, or it shows a text without `data`.
            ValueError: a variable is given that no template of this role may see.
        """
        refused = variables.keys() - ROLE_VARIABLES.get(role, ANY_VARIABLES)
        if refused:
            raise ValueError(
                f"a prompt of role {role!r} is given {', '.join(sorted(refused))}: no template may see that"
            )
        if role not in self.roles:
            raise PromptError(f"there is no prompt template {role}.j2")
        template = self._environment.get_template(f"{role}.j2")
        data: list[tuple[str, str]] = []
        context = template.new_context({**dict.fromkeys(OPTIONAL_VARIABLES), **_plain(variables), _DATA: data})
        texts = []
        for block in _blocks(role):
            try:
                texts.append("".join(template.blocks[block](context)).strip("\n"))
            except _RENDER_ERRORS as error:
                raise PromptError(f"{role}.j2, block {block!r}, does not render: {error}") from error
        shown = delimited(data, around="\n".join(texts))
        filled = (_PLACE.sub(lambda place: shown[int(place[1])], text) for text in texts)
        return tuple(Message(block, text) for block, text in zip(_blocks(role), filled, strict=True))

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 (hex) of each role's template, the parts that it includes with it."""
        return {role: self._hash(f"{role}.j2") for role in sorted(self.roles)}

    def _hash(self, name: str) -> str:
        digest = hashlib.sha256()
        for part in (name, *sorted(self._included(name) - {name})):
            source = self._sources[part].encode()
            digest.update(f"{part}\0{len(source)}\0".encode() + source)
        return digest.hexdigest()

    def _included(self, name: str) -> set[str]:
        found, waiting = {name}, [name]
        while waiting:
            new = self._parts[waiting.pop()] - found
            found |= new
            waiting += new
        return found

    def _check(self, name: str) -> set[str]:
        """Compile a template; return the names of the parts it includes."""
        try:
            tree = self._environment.parse(self._sources[name], name)
            self._environment.get_template(name)
        except TemplateSyntaxError as error:
            raise PromptError(f"{name}:{error.lineno}: {error.message}") from error
        _check_variables(name, tree)
        if not name.startswith("_"):
            _check_blocks(name, tree)
        included = set(meta.find_referenced_templates(tree))
        if None in included:
            raise PromptError(f"{name} includes a part by a computed name: write the name itself")
        missing = sorted(str(part) for part in included if part not in self._sources)
        if missing:
            raise PromptError(f"{name} includes {missing[0]}, which does not exist")
        return {str(part) for part in included}

    def _try(self, role: str) -> None:
        for variables in _samples(ROLE_VARIABLES.get(role, ANY_VARIABLES)):
            self.render(role, variables)


class _Shown(str):
    """A text that may stand in a prompt as it is."""

    __slots__ = ()


@pass_context
def _data(context: Context, value: Any, name: str) -> _Shown:
    """Keep a text for its place: its delimiters are chosen when all texts of the prompt are known."""
    if not isinstance(value, str):
        raise TypeError(f"data({name!r}) takes a text, not {type(value).__name__}")
    data: list[tuple[str, str]] = context[_DATA]
    data.append((name, fitted(value, name)))
    return _Shown(f"\0{len(data) - 1}\0")


def _finalize(value: Any) -> Any:
    if isinstance(value, _Shown | int):
        return value
    raise TypeError(
        f"it shows {str(value)[:40]!r} as it is; put texts between delimiters: {{{{ value | data('name') }}}}"
    )


def _plain(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Let templates show the names that steer them; a language's name may come from the data."""
    shown = {name: _Shown(_word(str(variables[name]))) for name in ("language", "fence") if name in variables}
    if "marker" in variables:
        shown["marker"] = _Shown(variables["marker"])
    return {**variables, **shown}


def _word(name: str) -> str:
    """Return a name that fits between the lines of a prompt; one that could be a sentence is not told."""
    word = re.sub(r"[^A-Za-z0-9_+#.-]", "_", name)
    return word if len(word) <= _LONGEST_WORD else "unknown"


def _role(name: str) -> str:
    return name.removesuffix(".j2")


def _blocks(role: str) -> tuple[Literal["system", "user"], ...]:
    return _BLOCKS.get(role, ("system", "user"))


def _read(folder: Path) -> dict[str, str]:
    try:
        sources = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.j2"))}
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the prompt templates in {folder}: {error}") from error
    if not sources:
        raise PromptError(f"there are no prompt templates (*.j2) in {folder}")
    for name in sources:
        close = difflib.get_close_matches(_role(name), ROLE_VARIABLES, n=1, cutoff=0.8)
        if close and _role(name) not in ROLE_VARIABLES:
            raise PromptError(f"{folder / name}: no role has this name; did you mean {close[0]}.j2?")
    return sources


def _environment(sources: Mapping[str, str]) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=DictLoader(sources),
        undefined=StrictUndefined,
        autoescape=False,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.globals.clear()
    environment.filters.update(
        data=_data,
        lines=describe_list,
        report=describe_report,
        history=describe_history,
        simulation=describe_simulation,
        spec=describe_spec,
    )
    return environment


def _check_variables(name: str, tree: nodes.Template) -> None:
    role = _role(name)
    allowed = ROLE_VARIABLES.get(role, ANY_VARIABLES)
    unknown = sorted(meta.find_undeclared_variables(tree) - allowed)
    if unknown:
        raise PromptError(f"{name} uses {', '.join(unknown)}; it is given {', '.join(sorted(allowed))}")


def _check_blocks(name: str, tree: nodes.Template) -> None:
    present = {block.name for block in tree.find_all(nodes.Block)}
    for block in _blocks(_role(name)):
        if block not in present:
            raise PromptError(f"{name} lacks the block {block!r}: {{% block {block} %}} ... {{% endblock %}}")


def _samples(names: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield variables with everything in them, and with as little as can be, for each criterion and kind of reply."""
    case = CaseResult(name="test_a", outcome=CaseOutcome.FAILED, message="a\nb", cause=Cause.SNIPPET)
    report = TestReport(status=Status.FAILED, cause=Cause.SNIPPET, cases=(case,), message="m")
    full: dict[str, Any] = dict.fromkeys(ANY_VARIABLES, "text")
    full |= {"first_line": 1, "last_line": 2}
    full |= {"report": report, "simulated": Simulated(status="passed"), "round": 1, "criterion": "exact"}
    full["spec"] = QuerySpec(readings=(Reading(text="r", requirements=("q",)),))
    full |= {"advice": ("a",), "stand_ins": ("s",), "installed": ("i==1",), "reply": "json"}
    full |= {"history": ({"command": "c", "outcome": "ran", "output": "o"},)}
    least = {**full, "context": None, "output": None, "simulated": None, "advice": (), "stand_ins": (), "installed": ()}
    least |= dict.fromkeys(("spec", "weakness", "may_correct", "may_abstain"))
    least |= {"history": (), "criterion": "half", "reply": "text"}
    bare = {**least, "program": None, "report": None, "problem": None}
    for variables in (full, least, bare) if "problem" in names else (full, least):
        yield {name: variables[name] for name in names}
