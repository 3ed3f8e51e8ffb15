"""Every error the package raises, in one tree.

    AgentError
    ├── UsageError                 wrong usage or input; nothing was spent           exit 2
    │   ├── InputError             a file of pairs is unreadable or malformed
    │   ├── ConfigError            unknown variant, node, model form, language, option
    │   │   ├── GraphError         a variant that cannot be built
    │   │   └── PromptError        a template that is missing or does not render
    │   ├── RunFolderError         the output folder is of another run, in use or unreadable
    │   ├── NotReplayable          what a run recorded cannot be run again here
    │   │   └── LockUnavailable    the recorded versions of packages cannot be had any more
    │   ├── ExtraMissing           a library of an optional extra is not installed
    │   └── SandboxUnavailable     no backend works on this machine
    │       └── InterpreterUnavailable  the Python that was asked for is not here
    ├── RunStopped                 the run ended early and can be resumed            exit 3
    │   ├── AccountError           key refused, no credit, unknown model, endpoint unreachable at the start
    │   ├── OptionRefused          the model's server does not take a way to ask that every call of its kind uses
    │   ├── Outage                 nearly every pair ends in the same error of a model, sandbox or node
    │   ├── BudgetExceeded         the limit of cost or of tokens was reached
    │   ├── DeadlineReached        the time until which the run may go on is over
    │   └── StorageError           evidence or annotations could not be written (disk full)
    └── PairError                  ends one pair; becomes `annotation.error`         exit 1
        ├── ModelError             the model gave no usable reply
        │   ├── ModelUnavailable   the server failed, refused for now or was not reached, however often it was asked
        │   ├── ModelTimeout       no full reply within the call timeout
        │   ├── ReplyError         the reply could not be parsed, after asking again
        │   └── PromptTruncated    the server cut the prompt without saying so
        ├── SandboxError           the sandbox broke, on a fresh one too; says nothing of the tested code
        │   ├── RunnerCrashed      its trusted first process ended, or does not answer as it should
        │   ├── ContainerLost      the container was killed or removed from outside, or its engine stopped it
        │   ├── EnvironmentGone    the program's environment was removed from the store meanwhile
        │   └── EngineLost         the container engine does not answer
        ├── RequirementsUnavailable  what the pair's own `meta.requirements` name cannot be had
        ├── SnippetTooLarge        the snippet is longer or nested deeper than is read; says nothing of it
        ├── NodeError              a node or a language of the user's own raised
        ├── PairTimeout            the pair used up its total time
        └── UnsupportedLanguage    no `Language` for the pair

`Deferred` (an `AgentError`) leaves a turn without ending it: the turn comes again once its batch is answered.
`DependencyUnavailable` (an `AgentError`) never leaves the repair step: a dependency that cannot be had is a finding
about the program, reported with cause `dependency`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.types import Usage


class AgentError(Exception):
    """The root of the tree; `str()` of any of them is a message for the user."""


class UsageError(AgentError):
    """Wrong usage or input, found before anything was spent."""


class InputError(UsageError):
    """A file of pairs is unreadable or malformed; names file and line."""

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None) -> None:
        self.path = None if path is None else str(path)
        self.line = line
        self.cause = message
        place = "" if self.path is None else f"{self.path}:{line}: " if line is not None else f"{self.path}: "
        super().__init__(f"{place}{message}")


class ConfigError(UsageError):
    """An unknown variant, node, model form, language or option."""


class GraphError(ConfigError):
    """A variant that cannot be built: an input nobody provides, an unreachable node, an unknown name."""


class PromptError(ConfigError):
    """A prompt template that is missing or does not render."""


class RunFolderError(UsageError):
    """The output folder belongs to another run, is in use, or cannot be read."""


class NotReplayable(UsageError):
    """A recorded execution cannot be run again: there is none, or too little is known of it."""


class LockUnavailable(NotReplayable):
    """The recorded versions of packages cannot be had, so that the program would run in another environment."""


class ExtraMissing(UsageError):
    """What was asked for needs libraries of an optional extra; the message says how to install them."""

    def __init__(self, extra: str, cause: ImportError) -> None:
        self.extra = extra
        missing = cause.name or str(cause)
        super().__init__(
            f"{missing} is not installed: pip install 'test-driven-annotator[{extra}]', or in a checkout '.[{extra}]'; "
            "with uv tool install or pipx, install the whole again by that name"
        )


class SandboxUnavailable(UsageError):
    """No sandbox backend works here; the message says the remedy."""


class InterpreterUnavailable(SandboxUnavailable):
    """The version of Python that was asked for is not here; names those that are."""


class RunStopped(AgentError):
    """The run ended early; what was finished is kept and `hint` the same command goes on."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


class AccountError(RunStopped):
    """The model's server refuses every call (key, credit, model name, a long wait), or it cannot be reached."""


class OptionRefused(RunStopped):
    """The model's server does not take an option, such as the format of replies; the message says what to use."""


class Outage(RunStopped):
    """Nearly every pair ends in the same error of a model, a sandbox or a node, so that more are not worth a try."""


class BudgetExceeded(RunStopped):
    """The limit of cost or of tokens given for the run was reached, or cannot be enforced."""

    def __init__(self, message: str, hint: str = "with a larger budget (--budget)") -> None:
        super().__init__(message, hint)


class DeadlineReached(RunStopped):
    """The time until which the run was to go on is over."""


class StorageError(RunStopped):
    """Annotations, evidence or cache could not be written."""


class Deferred(AgentError):
    """A question was written down for a batch: no error of the pair or the run, the pair is taken again later."""


class PairError(AgentError):
    """Ends one pair without a label; other pairs go on."""


class ModelError(PairError):
    """The model gave no usable reply to a pair's question; `usage` is what the failed attempts cost."""

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        self.usage = usage
        super().__init__(message)


class ModelUnavailable(ModelError):
    """The model's server failed or could not be reached, at the last of several attempts: says nothing of the pair."""


class ModelTimeout(ModelError):
    """No complete reply arrived within the call timeout."""


class ReplyError(ModelError):
    """A reply could not be parsed, after asking again with the cause."""


class PromptTruncated(ModelError):
    """The server read fewer tokens than were sent: its context is smaller than the prompt."""


class SandboxError(PairError):
    """The sandbox broke: runner, container or engine. Says nothing about the tested code."""


class RunnerCrashed(SandboxError):
    """A sandbox's trusted first process ended, or does not answer as it should."""


class ContainerLost(SandboxError):
    """A container was killed or removed by somebody else, ran out of memory as a whole, or its connection broke."""


class EnvironmentGone(SandboxError):
    """The environment that a program was to run in is not in the store any more: somebody removed it."""


class EngineLost(SandboxError):
    """The container engine does not answer."""


class RequirementsUnavailable(PairError):
    """A pair's own requirements cannot be had, so that its program would say nothing of what was meant."""


class SnippetTooLarge(PairError):
    """A snippet is longer or nested deeper than is read here. Says nothing about the snippet."""


class NodeError(PairError):
    """A node of the user's own raised, or a node that works with a language of the user's own."""

    def __init__(self, message: str, node: str = "") -> None:
        self.node = node
        super().__init__(message)


class PairTimeout(PairError):
    """A pair used up its total time (`pair_timeout`)."""


class UnsupportedLanguage(PairError):
    """No `Language` is registered for the pair's language."""


class DependencyUnavailable(AgentError):
    """A requirement could not be resolved, fetched or installed; `temporary` when asking later may end otherwise."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        self.temporary = temporary
        super().__init__(message)
