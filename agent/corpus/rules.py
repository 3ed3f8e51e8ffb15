"""Loads the rules that remove queries which do not ask for code, and applies them to queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agent.errors import ConfigError
from agent.text import describe_error

_Text = Annotated[str, Field(pattern=r"\S")]


class _RulesFile(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = ""
    source: str = ""
    requires: list[_Text] = []
    keywords: dict[str, list[_Text]] = {}
    substrings: dict[str, list[_Text]] = {}


class Rule(NamedTuple):
    """Removes queries in which the pattern occurs. `text` is the text in the rules file."""

    text: str
    category: str
    pattern: re.Pattern[str]


def find_rule(rules: Iterable[Rule], query: str) -> Rule | None:
    """Return the first rule that removes a query, or None."""
    query = _fold(query)
    return next((rule for rule in rules if rule.pattern.search(query)), None)


def _fold(text: str) -> str:
    return " ".join(text.lower().replace("’", "'").split())


def load_rules(name: str) -> tuple[Rule, ...]:
    """Load the built-in rules (`cosqa`: Table 8 of the CoSQA paper), no rules (`none`), or the rules in a YAML file.

    Raises:
        ConfigError: the file cannot be read or is not a rules file.
    """
    if name == "none":
        return ()
    try:
        data = (Path(__file__).with_name("rules") / "cosqa.yaml" if name == "cosqa" else Path(name)).read_bytes()
        _check_keys(yaml.compose(data, Loader=yaml.SafeLoader))
        return tuple(_build_rules(_RulesFile.model_validate(yaml.safe_load(data))))
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or error}. Pass cosqa, none or a YAML file (--rules).") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        cause = getattr(error, "problem", None) or describe_error(error)
        raise ConfigError(f"{place}: {cause}. Write the rules like the built-in ones; quote on, no and 3.") from error


def _check_keys(node: yaml.Node | None) -> None:
    keys: list[object] = []
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value in keys:  # YAML would silently drop the first one with its rules
            raise yaml.MarkedYAMLError(problem=f"{key.value!r} appears twice", problem_mark=key.start_mark)
        keys.append(key.value)
        _check_keys(value)


def _build_rules(content: _RulesFile) -> Iterator[Rule]:
    for text in content.requires:
        yield Rule(f"without {text}", "required", re.compile(rf"\A(?!.*{_escape(text)})"))
    for category, texts in content.keywords.items():
        for text in texts:
            words = [rf"(?<!\w){_escape(part)}(?!\w)" for part in text.split("…") if part.strip()]
            # atomic groups, because backtracking would take quadratic time
            gaps = r"\A" + "".join(f"(?>.*?{word})" for word in words)
            yield Rule(text, category, re.compile(words[0] if len(words) == 1 else gaps))
    for category, texts in content.substrings.items():
        yield from (Rule(text, category, re.compile(_escape(text))) for text in texts)


def _escape(text: str) -> str:
    return re.escape(_fold(text))
