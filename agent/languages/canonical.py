"""Normalise the output of executions. Identical executions then have identical output, which is safe to show.

Prompts contain execution evidence, and replies are cached by prompt. A time or an address in the evidence would defeat
the cache. Dates without a time of day are kept, because a test may compare them.
"""

from __future__ import annotations

import re

LIMIT = 6_000
"""Maximum length of evidence in a prompt, in characters. The middle of longer text is removed."""

_SMALLEST = 400
_TEMPORARY = r"(?<![\w.])(/private)?(/tmp|/var/tmp|/dev/shm|/var/folders/\w+/\w+/T)/"
_MEASURED = r"\d{1,12}(?:\.\d{1,12} ?(?:s|secs?|seconds?|min|minutes?)|(?:\.\d{1,12})? ?(?:ms|us|µs|ns))\b"
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Reprs of objects, and bare addresses in the address ranges of Linux processes.
    (re.compile(r"\bat 0x[0-9a-fA-F]{5,16}\b"), "at <address>"),
    (re.compile(r"\b0x(?:7[ef]|5[5-6])[0-9a-fA-F]{10}\b"), "<address>"),
    (re.compile(r"\bid='\d{9,20}'"), "id='<address>'"),
    # Timestamps with fractions of a second come from a clock. So do other timestamps at the start of a log line.
    (re.compile(rf"\b{_STAMP}[.,]\d{{3,9}}{_ZONE}"), "<time>"),
    (re.compile(rf"^{_STAMP}{_ZONE}(?=[ :\]])", re.MULTILINE), "<time>"),
    (re.compile(r"\b1[5-9]\d{8}\.\d{1,9}\b"), "<time>"),
    (re.compile(rf"\b(in|took|elapsed:?|duration:?|after|time:?) {_MEASURED}"), r"\1 <duration>"),
    (re.compile(r"\b(pid|PID|tid|ppid)( ?[=:] ?| )\d{1,10}\b"), r"\1\2<number>"),
    (re.compile(r"/proc/\d{1,10}\b"), "/proc/<number>"),
    (re.compile(r"\bThread-\d{1,10}\b"), "Thread-<number>"),
    (re.compile(rf"{_TEMPORARY}pytest-of-[\w.-]{{1,64}}/pytest-\d{{1,10}}\b"), r"\1\2/<temporary>"),
    (re.compile(rf"{_TEMPORARY}(?!<)[\w+-][\w+.-]{{0,200}}?(\.[A-Za-z]\w{{0,4}})?(?![\w+.-])"), r"\1\2/<temporary>\3"),
)
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def canonicalise(text: str, limit: int = LIMIT) -> str:
    """Normalise text for prompts and reports. Idempotent if `limit` (in characters, at least 400) is the same.

    Addresses, times, durations, process ids and temporary paths become placeholders in angle brackets. Characters that
    control the output or the direction of text become escape sequences. Lone surrogates are replaced. The middle of
    long text is removed.
    """
    if limit < _SMALLEST:
        raise ValueError(f"limit is {limit} characters; the minimum is {_SMALLEST}")
    text = _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n"))
    text = _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    # Cutting may create new matches for a mask. Every pass shortens the text, so the loop ends.
    while (shorter := _cut(_mask(text), limit)) != text:
        text = shorter
    return text


def _mask(text: str) -> str:
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    # Cut well below the limit, so that longer placeholders need no second cut.
    end = limit * 3 // 8
    return f"{text[:end]}\n[... {len(text) - 2 * end} characters left out ...]\n{text[-end:]}"
