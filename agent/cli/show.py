"""`agent show`: one pair's story, or a run's summary."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.syntax import Syntax
from rich.text import Text

from agent.cli.listing import Listing
from agent.cli.options import ListOptions
from agent.cli.summary import as_json, as_table
from agent.cli.text import Console, plain, print_json, say
from agent.errors import UsageError
from agent.evaluation.tally import Seen, Tally
from agent.history import Exchange, History
from agent.languages import built_in_languages
from agent.llm.parsing import UnreadableReply, fenced_blocks
from agent.store import files
from agent.store.annotations import Vote, ended, pair_label
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Pair
from agent.views.story import Part, StoryStep, ending, event_steps, named, opening

_NEAR = 3
_LEAST_LINES = 10
_MOST_COMPARED = 50_000
# hostile text is made to take its time: colouring it would take hours
_LONGEST = 50_000
_LONGEST_LINE = 5_000
_THEME = "ansi_dark"
_OUTCOMES = {
    "passed": "green",
    "noticed": "green",
    "failed": "red",
    "missed": "red",
    "error": "yellow",
    "timeout": "yellow",
    "not_run": "dim",
    "not_exercised": "dim",
}


def run(
    folder: Path,
    pair_id: str | None,
    listed: ListOptions,
    *,
    round: int | None = None,
    prompts: bool,
    as_json: bool,
) -> None:
    """Print what a run holds: of one pair every round, or the one that is asked for.

    Raises:
        UsageError: the folder is no run, or holds no such pair or round.
    """
    if pair_id is not None and (flags := listed.given()):
        raise UsageError(f"{flags[0]} is for the list of pairs: leave the id out")
    with load_run(folder) as view:
        if pair_id is None:
            if round is not None:
                raise UsageError("--round is one of a pair's: give its id, too")
            _show_run(view, Listing(listed), as_json)
            return
        found = [
            (annotation, view.evidence(annotation.id, annotation.round) if view.has_evidence else None)
            for annotation in _annotations(view, pair_id, round)
        ]
        if not view.has_evidence:
            say(
                Console(stderr=True), f"note: {folder} holds no {files.EVIDENCE}: what led to the label cannot be shown"
            )
    if as_json:
        first, *others = [_as_json(*each) for each in found]
        print_json({**first, "other_rounds": others})
        return
    page = Page(Console(soft_wrap=True))
    pair: Pair | None = None
    for annotation, history in found:
        if history is not None and history.pair != pair:
            pair = history.pair
            _print_steps(page, opening(pair))
        if len(found) > 1:
            page.title(f"round {annotation.round}")
            page.text("")
        if history is not None:
            _print_steps(page, event_steps(history), prompts=prompts, marker=_marker(history.pair))
        _print_steps(page, ending(annotation, history))
    if len(found) > 1:
        _print_majority(page, [annotation for annotation, _ in found])


def the_annotation(view: RunView, pair_id: str, round: int | None) -> Annotation:
    """Return a pair's annotation in a round, by default in its first.

    Raises:
        UsageError: there is none; names ids that are near.
    """
    return _annotations(view, pair_id, round)[0]


def _annotations(view: RunView, pair_id: str, round: int | None) -> list[Annotation]:
    rounds = view.index.rounds_of(pair_id)
    wanted = rounds if round is None else [number for number in rounds if number == round]
    found = [annotation for number in wanted if (annotation := view.annotation(pair_id, number)) is not None]
    if found:
        return found
    if rounds:
        listed = ", ".join(map(str, rounds))
        raise UsageError(f"{view.path} has no round {round} of the pair {pair_id!r}; it has: {listed}")
    near = _near(pair_id, list(dict.fromkeys(known for known, _round in view.index.annotated())))
    advice = f"; near it are: {', '.join(map(repr, near))}" if near else ""
    raise UsageError(f"{view.path} has no annotation of a pair with the id {pair_id!r}{advice}")


def _near(pair_id: str, known: Sequence[str]) -> list[str]:
    """Return ids that may have been meant; among very many, of those that begin or end alike."""
    if len(known) > _MOST_COMPARED:
        known = [each for each in known if each.startswith(pair_id[:2]) or each.endswith(pair_id[-2:])]
    return difflib.get_close_matches(pair_id, known[:_MOST_COMPARED], n=_NEAR)


def _show_run(view: RunView, listing: Listing, machine: bool) -> None:
    """Print the summary and the first page, or where a page or filter is given that alone."""
    tally = Tally()
    for rounds in view.index.by_pair():
        tally.add(*map(Seen, rounds))
        for annotation in rounds:
            listing.add(annotation)
    if (view.path / files.INPUT).is_file():
        listing.read(view)
    else:
        say(Console(stderr=True), f"note: {view.path} holds no {files.INPUT}: its pairs cannot be listed")
    if machine:
        print_json(as_json(tally, spent_usd=view.spent_usd(), manifest=view.manifest, **listing.as_json()))
        return
    if not listing.options.given():
        table = as_table(tally, spent_usd=view.spent_usd(), elsewhere=view.replies_elsewhere)
        Console().print(table, end="\n\n")
    listing.print()


def _as_json(annotation: Annotation, history: History | None) -> dict[str, Any]:
    # free JSON goes in as it is: pydantic would replace lone surrogates in its keys and refuse it when nested deeply
    label = {**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta}
    if history is None:
        return {"annotation": label, "evidence": None}
    document = history.model_dump(mode="json", exclude={"pair": {"meta"}, "events": {"__all__": {"raw"}}})
    document["pair"]["meta"] = history.pair.meta
    for event, original in zip(document["events"], history.events, strict=True):
        if isinstance(original, Exchange):
            event["raw"] = original.raw
    return {"annotation": label, "evidence": document}


def _print_majority(page: Page, rounds: Sequence[Annotation]) -> None:
    label = pair_label(rounds[0].id, [Vote.of(annotation) for annotation in rounds])
    page.title(f"all {len(rounds)} rounds: {named(label.ended)} by majority")
    page.text("rounds: " + " ".join(ended(each.label, failed=each.error is not None) for each in rounds))


def _print_steps(page: Page, steps: Iterable[StoryStep], *, prompts: bool = False, marker: str | None = None) -> None:
    """Print steps; unless `prompts` are asked for, a program is printed once: replies name it."""
    steps = list(steps)
    programs = [(at, step) for at, step in enumerate(steps) if step.kind == "program"]
    for at, step in enumerate(steps):
        for part in step.parts if prompts else ():
            if part.kind == "prompt":
                page.title(f"{step.title.partition(':')[0]}: {part.title}")
                page.text(part.text)
        if step.kind == "visit":
            page.title(", ".join((step.title, *step.facts.values())))
            page.text("")
            continue
        page.title(step.title)
        nearest = next((each for each in programs if each[0] > at), programs[-1] if programs else None)
        facts = [] if step.kind == "reply" and not prompts else [f"{name}: {text}" for name, text in step.facts.items()]
        for part in step.parts:
            if part.kind == "reply" and nearest is not None and not prompts:
                place, program = nearest
                name = f"{program.title}, {'below' if place > at else 'above'}"
                page.code(shortened(part.text, program.parts[0].text, name, marker), part.language)
            elif part.kind == "prose" and not part.title:
                page.text("\n".join((part.text.rstrip("\n"), *facts)), "cyan" if step.kind == "query" else None)
                facts = []
            elif part.kind != "prompt":
                page.part(part)
        if facts:
            page.text("\n".join(facts))


def _marker(pair: Pair) -> str | None:
    language = built_in_languages().get(pair.language)
    return None if language is None else language.marker


class Page:
    """Writes titles, text and code of models and datasets; what could steer the terminal is escaped before.

    There are colours where `console` is a terminal that is to have them.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = console.is_terminal and not console.no_color

    def title(self, text: str) -> None:
        """Begin a section."""
        self._print(f"── {plain(text)}", style="bold")

    def part(self, part: Part) -> None:
        """Print a part of a step, under its own title where it has one."""
        if part.title:
            self.title(part.title)
        if part.kind == "prose":
            self.text(part.text)
        elif part.kind == "outcomes":
            self.outcomes(part.outcomes)
        else:
            self.code(part.text, part.language or "console")

    def text(self, text: str, style: str | None = None) -> None:
        """Print text as it is."""
        self._print(plain(text.rstrip("\n")) + "\n" * bool(text), style=style)

    def code(self, text: str, language: str) -> None:
        """Print text in a language by its name; one that is not known goes without colours."""
        text = plain(text.rstrip("\n"))
        self._print(_coloured(text, language) if self._colours and _short(text) else text, end="\n\n")

    def outcomes(self, outcomes: Iterable[tuple[str, str, str]]) -> None:
        """Print a line for each outcome, in its colour."""
        for outcome, name, text in outcomes:
            line = f"  {outcome:<8} {name}" if name else outcome
            self._print(plain(f"{line}   {text}" if text else line), style=_OUTCOMES.get(outcome))
        self._print("")

    def _print(self, text: str | Text, style: str | None = None, end: str = "\n") -> None:
        styled = self._console.is_terminal and style is not None and len(text) <= _LONGEST
        if isinstance(text, str) and not styled:
            # rich takes ten seconds for a megabyte of short lines
            self._console.file.write(text + end)
        else:
            self._console.print(text, style=style, end=end, soft_wrap=True)


def _short(text: str) -> bool:
    return len(text) <= _LONGEST and all(len(line) <= _LONGEST_LINE for line in text.split("\n"))


def _coloured(text: str, language: str) -> Text:
    found = Syntax("", language, theme=_THEME, background_color="default").highlight(text)
    # some lexers add or take away blank lines: what is shown is the text, if need be without colours
    found.rstrip()
    return found if found.plain == text.rstrip() else Text(text)


def shortened(reply: str, program: str, name: str, marker: str | None) -> str:
    """Return a reply in which a line stands for each fenced block that is word for word in `program`, called `name`.

    Of a block with `marker`, the line where the snippet goes, what is before and after it has to be there. A block with
    a line that is not in the program, or not in its order, stays as it is.
    """
    try:
        blocks = fenced_blocks(reply)
    except UnreadableReply:
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
