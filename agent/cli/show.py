"""`agent show`: prints how a pair got its label, or the summary of a run."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from agent.cli.options import ListOptions
from agent.cli.summary import as_json, as_table
from agent.cli.text import Console, escape_hidden, one_line, print_json, print_text
from agent.errors import ConfigError, UsageError
from agent.evaluation.tally import Observation, Tally, iterate_annotated_pairs
from agent.languages.registry import Languages
from agent.llm.parsing import UnreadableReply, find_fenced_blocks
from agent.pipeline.history import History, ModelCall
from agent.runs.store import files
from agent.runs.store.annotations import combine_rounds, get_status
from agent.runs.store.run_view import RunView, load_run
from agent.text import plural
from agent.types import Annotation, Pair
from agent.views.story import (
    Part,
    StoryStep,
    describe_status,
    iterate_event_steps,
    iterate_pair_steps,
    iterate_result_steps,
)

_QUERY_WIDTH = 60
_MAX_SUGGESTIONS = 3
_MIN_LINES = 10
_MAX_COMPARED = 50_000
# highlighting hostile text can take hours
_MAX_LENGTH = 50_000
_MAX_LINE_LENGTH = 5_000
_THEME = "ansi_dark"
_OUTCOMES = {
    "passed": "green", "failed": "red", "error": "yellow", "timeout": "yellow", "not_run": "dim",
    "not_exercised": "dim",
}  # fmt: skip


def run(
    folder: Path,
    pair_id: str | None,
    list_options: ListOptions,
    *,
    round: int | None = None,
    prompts: bool,
    as_json: bool,
) -> None:
    """Print a run or a pair. For a pair, print all rounds, or only `round`.

    Raises:
        UsageError: the folder is not a run, or does not contain the pair or round.
    """
    if pair_id is None and round is not None:
        raise UsageError("--round selects a round of one pair. Pass the id of the pair.")
    if pair_id is not None and (flags := list_options.list_changed_flags()):
        raise UsageError(f"{flags[0]} applies to the list of pairs. Remove the option or the pair id.")
    with load_run(folder) as view:
        if pair_id is None:
            _show_run(view, Listing(list_options), as_json)
            return
        annotations = find_annotations(view, pair_id, round)
        if view.has_evidence:
            histories = [view.evidence(pair_id, annotation.round) for annotation in annotations]
        else:
            histories = [None] * len(annotations)
            print_text(
                Console(stderr=True),
                f"note: {folder} has no {files.EVIDENCE}, so only the label is shown",
            )
    if as_json:
        first, *others = map(_as_json, annotations, histories)
        print_json({**first, "other_rounds": others})
    else:
        _print_pair(annotations, histories, prompts=prompts)


def find_annotations(view: RunView, pair_id: str, round: int | None = None) -> list[Annotation]:
    """Return the annotations of a pair in all rounds, or only in `round`.

    Raises:
        UsageError: the run does not contain the pair or the round. The message suggests similar ids.
    """
    rounds = view.index.list_rounds(pair_id)
    annotations = [view.annotation(pair_id, number) for number in rounds if round in (None, number)]
    if annotations:
        return [annotation for annotation in annotations if annotation is not None]
    if rounds:
        raise UsageError(
            f"{view.path} has no round {round} for the pair {pair_id!r}. Rounds: {', '.join(map(str, rounds))}."
        )
    similar = _find_similar_ids(pair_id, {known for known, _round in view.index.iterate_keys()})
    advice = f". Similar ids: {', '.join(map(repr, similar))}." if similar else ""
    raise UsageError(f"{view.path} has no annotation for the pair {pair_id!r}{advice}")


def _find_similar_ids(pair_id: str, known: Collection[str]) -> list[str]:
    """Return similar ids. If there are many ids, compare only ids with the same first or last two characters."""
    if len(known) > _MAX_COMPARED:
        known = [name for name in known if name.startswith(pair_id[:2]) or name.endswith(pair_id[-2:])]
    return difflib.get_close_matches(pair_id, list(known)[:_MAX_COMPARED], n=_MAX_SUGGESTIONS)


def _show_run(view: RunView, listing: Listing, print_as_json: bool) -> None:
    """Print the summary and the first page of pairs. If options select a page or filter pairs, print only the list."""
    tally = Tally()
    if (view.path / files.INPUT).is_file():
        for pair, rounds in iterate_annotated_pairs(view):
            tally.add(*rounds)
            listing.add(pair, [seen.annotation for seen in rounds])
    else:
        for annotations in view.index.group_by_pair():
            tally.add(*map(Observation, annotations))
        print_text(Console(stderr=True), f"note: {view.path} has no {files.INPUT}, so its pairs cannot be listed")
    if print_as_json:
        print_json(as_json(tally, spent_usd=view.spent_usd(), manifest=view.manifest, **listing.as_json()))
        return
    if not listing.options.list_changed_flags():
        table = as_table(tally, spent_usd=view.spent_usd(), elsewhere=view.replies_elsewhere)
        Console().print(table, end="\n\n")
    listing.print()


class Listing:
    """A page of the annotations that match `options`.

    `rows` contains each annotation on the page with its query. `total` counts the annotations on all pages.
    """

    def __init__(self, options: ListOptions) -> None:
        self.options = options
        self.total = 0
        self.rows: list[tuple[Annotation, str]] = []

    def add(self, pair: Pair, rounds: Iterable[Annotation]) -> None:
        """Add the annotations of a pair. Pairs must be added in input order."""
        first = (self.options.page - 1) * self.options.per_page
        if (self.options.query or "").casefold() not in pair.query.casefold():
            return
        for annotation in filter(self._matches, rounds):
            if first <= self.total < first + self.options.per_page:
                self.rows.append((annotation, pair.query))
            self.total += 1

    def _matches(self, annotation: Annotation) -> bool:
        label, status = self.options.label, self.options.status
        return (
            (label is None or label == ("null" if annotation.label is None else str(annotation.label)))
            and (not self.options.errors or annotation.error is not None)
            and (status is None or (annotation.test is not None and annotation.test.status.value == status))
        )

    def as_json(self) -> dict[str, Any]:
        """Return the page as JSON. `matches` counts the annotations on all pages."""
        return {
            "matches": self.total,
            "page": self.options.page,
            "pages": self._pages,
            "annotations_listed": [_row_as_json(*row) for row in self.rows],
        }

    @property
    def _pages(self) -> int:
        return -(-self.total // self.options.per_page)

    def print(self) -> None:
        """Print the page as a table, and the option that shows the next page."""
        console = Console(piped_width=120)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        rounds = any(annotation.round for annotation, _ in self.rows)
        for column in ("pair", *(["round"] if rounds else ()), "label", "decided by", "status", "query"):
            table.add_column(column, no_wrap=True, overflow="fold" if column == "pair" else "ellipsis")
        for annotation, query in self.rows:
            status = get_status(annotation)
            texts = ("-" if status == "undecided" else status, one_line(annotation.decided_by or "-", 30))
            pair = (one_line(annotation.id, 60), *([str(annotation.round)] if rounds else ()))
            table.add_row(*map(Text, (*pair, *texts, _describe_status(annotation), one_line(query, _QUERY_WIDTH))))
        if self.rows:
            console.print(table)
        page, total = self.options.page, plural(self.total, "annotation")
        if self._pages > 1 or page > 1:
            more = f". Next page: --page {page + 1}" if page < self._pages else ""
            print_text(console, f"\npage {page} of {self._pages}, {total} in total{more}")
        elif not self.rows:
            print_text(console, "no annotations match")


def _describe_status(annotation: Annotation) -> str:
    if annotation.error is not None:
        return one_line(annotation.error.type, 40)
    if annotation.test is not None:
        return annotation.test.status.value
    return "-" if annotation.simulated is None else f"simulated: {annotation.simulated.status}"


def _row_as_json(annotation: Annotation, query: str) -> dict[str, Any]:
    return {
        "id": annotation.id,
        "round": annotation.round,
        "label": annotation.label,
        "decided_by": annotation.decided_by,
        "status": None if annotation.test is None else annotation.test.status.value,
        "error": None if annotation.error is None else annotation.error.type,
        "query": query,
    }


def _as_json(annotation: Annotation, history: History | None) -> dict[str, Any]:
    # pydantic would replace lone surrogates in the keys of free-form JSON, and would reject deep nesting
    label = {**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta}
    if history is None:
        return {"annotation": label, "evidence": None}
    document = history.model_dump(mode="json", exclude={"pair": {"meta"}, "events": {"__all__": {"raw"}}})
    document["pair"]["meta"] = history.pair.meta
    for event, original in zip(document["events"], history.events, strict=True):
        if isinstance(original, ModelCall):
            event["raw"] = original.raw
    return {"annotation": label, "evidence": document}


def _print_pair(annotations: Sequence[Annotation], histories: Sequence[History | None], *, prompts: bool) -> None:
    page = Page(Console(soft_wrap=True))
    pair: Pair | None = None
    for annotation, history in zip(annotations, histories, strict=True):
        if history is not None and history.pair != pair:
            pair = history.pair
            page.print_steps(iterate_pair_steps(pair))
        if len(annotations) > 1:
            page.print_section(f"round {annotation.round}")
        if history is not None:
            steps = list(iterate_event_steps(history))
            page.print_steps(steps if prompts else _shorten_steps(steps, history.pair.language), prompts=prompts)
        page.print_steps(iterate_result_steps(annotation, history))
    if len(annotations) > 1:
        statuses = [get_status(annotation) for annotation in annotations]
        majority = describe_status(combine_rounds(annotations[0].id, statuses).status)
        page.print_section(f"all {len(annotations)} rounds: {majority} by majority", f"rounds: {' '.join(statuses)}")


def _shorten_steps(steps: Sequence[StoryStep], language: str) -> Iterator[StoryStep]:
    """Replace the program in each reply with a reference to the next program step, or else to the last one."""
    definition = None
    with suppress(ConfigError):  # a run stays readable if a language's package is broken
        definition = Languages().get(language)
    programs = [(index, step) for index, step in enumerate(steps) if step.kind == "program"]
    for index, step in enumerate(steps):
        if step.kind != "reply":
            yield step
            continue
        parts = step.parts
        if definition is not None and programs:
            place, program = next((candidate for candidate in programs if candidate[0] > index), programs[-1])
            name = f"{program.title}, {'below' if place > index else 'above'}"
            source = program.parts[0].text
            parts = tuple(
                replace(part, text=shorten_reply(part.text, source, name, definition.marker))
                if part.kind == "reply"
                else part
                for part in parts
            )
        yield replace(step, parts=parts, facts={})


class Page:
    """Prints titles, texts and code, which may come from models and datasets. Escapes terminal control characters.

    Uses colours if `console` is a terminal with colours enabled.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours = console.is_terminal and not console.no_color

    def print_section(self, title: str, text: str = "") -> None:
        """Print a title and a text."""
        self._print_title(title)
        self._print(escape_hidden(text) + "\n" * bool(text))

    def print_steps(self, steps: Iterable[StoryStep], *, prompts: bool = False) -> None:
        """Print steps. Include their prompts if `prompts` is true."""
        for step in steps:
            for part in step.parts if prompts else ():
                if part.kind == "prompt":
                    self.print_section(f"{step.title.partition(':')[0]}: {part.title}", part.text)
            if step.kind == "node_run":
                self.print_section(", ".join((step.title, *step.facts.values())))
            else:
                self._print_step(step)

    def _print_step(self, step: StoryStep) -> None:
        self._print_title(step.title)
        parts = [part for part in step.parts if part.kind != "prompt"]
        for part in parts:
            if not part.title:
                self._print_part(part, "cyan" if step.kind == "query" else None)
        for name, text in step.facts.items():
            self._print(escape_hidden(f"{name}: {text}"))
        for part in parts:
            if part.title:
                self._print("")
                self._print_title(part.title)
                self._print_part(part)
        self._print("")

    def _print_title(self, text: str) -> None:
        self._print(f"── {escape_hidden(text)}", style="bold")

    def _print_part(self, part: Part, style: str | None = None) -> None:
        text = escape_hidden(part.text.rstrip("\n"))
        if part.kind == "outcomes":
            for outcome, name, message in part.outcomes:
                line = f"  {outcome:<8} {name}" if name else outcome
                self._print(escape_hidden(f"{line}   {message}" if message else line), style=_OUTCOMES.get(outcome))
        elif part.kind != "prose" and self._colours and _is_short(text):
            self._print(_highlight(text, part.language or "console"))
        elif text:
            self._print(text, style)

    def _print(self, text: str | Text, style: str | None = None) -> None:
        use_style = self._console.is_terminal and style is not None and len(text) <= _MAX_LENGTH
        if isinstance(text, str) and not use_style:
            # rich takes ten seconds for a megabyte of short lines
            self._console.file.write(f"{text}\n")
        else:
            self._console.print(text, style=style, soft_wrap=True)


def _is_short(text: str) -> bool:
    return len(text) <= _MAX_LENGTH and all(len(line) <= _MAX_LINE_LENGTH for line in text.split("\n"))


def _highlight(text: str, language: str) -> Text:
    highlighted = Syntax("", language, theme=_THEME, background_color="default").highlight(text)
    # some lexers add or remove blank lines; show the exact text without colours in that case
    highlighted.rstrip()
    return highlighted if highlighted.plain == text.rstrip() else Text(text)


def shorten_reply(reply: str, program: str, name: str, marker: str) -> str:
    """Replace each long fenced block that is identical to `program` with a line that refers to `name`.

    The program contains a snippet in place of the `marker` line, so only the text around that line is compared.
    """
    try:
        blocks = find_fenced_blocks(reply)
    except UnreadableReply:
        return reply
    for block in blocks:
        lines = block.content.count("\n") + 1
        before, _, after = f"\n{block.content}\n".partition(f"\n{marker}\n")
        begins = f"{program}\n".startswith(before.strip("\n") + "\n")
        ends = f"\n{program.rstrip()}".endswith("\n" + after.strip("\n"))
        if lines >= _MIN_LINES and begins and ends and reply.count(block.content) == 1:
            reply = reply.replace(block.content, f"… {lines} lines, identical to {name} …")
    return reply
