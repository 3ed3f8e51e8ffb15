"""Renders the prompt of each role from its template.

A template is a Jinja file named `<role>.j2` with a `system` block and a `user` block. It can extend another template.
Names of shared parts begin with `_`. A template receives only the variables that its role declares. It can output a
text only through the `data` filter, which wraps the text in delimiters that the text cannot forge.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import (
    DictLoader,
    StrictUndefined,
    TemplateError,
    TemplateSyntaxError,
    meta,
    nodes,
    pass_context,
)
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from agent.config import find_data_folder
from agent.errors import PromptError
from agent.pipeline.prompt_text import (
    delimit,
    describe_history,
    describe_list,
    describe_report,
    describe_simulation,
    fit,
)
from agent.types import Message

_RENDER_ERRORS = (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
_TOO_LARGE = (RecursionError, MemoryError, SyntaxError)
_HIDDEN_FIELDS = frozenset({"id", "label", "votes", "why", "meta"})
_DATA = "_data"
_MAX_NAME_LENGTH = 20
_PLACEHOLDER = re.compile("\0([0-9]+)\0")


@dataclass(frozen=True)
class Role:
    """A role in which a node calls a model, with the prompt template `NAME.j2` or `NAME_VERSION.j2`.

    `variables` maps each variable of the template to an example value. The template is tested with these values.
    `reply` is the type of the JSON reply (None: the reply is plain text). `version` selects
    a second template: `in_module` if the test runs in the snippet's module, and `by_rules` if the language has rules.

    Raises:
        ValueError: a variable is named after an input field that prompts must not show.
    """

    name: str
    variables: Mapping[str, Any] = field(repr=False)
    reply: type[BaseModel] | None = None
    blocks: tuple[Literal["system", "user"], ...] = ("system", "user")
    version: Literal["", "in_module", "by_rules"] = ""

    @property
    def template(self) -> str:
        """The name of the template, without its suffix."""
        return f"{self.name}_{self.version}" if self.version else self.name

    def with_version(self, version: Literal["in_module", "by_rules"], **variables: Any) -> Role:
        """Return this role with another template. `variables` are added to the role's variables."""
        return replace(self, variables={**self.variables, **variables}, version=version)

    def __post_init__(self) -> None:
        """Reject variables that could reveal the label."""
        if leaked := self.variables.keys() & _HIDDEN_FIELDS:
            raise ValueError(f"role {self.name!r}: prompts must not show {', '.join(sorted(leaked))}")


class Prompts:
    """The prompt templates, loaded and compiled once, and tested for each role in `roles`.

    Later changes on disk have no effect.

    A file in `folder` replaces the built-in template or shared part with the same name. Other files are templates for
    the roles of user-defined nodes.

    Raises:
        PromptError: a template is missing, unreadable or malformed, uses a variable that its role does not declare, or
            is a link in `folder`. Prompts are sent to a server, so a link could reveal any file of the user.
    """

    def __init__(self, folder: Path | None = None, roles: Iterable[Role] = ()) -> None:
        user_sources = {} if folder is None else _read_templates(folder)
        self._sources = {**_read_templates(find_data_folder("prompts"), may_link=True), **user_sources}
        self._environment, self._trees = _compile(tuple(self._sources.items()))
        roles = tuple(roles)
        known = {role.template for role in roles}
        for name in user_sources.keys() - {f"{role}.j2" for role in known}:
            if close := difflib.get_close_matches(name.removesuffix(".j2"), known, n=1, cutoff=0.8):
                raise PromptError(f"{folder}/{name}: there is no role with this name. Did you mean {close[0]}.j2?")
        for role in roles:
            self._check_role(role)

    def __getstate__(self) -> dict[str, Any]:
        return {"_sources": self._sources}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._sources = state["_sources"]
        self._environment, self._trees = _compile(tuple(self._sources.items()))

    def render(self, role: Role, variables: Mapping[str, Any]) -> tuple[Message, ...]:
        """Render the messages for a role: by default, a system and a user message. Missing variables are None.

        Raises:
            PromptError: the template does not exist, uses an undefined variable, or outputs a text without the `data`
                filter.
            ValueError: the role does not declare one of the variables.
        """
        name = f"{role.template}.j2"
        if undeclared := variables.keys() - role.variables.keys():
            names = ", ".join(sorted(undeclared))
            raise ValueError(f"role {role.name!r} does not declare the variables {names}")
        if name not in self._sources:
            raise PromptError(f"prompt template {name} does not exist")
        data: list[tuple[str, str]] = []
        values = {**dict.fromkeys(role.variables), **_mark_plain(variables), _DATA: data}
        context = self._environment.get_template(name).new_context(values)
        context.blocks = self._list_blocks(name)
        texts = []
        for block in role.blocks:
            try:
                texts.append("".join(context.blocks[block][0](context)).strip("\n"))
            except (*_RENDER_ERRORS, *_TOO_LARGE) as error:
                raise PromptError(f"{name}: block {block!r} does not render: {error}") from error
        blocks = delimit(data, around="\n".join(texts))
        filled = (_PLACEHOLDER.sub(lambda place: blocks[int(place[1])], text) for text in texts)
        return tuple(Message(block, text) for block, text in zip(role.blocks, filled, strict=True))

    def hash_templates(self) -> dict[str, str]:
        """Return, for each role, the SHA-256 (hex) of its template and all parts that the template includes."""
        return {name.removesuffix(".j2"): self._hash(name) for name in sorted(self._sources) if name[0] != "_"}

    def _hash(self, name: str) -> str:
        digest = hashlib.sha256()
        for part in (name, *sorted(self._list_parts(name) - {name})):
            source = self._sources[part].encode()
            digest.update(f"{part}\0{len(source)}\0".encode() + source)
        return digest.hexdigest()

    def _list_parts(self, name: str) -> set[str]:
        """Return the name of a template and the names of all parts that it includes, directly or indirectly."""
        names, waiting = {name}, [name]
        while waiting:
            new = set(map(str, meta.find_referenced_templates(self._trees[waiting.pop()]))) - names
            names |= new
            waiting += new
        return names

    def _list_blocks(self, name: str) -> dict[str, list[Any]]:
        """Return the functions of each block: those of the template itself, then those of the templates it extends."""
        blocks: dict[str, list[Any]] = {}
        names = [name]
        for current in names:
            for block, function in self._environment.get_template(current).blocks.items():
                blocks.setdefault(block, []).append(function)
            parents = (str(node.template.as_const()) for node in self._trees[current].find_all(nodes.Extends))
            names += [parent for parent in parents if parent not in names]
        return blocks

    def _check_role(self, role: Role) -> None:
        name = f"{role.template}.j2"
        for part in sorted(self._list_parts(name)) if name in self._sources else ():
            if unknown := sorted(meta.find_undeclared_variables(self._trees[part]) - role.variables.keys()):
                declared = ", ".join(sorted(role.variables))
                raise PromptError(f"{part} uses {', '.join(unknown)}, but role {role.name!r} only has {declared}")
        for block in role.blocks if name in self._sources else ():
            if block not in self._list_blocks(name):
                raise PromptError(f"{name} has no {block!r} block: add {{% block {block} %}} ... {{% endblock %}}")
        self.render(role, role.variables)
        if "criterion" in role.variables:
            self.render(role, {**role.variables, "criterion": "half"})


class _Environment(ImmutableSandboxedEnvironment):
    """Templates cannot repeat texts or compute powers, which could use any amount of memory and time."""

    intercepted_binops = frozenset({"*", "**"})

    @staticmethod
    def concat(parts: Iterable[str]) -> _Plain:
        """Join the output of a block, so that `super()` can be output again."""
        return _Plain("".join(parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply two numbers, and reject everything else."""
        if operator == "*" and isinstance(left, int | float) and isinstance(right, int | float):
            return super().call_binop(context, operator, left, right)
        raise TypeError(f"{operator!r} can only multiply two numbers")


class _Plain(str):
    """A text that a template may output without delimiters."""

    __slots__ = ()


@pass_context
def _data(context: Context, value: Any, name: str) -> _Plain:
    """Return a placeholder for a text. `render` chooses the delimiters after it has collected all texts."""
    if not isinstance(value, str):
        raise TypeError(f"data({name!r}) expects a string, not {type(value).__name__}")
    data: list[tuple[str, str]] = context[_DATA]
    data.append((name, fit(value, name)))
    return _Plain(f"\0{len(data) - 1}\0")


def _finalize(value: Any) -> Any:
    if isinstance(value, _Plain | int):
        return value
    raise TypeError(f"it outputs {str(value)[:40]!r} without delimiters; write {{{{ value | data('name') }}}}")


def _mark_plain(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Allow templates to output `marker`, `rules`, `language` and `fence` without delimiters.

    The language may come from the data, so it is sanitised.
    """
    plain = {name: _Plain(variables[name]) for name in variables.keys() & {"marker", "rules"}}
    for name in variables.keys() & {"language", "fence"}:
        word = re.sub(r"[^A-Za-z0-9_+#.-]", "_", str(variables[name]))
        # a longer name could contain an instruction
        plain[name] = _Plain(word if len(word) <= _MAX_NAME_LENGTH else "unknown")
    return {**variables, **plain}


def _read_templates(folder: Path, *, may_link: bool = False) -> dict[str, str]:
    paths = sorted(folder.glob("*.j2"))
    for path in paths:
        if not path.is_file() or (path.is_symlink() and not may_link):  # some installers link the files of packages
            raise PromptError(f"{path}: is a link or not a regular file. Replace it with a regular file.")
    try:
        sources = {path.name: path.read_text("utf-8") for path in paths}
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the prompt templates in {folder}: {error}") from error
    if not sources:
        raise PromptError(f"{folder} contains no prompt templates (*.j2)")
    return sources


@lru_cache(maxsize=8)
def _compile(
    sources: tuple[tuple[str, str], ...],
) -> tuple[ImmutableSandboxedEnvironment, dict[str, nodes.Template]]:
    """Compile the templates. Cached because this takes a third of a second."""
    environment = _create_environment(dict(sources))
    return environment, {name: _parse(environment, name, source, dict(sources).keys()) for name, source in sources}


def _parse(
    environment: ImmutableSandboxedEnvironment, name: str, source: str, known: Collection[str]
) -> nodes.Template:
    try:
        tree = environment.parse(source, name)
        environment.get_template(name)
    except TemplateSyntaxError as error:
        raise PromptError(f"{name}:{error.lineno}: {error.message}") from error
    except _TOO_LARGE as error:
        raise PromptError(f"{name}: is too large or nested too deeply ({error})") from error
    for part in meta.find_referenced_templates(tree):
        if part is None:
            raise PromptError(f"{name} includes a part whose name is computed. Use a constant name")
        if part not in known:
            raise PromptError(f"{name} includes {part}, which does not exist")
    return tree


def _create_environment(sources: Mapping[str, str]) -> ImmutableSandboxedEnvironment:
    environment = _Environment(
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
    )
    return environment
