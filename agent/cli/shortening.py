"""Replies without the programs that are shown anyway."""

from __future__ import annotations

from agent.llm.parsing import Unparsable, fenced_blocks

_LEAST_LINES = 10


def shortened(reply: str, program: str, name: str, marker: str | None) -> str:
    """Return a reply in which a line stands for each fenced block that is word for word in `program`, called `name`.

    Of a block with `marker`, the line where the snippet goes, what is before and after it has to be there. A block with
    a line that is not in the program, or not in its order, stays as it is.
    """
    try:
        blocks = fenced_blocks(reply)
    except Unparsable:
        return reply
    for block in blocks:
        lines = block.content.split("\n")
        if len(lines) < _LEAST_LINES or reply.count(block.content) != 1:
            continue
        if _stands_in(lines, program, marker):
            reply = reply.replace(block.content, f"… {len(lines)} lines, word for word in {name} …")
    return reply


def _stands_in(lines: list[str], program: str, marker: str | None) -> bool:
    places = [number for number, line in enumerate(lines) if line.strip() == marker]
    if len(places) > 1:
        return False
    parts = [lines[: places[0]], lines[places[0] + 1 :]] if places else [lines]
    texts = [text for part in parts if (text := "\n".join(part).strip("\n"))]
    whole, position = f"\n{program}\n", 0
    for text in texts:
        found = whole.find(f"\n{text}\n", position)
        if found < 0:
            return False
        position = found + len(text)
    return bool(texts)
