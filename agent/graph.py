"""Builds a variant's graph from `graphs/*.yaml`: checked, compiled by LangGraph, drawn as Mermaid."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.config import find_data_folder
from agent.errors import AgentError, ConfigError, GraphError, NodeError
from agent.languages.base import Language
from agent.llm.failures import sanitise
from agent.nodes import BUILT_IN
from agent.prompts import Role
from agent.state import Node, State, Step, Tools
from agent.wording import describe_error

_log = logging.getLogger(__name__)
END = "end"
_INITIAL_KEYS = frozenset({"pair"})
_SANDBOX_SETTINGS = frozenset({"pipeline.sandbox_attempts", "runner.sandboxes"})


class Variant(BaseModel):
    """A pipeline as data: where it starts and where each node's outcomes lead (`end` ends it)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str = ""
    paper: str | None = None
    start: str
    nodes: dict[str, dict[str, str]] = Field(min_length=1)

    def without(self, name: str, nodes: Mapping[str, Node] = BUILT_IN) -> Variant:
        """Return this variant with a node toggled off.

        If the node names a plain one, the plain node takes its place and its edges. If the variant has the plain node
        already, edges to the node lead there instead. Edges to any other node lead to the target of its bypass outcome.

        Raises:
            GraphError: the variant has no such node, or the node cannot be toggled off.
        """
        if name not in self.nodes:
            raise GraphError(f"variant {self.name!r} has no node {name!r}; it has: {', '.join(self.nodes)}")
        node = _get_node(name, self.name, nodes)
        if node.plain is not None:
            if set(node.outcomes) != set(_get_node(node.plain, self.name, nodes).outcomes):
                raise GraphError(f"node {name!r} cannot give way to {node.plain!r}: their outcomes differ")
            target = node.plain
        elif node.bypass is not None:
            target = self.nodes[name][node.bypass]
        else:
            raise GraphError(f"node {name!r} cannot be left out: the pipeline has no way around it")
        gives_place = node.plain is not None and node.plain not in self.nodes
        instead = {name: target}
        left = {
            instead.get(other, other): {outcome: instead.get(to, to) for outcome, to in edges.items()}
            for other, edges in self.nodes.items()
            if other != name or gives_place
        }
        named = {"name": f"{self.name}-without-{name}", "title": f"{self.title}; without {name}", "paper": None}
        return self.model_copy(update={**named, "start": instead.get(self.start, self.start), "nodes": left})


def list_variants(folder: Path | None = None) -> list[str]:
    """Return the names of the variants that ship with the package (or lie in `folder`)."""
    return sorted(path.stem for path in (folder or find_data_folder("graphs")).glob("*.yaml"))


def load_variant(source: str | Path | Mapping[str, Any] | Variant) -> Variant:
    """Load a variant by its name, from a YAML file, or from a mapping.

    Raises:
        ConfigError: the name is unknown or the file unreadable.
        GraphError: the description is malformed.
    """
    if isinstance(source, Variant):
        return source
    if isinstance(source, Mapping):
        return _parse_variant({"name": "custom", **source}, "the given mapping")
    path = Path(source)
    if isinstance(source, str) and path.suffix not in (".yaml", ".yml"):
        if source not in list_variants():
            raise ConfigError(f"unknown variant {source!r}; there are: {', '.join(list_variants())}")
        path = find_data_folder("graphs") / f"{source}.yaml"
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot read the variant: {error}") from error
    if not isinstance(loaded, dict):
        raise GraphError(f"{path}: a variant is a mapping with start and nodes")
    return _parse_variant({"name": path.stem, **loaded}, str(path))


class Pipeline:
    """A compiled variant. `roles` are the roles in which its nodes ask models."""

    def __init__(self, variant: Variant, nodes: Mapping[str, Node]) -> None:
        self.variant = variant
        self.uses_sandbox = any(nodes[name].uses_sandbox for name in variant.nodes)
        self.roles = collect_roles(variant, nodes)
        self._nodes = {name: nodes[name] for name in variant.nodes}
        self._compiled = _compile(variant, nodes)

    def __reduce__(self) -> tuple[type[Pipeline], tuple[Variant, Mapping[str, Node]]]:
        return Pipeline, (self.variant, self._nodes)  # LangGraph's own objects do not survive being pickled

    async def run(self, state: State, tools: Tools) -> AsyncGenerator[tuple[str, State, State], None]:
        """Run one pair from start to end. Yield each node that ran, its changes, and the state after it.

        Raises:
            PairError: the pair ends without a label.
            RunStopped: the run ends.
        """
        from langgraph.errors import GraphRecursionError

        config = {"recursion_limit": 60 + 8 * tools.config.max_try_time}
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
            raise NodeError(f"the pair went through {limit} nodes without an end: the variant loops", name) from error


def build(
    source: str | Path | Mapping[str, Any] | Variant,
    *,
    without: tuple[str, ...] = (),
    nodes: Mapping[str, Node] | None = None,
) -> Pipeline:
    """Build a variant; `nodes` adds nodes or replaces built-in ones by name.

    Raises:
        ConfigError: the variant is unknown.
        GraphError: a name is unknown, a node is unreachable or lacks an input, an outcome leads nowhere.
    """
    known = {**BUILT_IN, **(nodes or {})}
    variant = load_variant(source)
    for name in without:
        variant = variant.without(name, known)
    check_variant(variant, known)
    return Pipeline(variant, known)


def check_variant(variant: Variant, nodes: Mapping[str, Node]) -> None:
    """Refuse a variant that cannot reach a label.

    Raises:
        GraphError: says which node or edge is wrong.
    """
    places = {*variant.nodes, END}
    if variant.start not in variant.nodes:
        raise GraphError(f"variant {variant.name!r} starts at {variant.start!r}, which is not among its nodes")
    for name, edges in variant.nodes.items():
        node = _get_node(name, variant.name, nodes)
        if set(edges) != set(node.outcomes):
            raise GraphError(
                f"variant {variant.name!r}, node {name!r}: it ends in {', '.join(node.outcomes)}, "
                f"but the variant has edges for {', '.join(edges) or 'none'}"
            )
        for outcome, target in edges.items():
            if target not in places:
                raise GraphError(f"variant {variant.name!r}: {name}.{outcome} leads to unknown node {target!r}")
    available = _find_available(variant, nodes)
    for name in variant.nodes:
        if name not in available:
            raise GraphError(
                f"variant {variant.name!r}: node {name!r} cannot be reached; leave it out too (--without {name})"
            )
        lacking = nodes[name].requires - available[name]
        if lacking:
            raise GraphError(f"variant {variant.name!r}: nothing before {name!r} provides {', '.join(sorted(lacking))}")
    if "label" not in available.get(END, frozenset()):
        raise GraphError(f"variant {variant.name!r} can end without a label")


def find_readers(
    setting: str, variant: Variant | None = None, nodes: Mapping[str, Node] = BUILT_IN
) -> list[str] | None:
    """Return the nodes (of a variant, or all) that read a setting such as `pipeline.votes`. None: any node may."""
    group, _, name = setting.partition(".")
    if group == "sandbox" or setting in _SANDBOX_SETTINGS:
        reading = [each for each, node in nodes.items() if node.uses_sandbox]
    else:
        reading = [each for each, node in nodes.items() if group == "pipeline" and name in node.settings]
    if not reading:
        return None
    return reading if variant is None else [each for each in reading if each in variant.nodes]


def render_mermaid(variant: Variant) -> str:
    """Return the variant as a Mermaid flowchart."""
    lines = ["flowchart LR", f"    pair([pair]) --> {variant.start}"]
    for name, edges in variant.nodes.items():
        lines.append(f"    {name}[{name}]")
        lines += [
            f"    {name} -- {outcome} --> {'label([label])' if to == END else to}" for outcome, to in edges.items()
        ]
    return "\n".join(lines) + "\n"


def collect_roles(variant: Variant, nodes: Mapping[str, Node] = BUILT_IN) -> tuple[str, ...]:
    """Return the roles that a variant's nodes ask models in."""
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
        raise GraphError(f"variant {variant!r} names an unknown node {name!r}; known are: {', '.join(nodes)}")
    return nodes[name]


def _find_available(variant: Variant, nodes: Mapping[str, Node]) -> dict[str, frozenset[str]]:
    """Return, for each reachable place, the state keys that every path to it provides."""
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


async def _get_outcome(state: State) -> str:  # LangGraph gives any other function a thread
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

    # LangGraph injects by annotation, and is imported only when a pipeline is built
    run.__annotations__ = {"state": State, "runtime": Runtime[Tools]}
    return run


def _check_step(node: Node, step: Step) -> None:
    """Refuse a step that the node does not declare, or whose label is none."""
    if step.outcome not in node.outcomes:
        raise ValueError(f"{step.outcome!r} is no outcome that it declares")
    if missing := node.outcomes[step.outcome] - step.update.keys():
        raise ValueError(f"{step.outcome!r} lacks {', '.join(sorted(missing))}")
    if step.update.get("label") not in (None, 0, 1):
        raise ValueError(f"{step.update.get('label')!r:.40} is no label")


def _is_built_in(part: Node | Language) -> bool:
    return type(part).__module__.startswith("agent.")
