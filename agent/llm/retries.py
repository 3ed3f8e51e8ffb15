"""Tries a call again after failures that may pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from agent.llm.failures import Failure

if TYPE_CHECKING:
    from tenacity import RetryCallState

LONGEST_WAIT = 60.0
_FIRST_WAIT = 1.0
_LONGEST_BACKOFF = 30.0

Result = TypeVar("Result")
Sleep = Callable[[float], Awaitable[None]]


async def persist(attempt: Callable[[], Awaitable[Result]], *, attempts: int, sleep: Sleep) -> Result:
    """Return what an attempt gives, at most `attempts` tries; between them wait as asked, else longer each time.

    A server that asks to wait (`Failure.wait`, seconds) is obeyed up to a minute, plus up to a second, so that calls
    refused together do not come back together.

    Raises:
        Failure: the last one, or the first that another try cannot mend.
    """
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter, wait_random

    backoff = wait_exponential_jitter(initial=_FIRST_WAIT, max=_LONGEST_BACKOFF, jitter=1)
    spread = wait_random(0, 1)

    def wait(state: RetryCallState) -> float:
        failure = None if state.outcome is None else state.outcome.exception()
        if isinstance(failure, Failure) and failure.wait is not None:
            return min(failure.wait, LONGEST_WAIT) + spread(state)
        return backoff(state)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=wait,
        sleep=sleep,
        retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.meaning == "retry"),
        reraise=True,
    )
    return await retrying(attempt)
