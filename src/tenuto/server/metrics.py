"""Counts for Prometheus: requests by route and status, their seconds, and the runs that go."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.server.runs import Runs


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self, runs: Runs) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter("tenuto_requests", "Requests answered.", labels, registry=self.registry)
        self._seconds = Histogram(
            "tenuto_first_byte_seconds",
            "Until the answer began.",
            ("method", "route"),
            registry=self.registry,
        )
        going = Gauge("tenuto_runs_running", "Turns that run now.", registry=self.registry)
        going.set_function(lambda: runs.running)

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """Counts when an answer begins: a stream may last for hours."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began = time.monotonic()

            async def told(message: Message) -> None:
                if message["type"] == "http.response.start":
                    # The route's pattern, never the path: ids would make a series each.
                    route = getattr(scope.get("route"), "path", "") or "(none)"
                    self._requests.labels(scope["method"], route, message["status"]).inc()
                    self._seconds.labels(scope["method"], route).observe(time.monotonic() - began)
                await send(message)

            await app(scope, receive, told)

        return counted
