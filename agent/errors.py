"""All errors that the package raises, in one tree.

    AgentError
    ├── UsageError                 invalid usage or input; nothing was spent         exit 2
    │   ├── InputError             a pairs file is unreadable or malformed
    │   ├── ConfigError            unknown variant, node, model, language or option
    │   │   ├── GraphError         the variant cannot be built
    │   │   ├── PromptError        a template is missing or does not render
    │   │   └── SettingsRefused    a settings file in the working folder sets what only the user may set
    │   ├── RunFolderError         the run folder belongs to another run, is in use, or is unreadable
    │   ├── NotReplayable          a recorded execution cannot be repeated here
    │   │   └── LockUnavailable    the recorded package versions are no longer available
    │   ├── ExtraMissing           a library of an optional extra is not installed
    │   └── SandboxUnavailable     no sandbox backend works on this machine
    │       └── InterpreterUnavailable  the requested Python version is not available
    ├── RunStopped                 the run ended early and can be resumed            exit 3
    │   ├── AccountError           invalid key, no credit, unknown model, server unreachable at the start
    │   ├── OptionRefused          the model's server rejects an option, such as the reply format
    │   ├── Outage                 nearly every pair fails with the same model, sandbox or node error
    │   ├── BudgetExceeded         the limit on cost or tokens was reached
    │   ├── DeadlineReached        the deadline of the run has passed
    │   └── StorageError           annotations or evidence could not be written (disk full)
    └── PairError                  one pair has no label; see `annotation.error`         exit 1
        ├── ModelError             the model returned no usable reply
        │   ├── ModelUnavailable   the server failed, was busy, or was unreachable on every attempt
        │   ├── ModelTimeout       no complete reply within the call timeout
        │   ├── ReplyError         the reply could not be parsed, even after retries
        │   └── PromptTruncated    the server truncated the prompt silently
        ├── SandboxError           the sandbox and its replacements failed
        │   ├── RunnerCrashed      the sandbox's first process exited or violated the protocol
        │   ├── ContainerLost      the container was killed or removed, or lost its connection
        │   ├── EnvironmentGone    the program's environment was removed from the store
        │   ├── ForkRefused        the program must run in a fresh process in another sandbox
        │   └── EngineLost         the container engine does not respond
        ├── RequirementsUnavailable  the requirements in the pair's `meta` cannot be installed
        ├── SnippetTooLarge        the snippet exceeds the limits on length or nesting
        ├── NodeError              a user-defined node or language raised an exception
        ├── PairTimeout            the pair exceeded its total time limit
        └── UnsupportedLanguage    no `Language` is registered for the pair's language

`Deferred` (an `AgentError`) suspends the annotation of a pair that waits for a model call in a batch. After the batch
has returned, the annotation of the pair is repeated. `DependencyUnavailable` (an `AgentError`) is always handled by the
repair step. A missing dependency is a finding about the program and is reported with cause `dependency`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.types import Usage


class AgentError(Exception):
    """Base class of all errors. `str()` returns a message for the user."""


class UsageError(AgentError):
    """Invalid usage or input, detected before anything was spent."""


class InputError(UsageError):
    """A pairs file is unreadable or malformed. The message names the file and, if known, the line."""

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None) -> None:
        self.path = None if path is None else str(path)
        self.line = line
        self.cause = message
        place = "" if self.path is None else f"{self.path}:{line}: " if line is not None else f"{self.path}: "
        super().__init__(f"{place}{message}")


class ConfigError(UsageError):
    """A variant, node, model, language or option is unknown."""


class GraphError(ConfigError):
    """The variant cannot be built: a node is unknown or unreachable, or lacks an input."""


class PromptError(ConfigError):
    """A prompt template is missing or does not render."""


class SettingsRefused(ConfigError):
    """A settings file in the working folder sets what only the user may set. `settings` contains the names."""

    def __init__(self, message: str, *, settings: tuple[str, ...] = ()) -> None:
        self.settings = settings
        super().__init__(message)


class RunFolderError(UsageError):
    """The run folder belongs to another run, is in use, or cannot be read."""


class NotReplayable(UsageError):
    """A recorded execution cannot be repeated: it is missing, or the record is incomplete."""


class LockUnavailable(NotReplayable):
    """The recorded package versions are not available, so the recorded environment cannot be rebuilt."""


class ExtraMissing(UsageError):
    """The operation needs libraries from an optional extra. The message explains how to install them."""

    def __init__(self, extra: str, cause: ImportError) -> None:
        self.extra = extra
        self._missing = missing = cause.name or str(cause)
        super().__init__(
            f"{missing} is not installed: pip install 'test-driven-annotator[{extra}]', or in a checkout '.[{extra}]'; "
            "with uv tool or pipx, reinstall the package with that extra"
        )

    def __reduce__(self) -> tuple[type[ExtraMissing], tuple[str, ImportError]]:
        """Return how to copy the error to another process."""
        return ExtraMissing, (self.extra, ImportError(self._missing))


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Convert each ImportError of the block to ExtraMissing.

    Raises:
        ExtraMissing: an import failed.
    """
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(extra, error) from error


class SandboxUnavailable(UsageError):
    """No sandbox backend works on this machine. The message explains how to fix this."""


class InterpreterUnavailable(SandboxUnavailable):
    """The requested Python version is not available. The message lists the available versions."""


class RunStopped(AgentError):
    """The run ended early. Finished annotations are saved, and the same command resumes the run.

    `hint` is the change to the command that lets the run continue, such as `with a larger budget (--budget)`.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


class AccountError(RunStopped):
    """The model's server is unreachable, requires a long wait, or rejects every call (key, credit or model name)."""


class OptionRefused(RunStopped):
    """The model's server rejects an option, such as the reply format. The message names an alternative."""


class Outage(RunStopped):
    """Nearly every pair fails with the same model, sandbox or node error, so the run stops."""


class BudgetExceeded(RunStopped):
    """The run reached its limit on cost or tokens, or the limit cannot be enforced."""

    def __init__(self, message: str, hint: str = "with a larger budget (--budget)") -> None:
        super().__init__(message, hint)


class DeadlineReached(RunStopped):
    """The deadline of the run has passed."""


class StorageError(RunStopped):
    """Annotations, evidence or the cache could not be written."""


class Deferred(AgentError):
    """A model call was queued for a batch. This is not a failure: the pair is annotated in a later pass."""


class PairError(AgentError):
    """One pair ends without a label. Other pairs are not affected."""


class ModelError(PairError):
    """The model returned no usable reply. `usage` contains the tokens and the cost of the failed attempts."""

    def __init__(self, message: str, *, usage: Usage | None = None) -> None:
        self.usage = usage
        super().__init__(message)


class ModelUnavailable(ModelError):
    """The model's server failed or was unreachable on every attempt. The cause is unrelated to the pair."""


class ModelTimeout(ModelError):
    """No complete reply arrived within the call timeout."""


class ReplyError(ModelError):
    """A reply could not be parsed, even after retries that told the model what was wrong."""


class PromptTruncated(ModelError):
    """The server read fewer tokens than were sent: the prompt exceeds the model's context window."""


class SandboxError(PairError):
    """A sandbox's supervisor, container or engine failed. The cause is unrelated to the tested code."""


class RunnerCrashed(SandboxError):
    """The supervisor, which is a sandbox's trusted first process, exited or violated the protocol."""


class ContainerLost(SandboxError):
    """A container was killed or removed from outside, ran out of memory, or lost its connection."""


class EnvironmentGone(SandboxError):
    """A program's environment was removed from the store."""


class ForkRefused(SandboxError):
    """A job with `fork` must run in a fresh process in another sandbox. The session always handles this error."""


class EngineLost(SandboxError):
    """The container engine does not respond."""


class RequirementsUnavailable(PairError):
    """The requirements in a pair's `meta` cannot be installed, so its snippet cannot be tested as intended."""


class SnippetTooLarge(PairError):
    """A snippet exceeds the limits on length or nesting. This says nothing about its behaviour."""


class NodeError(PairError):
    """A user-defined node, or a node that uses a user-defined language, raised an exception."""

    def __init__(self, message: str, node: str = "") -> None:
        self.node = node
        super().__init__(message)


class PairTimeout(PairError):
    """A pair exceeded its total time limit (`pair_timeout`)."""


class UnsupportedLanguage(PairError):
    """No `Language` is registered for the pair's language."""


class DependencyUnavailable(AgentError):
    """A requirement could not be resolved, fetched or installed.

    If `temporary` is true, a later attempt may succeed.
    """

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        self.temporary = temporary
        super().__init__(message)
