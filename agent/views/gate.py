"""Who may talk to the page's server: a browser on this machine that was given the token."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

_TOKEN_BYTES = 24
_COOKIE = "agent-review"
# Names that always mean this machine. Any other is a stranger's, resolved to this machine (DNS rebinding). The port
# may be another one's, as when it is forwarded (ssh -L).
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.ASCII)

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer carries."""


class Gate:
    """Knows the token. It comes in the address once, and in a cookie from then on.

    `path` is where the page is. The servers of one machine share its cookies, whatever their ports: a browser gives
    this one to none that is not asked for this very path.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self.path = f"/{secrets.token_urlsafe(_TOKEN_BYTES)}/"
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """Return a token that is good once: a browser's arguments can be read by every user of the machine."""
        ticket = secrets.token_urlsafe(_TOKEN_BYTES)
        self._tickets.add(ticket)
        return ticket

    def refusal(self, method: str, headers: Mapping[str, str], token: str | None = None) -> str | None:
        """Say why a request is refused, None when it is let in; `token` is the one of the address.

        `headers` has lower-case names.
        """
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            return "This page is for the browser of this machine, under 127.0.0.1 or localhost."
        if not self._known(token) and not self._same(self._kept(headers.get("cookie", ""))):
            return "Open the address that `agent review` printed; it holds the token that is missing here."
        if method not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return "Only the page itself may send reviews."
        return None

    def cookie(self) -> str:
        """Return the value of `Set-Cookie` that keeps the token."""
        return f"{_COOKIE}={self.token}; Path={self.path}; HttpOnly; SameSite=Strict"

    def _known(self, token: str | None) -> bool:
        if token is None:
            return False
        if token in self._tickets:
            self._tickets.discard(token)
            return True
        return self._same(token)

    def _same(self, token: str) -> bool:
        return secrets.compare_digest(token.encode("utf-8", "surrogatepass"), self.token.encode())

    def _kept(self, header: str) -> str:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == _COOKIE:
                return value
        return ""
