"""Makes the output of an execution the same for equal executions, and safe to show.

Prompts carry execution evidence, and replies are cached by prompt: a time of day or an address in it would make every
run ask anew. What only looks like a time is kept: a date that a test compares is evidence.
"""

from __future__ import annotations

import re

LIMIT = 6_000
"""Characters of evidence that a prompt carries; of longer text the middle is left out."""

_SMALLEST = 400
_TEMPORARY = r"(?<![\w.])(/private)?(/tmp|/var/tmp|/dev/shm|/var/folders/\w+/\w+/T)/"
_MEASURED = r"\d{1,12}(?:\.\d{1,12} ?(?:s|secs?|seconds?|min|minutes?)|(?:\.\d{1,12})? ?(?:ms|us|µs|ns))\b"
_STAMP = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d"
_ZONE = r"(?:Z|[+-]\d\d:?\d\d)?"

_MASKS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Reprs of objects, and bare addresses as this system hands them out.
    (re.compile(r"\bat 0x[0-9a-fA-F]{5,16}\b"), "at <address>"),
    (re.compile(r"\b0x(?:7[ef]|5[5-6])[0-9a-fA-F]{10}\b"), "<address>"),
    (re.compile(r"\bid='\d{9,20}'"), "id='<address>'"),
    # Stamps that are finer than a second come from a clock; whole ones only where a log line begins.
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


def canonical(text: str, limit: int = LIMIT) -> str:
    """Return text as prompts and reports show it. Idempotent for one `limit` (characters, at least 400).

    Addresses, times, durations, process numbers and temporary paths become words in angle brackets; control and
    direction characters are written out as escapes, lone surrogates replaced; the middle of long text is left out.
    """
    if limit < _SMALLEST:
        raise ValueError(f"limit is {limit}; at least {_SMALLEST} characters are needed")
    text = _SURROGATE.sub("\ufffd", text.replace("\r\n", "\n"))
    text = _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    # Cutting may bring pieces together that read as one of the masks; each pass leaves less to find.
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
    # Shorter than the limit, so that masks which lengthen the rest do not call for another cut.
    kept = limit * 3 // 8
    return f"{text[:kept]}\n[... {len(text) - 2 * kept} characters left out ...]\n{text[-kept:]}"
