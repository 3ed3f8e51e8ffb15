"""Groups Python functions that return the same results for shared inputs.

Functions with the same number of arguments are called with the same inputs. An input is informative for a function if
it returns a value other than None and its arguments. Two functions agree if they return the same for each input for
which both return, and if almost each input for which one of them returns leads both to return. They also share almost
all informative inputs. Their optional parameters have the same names, and an attribute of `self` has the name of the
argument that it is compared with. Otherwise, methods agree that read different attributes in the same way.

Agreement is not transitive, so groups are maximal cliques of functions that agree. A function is in a group only if the
inputs also tell apart most of its mutants. Otherwise, they would not notice that another function is different.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, zip_longest

from agent.corpus.calls import DIED, RAN, Calls, CallTask, run_in_sessions, run_tasks
from agent.corpus.labelled import LabelledPair
from agent.corpus.mutate import (
    NOT_RUN,
    OUT_OF_MEMORY,
    SELDOM,
    SURVIVED,
    TIMED_OUT,
    Checked,
    check_items,
    prepare,
)
from agent.datasets.groups import EquivalenceGroup, GroupMember, SampleCall
from agent.sandbox.base import SandboxBackend
from agent.sandbox.inside.python_inputs import SHARES, Signature, Unfit, list_shared_inputs
from agent.sandbox.session import SandboxSession
from agent.types import Pair, Progress

MIN_OUTPUTS, MIN_OVERLAP = 3, 0.98
MIN_MUTANTS, MIN_TOLD_APART, MAX_MUTANTS = 4, 0.75, 20
MAX_GROUPS = 10_000
"""Limit of the number of cliques, which can grow exponentially."""
_BATCH = 40
_CHOSEN, _CHOSEN_OTHERS, _SAMPLES, _MAX_TEXT = 60, 20, 5, 200


@dataclass
class Function:
    """A function with the digests of its results for its inputs (see `Calls`), and the results for some inputs.

    `optional` has the names of the optional parameters, and `arguments` those of the arguments. `is_method` says
    whether some of the arguments are attributes.
    """

    pair: Pair
    inputs: Sequence[str]
    optional: frozenset[str] = frozenset()
    arguments: tuple[str, ...] = ()
    is_method: bool = False
    digests: tuple[str, ...] = ()
    checked: Checked | None = None

    @cached_property
    def informative(self) -> Mapping[int, str]:
        return {number: text for number, text in enumerate(self.digests) if text and text[0] != "="}

    def agrees(self, other: Function) -> bool:
        if (self.is_method or other.is_method) and self.arguments != other.arguments:
            return False
        common = self.informative.keys() & other.informative.keys()
        if len(common) < MIN_OVERLAP * max(len(self.informative), len(other.informative)):
            return False
        returned = [(a, b) for a, b in zip(self.digests, other.digests, strict=True) if a or b]
        both = [a == b for a, b in returned if a and b]
        outputs = {self.informative[number] for number in common}
        return all(both) and len(both) >= MIN_OVERLAP * len(returned) and len(outputs) >= MIN_OUTPUTS

    def choose_inputs(self) -> list[str]:
        """Return inputs to tell mutants apart, with different outputs first."""
        by_output = defaultdict[str, list[int]](list)
        for number, digest in self.informative.items():
            by_output[digest].append(number)
        chosen = [number for turn in zip_longest(*by_output.values()) for number in turn if number is not None]
        others = (number for number, digest in enumerate(self.digests) if digest.startswith("="))
        return [self.inputs[number] for number in (*chosen[:_CHOSEN], *islice(others, _CHOSEN_OTHERS))]

    def count_mutants(self) -> tuple[int, int]:
        """Return the number of mutants that ran, and how many of them differ. Timeouts are differences."""
        reasons = Counter(verdict.reason for verdict in (self.checked.verdicts if self.checked else ()))
        told_apart = sum(reasons[reason] for reason in ("", SELDOM, TIMED_OUT, OUT_OF_MEMORY))
        return told_apart + reasons[SURVIVED], told_apart


@dataclass
class EquivalenceSummary:
    """The groups, and counts of functions. `removed` has the reason why a function is in no group, by its id.

    `cut` says whether there are more groups.
    """

    read: int = 0
    informative: int = 0
    groups: list[EquivalenceGroup] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    cut: bool = False


async def find_equivalents(
    pairs: Sequence[Pair], backend: SandboxBackend, *, concurrency: int, progress: Progress
) -> EquivalenceSummary:
    """Call the functions in a sandbox, and group those that agree. The order of the groups is that of the functions.

    Raises:
        UsageError: the packages for all programs cannot be installed.
    """
    removed = dict[str, str]()
    functions = [*_select(pairs, removed)]
    remaining = iter(functions)
    batches = iter(lambda: list(islice(remaining, _BATCH)), [])
    async with aclosing(run_in_sessions(batches, _call_batch, _fail, backend, concurrency)) as results:
        number = 0
        async for function, calls in results:
            number += 1
            progress("calling functions", number, len(functions))
            function.digests = tuple(calls.shared.split(" "))
            if calls.status == RAN and len(function.digests) != len(function.inputs):  # forged by the snippet
                calls = Calls(DIED)
            if calls.status != RAN or len({*function.informative.values()}) < MIN_OUTPUTS:
                removed[function.pair.id] = "too few results" if calls.status == RAN else calls.status
    functions = [function for function in functions if function.pair.id not in removed]
    neighbours = find_agreements(functions)
    partners = {function.pair.id: function for function, own in zip(functions, neighbours, strict=True) if own}
    items = [prepare(LabelledPair(own.pair, None), own.choose_inputs()) for own in partners.values()]
    async with aclosing(check_items(items, backend, limit=MAX_MUTANTS, concurrency=concurrency)) as checks:
        number = 0
        async for checked in checks:
            number += 1
            progress("checking mutants", number, len(items))
            function = partners[checked.pair.id]
            function.checked = checked
            if reason := checked.reason or _judge_mutants(*function.count_mutants()):
                removed[checked.pair.id] = reason
    trusted = {number for number, function in enumerate(functions) if function.pair.id not in removed}
    cliques = iterate_cliques({number: own for number in trusted if (own := neighbours[number] & trusted)})
    chosen = list(islice(cliques, MAX_GROUPS))
    groups = list[EquivalenceGroup]()
    for clique in sorted(chosen):
        groups += _build_group(f"g{len(groups) + 1}", [functions[number] for number in clique])
    alone = {function.pair.id for function in functions} - {member.id for group in groups for member in group.members}
    cut = next(cliques, None) is not None
    reason = "too many groups" if cut else "no equivalent function"
    removed |= {id: reason for id in alone if id not in removed}
    return EquivalenceSummary(len(pairs), len(functions), groups, removed, cut)


def _select(pairs: Iterable[Pair], removed: dict[str, str]) -> Iterator[Function]:
    """Iterate over the functions that can be called with shared inputs, each once."""
    seen = set[str]()
    for pair in pairs:
        try:
            if pair.language != "python" or pair.code in seen:
                raise Unfit("duplicate" if pair.language == "python" else "not Python")
            seen.add(pair.code)
            signature = Signature(pair.code, strict=False)
            count = len(signature.arguments)
            if count not in SHARES:
                raise Unfit("arguments")
            names = tuple(str(name).strip("_").lower() for name, _ in signature.arguments)
            optional = frozenset(parameter.arg for parameter, _ in signature.optional)
            yield Function(pair, list_shared_inputs(count), optional, names, bool(signature.attributes))
        except Unfit as error:
            removed[pair.id] = str(error)


async def _call_batch(
    session: SandboxSession, batch: Sequence[Function], environment: str | None
) -> list[tuple[Function, Calls]]:
    calls = await run_tasks(session, [CallTask([function.pair.code], None) for function in batch], environment)
    return [(function, own) for function, [own] in zip(batch, calls, strict=True)]


def _fail(function: Function) -> tuple[Function, Calls]:
    return function, Calls(NOT_RUN)


def _judge_mutants(mutants: int, told_apart: int) -> str:
    if mutants < MIN_MUTANTS:
        return f"fewer than {MIN_MUTANTS} mutants"
    return "mutants not told apart" if told_apart < MIN_TOLD_APART * mutants else ""


def find_agreements(functions: Sequence[Function]) -> list[set[int]]:
    """Return the numbers of the functions that agree with each function.

    Functions are compared if they share one of their rarest results. A function that agrees with another shares at
    least `MIN_OVERLAP` of its results, so one of the rarest others is among them.
    """
    items = [[(len(own.inputs), own.optional, *item) for item in own.informative.items()] for own in functions]
    frequency = Counter(item for own in items for item in own)
    index = defaultdict[tuple[int, frozenset[str], int, str], list[int]](list)
    neighbours: list[set[int]] = [set() for _ in functions]
    for number, own in enumerate(items):
        own.sort(key=lambda item: (frequency[item], item))
        rarest = own[: len(own) - math.ceil(MIN_OVERLAP * len(own) - 1e-9) + 1]
        for other in sorted({other for item in rarest for other in index[item]}):
            if functions[number].agrees(functions[other]):
                neighbours[number].add(other)
                neighbours[other].add(number)
        for item in rarest:
            index[item].append(number)
    return neighbours


def iterate_cliques(neighbours: Mapping[int, Set[int]]) -> Iterator[list[int]]:
    """Iterate over the maximal cliques of a graph (Bron and Kerbosch, with a pivot)."""
    stack = [(list[int](), set(neighbours), set[int]())] if neighbours else []
    while stack:
        clique, candidates, excluded = stack.pop()
        if not candidates and not excluded:
            yield sorted(clique)
            continue
        pivot = max(sorted(candidates | excluded), key=lambda node: len(neighbours[node] & candidates))
        for node in sorted(candidates - neighbours[pivot]):
            stack.append(([*clique, node], candidates & neighbours[node], excluded & neighbours[node]))
            candidates = candidates - {node}
            excluded = excluded | {node}


def _build_group(name: str, functions: Sequence[Function]) -> list[EquivalenceGroup]:
    """Return a group, or an empty list if its members share too few informative inputs."""
    first = functions[0]
    informative = set(first.informative).intersection(*(own.informative for own in functions))
    outputs = {first.informative[number] for number in informative}
    shared = {first.inputs[number] for number in informative}
    samples = dict[str, SampleCall]()
    for result in (result for own in functions if own.checked for result in own.checked.results):
        if result.input in shared and len(samples) < _SAMPLES:
            shown = result.input.replace("\n", ", ")[:_MAX_TEXT]
            samples.setdefault(result.digest, SampleCall(input=shown, output=result.text))
    group = EquivalenceGroup(
        id=name,
        members=tuple(map(_build_member, functions)),
        inputs=sum(all(digests) for digests in zip(*(own.digests for own in functions), strict=True)),
        informative=len(informative),
        outputs=len(outputs),
        evidence=tuple(samples.values()),
    )
    return [group] if len(outputs) >= MIN_OUTPUTS else []


def _build_member(function: Function) -> GroupMember:
    pair, (mutants, told_apart) = function.pair, function.count_mutants()
    origin = {} if pair.origin is None else {"origin": pair.origin.model_dump(mode="json", exclude_none=True)}
    return GroupMember(
        id=pair.id,
        code=pair.code,
        informative=len(function.informative),
        mutants=mutants,
        told_apart=told_apart,
        meta={**{name: pair.meta[name] for name in ("licence", "license", "origin") if name in pair.meta}, **origin},
    )
