"""Adds the options declared in a class to a command, and helps users of options that have been removed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from shlex import quote
from typing import Annotated, Any, get_origin, get_type_hints

from typer.core import TyperGroup

_RENAMED = {
    "decontaminate --against": "--benchmark",
    "fill --attempts": "--snippets-per-query",
    "score --alpha": "--stability",
    "score --errors": "--mistakes",
    "show --limit": "--per-page",
    "show --prompts": "--with-prompts",
    "train --max-tokens": "--text-tokens",
    "train --temperature": "--softmax-temperature",
}
"""New names of options, keyed by command and old name."""
_PARAMETER = "options"


class Group(TyperGroup):
    """A group of commands. Its help shows whole sentences, and an unknown option that was removed gets a hint."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their first sentences, which Typer truncates to one line by default."""
        for command in self.commands.values():
            command.short_help = command.get_short_help_str(limit=500)
        super().format_commands(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run a command. If it does not have an option, say what replaces the option."""
        try:
            return super().invoke(ctx)
        except Exception as error:  # Typer's NoSuchOption is private
            option = getattr(error, "option_name", None)
            if hint := _find_replacement(option, getattr(error, "ctx", None)):
                error.message = f"No such option: {option}. Pass {hint} instead."  # type: ignore[attr-defined]
                error.possibilities = None  # type: ignore[attr-defined]
            raise


def _find_replacement(option: str | None, context: Any) -> str | None:
    """Return the new name of an option, or a `-c` for the setting of this name if the command has settings."""
    if option is None or context is None:
        return None
    if not any(parameter.name == "assignments" for parameter in context.command.params):
        return _RENAMED.get(f"{context.info_name} {option}")
    from agent.cli.reference import describe_settings
    from agent.config import RENAMED

    name = option.lstrip("-").replace("-", "_")
    examples = {setting.key: f"-c {quote(setting.example)}" for setting in describe_settings()}
    examples |= {old: examples[new] for old, new in RENAMED.items()}
    by_name = {key.rpartition(".")[2]: example for key, example in examples.items()}
    return _RENAMED.get(f"{context.info_name} {option}") or by_name.get(name) or by_name.get(f"{name}_mb")


def add_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option to a command for each annotated field of its options class.

    The options class is the type of the `options` parameter. A subclass removes an option by redeclaring its field
    without an annotation.
    """
    resolved = get_type_hints(command, include_extras=True)
    options_class = resolved[_PARAMETER]
    hints = get_type_hints(options_class, include_extras=True)
    declared = [option for option in fields(options_class) if get_origin(hints[option.name]) is Annotated]

    def run(**values: Any) -> None:
        own_values = {option.name: values.pop(option.name) for option in declared}
        command(**values, options=options_class(**own_values))

    parameters = [
        *(
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=resolved[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if name != _PARAMETER
        ),
        *(
            inspect.Parameter(
                option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=hints[option.name]
            )
            for option in declared
        ),
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
