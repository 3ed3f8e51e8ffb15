"""Tells why pip could not fetch something, from what it printed."""

from __future__ import annotations

import re

from agent.errors import DependencyUnavailable

_NO_VERSION = re.compile(
    r"^ERROR: Could not find a (?:final )?version that satisfies the requirement (.+?) \(from versions: (.*)\)$",
    re.MULTILINE,
)
_NO_WHEELS_IN_CONFLICT = re.compile(
    r"some packages in these conflicts have no matching distributions available for your environment:\s+(\S+)"
)
_CONFLICT = re.compile(
    r"^ERROR: (Cannot install .+?) because these package versions have conflicting dependencies", re.MULTILINE
)
_CONFLICT_LINE = re.compile(r"^    (\S.* depends on .+|The user requested .+)$", re.MULTILINE)
_REFUSED_BY_INDEX = re.compile(r"\b(?:401|403|407)\b[^\n]*?(?:Client )?Error|credentials not correct", re.IGNORECASE)
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


def project_without_wheel(text: str) -> str | None:
    """Return the project of which pip found no version at all, so that it is worth asking why."""
    conflict = _NO_WHEELS_IN_CONFLICT.search(text)
    if conflict is not None:
        return re.split(r"[<>=!~;\[]", conflict[1])[0]
    found = _NO_VERSION.search(text)
    if found is None or found[2].strip() != "none":
        return None
    return re.split(r"[\s<>=!~;\[]", found[1])[0]


def explain(text: str, details: str | None, interpreter: str) -> DependencyUnavailable:
    """Return the error for a failed download; `details` is what pip says of one project when it is made to say all."""
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
    found = _NO_VERSION.search(text)
    if found is not None:
        offered = ", ".join(found[2].split(", ")[-5:])
        return _error(f"{found[1]}: no such version has a wheel for {interpreter}; the newest that have: {offered}")
    conflict = _CONFLICT.search(text)
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
    if _REFUSED_BY_INDEX.search(text):
        return _error("the package index refuses access: check the credentials in pip's settings", temporary=True)
    if _UNREACHABLE.search(text):
        message = "no network, or the package index does not answer: check the connection and pip's settings"
        return _error(message, temporary=True)
    return None


def _error(message: str, *, temporary: bool = False) -> DependencyUnavailable:
    shown = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
    return DependencyUnavailable(shown, temporary=temporary)
