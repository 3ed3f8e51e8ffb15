from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ModelError
from agent.llm.base import LLM, Call
from agent.llm.heuristic import VERSION, HeuristicModel
from agent.types import Usage
from tests.llm.heuristic.running import variables

EXECUTION: dict[str, Any] = {
    "program": None,
    "report": None,
    "output": None,
    "simulated": None,
    "stand_ins": (),
    "installed": (),
    "problem": None,
    "round": 1,
    "history": (),
    "signature": "def f(x): ...",
    "surroundings": "",
}
ROLES = (
    "specify_query", "screen", "judge", "arbitrate", "simulate", "generate_test", "scaffold", "generate_blind", "repair"
)  # fmt: skip


def call(role: str, query: str = "sort a list", code: str = "def f(x): return sorted(x)", **more: Any) -> Call:
    return Call(role=role, messages=(), variables={**variables(query, code), **EXECUTION, **more})


def test_it_is_a_model_named_by_its_rules_version() -> None:
    model = HeuristicModel()
    assert isinstance(model, LLM)
    assert json.loads(json.dumps(model.identity())) == {"model": "heuristic", "version": VERSION}


@pytest.mark.parametrize("role", ROLES)
async def test_every_role_is_answered_free_of_charge(role: str) -> None:
    reply = await HeuristicModel().reply(call(role))
    assert reply.text
    assert reply.model == "heuristic"
    assert reply.usage == Usage(calls=0, cost_usd=0.0)


async def test_a_role_without_a_rule_is_an_error_of_the_pair() -> None:
    with pytest.raises(ModelError, match="no rule for the role 'poet'"):
        await HeuristicModel().reply(call("poet"))


async def test_tests_in_other_languages_are_refused_rather_than_invented() -> None:
    for role in ("generate_test", "scaffold", "generate_blind"):
        with pytest.raises(ModelError, match="Python alone, not for 'sql'"):
            await HeuristicModel().reply(call(role, language="sql"))
    assert (await HeuristicModel().reply(call("judge", language="sql"))).text


def test_another_process_gives_the_same_replies() -> None:
    script = (
        "import asyncio; from agent.llm.heuristic import HeuristicModel; from tests.llm.heuristic.test_model import *\n"
        "code = 'def f(self, a): return g(A, b, a)'\n"
        "for role in ROLES: print(asyncio.run(HeuristicModel().reply(call(role, code=code))).text)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ROLES), st.text(), st.text())
async def test_no_pair_makes_it_raise(role: str, query: str, code: str) -> None:
    assert (await HeuristicModel().reply(call(role, query, code))).text
