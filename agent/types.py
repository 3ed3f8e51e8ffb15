"""The values that pass between the parts: pairs in, annotations out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    computed_field,
    model_validator,
)

from agent.wording import render_html_table

SCHEMA_VERSION = 1
PROVES_NOTHING = "passed, but proves nothing"
"""How a vacuous test is described to readers."""

# What a record may say at most: sums of a million of them are still numbers that can be computed with and printed.
MAX_ROUNDS = 10**6
Round = Annotated[int, Field(ge=0, le=MAX_ROUNDS)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_MAX_DOLLARS = 1e15
_Vote = TypeVar("_Vote", bound=Hashable)
Dollars = Annotated[float, Field(ge=0, le=_MAX_DOLLARS, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def add_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of values, None when one of them is not known."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def majority(answers: Iterable[_Vote]) -> _Vote | None:
    """Return the answer given more often than any other; None on a tie, or without answers.

    An undecided vote is an answer, also where it is None. Leave out votes that ended in an error.
    """
    ranked = Counter(answers).most_common(2)
    tied = len(ranked) == 2 and ranked[0][1] == ranked[1][1]
    return ranked[0][0] if ranked and not tied else None


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("neither 0 nor 1 nor null")
    return value


class Frozen(BaseModel):
    """An immutable value; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdict(StrEnum):
    """What the preliminary screener says (paper, section IV-C a)."""

    MATCH = "match"
    NON_MATCH = "non_match"
    UNCLEAR = "unclear"


class Status(StrEnum):
    """How the execution of a test program ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    TIMEOUT = "timeout"
    NOT_RUN = "not_run"


class Cause(StrEnum):
    """Who failed. Only `program` and `dependency` are repaired; `snippet` is evidence.

    `flaky`: the same program ended in different ways, so that its outcome says nothing.
    """

    SNIPPET = "snippet"
    PROGRAM = "program"
    DEPENDENCY = "dependency"
    SANDBOX = "sandbox"
    FLAKY = "flaky"


class CaseOutcome(StrEnum):
    """How one test case ended.

    `not_exercised`: it passed, and passes as well where no function of the snippet can run; or something else stood in
    the snippet's place. It is no evidence.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NOT_RUN = "not_run"
    NOT_EXERCISED = "not_exercised"


_LANGUAGES = {
    "python": ("py", "python3", "py3"),
    "javascript": ("js", "ecmascript", "node", "nodejs", "node.js"),
    "typescript": ("ts",),
    "c++": ("cpp", "cxx", "cplusplus"),
    "c#": ("csharp", "cs"),
    "go": ("golang",),
    "ruby": ("rb",),
    "rust": ("rs",),
    "kotlin": ("kt",),
    "bash": ("sh", "shell"),
    "objective-c": ("objc", "objectivec"),
}
_LANGUAGE_NAMES = {alias: name for name, aliases in _LANGUAGES.items() for alias in aliases}


def normalise_language(name: str) -> str:
    """Return a language's name as pairs have it: in lower case, and without aliases such as `py` or `cpp`."""
    plain = name.strip().lower()
    return _LANGUAGE_NAMES.get(plain, plain)


class Pair(Frozen):
    """A search query and a code snippet, as read from a dataset.

    `language` is taken in any case and by its common aliases (`language_name`).
    `context` is the only further text that prompts may show; `meta` is carried along and reaches none, but for what its
    `requirements` had installed, which is shown like anything else that is installed.
    """

    id: str
    query: str
    code: str
    language: Annotated[str, AfterValidator(normalise_language)] = "python"
    context: str | None = None
    meta: dict[str, Any] = Field(default_factory=dict)

    def input_sha256(self) -> str:
        """Hash of what decides the label: query, code, language and context (hex)."""
        parts = (self.query, self.code, self.language, self.context or "")
        encoded = b"".join(len(part).to_bytes(8, "big") + part.encode("utf-8", "surrogatepass") for part in parts)
        return hashlib.sha256(encoded).hexdigest()


class CaseResult(Frozen):
    """One test case of a program. `cause` is set where the outcome is `failed` or `error`."""

    name: str
    outcome: CaseOutcome
    message: str = ""
    cause: Cause | None = None


_COUNTS = ("passed", "failed", "errors")


class TestReport(Frozen):
    """What running a test program showed. `message` says what went wrong outside of any one case.

    `vacuous`: it passed, and the validity check found that it proves nothing. False where the check found otherwise or
    did not look, and in runs of versions that did not keep it.
    `introspection`: names in the program, snippet included, by which code can reach the test harness and forge its
    outcome. Left out of a record when empty.
    """

    __test__ = False

    status: Status
    cause: Cause | None = None
    cases: tuple[CaseResult, ...] = ()
    message: str = ""
    vacuous: bool = False
    introspection: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)

    @model_validator(mode="wrap")
    @classmethod
    def _check_counts(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Read what `model_dump` gives; counts that the cases contradict are damage."""
        if not isinstance(data, Mapping):
            return handler(data)
        report = handler({name: value for name, value in data.items() if name not in _COUNTS})
        for name in _COUNTS:
            counted = getattr(report, name)
            given = data.get(name, counted)
            if type(given) is not int or given != counted:
                raise ValueError(f"{name} is {counted} by the cases, not {given!r:.40}")
        return report

    @computed_field  # type: ignore[prop-decorator]
    @property
    def passed(self) -> int:
        """Number of cases that passed."""
        return sum(case.outcome is CaseOutcome.PASSED for case in self.cases)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def failed(self) -> int:
        """Number of cases whose assertion failed."""
        return sum(case.outcome is CaseOutcome.FAILED for case in self.cases)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def errors(self) -> int:
        """Number of cases that raised something else."""
        return sum(case.outcome is CaseOutcome.ERROR for case in self.cases)

    @property
    def executed(self) -> bool:
        """Whether the program ran as a test: it reached the snippet, and did not fail of its own or for a dependency.

        The paper's "Exec. rate" (Table II) is the share of generated programs for which this holds. A flaky program did
        run: that its outcome says nothing is another matter.
        """
        if self.status in (Status.PASSED, Status.FAILED):
            return True
        started = any(case.outcome is not CaseOutcome.NOT_RUN for case in self.cases)
        return self.cause in (Cause.SNIPPET, Cause.FLAKY) and started

    @property
    def says(self) -> Literal[0, 1] | None:
        """The label that the test speaks for: 1 when it passed, 0 when an assertion failed, None when it says neither.

        None for a pass that proves nothing, and for every other status, whoever caused it. A snippet that raises, hangs
        or does not parse is evidence to weigh, and no verdict: what it was given may have been wrong (arguments that
        were guesses, another Python, no network). The paper leaves that to the arbiter, and our rule to nobody.
        """
        if self.status is Status.PASSED:
            return None if self.vacuous else 1
        return 0 if self.status is Status.FAILED else None

    @property
    def outcome(self) -> str:
        """The status for readers, or that the test passed and proves nothing."""
        return PROVES_NOTHING if self.vacuous else self.status.value


class Usage(Frozen):
    """Calls and tokens paid for, failed replies included; `cost_usd` is None when a price is unknown."""

    calls: Count = 0
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_usd: Dollars | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        # a sum over a whole run may be more than one record may say
        return Usage.model_construct(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=add_known((self.cost_usd, other.cost_usd)),
        )


class ErrorInfo(Frozen):
    """Why a pair has no label: the error's class name in `agent.errors` and its message."""

    type: str
    message: str


class Simulated(Frozen):
    """A predicted outcome (the Simulated Executor of Table VI); never mixed with real tests."""

    status: Literal["passed", "failed", "error"]
    reason: str = ""


class Reading(Frozen):
    """One thing that the person who typed a query may have meant, and what it requires of an answer."""

    text: str
    requirements: tuple[str, ...] = ()


class QuerySpec(Frozen):
    """The plausible readings of a query, the most natural one first; the same for all its candidates."""

    readings: tuple[Reading, ...]


class Annotation(Frozen):
    """The label of one pair in one round and what decided it: one line of `annotations.jsonl`.

    `reading` is that of the query that was tested or matched. `strength` is the share of mutants that the program
    noticed (None: not looked at), `votes` the arbiter's labels where it was asked several times, `confidence` a number
    from 0 to 1. `audited`: the pair was settled by `screen_verdict` and tested all the same, and the label is what the
    rest of the pipeline found. `abstained`: the arbiter found that the evidence does not decide.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    id: str
    input_sha256: str
    round: Round = 0
    label: Annotated[Literal[0, 1] | None, BeforeValidator(_reject_bool)] = None
    decided_by: str | None = None
    reason: str = ""
    screen_verdict: Verdict | None = None
    audited: bool = False
    test: TestReport | None = None
    simulated: Simulated | None = None
    stand_ins: tuple[str, ...] = ()
    reading: str = ""
    strength: Share | None = None
    votes: tuple[Literal[0, 1] | None, ...] = ()
    confidence: Share | None = None
    abstained: bool = False
    repairs: Count = 0
    installed: tuple[str, ...] = ()
    seconds: Seconds = 0.0
    usage: Usage = Usage()
    error: ErrorInfo | None = None
    meta: dict[str, Any] = Field(default_factory=dict)

    @property
    def against_test(self) -> bool:
        """Whether the label differs from what the test says; a predicted outcome (`simulated`) says nothing."""
        says = None if self.test is None else self.test.says
        return None not in (self.label, says) and self.label != says

    def _repr_html_(self) -> str:
        cases = () if self.test is None else self.test.cases
        return render_html_table(
            [
                ("pair", self.id),
                ("label", "none" if self.label is None else self.label),
                ("decided by", self.decided_by),
                ("reason", self.reason),
                ("test", self.test and self.test.outcome),
                *((case.name, f"{case.outcome.value} {case.message}".strip()) for case in cases),
                ("confidence", self.confidence),
                ("installed", ", ".join(self.installed)),
                ("error", self.error and f"{self.error.type}: {self.error.message}"),
            ]
        )


@dataclass(frozen=True)
class Message:
    """One turn of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    content: str
