"""Data types shared by the whole package, from pairs to annotations."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
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
    ValidationError,
    computed_field,
    model_validator,
)

from agent.errors import UsageError
from agent.text import render_html_table

SCHEMA_VERSION = 2
INTENT_JUDGE = "judge_intent"
"""The node that decides pairs whose query has no search intent (`decided_by`). The label of these pairs is null."""

GENERATED = "generated"
"""The value of `meta.source` in pairs whose code a model wrote (`agent corpus fill`)."""

# Upper bounds for recorded values. Even the sum of a million such values can be computed and printed.
MAX_ROUNDS = 10**6
Round = Annotated[int, Field(ge=0, le=MAX_ROUNDS)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_MAX_DOLLARS = 1e15

Progress = Callable[[str, int, int | None], None]
"""Receives the name of a step, the amount of work done so far, and the total amount if it is known."""
_Vote = TypeVar("_Vote", bound=Hashable)
Dollars = Annotated[float, Field(ge=0, le=_MAX_DOLLARS, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def sum_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sum of values, or None if one of them is None."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def majority(votes: Iterable[_Vote]) -> _Vote | None:
    """Return the most frequent vote, or None if there is a tie or there are no votes.

    None (undecided) is counted as a vote. Callers must leave out rounds that failed with an error.
    """
    most_common = Counter(votes).most_common(2)
    tied = len(most_common) == 2 and most_common[0][1] == most_common[1][1]
    return most_common[0][0] if most_common and not tied else None


def _reject_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be 0, 1 or null")
    return value


class Frozen(BaseModel):
    """Base class for immutable records that reject unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdict(StrEnum):
    """Verdict of the preliminary screener (CoSQA+ paper, section IV-C a)."""

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
    """What caused a failure. Only `program` and `dependency` failures are repaired.

    A failure caused by the snippet (`snippet`) is evidence. A failure with the cause `context` never is: the snippet
    cannot run in its module.
    """

    SNIPPET = "snippet"
    PROGRAM = "program"
    DEPENDENCY = "dependency"
    SANDBOX = "sandbox"
    CONTEXT = "context"


class CaseOutcome(StrEnum):
    """How one test case ended.

    `not_exercised` means that the case passed without running the snippet. Either it also passes if every function of
    the snippet only raises an exception, or it replaced the snippet with other code. Such a case is not evidence.
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
    """Return a language's name in lower case. Aliases such as `py` and `cpp` are resolved."""
    lower = name.strip().lower()
    return _LANGUAGE_NAMES.get(lower, lower)


class Origin(Frozen):
    """Where a function comes from: the fields that `agent corpus code` records.

    `repository` and `commit` are a distribution and its version, or a repository and a commit. `lines` contains the
    first and the last line of the function (1-based). `class_name` is dotted for nested classes. It is None for
    functions outside classes, and its key in records is `class`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, serialize_by_alias=True)

    repository: str
    commit: str
    name: str
    module: str | None = None
    path: str | None = None
    lines: tuple[Count, Count] | None = None
    class_name: str | None = Field(default=None, alias="class")

    @classmethod
    def parse(cls, fields: Any) -> Origin | None:
        """Return the origin with these fields, or None if the fields are not those of an origin."""
        try:
            return cls.model_validate(fields)
        except ValidationError:
            return None


class Pair(Frozen):
    """A search query and a code snippet, as read from a dataset.

    `language` is case-insensitive and can be a common alias (`normalise_language`). `context` is additional text for
    prompts. `meta` is copied to the annotation and is not shown in prompts. However, prompts list the packages
    installed for `meta.requirements` in the same way as other installed packages.
    """

    id: str
    query: str
    code: str
    language: Annotated[str, AfterValidator(normalise_language)] = "python"
    context: str | None = None
    origin: Origin | None = Field(default=None, exclude_if=lambda origin: origin is None)
    meta: dict[str, Any] = Field(default_factory=dict)

    def input_sha256(self) -> str:
        """Return the SHA-256 (hex) of the fields that affect the label: query, code, language, context and origin."""
        origin = () if self.origin is None else (json.dumps(self.origin.model_dump(mode="json", exclude_none=True)),)
        return _hash_texts(self.query, self.code, self.language, self.context or "", *origin)


class Comparison(Pair):
    """Two snippets for the same query, for `agent prefer`. `code` is the second snippet."""

    first: str

    def input_sha256(self) -> str:
        """Return the SHA-256 (hex) of the query, both snippets and the language."""
        return _hash_texts(self.query, self.code, self.language, self.first)


def _hash_texts(*texts: str) -> str:
    encoded = b"".join(len(text).to_bytes(8, "big") + text.encode("utf-8", "surrogatepass") for text in texts)
    return hashlib.sha256(encoded).hexdigest()


class CaseResult(Frozen):
    """The result of one test case of a program. `cause` is set if the outcome is `failed` or `error`."""

    name: str
    outcome: CaseOutcome
    message: str = ""
    cause: Cause | None = None


_COUNTS = ("passed", "failed", "errors")


class TestReport(Frozen):
    """Result of executing a test program. `message` describes errors outside the test cases.

    `introspection` lists names in the program or snippet through which code could reach the test harness and forge the
    outcome. An empty list is omitted from records.
    """

    __test__ = False

    status: Status
    cause: Cause | None = None
    cases: tuple[CaseResult, ...] = ()
    message: str = ""
    introspection: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)

    @model_validator(mode="wrap")
    @classmethod
    def _check_counts(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Accept the counts that `model_dump` writes, and reject counts that contradict the cases."""
        if not isinstance(data, Mapping):
            return handler(data)
        report = handler({name: value for name, value in data.items() if name not in _COUNTS})
        for name in _COUNTS:
            count = getattr(report, name)
            value = data.get(name, count)
            if type(value) is not int or value != count:
                raise ValueError(f"{name} is {value!r:.40}, but the cases add up to {count}")
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
        """Number of cases that raised another exception."""
        return sum(case.outcome is CaseOutcome.ERROR for case in self.cases)

    @property
    def executed(self) -> bool:
        """Whether the program reached the snippet without an error in the program itself or in a dependency.

        The "Exec. rate" in Table II of the CoSQA+ paper is the share of generated programs for which this is true.
        """
        if self.status in (Status.PASSED, Status.FAILED):
            return True
        started = any(case.outcome is not CaseOutcome.NOT_RUN for case in self.cases)
        return self.cause is Cause.SNIPPET and started

    @property
    def says(self) -> Literal[0, 1] | None:
        """The label that the test supports: 1 if it passed, 0 if an assertion failed, otherwise None.

        If a snippet raises an exception, hangs or does not parse, this is evidence, not a verdict: the cause may be
        guessed arguments, another Python version or the missing network access. In the CoSQA+ paper, the arbiter
        decides such cases; `arbitrate_by_rule` leaves them undecided.
        """
        if self.status is Status.PASSED:
            return 1
        return 0 if self.status is Status.FAILED else None


class Usage(Frozen):
    """Paid model calls and tokens, including those for unusable replies. `cost_usd` is None if a price is unknown."""

    calls: Count = 0
    input_tokens: Count = 0
    cached_input_tokens: Count = 0
    output_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_usd: Dollars | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        # not validated, because the sum over a run may exceed the bounds for a single record
        return Usage.model_construct(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost_usd=sum_or_none((self.cost_usd, other.cost_usd)),
        )


class ErrorInfo(Frozen):
    """Why a pair has no label: the name of the error class in `agent.errors`, and the message."""

    type: str
    message: str


class Simulated(Frozen):
    """A prediction by the Simulated Executor (CoSQA+ paper, Table VI), always kept separate from execution results."""

    status: Literal["passed", "failed", "error"]
    reason: str = ""


class ModuleContext(Frozen):
    """Where the test of a pair ran with `pipeline.context: module`: in the snippet's module, or alone for `reason`.

    `module` is the import path of the module, or None. `outline_sha256` is the SHA-256 (hex) of the module's outline
    in prompts.
    """

    module: str | None = None
    reason: str = ""
    outline_sha256: str | None = None


class WrittenCode(Frozen):
    """The result of the node `write_code`: a snippet that a model wrote."""

    code: str


Choice = Literal["first", "second", "tie"]


class Preference(Frozen):
    """The result of the node `prefer`: which snippet of a `Comparison` satisfies more of the query."""

    choice: Choice


class Annotation(Frozen):
    """The label of one pair in one round, and what decided it. Stored as one line of `annotations.jsonl`.

    `reading` is the reading of the query that was tested. `audited` is true if the screener had labelled the pair
    (`screen_verdict`), but its label comes from the rest of the pipeline. `document` is the
    result of a node that does not label pairs. It is omitted from records if it is None.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema", serialization_alias="schema")
    id: str
    input_sha256: str
    round: Round = 0
    label: Annotated[Literal[0, 1] | None, BeforeValidator(_reject_bool)] = None
    decided_by: str | None = None
    reason: str = ""
    document: WrittenCode | Preference | None = Field(default=None, exclude_if=lambda document: document is None)
    screen_verdict: Verdict | None = None
    audited: bool = False
    test: TestReport | None = None
    simulated: Simulated | None = None
    stand_ins: tuple[str, ...] = ()
    module_context: ModuleContext | None = Field(default=None, exclude_if=lambda context: context is None)
    reading: str = ""
    repairs: Count = 0
    installed: tuple[str, ...] = ()
    seconds: Seconds = 0.0
    usage: Usage = Usage()
    error: ErrorInfo | None = None
    meta: dict[str, Any] = Field(default_factory=dict)

    @property
    def against_test(self) -> bool:
        """Whether the label contradicts the test. Predicted outcomes (`simulated`) are not considered."""
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
                ("test", self.test and self.test.status.value),
                *((case.name, f"{case.outcome.value} {case.message}".strip()) for case in cases),
                ("installed", ", ".join(self.installed)),
                ("error", self.error and f"{self.error.type}: {self.error.message}"),
            ]
        )


@dataclass(frozen=True)
class Message:
    """One turn of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    content: str


def check_type(name: str, value: object, kinds: tuple[type, ...], expected: str) -> None:
    """Check that an argument has one of the given types. None is always accepted. A bool is not accepted as a number.

    Raises:
        UsageError: the argument has another type. The message names the argument, its type and the expected types.
    """
    if value is None or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
        return
    raise UsageError(f"{name}={value!r:.60} is of type {type(value).__name__}; expected {expected}")
