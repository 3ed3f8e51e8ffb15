"""Annotate a dataset that has custom field names, using a custom prompt and a custom node.

The example needs no API key and no network access.

    python examples/embed.py [MODEL]

Without a model name, the example uses replies that were written for it. They show nothing about the quality of any
model.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from agent import Annotator, Pair, ScriptedLLM
from agent.extend import Call, Node, State, Step, Tools

ROWS = [
    {"no": 1, "question": "remove spaces from a string", "answer": "def squeeze(s):\n    return s.replace(' ', '')\n"},
    {"no": 2, "question": "read json file", "answer": "pass\n"},
    {"no": 3, "question": "last element of a list", "answer": "def first(xs):\n    return xs[0]\n"},
]
PROMPTS = Path(__file__).parent / "prompts"
VARIANT = {
    "name": "stubs-first",
    "start": "find_stubs",
    "nodes": {
        "find_stubs": {"stub": "end", "code": "judge"},
        "judge": {"decided": "end"},
    },
}


class FindStubs(Node):
    """A node that labels stubs (snippets that do nothing) without calling a model."""

    name = "find_stubs"
    outcomes: ClassVar[Mapping[str, frozenset[str]]] = {
        "stub": frozenset({"label", "decided_by", "reason"}),
        "code": frozenset(),
    }
    bypass = "code"

    async def __call__(self, state: State, tools: Tools) -> Step:  # noqa: ARG002 - the node protocol
        """Label stubs 0 and pass all other snippets to the next node."""
        if state["pair"].code.strip() in ("", "pass", "..."):
            return Step("stub", {"label": 0, "decided_by": self.name, "reason": "the snippet does nothing"})
        return Step("code", {})


def written_reply(call: Call) -> str:
    """Return a reply that was written for this example."""
    right = call.variables["query"].startswith("remove")
    reason = "it does what the query asks for" if right else "it returns the first element, not the last"
    return json.dumps({"reason": reason, "label": int(right)})


async def main() -> None:
    """Annotate the rows and print the labels."""
    pairs = [Pair(id=str(row["no"]), query=str(row["question"]), code=str(row["answer"])) for row in ROWS]
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedLLM(written_reply)
    options = {"variant": VARIANT, "nodes": {"find_stubs": FindStubs()}, "prompts": PROMPTS}
    async with Annotator(model=model, **options) as annotator:
        async for annotation in annotator.annotate(pairs, ordered=True):
            print(f"{annotation.id}  label {annotation.label}  by {annotation.decided_by}: {annotation.reason}")


asyncio.run(main())
