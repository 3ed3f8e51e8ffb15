"""Adds the options declared in a class to a command. Builds options for settings from the settings' fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from agent.cli.options import SettingOptions
from agent.sandbox.registry import CHOICES

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_CHOICES = {"sandbox.backend": CHOICES}
"""Accepted values, keyed by setting, of settings whose fields do not declare their accepted values."""
_PARAMETER = "options"


class SettingsCommand(TyperCommand):
    """A command that builds its options for settings on first use.

    These options require pydantic, which is slow to import.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the declared options and the options for settings."""
        *declared, help_option = super().get_params(ctx)
        return [*declared, *self._make_setting_options().values(), help_option]

    def invoke(self, ctx: Any) -> Any:
        """Pass the settings from the command line to the command as `ctx.obj`."""
        values = {setting: ctx.params.pop(option.name) for setting, option in self._make_setting_options().items()}
        ctx.obj = {setting: value for setting, value in values.items() if value not in (None, [], ())}
        return super().invoke(ctx)

    def _make_setting_options(self) -> Mapping[str, Any]:
        return _make_setting_options(self.callback.options_class)  # type: ignore[union-attr]  # set by `add_options`


@functools.cache
def _make_setting_options(kind: type[SettingOptions]) -> Mapping[str, Any]:
    from agent.config import collect_setting_fields
    from agent.settings import Settings as AllSettings

    fields_by_setting = collect_setting_fields(AllSettings)
    names = {setting: setting.replace(".", "_") for setting in kind.flags.values()}

    def command(**_: Any) -> None:
        """Provide the signature that Typer reads."""

    _set_signature(
        command,
        [
            inspect.Parameter(
                names[setting],
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_make_option(flag, setting, fields_by_setting[setting], kind.default),
            )
            for flag, setting in kind.flags.items()
        ],
    )
    app = typer.Typer(add_completion=False)
    app.command()(command)
    options_by_name = {option.name: option for option in typer.main.get_command(app).params}
    return {setting: options_by_name[name] for setting, name in names.items()}


def _make_option(flag: str, setting: str, field: FieldInfo, default: str | None) -> Any:
    """Return the annotation from which Typer builds the option for a setting."""
    types = [member for member in get_args(field.annotation) if member is not NoneType] or [field.annotation]
    kind: Any = types[0] if len(types) == 1 and types[0] in (bool, int, float, Path) else str
    if setting in _CHOICES:
        kind = Literal[_CHOICES[setting]]
    elif get_origin(field.annotation) is Literal:
        kind = field.annotation
    elif get_origin(types[0]) is Literal:
        kind = types[0]
    elif get_origin(field.annotation) is tuple:
        kind = list[str]
    bounds = {name: getattr(bound, name) for bound in field.metadata for name in ("ge", "le") if hasattr(bound, name)}
    default_value = field.get_default(call_default_factory=True)
    default_text = default or ("" if default_value in (None, False, (), {}) else default_value)
    repeatable = " Repeatable." if kind == list[str] else ""
    text = f"{field.description}.{repeatable}{f' [default: {default_text}]' if default_text else ''}"
    return Annotated[kind | None, typer.Option(flag, help=text, min=bounds.get("ge"), max=bounds.get("le"))]


def add_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option to a command for each annotated field of its options class.

    The options class is the type of the `options` parameter. If it is a subclass of `SettingOptions`, declare the
    command with `cls=SettingsCommand`.
    """
    resolved = get_type_hints(command, include_extras=True)
    options_class = resolved[_PARAMETER]
    hints = get_type_hints(options_class, include_extras=True)
    declared = [option for option in fields(options_class) if get_origin(hints[option.name]) is Annotated]
    has_settings = issubclass(options_class, SettingOptions)

    def run(context: typer.Context, **values: Any) -> None:
        own_values = {option.name: values.pop(option.name) for option in declared}
        command(**values, options=options_class(**own_values, **({"values": context.obj} if has_settings else {})))

    _set_signature(
        run,
        [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
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
        ],
    )
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.options_class = options_class  # type: ignore[attr-defined]
    return run


def _set_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Set the signature and the annotations, from which Typer reads the parameters."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
