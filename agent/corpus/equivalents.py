"""Groups Python functions that return the same results for shared inputs.

Functions with the same number of arguments are called with the same inputs. An input is informative for a function if
it returns a value other than None and its arguments. Two functions agree if they return the same for each input for
which both return, and share most of their informative inputs. An exception is never an agreement.

Agreement is not transitive, so groups are maximal cliques of functions that agree. A function is in a group only if the
inputs also tell apart most of its mutants. Otherwise, they would not notice that another function is different.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

from agent.corpus.calls import RAN, Calls, CallTask, run_tasks
from agent.corpus.mutate import NOT_RUN, OUT_OF_MEMORY, SELDOM, SURVIVED, TIMED_OUT, Checked, check_items
from agent.datasets.groups import EquivalenceGroup, GroupMember, SampleCall
from agent.errors import PairError
from agent.languages.registry import Languages
from agent.retrieval.code_views import split_docstring
from agent.sandbox.base import SandboxBackend
from agent.sandbox.inside.python_inputs import SHARES, Signature, Unfit, list_shared_inputs
from agent.sandbox.session import SandboxSession
from agent.streams import run_concurrently
from agent.types import Pair, Progress

MIN_OUTPUTS, MIN_OVERLAP = 3, 0.8
MIN_MUTANTS, MIN_TOLD_APART, MUTANTS = 4, 0.75, 20
MAX_CLIQUES = 10_000
"""Limit for functions with the same number of arguments, because their number can grow exponentially."""
_BATCH = 40
_CHOSEN, _CHOSEN_OTHERS, _SAMPLES, _MAX_TEXT = 60, 20, 5, 200
_TOO_FEW, _ALONE = "too few results", "no equivalent function"


@dataclass(frozen=True)
class Results:
    """The digests of a function's results, one for each shared input (see `Calls`)."""

    digests: tuple[str, ...]
    informative: Mapping[int, str]

    @classmethod
    def parse(cls, shared: str) -> Results:
        digests = tuple(shared.split(" "))
        return cls(digests, {i: text for i, text in enumerate(digests) if text and text[0] != "="})

    def agrees(self, other: Results) -> bool:
        common = self.informative.keys() & other.informative.keys()
        if len(common) < MIN_OVERLAP * max(len(self.informative), len(other.informative)):
            return False
        differs = any(a and b and a != b for a, b in zip(self.digests, other.digests, strict=True))
        return not differs and len({self.informative[i] for i in common}) >= MIN_OUTPUTS

    def choose_inputs(self, count: int) -> list[str]:
        """Return inputs to tell mutants apart, with different outputs first."""
        by_output = defaultdict[str, list[int]](list)
        for index, digest in self.informative.items():
            by_output[digest].append(index)
        turns = zip_longest(*by_output.values())
        chosen = [index for turn in turns for index in turn if index is not None][:_CHOSEN]
        others = (index for index, digest in enumerate(self.digests) if digest.startswith("="))
        inputs = list_shared_inputs(count)
        return [inputs[index] for index in (*chosen, *islice(others, _CHOSEN_OTHERS))]


@dataclass
class EquivalenceSummary:
    """Counts of functions, and the groups. `removed` has the reason why a function is in no group, by its id."""

    read: int = 0
    informative: int = 0
    tested: int = 0
    cut: bool = False
    groups: list[EquivalenceGroup] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)


async def find_equivalents(
    pairs: Sequence[Pair], backend: SandboxBackend, *, concurrency: int, progress: Progress
) -> EquivalenceSummary:
    """Call the functions in a sandbox, and group those that agree. The order of the groups is that of the functions.

    Raises:
        UsageError: the packages for all programs cannot be installed.
    """
    summary = EquivalenceSummary(read=len(pairs))
    functions = {pair.id: pair for pair in _select(pairs, summary.removed)}
    counts, results = dict[str, int](), dict[str, Results]()
    async with aclosing(_call_shared(functions.values(), backend, concurrency)) as called:
        async for pair, calls in called:
            progress("calling functions", len(counts) + 1, len(functions))
            counts[pair.id] = len(_parse_signature(pair.code).arguments)
            own = Results.parse(calls.shared) if calls.status == RAN else None
            if own is None or len(set(own.informative.values())) < MIN_OUTPUTS:
                summary.removed[pair.id] = _TOO_FEW if own else calls.status
            else:
                results[pair.id] = own
    summary.informative = len(results)
    partners = {id for count in SHARES for id in _list_partners(_select_by_count(results, counts, count))}
    summary.removed |= dict.fromkeys(results.keys() - partners, _ALONE)
    items = [_prepare(pair, results[id].choose_inputs(counts[id])) for id, pair in functions.items() if id in partners]
    tested = dict[str, Checked]()
    async with aclosing(check_items(items, backend, limit=MUTANTS, concurrency=concurrency)) as checks:
        async for checked in checks:
            progress("checking mutants", summary.tested + 1, len(items))
            summary.tested += 1
            if reason := checked.reason or _judge_mutants(checked):
                summary.removed[checked.pair.id] = reason
            else:
                tested[checked.pair.id] = checked
    trusted = {id: own for id, own in results.items() if id in tested}
    for count in SHARES:
        _add_groups(summary, _select_by_count(trusted, counts, count), functions, tested)
    return summary


def _select_by_count(results: Mapping[str, Results], counts: Mapping[str, int], count: int) -> dict[str, Results]:
    return {id: own for id, own in results.items() if counts[id] == count}


def _parse_signature(code: str) -> Signature:
    return Signature(code, strict=False)


def _select(pairs: Iterable[Pair], removed: dict[str, str]) -> Iterator[Pair]:
    """Iterate over the functions that can be called with shared inputs, each once."""
    seen = set[str]()
    for pair in pairs:
        try:
            if pair.language != "python" or pair.code in seen:
                raise Unfit("duplicate" if pair.language == "python" else "not Python")
            seen.add(pair.code)
            if len(_parse_signature(pair.code).arguments) not in SHARES:
                raise Unfit("arguments")
        except Unfit as error:
            removed[pair.id] = str(error)
        else:
            yield pair


async def _call_shared(
    pairs: Iterable[Pair], backend: SandboxBackend, concurrency: int
) -> AsyncGenerator[tuple[Pair, Calls], None]:
    async def call(batch: Sequence[Pair]) -> list[tuple[Pair, Calls]]:
        session = SandboxSession(backend)
        try:
            environment = await session.build_initial_environment()
            key = None if environment is None else environment.key
            calls = await run_tasks(session, [CallTask([pair.code], None) for pair in batch], key)
            return [(pair, own) for pair, [own] in zip(batch, calls, strict=True)]
        except PairError:
            return [(pair, Calls(NOT_RUN)) for pair in batch]
        finally:
            await session.close()

    remaining = iter(pairs)
    batches = iter(lambda: list(islice(remaining, _BATCH)), [])
    async with aclosing(run_concurrently(batches, call, concurrency=concurrency, ordered=True)) as results:
        async for batch in results:
            for item in batch:
                yield item


def _prepare(pair: Pair, inputs: Sequence[str]) -> Checked:
    parts = split_docstring(pair.code, pair.language, pair.meta)
    if parts is None:
        return Checked(pair, "does not parse")
    try:
        code = Languages().require(pair.language).reformat(parts[1])
    except ValueError:
        return Checked(pair, "nothing but documentation")
    return Checked(pair.model_copy(update={"code": code}), source=pair.code, inputs=inputs)


def _count_mutants(checked: Checked) -> tuple[int, int]:
    """Return the number of mutants that ran, and how many of them differ from the function. Timeouts are differences."""
    reasons = Counter(verdict.reason for verdict in checked.verdicts)
    told_apart = sum(reasons[reason] for reason in ("", SELDOM, TIMED_OUT, OUT_OF_MEMORY))
    return told_apart + reasons[SURVIVED], told_apart


def _judge_mutants(checked: Checked) -> str:
    mutants, told_apart = _count_mutants(checked)
    if mutants < MIN_MUTANTS:
        return f"fewer than {MIN_MUTANTS} mutants"
    return "mutants not told apart" if told_apart < MIN_TOLD_APART * mutants else ""


def _merge_equal(results: Mapping[str, Results]) -> dict[tuple[str, ...], list[str]]:
    """Return the ids of the functions with the same digests. Such functions agree with the same other functions."""
    ids = defaultdict[tuple[str, ...], list[str]](list)
    for id, own in results.items():
        ids[own.digests].append(id)
    return ids


def _list_partners(results: Mapping[str, Results]) -> set[str]:
    """Return the ids of the functions that agree with another function."""
    merged = _merge_equal(results)
    nodes = [results[ids[0]] for ids in merged.values()]
    neighbours = find_agreements(nodes)
    return {id for ids, other in zip(merged.values(), neighbours, strict=True) if other or len(ids) > 1 for id in ids}


def find_agreements(nodes: Sequence[Results]) -> list[set[int]]:
    """Return the numbers of the functions that agree with each function.

    Functions are compared if they share one of their rarest results. A function that agrees with another shares at
    least `MIN_OVERLAP` of its results, so one of the rarest others is among them.
    """
    frequency = Counter(item for node in nodes for item in node.informative.items())
    index = defaultdict[tuple[int, str], list[int]](list)
    neighbours: list[set[int]] = [set() for _ in nodes]
    for number, node in enumerate(nodes):
        items = sorted(node.informative.items(), key=lambda item: (frequency[item], item))
        rarest = items[: len(items) - math.ceil(MIN_OVERLAP * len(items) - 1e-9) + 1]
        for other in sorted({other for item in rarest for other in index[item]}):
            if node.agrees(nodes[other]):
                neighbours[number].add(other)
                neighbours[other].add(number)
        for item in rarest:
            index[item].append(number)
    return neighbours


def iterate_cliques(neighbours: Sequence[Set[int]]) -> Iterator[list[int]]:
    """Iterate over the maximal cliques of a graph (Bron and Kerbosch, with a pivot)."""
    stack = [(list[int](), set(range(len(neighbours))), set[int]())]
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


def _add_groups(
    summary: EquivalenceSummary,
    results: Mapping[str, Results],
    functions: Mapping[str, Pair],
    tested: Mapping[str, Checked],
) -> None:
    """Add the groups of functions with the same number of arguments, in the order of their first members."""
    order = {id: number for number, id in enumerate(results)}
    merged = list(_merge_equal(results).values())
    neighbours = find_agreements([results[ids[0]] for ids in merged])
    cliques = list(islice(iterate_cliques(neighbours), MAX_CLIQUES + 1))
    summary.cut = summary.cut or len(cliques) > MAX_CLIQUES
    groups = [[id for node in clique for id in merged[node]] for clique in cliques[:MAX_CLIQUES]]
    grouped = set[str]()
    for ids in sorted(sorted(map(order.__getitem__, group)) for group in groups if len(group) > 1):
        members = [list(results)[number] for number in ids]
        group = _build_group(f"g{len(summary.groups) + 1}", members, results, functions, tested)
        if group is not None:
            summary.groups.append(group)
            grouped.update(members)
    summary.removed |= dict.fromkeys(results.keys() - grouped, _ALONE)


def _build_group(
    name: str,
    ids: Sequence[str],
    results: Mapping[str, Results],
    functions: Mapping[str, Pair],
    tested: Mapping[str, Checked],
) -> EquivalenceGroup | None:
    """Build a group, or return None if its members share too few informative inputs."""
    first, *others = (results[id] for id in ids)
    informative = set(first.informative).intersection(*(own.informative for own in others))
    outputs = {first.informative[i] for i in informative}
    if len(outputs) < MIN_OUTPUTS:
        return None
    names = list_shared_inputs(len(_parse_signature(functions[ids[0]].code).arguments))
    shared = {names[i] for i in informative}
    samples = dict[str, SampleCall]()
    for id in ids:
        for result in tested[id].results:
            if result.input in shared and len(samples) < _SAMPLES:
                shown = result.input.replace("\n", ", ")[:_MAX_TEXT]
                samples.setdefault(result.digest, SampleCall(input=shown, output=result.text))
    digests = zip(*(results[id].digests for id in ids), strict=True)
    return EquivalenceGroup(
        id=name,
        members=tuple(_build_member(functions[id], results[id], tested[id]) for id in ids),
        inputs=sum(all(parts) for parts in digests),
        informative=len(informative),
        outputs=len(outputs),
        evidence=tuple(samples.values()),
    )


def _build_member(pair: Pair, results: Results, checked: Checked) -> GroupMember:
    mutants, told_apart = _count_mutants(checked)
    meta: dict[str, Any] = {name: pair.meta[name] for name in ("licence", "origin") if name in pair.meta}
    if pair.origin is not None:
        meta["origin"] = pair.origin.model_dump(mode="json", exclude_none=True)
    return GroupMember(
        id=pair.id,
        code=pair.code,
        informative=len(results.informative),
        mutants=mutants,
        told_apart=told_apart,
        meta=meta,
    )
