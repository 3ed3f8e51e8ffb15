"""The call that requests test cases shows only signatures: no prompt or error message contains the code's body."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent import Annotation, Annotator, Pair, ScriptedLLM, ScriptedSandbox
from agent.languages.python.language import PythonLanguage
from agent.llm.base import Call, Reply
from agent.llm.heuristic import HeuristicModel
from agent.pipeline.nodes.generate_test import BLIND
from agent.pipeline.prompts import Prompts
from tests.scripts import PAIR, label, pass_all, program

LANGUAGE = PythonLanguage()
VARIANT = {
    "start": "generate_blind",
    "nodes": {
        "generate_blind": {"generated": "arbitrate", "snippet_error": "arbitrate"},
        "arbitrate": {"decided": "end"},
    },
}
RANKING = Pair(
    id="r",
    query="sort scores high to low",
    code='''def ranking(self, limit=10):
    """Docstring with the word zebra."""
    # a comment about giraffes
    HIDDEN = 4711
    return sorted(self.points, key=helper, reverse=True)[:limit] or "nothing-at-all"
''',
    context="found beside an elephant",
)
SCAFFOLD = """import collections  # zebra

class Board:
    def __init__(self, scores):
        self.points = scores

    # <candidate>

def helper(value):
    return value
"""
CASES = "def test_mixed():\n    assert list(Board([3, 9, 5]).ranking()) == [9, 5, 3]\n"


def make_model(**replies: list[str]) -> ScriptedLLM:
    defaults = {"scaffold": [program(SCAFFOLD, ["Board"])], "generate_blind": [program(CASES)], "arbitrate": [label(1)]}
    return ScriptedLLM({**defaults, **replies})


async def annotate(model: Any, pair: Pair = RANKING, **options: Any) -> Annotation:
    async with Annotator(model=model, **{"variant": VARIANT, **options}) as annotator:
        return await anext(annotator.annotate([pair]))


def join_prompts(model: ScriptedLLM, role: str = "generate_blind") -> str:
    return "\n".join(m.content for call in model.calls if call.role == role for m in call.messages)


WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*")
SYNTAX_OF_STRINGS = re.compile(r"""\b[rbfu]{1,2}(?=['"])|![rsa](?=[:}])""")
STATIC = "\n".join(
    message.content
    for surroundings in ("", "s")
    for message in Prompts().render(
        BLIND,
        {**dict.fromkeys(BLIND.variables, "s"), "marker": LANGUAGE.marker, "language": "python",
         "fence": "python", "spec": None, "weakness": None, "surroundings": surroundings},
    )
)  # fmt: skip


def collect_body_tokens(code: str) -> tuple[set[str], set[str]]:
    """Return a snippet's words (names, numbers, words of comments) and its string values."""
    words: set[str] = set()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.COMMENT):
            words.update(WORD.findall(token.string))
    constants = (node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant))
    return words, {value for value in constants if isinstance(value, str)}


def find_leaks(prompt: str, code: str, allowed: Iterable[str]) -> set[str]:
    """Return the snippet's tokens in a prompt that are neither in its fixed text nor in `allowed`."""
    known = "\n".join((STATIC, *allowed))
    words, strings = collect_body_tokens(code)
    secret = words | {text for text in strings if WORD.fullmatch(text)}
    leaks = secret & set(WORD.findall(SYNTAX_OF_STRINGS.sub("", prompt))) - set(WORD.findall(known))
    return leaks | {text for text in strings - secret if text not in known and text in prompt}


def test_find_leaks_finds_words_and_strings() -> None:
    words = {"4711", "nothing-at-all", "giraffes"}
    assert find_leaks("it has 4711 and nothing-at-all, giraffes", RANKING.code, ()) == words
    assert find_leaks("4711", RANKING.code, ["4711"]) == set()


LEAKING = """import collections
'''ranking returns sorted(self.points, key=helper, reverse=True)[:limit]'''

class Board:
    "The snippet: return sorted(self.points, key=helper, reverse=True)[:limit] or 'nothing-at-all'"

    def __init__(self, scores, given_size=4711, given_note: "sorted" = "nothing-at-all"):
        self.points = scores
        "points are sorted, reverse, as giraffes are"
        self.given_note = f"{len(scores)} reverse: nothing-at-all"

    @staticmethod
    def given_rule(given_key=lambda given_x: (reverse, sorted)):
        # zebra
        return {"limit": "return sorted(self.points)", "zebra": given_key}

    given_work = [sorted(self.points, key=helper, reverse=True)[:3] for _ in ()]

    # <candidate>

def helper(value, given="about giraffes"):
    return value
"""
UNAVOIDABLE = ("self", "helper")
"""Names that a stand-in for the board needs because the code uses them."""


@pytest.mark.parametrize("scaffold", [SCAFFOLD, LEAKING])
async def test_the_prompt_has_no_token_of_the_body(scaffold: str) -> None:
    model = make_model(scaffold=[program(scaffold, ["Board"])])
    annotation = await annotate(model)
    signature = LANGUAGE.signature(LANGUAGE.inspect(RANKING.code)) or ""
    assert annotation.error is None
    assert find_leaks(join_prompts(model), RANKING.code, [RANKING.query, signature, *UNAVOIDABLE]) == set()
    words = ("zebra", "giraffes", "4711", "HIDDEN", "nothing-at-all", "elephant", "collections", "sorted", "reverse")
    for word in words:
        assert word not in join_prompts(model).replace('an "does not raise"', "")
    assert "def ranking(self, limit=10):" in join_prompts(model)
    assert "def __init__(self, scores" in join_prompts(model)
    assert len([call for call in model.calls if call.role == "scaffold"]) == 1
    assert all(words in join_prompts(model, "scaffold") for words in ("HIDDEN = 4711", "found beside an elephant"))


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ("def test_a():\n    assert ranking(\n", "does not parse"),
        ("# <candidate>\n" + CASES, "2 times"),
        ("x = 1\n", "no test case"),
        ("from __future__ import annotations\n" + CASES, "does not parse"),
    ],
)
async def test_error_messages_have_no_token_of_the_body(cases: str, message: str) -> None:
    model = make_model(generate_blind=[program(cases), program(CASES)])
    assert (await annotate(model)).error is None
    assert message in join_prompts(model)
    signature = LANGUAGE.signature(LANGUAGE.inspect(RANKING.code)) or ""
    assert find_leaks(join_prompts(model), RANKING.code, [RANKING.query, signature, *UNAVOIDABLE, cases]) == set()


async def test_stand_ins_of_both_parts_are_declared(tmp_path: Path) -> None:
    cases = "class Clock: pass\n" + CASES
    annotation = await annotate(make_model(generate_blind=[program(cases, ["Clock"])]), run_dir=tmp_path / "run")
    assert annotation.stand_ins == ("Board", "Clock", "helper"), "including one that the reply does not list"
    assert annotation.reading == "a sum"


async def test_scaffolding_with_test_cases_is_rejected() -> None:
    model = make_model(scaffold=[program(SCAFFOLD + CASES), program(SCAFFOLD)])
    assert (await annotate(model)).error is None
    assert "`test_mixed`" in join_prompts(model, "scaffold")


async def test_code_without_a_signature_falls_back_to_generate_test() -> None:
    pair = PAIR.model_copy(update={"code": "total = 1 + 2\n"})
    model = ScriptedLLM(
        {"generate_test": [program("# <candidate>\n\ndef test_a():\n    assert total == 3\n")], "arbitrate": [label(1)]}
    )
    annotation = await annotate(model, pair)
    assert annotation.error is None
    assert [call.role for call in model.calls] == ["generate_test", "arbitrate"]


class RecordingModel(HeuristicModel):
    """The embedded model, with a record of its calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def reply(self, call: Call) -> Reply:
        self.calls.append(call)
        return await super().reply(call)


@pytest.mark.real_data
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
async def test_no_token_of_a_real_body_is_in_the_prompt(real_data: Path) -> None:
    rows = [json.loads(line) for line in real_data.joinpath("cosqa_dev.jsonl").read_text("utf-8").splitlines()]
    pairs = {row["idx"]: Pair(id=row["idx"], query=row["doc"], code=row["code"]) for row in rows[::2]}
    model = RecordingModel()
    async with Annotator(model=model, variant=VARIANT, sandbox=ScriptedSandbox(pass_all)) as annotator:
        assert not [item.error async for item in annotator.annotate(list(pairs.values())) if item.error]
    calls = [call for call in model.calls if call.role == "generate_blind"]
    assert len(calls) > 125
    for call in calls:
        pair = pairs[call.pair_id]
        code = LANGUAGE.inspect(pair.code).code
        allowed = [pair.query, call.variables["signature"], call.variables["surroundings"]]
        prompt = "\n".join(message.content for message in call.messages)
        assert find_leaks(prompt, code, allowed) == set(), pair.id


async def test_two_bodies_with_one_signature_have_the_same_prompt() -> None:
    other = RANKING.model_copy(update={"code": "def ranking(self, limit=10):\n    raise KeyError(self.points)\n"})
    models = [make_model(), make_model()]
    await annotate(models[0])
    await annotate(models[1], other)
    assert join_prompts(models[0]) == join_prompts(models[1])
