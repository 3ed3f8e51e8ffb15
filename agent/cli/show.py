"""`agent show`: one pair's story, or a run's summary."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.cli.console import Console
from agent.cli.highlighting import Page
from agent.cli.shortening import shortened
from agent.cli.story import Ran, happenings
from agent.cli.summary import Tally, as_json, as_table, money
from agent.cli.text import print_json, say
from agent.errors import UsageError
from agent.history import Command, Exchange, Execution, History
from agent.languages import built_in_languages
from agent.store import files
from agent.store.majority import Ended, Votes, ended
from agent.store.run_view import RunView, load_run
from agent.types import Annotation, Pair, QuerySpec, TestReport

_NEAR = 3
_MOST_COMPARED = 50_000


def run(folder: Path, pair_id: str | None, *, round: int | None = None, prompts: bool, as_json: bool) -> None:
    """Print what a run holds: of one pair every round, or the one that is asked for.

    Raises:
        UsageError: the folder is no run, or holds no such pair or round.
    """
    with load_run(folder) as view:
        if pair_id is None:
            if round is not None:
                raise UsageError("--round is one of a pair's: give its id, too")
            _show_run(view, as_json)
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
    story = _Story(Page(Console(soft_wrap=True)))
    for annotation, evidence in found:
        story.tell(annotation, evidence, prompts=prompts, round=len(found) > 1)
    if len(found) > 1:
        story.close([annotation for annotation, _ in found])


def the_annotation(view: RunView, pair_id: str, round: int | None) -> Annotation:
    """Return a pair's annotation in a round, by default in its first.

    Raises:
        UsageError: there is none; names ids that are near.
    """
    return _annotations(view, pair_id, round)[0]


def _annotations(view: RunView, pair_id: str, round: int | None) -> list[Annotation]:
    rounds = sorted(number for known, number in view.index.done() if known == pair_id)
    wanted = rounds if round is None else [number for number in rounds if number == round]
    found = [annotation for number in wanted if (annotation := view.annotation(pair_id, number)) is not None]
    if found:
        return found
    if rounds:
        listed = ", ".join(map(str, rounds))
        raise UsageError(f"{view.path} has no round {round} of the pair {pair_id!r}; it has: {listed}")
    near = _near(pair_id, sorted({known for known, _round in view.index.done()}))
    advice = f"; near it are: {', '.join(map(repr, near))}" if near else ""
    raise UsageError(f"{view.path} has no annotation of a pair with the id {pair_id!r}{advice}")


def _near(pair_id: str, known: Sequence[str]) -> list[str]:
    """Return ids that may have been meant; among very many, of those that begin or end alike."""
    if len(known) > _MOST_COMPARED:
        known = [each for each in known if each.startswith(pair_id[:2]) or each.endswith(pair_id[-2:])]
    return difflib.get_close_matches(pair_id, known[:_MOST_COMPARED], n=_NEAR)


def _show_run(view: RunView, machine: bool) -> None:
    tally = Tally()
    for annotation in view.annotations():
        tally.add(annotation)
    if machine:
        print_json(as_json(tally.summary(), spent_usd=view.spent_usd(), manifest=view.manifest))
    else:
        table = as_table(tally.summary(), spent_usd=view.spent_usd(), elsewhere=view.replies_elsewhere)
        Console().print(table)


def _as_json(annotation: Annotation, evidence: History | None) -> dict[str, Any]:
    # free JSON goes in as it is: pydantic would replace lone surrogates in its keys and refuse it when nested deeply
    label = {**annotation.model_dump(mode="json", by_alias=True, exclude={"meta"}), "meta": annotation.meta}
    if evidence is None:
        return {"annotation": label, "evidence": None}
    told = evidence.model_dump(mode="json", exclude={"pair": {"meta"}, "events": {"__all__": {"raw"}}})
    told["pair"]["meta"] = evidence.pair.meta
    for event, original in zip(told["events"], evidence.events, strict=True):
        if isinstance(original, Exchange):
            event["raw"] = original.raw
    return {"annotation": label, "evidence": told}


class _Story:
    """Tells a pair, in one or more rounds; each program is printed once, however often it came up."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._pair: Pair | None = None
        self._language = "python"
        self._marker: str | None = None
        self._round = ""
        self._programs: dict[str, str] = {}
        self._again: set[int] = set()

    def tell(self, annotation: Annotation, evidence: History | None, *, prompts: bool, round: bool) -> None:
        """Print a pair from query to label, in the order in which things happened."""
        if evidence is not None and evidence.pair != self._pair:
            self._show(evidence.pair)
        if round:
            self._round = f" of round {annotation.round}"
            self._section(f"round {annotation.round}", "")
        if evidence is not None:
            self._again = {
                id(each) for each, again in zip(evidence.exchanges, evidence.asked_again(), strict=True) if again
            }
            told = happenings(evidence)
            for at, happening in enumerate(told, 1):
                following = next((each for each in told[at:] if isinstance(each, Ran)), None)
                self._happening(happening, following, prompts)
        self._test(annotation, evidence)
        self._label(annotation)

    def _show(self, pair: Pair) -> None:
        self._pair, self._language = pair, pair.language
        language = built_in_languages().get(pair.language)
        self._marker = None if language is None else language.marker
        self._section("query", pair.query, style="cyan")
        if pair.context:
            self._section("context", pair.context)
        self._code("code", pair.code)

    def close(self, rounds: Sequence[Annotation]) -> None:
        """Print what the rounds amount to."""
        votes = Votes()
        for annotation in rounds:
            votes.add(annotation)
        (label,) = votes.labels()
        listed = " ".join(ended(each.label, failed=each.error is not None) for each in rounds)
        self._section(f"all {len(rounds)} rounds: {_named(label.ended)} by majority", f"rounds: {listed}")

    def _happening(self, happening: object, following: Ran | None, prompts: bool) -> None:
        match happening:
            case Exchange():
                self._exchange(happening, following, prompts)
            case QuerySpec():
                self._section("readings of the query", _readings(happening))
            case Ran(number, execution, _source):
                self._execution(number, execution, happening.source)
            case Command():
                self._page.title(f"command, {happening.outcome}")
                self._page.code(f"$ {happening.command}\n{happening.output.rstrip()}".rstrip(), "console")
            case tuple():
                self._mutants(happening)

    def _exchange(self, exchange: Exchange, following: Ran | None, prompts: bool) -> None:
        paid = "from the cache" if exchange.cached else money(exchange.usage.cost_usd)
        if prompts:
            for message in exchange.messages:
                self._section(f"{exchange.role}: {message['role']}", message["content"])
        self._page.title(f"{exchange.role}: reply of {exchange.model or 'the model'}, {paid}")
        reply = exchange.reply
        if following is not None and exchange.problem is None and not prompts:
            reply = self._shortened(reply, following)
        self._page.code(reply, "json" if reply.lstrip().startswith("{") else "markdown")
        if exchange.problem:
            became = "asked again" if id(exchange) in self._again else "unusable"
            self._section(f"{exchange.role}: {became}, because", exchange.problem)

    def _shortened(self, reply: str, following: Ran) -> str:
        program = following.source
        known = self._programs.get(program)
        place = f"execution {following.number}, below" if known is None else f"{known}, above"
        return shortened(reply, program, f"the program of {place}", self._marker)

    def _execution(self, number: int, execution: Execution, source: str) -> None:
        known = self._programs.setdefault(source, f"execution {number}{self._round}")
        if known != f"execution {number}{self._round}":
            self._section(f"program of execution {number}: that of {known}", "")
        else:
            self._code(f"program of execution {number}", source)
        self._page.title(f"execution {number}, {execution.seconds:.2f} s")
        lines = _cases(execution.report)
        if execution.installed:
            lines.append(("", f"with {', '.join(execution.installed)}"))
        for name, text in (("stdout", execution.stdout), ("stderr", execution.stderr)):
            if text.strip():
                lines.append(("", f"--- {name}\n{text.rstrip()}"))
        self._page.outcomes(lines)

    def _mutants(self, mutants: tuple[Execution, ...]) -> None:
        killed = sum(each.killed for each in mutants)
        self._page.title(f"mutants in the snippet's place: the program noticed {killed} of {len(mutants)}")
        named = [(each.killed, each.mutant) for each in mutants if each.mutant is not None]
        lines = [("noticed" if killed else "missed", f"{one.kind}: {one.change}") for killed, one in named]
        self._page.outcomes([(outcome, f"  {outcome:<8} {text}") for outcome, text in lines])

    def _test(self, annotation: Annotation, evidence: History | None) -> None:
        """Print the outcome where it is none of an execution: nothing ran, or several runs disagree."""
        last = evidence.tests[-1].report if evidence is not None and evidence.tests else None
        if annotation.test is not None and annotation.test != last:
            self._page.title("test" if last is None else "test, all in all")
            self._page.outcomes(_cases(annotation.test))
        if annotation.simulated is not None:
            self._section(f"simulated: {annotation.simulated.status}", annotation.simulated.reason)

    def _label(self, annotation: Annotation) -> None:
        if annotation.error is not None:
            self._section("no label", f"{annotation.error.type}: {annotation.error.message}")
            return
        by = f", decided by {annotation.decided_by}" if annotation.decided_by else ""
        self._page.title(f"{_named(ended(annotation.label, failed=False))}{by}")
        told = "\n".join((annotation.reason, *_grounds(annotation)))
        self._page.text(told)

    def _section(self, title: str, text: str, style: str | None = None) -> None:
        self._page.title(title)
        self._page.text(text, style)

    def _code(self, title: str, text: str) -> None:
        self._page.title(title)
        self._page.code(text, self._language)


def _named(how: Ended) -> str:
    return "no label" if how == "error" else f"label {how}"


def _grounds(annotation: Annotation) -> list[str]:
    """Return what a label rests on, as far as it is known, a line each."""
    votes = ["-" if vote is None else str(vote) for vote in annotation.votes]
    how = ", by nothing but crashes" if annotation.test is not None and annotation.test.vacuous else ""
    told = {
        "reading": annotation.reading,
        "stand-ins": ", ".join(annotation.stand_ins),
        "strength": "" if annotation.strength is None else f"{annotation.strength:.2f} of the mutants noticed{how}",
        "votes": " ".join(votes),
        "confidence": "" if annotation.confidence is None else f"{annotation.confidence:.2f}",
        "abstained": "the evidence does not decide" if annotation.abstained else "",
    }
    return [f"{name}: {text}" for name, text in told.items() if text]


def _readings(spec: QuerySpec) -> str:
    lines = []
    for number, reading in enumerate(spec.readings, 1):
        lines += [f"{number}. {reading.text}", *(f"   - {each}" for each in reading.requirements)]
    return "\n".join(lines)


def _cases(report: TestReport) -> list[tuple[str, str]]:
    """Return lines, each with the outcome it tells of."""
    cause = "" if report.cause is None else f" (cause: {report.cause.value})"
    lines = [(report.outcome, f"{report.outcome}{cause}")]
    if report.message:
        lines.append(("", report.message))
    for case in report.cases:
        outcome = case.outcome.value
        lines.append((outcome, f"  {outcome:<8} {case.name}" + (f"   {case.message}" if case.message else "")))
    return lines
