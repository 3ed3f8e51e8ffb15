"""Loads variants from `graphs/*.yaml`, checks them, compiles them with LangGraph and draws them as Mermaid."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.config import REMOVED_VARIANTS, find_data_folder
from agent.errors import AgentError, ConfigError, GraphError, NodeError
from agent.languages.base import Language
from agent.llm.failures import sanitise
from agent.pipeline.nodes.generate_test import GenerateTest
from agent.pipeline.nodes.open_context import OpenContext
from agent.pipeline.nodes.registry import BUILT_IN
from agent.pipeline.prompts import Role
from agent.pipeline.state import Node, State, Step, Tools
from agent.text import describe_error

_log = logging.getLogger(__name__)
END = "end"
_INITIAL_KEYS = frozenset({"pair"})
_SANDBOX_SETTINGS = frozenset({"pipeline.sandbox_attempts", "runner.sandboxes"})


class Variant(BaseModel):
    """A pipeline described as data: the start node, and a target for each outcome of each node.

    The target `end` finishes the pair. `criterion` applies unless the setting `pipeline.criterion` has a value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str = ""
    paper: str | None = None
    criterion: Literal["exact", "half"] = "exact"
    start: str
    nodes: dict[str, dict[str, str]] = Field(min_length=1)

    @property
    def opens_context(self) -> bool:
        """Whether tests run in the snippet's own module, if possible."""
        return OpenContext.name in self.nodes

    def with_context(self) -> Variant:
        """Return this variant with the node `open_context` before `generate_test`.

        Edges that return to `generate_test`, such as the edge for a rewritten program, stay the same.

        Raises:
            ConfigError: the variant writes no tests.
        """
        opening, writing = OpenContext.name, GenerateTest.name
        if self.opens_context:
            return self
        if writing not in self.nodes:
            remedy = "Choose another variant, or remove --context (pipeline.context)"
            raise ConfigError(f"the variant {self.name} writes no tests, so none can run in a module. {remedy}")
        later = [writing]
        for name in later:
            later += set(self.nodes.get(name, {}).values()).difference(later)
        nodes = {
            name: {outcome: opening if to == writing else to for outcome, to in edges.items()}
            for name, edges in self.nodes.items()
            if name not in later
        }
        nodes[opening] = dict.fromkeys(OpenContext.outcomes, writing)
        nodes |= {name: edges for name, edges in self.nodes.items() if name in later}
        start = opening if self.start == writing else self.start
        return self.model_copy(update={"start": start, "nodes": nodes})

    def without(self, name: str, nodes: Mapping[str, Node] = BUILT_IN) -> Variant:
        """Return this variant with a node toggled off.

        The node's incoming edges lead to the target of its `bypass` outcome.

        Raises:
            GraphError: the variant has no such node, or the node cannot be toggled off.
        """
        if name not in self.nodes:
            raise GraphError(f"variant {self.name!r} has no node {name!r}; its nodes are {', '.join(self.nodes)}")
        node = _get_node(name, self.name, nodes)
        if node.bypass is None:
            raise GraphError(f"node {name!r} cannot be toggled off: it has no bypass outcome")
        targets = {name: self.nodes[name][node.bypass]}
        remaining = {
            other: {outcome: targets.get(to, to) for outcome, to in edges.items()}
            for other, edges in self.nodes.items()
            if other != name
        }
        names = {"name": f"{self.name}-without-{name}", "title": f"{self.title}; without {name}", "paper": None}
        return self.model_copy(update={**names, "start": targets.get(self.start, self.start), "nodes": remaining})


def list_variants() -> list[str]:
    """Return the names of the built-in variants."""
    return sorted(path.stem for path in find_data_folder("graphs").glob("*.yaml"))


def load_variant(source: str | Path | Mapping[str, Any] | Variant) -> Variant:
    """Load a variant by its name, from a YAML file, or from a mapping.

    Raises:
        ConfigError: the name is unknown or the file is unreadable.
        GraphError: the definition is malformed.
    """
    if isinstance(source, Variant):
        return source
    if isinstance(source, Mapping):
        return _parse_variant({"name": "custom", **source}, "the variant mapping")
    path = Path(source)
    if isinstance(source, str) and path.suffix not in (".yaml", ".yml"):
        if source in REMOVED_VARIANTS:
            raise ConfigError(
                f"the variant {source} no longer exists. Its runs can be read, but not resumed. "
                "Choose the variant full and another folder (-o; in Python run_dir)."
            )
        if source not in list_variants():
            raise ConfigError(f"unknown variant {source!r}; choose from: {', '.join(list_variants())}")
        path = find_data_folder("graphs") / f"{source}.yaml"
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot read the variant: {error}") from error
    if not isinstance(fields, dict):
        raise GraphError(f"{path}: a variant must be a mapping with the keys start and nodes")
    return _parse_variant({"name": path.stem, **fields}, str(path))


class Pipeline:
    """A compiled variant. `roles` are the roles in which its nodes call models."""

    def __init__(self, variant: Variant, nodes: Mapping[str, Node]) -> None:
        self.variant = variant
        self.uses_sandbox = any(nodes[name].uses_sandbox for name in variant.nodes)
        self.needs_language = writes_programs(variant, nodes)
        self.roles = collect_roles(variant, nodes)
        self._nodes = {name: nodes[name] for name in variant.nodes}
        self._compiled = _compile(variant, nodes)

    def __reduce__(self) -> tuple[type[Pipeline], tuple[Variant, Mapping[str, Node]]]:
        return Pipeline, (self.variant, self._nodes)  # LangGraph's objects cannot be pickled

    async def run(self, state: State, tools: Tools) -> AsyncGenerator[tuple[str, State, State], None]:
        """Run the pipeline on one pair.

        Yield the name, the state changes and the resulting state of each node that ran.

        Raises:
            PairError: the pair cannot be annotated.
            RunStopped: the run cannot continue.
        """
        from langgraph.errors import GraphRecursionError

        config = {"recursion_limit": 60 + 8 * tools.config.max_repairs}
        modes = ["updates", "values"]
        updates: dict[str, State] = {}
        name = self.variant.start
        try:
            async with aclosing(self._compiled.astream(state, config, context=tools, stream_mode=modes)) as parts:
                async for mode, part in parts:
                    if mode == "updates":
                        updates = part
                    else:
                        for name, update in updates.items():
                            yield name, update, part
                        updates = {}
        except GraphRecursionError as error:
            limit = config["recursion_limit"]
            raise NodeError(
                f"the pair visited {limit} nodes without reaching the end: the variant contains a loop", name
            ) from error


def build(
    source: str | Path | Mapping[str, Any] | Variant,
    *,
    without: tuple[str, ...] = (),
    nodes: Mapping[str, Node] | None = None,
    context: str = "none",
) -> Pipeline:
    """Load, check and compile a variant. `nodes` are added to the built-in nodes or replace those with the same name.

    Raises:
        ConfigError: the variant is unknown, or writes no tests although `context` is `module`.
        GraphError: a node is unknown, is unreachable or lacks an input, or an outcome has no target.
    """
    known = {**BUILT_IN, **(nodes or {})}
    variant = load_variant(source)
    variant = variant.with_context() if context == "module" else variant
    for name in without:
        variant = variant.without(name, known)
    check_variant(variant, known)
    return Pipeline(variant, known)


def check_variant(variant: Variant, nodes: Mapping[str, Node]) -> None:
    """Check that a variant is complete and that every path ends with a label.

    Raises:
        GraphError: the variant is incomplete, or a path ends without a label. The message names the node or edge.
    """
    places = {*variant.nodes, END}
    if variant.start not in variant.nodes:
        raise GraphError(f"variant {variant.name!r} starts at {variant.start!r}, which is not one of its nodes")
    for name, edges in variant.nodes.items():
        node = _get_node(name, variant.name, nodes)
        if set(edges) != set(node.outcomes):
            raise GraphError(
                f"variant {variant.name!r}, node {name!r}: its outcomes are {', '.join(node.outcomes)}, "
                f"but the variant has edges for {', '.join(edges) or 'none'}"
            )
        for outcome, target in edges.items():
            if target not in places:
                raise GraphError(f"variant {variant.name!r}: {name}.{outcome} leads to unknown node {target!r}")
    available = _find_available(variant, nodes)
    for name in variant.nodes:
        if name not in available:
            raise GraphError(
                f"variant {variant.name!r}: node {name!r} is unreachable; toggle it off too (--without {name})"
            )
        missing = nodes[name].requires - available[name]
        if missing:
            raise GraphError(f"variant {variant.name!r}: no node before {name!r} provides {', '.join(sorted(missing))}")
    if "label" not in available.get(END, frozenset()):
        raise GraphError(f"variant {variant.name!r} can end without a label")


def writes_programs(variant: Variant, nodes: Mapping[str, Node] = BUILT_IN) -> bool:
    """Return whether a variant writes or runs programs, which is possible only in supported languages."""
    used = [nodes[name] for name in variant.nodes]
    return any(node.uses_sandbox or "program" in frozenset().union(*node.outcomes.values()) for node in used)


def always_tests(variant: Variant) -> bool:
    """Return whether every path through a complete variant leads to a test report."""
    return "report" in _find_available(variant, BUILT_IN)[END]


def find_readers(setting: str, variant: Variant | None = None) -> list[str] | None:
    """Return the names of the built-in nodes that read a setting such as `pipeline.test_timeout`.

    If `variant` is set, return only its nodes. Return None if the setting is not tied to particular nodes.
    """
    group, _, name = setting.partition(".")
    if group == "sandbox" or setting in _SANDBOX_SETTINGS:
        readers = [reader for reader, node in BUILT_IN.items() if node.uses_sandbox]
    else:
        readers = [reader for reader, node in BUILT_IN.items() if group == "pipeline" and name in node.settings]
    if not readers:
        return None
    return readers if variant is None else [reader for reader in readers if reader in variant.nodes]


def render_mermaid(variant: Variant) -> str:
    """Render the variant as a Mermaid flowchart."""
    lines = ["flowchart LR", f"    pair([pair]) --> {variant.start}"]
    for name, edges in variant.nodes.items():
        lines.append(f"    {name}[{name}]")
        lines += [
            f"    {name} -- {outcome} --> {'label([label])' if to == END else to}" for outcome, to in edges.items()
        ]
    return "\n".join(lines) + "\n"


def collect_roles(variant: Variant, nodes: Mapping[str, Node] = BUILT_IN) -> tuple[str, ...]:
    """Return the names of the roles in which a variant's nodes call models."""
    return tuple(dict.fromkeys(role.name for name in variant.nodes for role in nodes[name].roles))


def collect_known_roles(nodes: Mapping[str, Node] = BUILT_IN) -> tuple[Role, ...]:
    """Return the roles of all nodes."""
    return tuple(role for node in nodes.values() for role in node.roles)


def _parse_variant(fields: Mapping[str, Any], place: str) -> Variant:
    try:
        return Variant.model_validate(fields)
    except ValidationError as error:
        raise GraphError(f"{place}: {describe_error(error)}") from error


def _get_node(name: str, variant: str, nodes: Mapping[str, Node]) -> Node:
    if name not in nodes:
        raise GraphError(f"variant {variant!r} contains an unknown node {name!r}; known nodes: {', '.join(nodes)}")
    return nodes[name]


def _find_available(variant: Variant, nodes: Mapping[str, Node]) -> dict[str, frozenset[str]]:
    """Return the state keys that every path to a node provides, for each reachable node and for the end."""
    available = {variant.start: _INITIAL_KEYS}
    pending = [variant.start]
    while pending:
        name = pending.pop()
        if name == END:
            continue
        for outcome, target in variant.nodes[name].items():
            arriving = available[name] | nodes[name].outcomes[outcome]
            merged = arriving if target not in available else available[target] & arriving
            if available.get(target) != merged:
                available[target] = merged
                pending.append(target)
    return available


def _compile(variant: Variant, nodes: Mapping[str, Node]) -> Any:
    from langgraph.graph import END as GRAPH_END
    from langgraph.graph import START, StateGraph

    graph = StateGraph(State, context_schema=Tools)
    for name, edges in variant.nodes.items():
        graph.add_node(name, cast(Any, _adapt_node(name, nodes[name])))
        path_map = {outcome: GRAPH_END if target == END else target for outcome, target in edges.items()}
        graph.add_conditional_edges(name, _get_outcome, cast(Any, path_map))
    graph.add_edge(START, variant.start)
    return graph.compile()


async def _get_outcome(state: State) -> str:  # async, because LangGraph runs synchronous functions in a thread
    return state["outcome"]


def _adapt_node(name: str, node: Node) -> Callable[..., Awaitable[dict[str, Any]]]:
    from langgraph.runtime import Runtime

    async def run(state: State, runtime: Any) -> dict[str, Any]:
        tools: Tools = runtime.context
        with tools.tracer.span("node", f"node {name}", node=name) as record:
            try:
                step = await node(state, tools)
                _check_step(node, step)
                record(outcome=step.outcome)
            except Exception as error:
                if isinstance(error, AgentError) or (_is_built_in(node) and _is_built_in(tools.language)):
                    raise
                _log.info("node %r raised", name, exc_info=True)
                message = f"node {name!r} raised {type(error).__name__}: {sanitise(str(error), ())}"
                raise NodeError(message, name) from error
        return {**step.update, "outcome": step.outcome}

    # LangGraph injects `runtime` based on this annotation. LangGraph is imported only when a pipeline is built.
    run.__annotations__ = {"state": State, "runtime": Runtime[Tools]}
    return run


def _check_step(node: Node, step: Step) -> None:
    """Check that a step has a declared outcome, provides the keys declared for it, and has a valid label, if any."""
    if step.outcome not in node.outcomes:
        raise ValueError(f"{step.outcome!r} is not one of its declared outcomes")
    if missing := node.outcomes[step.outcome] - step.update.keys():
        raise ValueError(f"its outcome {step.outcome!r} does not provide {', '.join(sorted(missing))}")
    if step.update.get("label") not in (None, 0, 1):
        raise ValueError(f"{step.update.get('label')!r:.40} is not a label")


def _is_built_in(part: Node | Language) -> bool:
    return type(part).__module__.startswith("agent.")
