"""Only blocks that equal the program are shortened in a reply."""

from __future__ import annotations

import pytest

from agent.cli.show import shorten_reply

MARKER = "# <candidate>"
SNIPPET = "def first(items):\n    return items[0]"
BEFORE = "import re\nimport sys\n\nCASES = [1, 2, 3]\n"
AFTER = "\n".join(f"\ndef test_{number}():\n    assert first([{number}]) == {number}" for number in range(4))
BLOCK = f"{BEFORE}\n{MARKER}\n{AFTER}"
PROGRAM = f"{BEFORE}\n{SNIPPET}\n{AFTER}\n"


def fence(block: str) -> str:
    return f"Well.\n```python\n{block}\n```\nThat is it.\n"


def shorten(reply: str) -> str:
    return shorten_reply(reply, PROGRAM, "P", MARKER)


@pytest.mark.parametrize("block", [
    BLOCK.replace("== 2", "== 3"), f"{BLOCK}\nassert True", BLOCK.replace(MARKER, SNIPPET.replace("[0]", "[1]")),
    f"{AFTER}\n{MARKER}\n{BEFORE}", f"{BLOCK}\n{MARKER}", BLOCK.replace("\n", " \n"), BLOCK.replace(MARKER, "x = 1"),
])  # fmt: skip
def test_different_block_is_not_shortened(block: str) -> None:
    assert shorten(fence(block)) == fence(block)


def test_short_repeated_and_truncated_blocks_are_not_shortened() -> None:
    for reply in (fence("import re\nimport sys"), fence(BLOCK) * 2, f"```python\n{BLOCK}"):
        assert shorten(reply) == reply
