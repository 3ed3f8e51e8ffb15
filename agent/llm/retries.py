"""Tries a call again after failures that may pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from agent.llm.failures import Failure

if TYPE_CHECKING:
    from tenacity import RetryCallState

_FIRST_WAIT = 1.0
_LONGEST_BACKOFF = 30.0

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]


async def persist(
    attempt: Callable[[], Awaitable[Result]],
    *,
    attempts: int,
    sleep: Sleep,
    on_wait: Callable[[Failure], None] = lambda _failure: None,
) -> Result:
    """Return what an attempt gives, at most `attempts` tries; between them wait as asked, else longer each time.

    A server that asks to wait (`Failure.wait`, seconds) is obeyed, plus up to a second, so that calls refused together
    do not come back together. `on_wait` is told of each failure that is waited after.

    Raises:
        Failure: the last one, or the first that another try cannot mend.
    """
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter, wait_random

    backoff = wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_BACKOFF, jitter=1)
    spread = wait_random(0, 1)

    def failure(state: RetryCallState) -> Failure | None:
        error = None if state.outcome is None else state.outcome.exception()
        return error if isinstance(error, Failure) else None

    def wait(state: RetryCallState) -> float:
        failed = failure(state)
        return backoff(state) if failed is None or failed.wait is None else failed.wait + spread(state)

    def before_sleep(state: RetryCallState) -> None:
        if (failed := failure(state)) is not None:
            on_wait(failed)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=wait,
        sleep=sleep,
        before_sleep=before_sleep,
        retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.meaning == "retry"),
        reraise=True,
    )
    return await retrying(attempt)
