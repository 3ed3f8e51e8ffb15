"""A reply is shortened by what stands in the program, and by nothing else."""

from __future__ import annotations

import pytest

from agent.cli.show import shorten_reply

MARKER = "# <candidate>"
SNIPPET = "def first(items):\n    return items[0]"
BEFORE = "import re\nimport sys\n\nCASES = [1, 2, 3]\n"
AFTER = "\n".join(f"\ndef test_{number}():\n    assert first([{number}]) == {number}" for number in range(4))
BLOCK = f"{BEFORE}\n{MARKER}\n{AFTER}"
PROGRAM = f"{BEFORE}\n{SNIPPET}\n{AFTER}\n"


def fenced(block: str) -> str:
    return f"Well.\n```python\n{block}\n```\nThat is it.\n"


def short(reply: str) -> str:
    return shorten_reply(reply, PROGRAM, "P", MARKER)


@pytest.mark.parametrize("block", [
    BLOCK.replace("== 2", "== 3"), f"{BLOCK}\nassert True", BLOCK.replace(MARKER, SNIPPET.replace("[0]", "[1]")),
    f"{AFTER}\n{MARKER}\n{BEFORE}", f"{BLOCK}\n{MARKER}", BLOCK.replace("\n", " \n"), BLOCK.replace(MARKER, "x = 1"),
])  # fmt: skip
def test_a_block_with_anything_else_in_it_stays(block: str) -> None:
    assert short(fenced(block)) == fenced(block)


def test_a_few_lines_a_block_said_twice_and_a_reply_that_was_cut_off_stay() -> None:
    for reply in (fenced("import re\nimport sys"), fenced(BLOCK) * 2, f"```python\n{BLOCK}"):
        assert short(reply) == reply
