"""`agent graph` lists the pipelines and draws them."""

from __future__ import annotations

from agent.graph import Variant, list_variants, load_variant, render_mermaid
from tests.cli.commands import Commands


def test_without_a_name_every_variant_is_listed_with_its_title(agent: Commands) -> None:
    listed = agent("graph")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == list_variants()
    assert all(len(line.split()) > 2 for line in listed.out.splitlines())


def test_a_variant_of_ones_own_is_drawn_from_its_file(agent: Commands) -> None:
    own = agent.write("own.yaml", "start: judge\nnodes:\n  judge: {decided: end}\n")
    assert "judge -- decided --> label" in agent("graph", own).out


def test_a_program_may_read_the_list_and_a_variant(agent: Commands) -> None:
    listed = agent("graph", "--json").json
    assert [each["name"] for each in listed] == list_variants()
    assert [each["title"] for each in listed] == [load_variant(each["name"]).title for each in listed]
    told = agent("graph", "full", "--without", "screen", "--json").json
    drawn = told.pop("mermaid")
    assert Variant.model_validate(told) == load_variant("full").without("screen")
    assert drawn == render_mermaid(load_variant("full").without("screen"))


def test_what_cannot_be_built_is_refused_with_the_reason(agent: Commands) -> None:
    unknown = agent("graph", "fulll")
    assert (unknown.code, unknown.out) == (2, "")
    assert "variant 'fulll'" in unknown.err
    assert "has no node 'judge'" in agent("graph", "full", "--without", "judge").err
    dangling = agent.write("own.yaml", "start: screen\nnodes:\n  screen: {match: end, non_match: end, unclear: end}\n")
    assert "can end without a label" in agent("graph", dangling).err
    for ended in (agent("graph", "missing.yaml"), agent("graph", agent.write("no.yaml", "["))):
        assert (ended.code, ended.err.count("agent: ")) == (2, 1)
        assert "Traceback" not in ended.err
