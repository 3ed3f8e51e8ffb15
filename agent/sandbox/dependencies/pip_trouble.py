"""Tells why pip could not fetch something, from what it printed."""

from __future__ import annotations

import re

from agent.errors import DependencyUnavailable

_NO_VERSION = re.compile(
    r"^ERROR: Could not find a (?:final )?version that satisfies the requirement (.+?) \(from versions: (.*)\)$"
)
_NO_WHEELS_IN_CONFLICT = re.compile(
    r"some packages in these conflicts have no matching distributions available for your environment:\s+(\S+)"
)
_CONFLICT = re.compile(
    r"^ERROR: (Cannot install .+?) because these package versions have conflicting dependencies", re.MULTILINE
)
_CONFLICT_LINE = re.compile(r"^    (\S.* depends on .+|The user requested .+)$", re.MULTILINE)
_REFUSED_BY_INDEX = re.compile(r"\b(?:401|403|407)\b|credentials not correct", re.IGNORECASE)
_UNREACHABLE = re.compile(
    r"Could not fetch URL (?![^\n]*: 4\d\d )|after connection broken by|connection error|NewConnectionError|ProxyError"
    r"|Connection (?:timed out|refused)|Read ?Timeout|ConnectTimeout|SSLError|CERTIFICATE_VERIFY_FAILED"
    r"|incomplete-download|is not a trusted or secure host|\b5\d\d Server Error",
    re.IGNORECASE,
)
_OTHER_WHEELS = re.compile(r"Skipping link: none of the wheel's tags")
_OTHER_PYTHON = re.compile(r"Requires-Python|Ignored the following versions that require a different python version")
_SOURCES = re.compile(r"Skipping link: No sources permitted")
_NO_TIMES = re.compile(r"does not provide upload-time metadata")
_TOO_LATE = re.compile(r"Upload time \S+ \S+ not prior to|not\s+prior to \d{4}-")
_OLD_PIP = re.compile(r"no such option: --uploaded-prior-to")
_LONGEST = 400
_LONGEST_LINE = 1_000
_MOST_LINES = 10_000


def readable(text: str) -> str:
    """Return of what pip printed, which a builder made, so much as patterns may be looked for in: the last lines."""
    # matching holds up all threads, and takes longer than a line grows
    return "\n".join(map(_cut, text.splitlines()[-_MOST_LINES:]))


def _cut(line: str) -> str:
    # a list of versions names the newest last
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[: half - 1]} {line[-half:]}"


def project_without_wheel(text: str) -> str | None:
    """Return the project of which pip found no version at all, so that it is worth asking why."""
    text = readable(text)
    conflict = _NO_WHEELS_IN_CONFLICT.search(text)
    if conflict is not None:
        return re.split(r"[<>=!~;\[]", conflict[1])[0]
    found = _first(_NO_VERSION, text)
    if found is None or found[2].strip() != "none":
        return None
    return re.split(r"[\s<>=!~;\[]", found[1])[0]


def explain(text: str, details: str | None, interpreter: str) -> DependencyUnavailable:
    """Return the error for a failed download; `details` is what pip says of one project when it is made to say all."""
    text, details = readable(text), None if details is None else readable(details)
    if _OLD_PIP.search(text):
        return _error(
            "the pip that fetches is too old to leave out what is newer than a date (--exclude-newer): install pip "
            "26.0 or later beside this program (python -m pip install --upgrade pip), or in the sandbox image"
        )
    if _NO_TIMES.search(text):
        return _error(
            "the package index does not say when its files were uploaded (PEP 700), so none of them can be shown to be "
            "old enough for --exclude-newer: use an index that says it, as pypi.org does, or leave the option out"
        )
    project = project_without_wheel(text)
    if project is not None and details is not None:
        return _explain_missing(project, text, details, interpreter)
    found = _first(_NO_VERSION, text)
    if found is not None:
        offered = ", ".join(found[2].split(", ")[-5:])
        return _error(f"{found[1]}: no such version has a wheel for {interpreter}; the newest that have: {offered}")
    conflict = _first(_CONFLICT, text)
    if conflict is not None:
        reasons = "; ".join(dict.fromkeys(line.strip() for line in _CONFLICT_LINE.findall(text)))
        return _error(f"version conflict: {conflict[1]}" + (f": {reasons}" if reasons else ""))
    unreachable = _index_trouble(text)
    if unreachable is not None:
        return unreachable
    errors = [line.removeprefix("ERROR: ") for line in text.splitlines() if line.startswith("ERROR: ")]
    last = errors or [line for line in text.splitlines() if line.strip()][-1:]
    return _error("pip failed: " + ("; ".join(last) or "it said nothing"))


def _explain_missing(project: str, text: str, details: str, interpreter: str) -> DependencyUnavailable:
    if _TOO_LATE.search(details):
        return _error(f"{project}: no version with a wheel for {interpreter} is as old as --exclude-newer asks for")
    if _OTHER_WHEELS.search(details):
        return _error(f"{project}: no wheel for this interpreter ({interpreter}); its wheels are for others")
    if _OTHER_PYTHON.search(details):
        return _error(f"{project}: no version for this Python ({interpreter})")
    if _SOURCES.search(details):
        return _error(f"{project}: no wheel, only a source distribution, and only wheels are installed")
    unreachable = _index_trouble(details) or _index_trouble(text)
    if unreachable is not None:
        return unreachable
    return _error(f"{project}: no such distribution on the package index")


def _index_trouble(text: str) -> DependencyUnavailable | None:
    if any(map(_refused, text.splitlines())):
        return _error("the package index refuses access: check the credentials in pip's settings", temporary=True)
    if any(map(_UNREACHABLE.search, text.splitlines())):
        message = "no network, or the package index does not answer: check the connection and pip's settings"
        return _error(message, temporary=True)
    return None


def _refused(line: str) -> bool:
    found = _REFUSED_BY_INDEX.search(line)
    return found is not None and (not found[0].isdigit() or "error" in line[found.end() :].lower())


def _first(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Match a pattern with line after line, so that other threads have their turn in between."""
    return next(filter(None, map(pattern.match, text.splitlines())), None)


def _error(message: str, *, temporary: bool = False) -> DependencyUnavailable:
    shown = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
    return DependencyUnavailable(shown, temporary=temporary)
