"""Reads from the host's pip where packages come from: indexes, proxy, certificates."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import SandboxError

DEFAULT_INDEX = "https://pypi.org/simple"
"""Where pip looks when nobody tells it otherwise."""

_SECONDS = 60.0
_SECTIONS = ("global", "download", ":env:")  # later ones win, as they do for `pip download`


@dataclass(frozen=True)
class PipSettings:
    """Indexes in pip's order; the rest is None or empty when pip's settings do not name it. URLs may hold secrets."""

    indexes: tuple[str, ...] = (DEFAULT_INDEX,)
    proxy: str | None = None
    cert: str | None = None
    client_cert: str | None = None
    trusted_hosts: tuple[str, ...] = ()


async def read_settings() -> PipSettings:
    """Ask pip for its settings.

    Raises:
        SandboxError: pip cannot be started or fails.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "config", "list"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise SandboxError(f"pip cannot be started to read its settings: {error.strerror}") from error
    try:
        async with asyncio.timeout(_SECONDS):
            printed, _nothing = await process.communicate()
    except TimeoutError:
        raise SandboxError("pip does not tell its settings (`pip config list`)") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise SandboxError("pip does not tell its settings: `pip config list` fails")
    return parse_settings(printed.decode("utf-8", "replace"))


def parse_settings(listed: str) -> PipSettings:
    """Read what `pip config list` prints: `section.option='value'`, one a line."""
    values: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listed.splitlines():
        key, _equals, quoted = line.partition("=")
        section, _dot, option = key.rpartition(".")
        if section in values:
            try:
                values[section][option] = str(ast.literal_eval(quoted))
            except (ValueError, SyntaxError):
                continue
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged.update(values[section])
    return PipSettings(
        indexes=_indexes(merged),
        proxy=merged.get("proxy") or None,
        cert=merged.get("cert") or None,
        client_cert=merged.get("client-cert") or None,
        trusted_hosts=tuple(merged.get("trusted-host", "").split()),
    )


def _indexes(values: Mapping[str, str]) -> tuple[str, ...]:
    if values.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        return ()
    urls = (values.get("index-url") or DEFAULT_INDEX, *values.get("extra-index-url", "").split())
    return tuple(dict.fromkeys(url for url in urls if url.startswith(("https://", "http://"))))
