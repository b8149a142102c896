"""What every request must satisfy before a route sees it, and what every response says to a browser.

The server has no sign-in of its own yet, so that it answers only on this machine: a page of another site, or a
name that was pointed at this address, is refused by `Origin` and `Host`.
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.server.problems import MEDIA_TYPE, problem

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; frame-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""Styles may be inline: formulas and charts place their parts so. Scripts never are."""

UNTRUSTED_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""For the bytes of files: nothing in them runs, loads or reaches the application's origin."""


def host_name(host: str) -> str:
    """The name in a `Host` value, without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


class Guard:
    """ASGI middleware: `Host` must be a loopback name, `Origin` the same place."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = LOOPBACK) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if refused := self._refused(Headers(scope=scope)):
            body = problem(
                403, "foreign_origin", refused, hint="open the address that `tenuto serve` printed"
            )
            await JSONResponse(body, 403, media_type=MEDIA_TYPE)(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", POLICY)
                headers.setdefault("x-content-type-options", "nosniff")
                headers.setdefault("referrer-policy", "no-referrer")
                headers.setdefault("cross-origin-resource-policy", "same-origin")
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, protected)

    def _refused(self, headers: Headers) -> str:
        host = headers.get("host", "")
        if host_name(host) not in self._hosts:
            return f"this server doesn't answer as {host[:80]!r}"
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return f"requests from {origin[:80]!r} are refused"
        if headers.get("sec-fetch-site") == "cross-site":
            return "requests from another site are refused"
        return ""
