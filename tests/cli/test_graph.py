"""`agent graph` lists and draws variants."""

from __future__ import annotations

from agent.pipeline.graph import Variant, list_variants, load_variant, render_mermaid
from tests.cli.commands import Commands


def test_without_a_name_every_variant_is_listed_with_its_title(agent: Commands) -> None:
    result = agent("graph")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == list_variants()
    assert all(len(line.split()) > 2 for line in result.out.splitlines())


def test_custom_variant_is_drawn_from_its_file(agent: Commands) -> None:
    path = agent.write("own.yaml", "start: judge\nnodes:\n  judge: {decided: end}\n")
    assert "judge -- decided --> label" in agent("graph", path).out


def test_json_lists_variants_and_describes_one(agent: Commands) -> None:
    variants = agent("graph", "--json").json
    assert [variant["name"] for variant in variants] == list_variants()
    assert [variant["title"] for variant in variants] == [load_variant(variant["name"]).title for variant in variants]
    document = agent("graph", "full", "--without", "screen", "--json").json
    flowchart = document.pop("mermaid")
    assert Variant.model_validate(document) == load_variant("full").without("screen")
    assert flowchart == render_mermaid(load_variant("full").without("screen"))


def test_invalid_variant_is_rejected_with_the_reason(agent: Commands) -> None:
    agent.check_refused("'fulll'", "graph", "fulll")
    agent.check_refused("'judge'", "graph", "full", "--without", "judge")
    dangling = agent.write("own.yaml", "start: screen\nnodes:\n  screen: {match: end, non_match: end, unclear: end}\n")
    agent.check_refused("label", "graph", dangling)
    for file in ("missing.yaml", agent.write("no.yaml", "[")):
        assert agent.check_refused("agent: ", "graph", file).count("agent: ") == 1
