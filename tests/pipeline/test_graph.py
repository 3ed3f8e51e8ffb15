"""Variants are checked before they are built, and a drawing shows every edge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.errors import ConfigError, GraphError
from agent.pipeline.graph import build, list_variants, load_variant, render_mermaid
from agent.pipeline.nodes.asking import ARBITRATE, JUDGE
from agent.pipeline.state import Node, State, Step, Tools

TABLE_VI = ["full", "ps_fa", "ps_tpg_fa", "ps_tpg_sim_fa", "ps_tpg_te_fa", "single_llm"]
OURS = ["cosqa", "no_screen", "rule_arbiter"]


def variant(**changes: Any) -> dict[str, Any]:
    base = {"start": "screen", "nodes": {"screen": {"match": "end", "non_match": "end", "unclear": "arbitrate"}}}
    base["nodes"] |= {"arbitrate": {"decided": "end"}}  # type: ignore[operator]
    return {**base, **changes}


def test_all_variants_are_listed() -> None:
    assert list_variants() == sorted(TABLE_VI + OURS)


@pytest.mark.parametrize("name", TABLE_VI + OURS)
def test_every_variant_builds(name: str) -> None:
    assert build(name).variant.name == name


@pytest.mark.parametrize("name", TABLE_VI)
def test_variants_of_the_paper_name_their_row_of_table_vi(name: str) -> None:
    assert (load_variant(name).paper or "").startswith("Table VI: ")


def test_a_variant_without_a_node_is_not_a_row_of_the_paper() -> None:
    original, reduced = load_variant("full"), load_variant("full").without("repair")
    assert (reduced.paper, reduced.title) == (None, f"{original.title}; without repair")


@pytest.mark.parametrize(
    ("name", "uses_sandbox"),
    [("single_llm", False), ("ps_fa", False), ("ps_tpg_fa", False), ("ps_tpg_sim_fa", False), ("full", True)],
)
def test_a_variant_that_executes_nothing_needs_no_sandbox(name: str, uses_sandbox: bool) -> None:
    assert build(name).uses_sandbox is uses_sandbox


def test_full_without_the_screener_equals_no_screen() -> None:
    reduced = load_variant("full").without("screen")
    assert (reduced.start, reduced.nodes) == (load_variant("no_screen").start, load_variant("no_screen").nodes)


@pytest.mark.parametrize(
    ("node", "message"),
    [("nothing", "'nothing'; "), ("arbitrate", "'arbitrate'.*bypass"), ("execute", "'execute'.*bypass")],
)
def test_a_node_that_cannot_be_toggled_off_is_named(node: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build("full", without=(node,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": "nowhere"}, "'nowhere'"),
        (
            {"nodes": {"screen": {"match": "end", "non_match": "end", "unclear": "gone"}}},
            "screen.unclear .*'gone'",
        ),
        ({"nodes": {"screen": {"match": "end"}}}, "'screen': .*match, non_match, unclear.*match"),
        ({"nodes": {"dream": {"x": "end"}}, "start": "dream"}, "'dream'"),
        ({"start": "arbitrate"}, "'screen' .*--without screen"),
        (
            {"start": "execute", "nodes": {"execute": dict.fromkeys(("evidence", "broken", "not_exercised"), "end")}},
            "'execute' .*program",
        ),
        ({"nodes": {"screen": {"match": "end", "non_match": "end", "unclear": "end"}}}, "can end without a label"),
    ],
)
def test_an_invalid_variant_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build(variant(**changes))


@pytest.mark.parametrize("name", ["full", "no_screen", "ps_tpg_sim_fa", "rule_arbiter"])
def test_the_module_is_opened_before_a_test_is_written_and_not_before_it_is_rewritten(name: str) -> None:
    plain = load_variant(name)
    opening = plain.with_context()
    assert opening.nodes["open_context"] == {"in_module": "generate_test", "alone": "generate_test"}
    entering = [node for node, edges in opening.nodes.items() if "generate_test" in edges.values()]
    returning = ["execute"] if "not_exercised" in plain.nodes.get("execute", {}) else []
    assert entering == ["open_context", *returning]
    assert build(name, context="module").uses_sandbox
    assert opening.with_context() == opening
    without = opening.without("open_context")
    assert (without.start, without.nodes) == (plain.start, plain.nodes)
    assert render_mermaid(opening).count("--> open_context") == 1


def test_a_variant_without_tests_opens_no_module() -> None:
    with pytest.raises(ConfigError, match="ps_fa"):
        build("ps_fa", context="module")


def test_an_input_must_be_provided_on_every_path() -> None:
    nodes = {
        "screen": {"match": "end", "non_match": "end", "unclear": "generate_test"},
        "generate_test": {"generated": "execute", "snippet_error": "execute"},
        "execute": dict.fromkeys(("evidence", "broken", "not_exercised"), "arbitrate"),
        "arbitrate": {"decided": "end"},
    }
    with pytest.raises(GraphError, match=r"'execute' .*program"):
        build({"start": "screen", "nodes": nodes})


def test_a_variant_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("start: judge\nnodes:\n  judge: {decided: end}\n")
    assert build(path).variant.name == "mine"


@pytest.mark.parametrize("text", ["start: [", "- a", "start: judge\n"])
def test_a_file_without_a_valid_variant_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="mine"):
        build(path)


def test_every_edge_is_in_the_drawing() -> None:
    drawing = render_mermaid(load_variant("full"))
    for name, edges in load_variant("full").nodes.items():
        for outcome, target in edges.items():
            assert f"{name} -- {outcome} --> {'label' if target == 'end' else target}" in drawing


class Careful(Node):
    """A replacement for `arbitrate` with two roles."""

    name = "careful"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {"decided": frozenset({"label", "decided_by", "reason"})}
    roles = (ARBITRATE, JUDGE)

    async def __call__(self, state: State, tools: Tools) -> Step:
        raise NotImplementedError


WITH_CAREFUL = variant(
    nodes={"screen": {"match": "end", "non_match": "end", "unclear": "careful"}, "careful": {"decided": "end"}}
)


def test_a_node_may_have_several_roles() -> None:
    assert build(WITH_CAREFUL, nodes={"careful": Careful()}).roles == ("screen", "arbitrate", "judge")
