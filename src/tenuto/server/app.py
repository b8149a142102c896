"""The application: one `App`, one identity, routes, errors and what guards them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from tenuto import __version__
from tenuto.agent.app import App
from tenuto.disk import PRIVATE_DIR, write_atomic
from tenuto.errors import TenutoError
from tenuto.scope import check_id
from tenuto.server import assets, problems
from tenuto.server.guard import Guard
from tenuto.server.identity import Identity
from tenuto.server.metrics import Metrics
from tenuto.server.routes import additions, files, foreign, kept, place, threads, turns
from tenuto.server.runs import Runs

DEMO_WORKSPACE = """\
# Made by `tenuto serve` so that there is something to ask. Change it as you like.
[mcp.energy]
command = {command}
args = ["-m", "tenuto.demo.server"]
prefix = ""
"""

PROBLEM: dict[int | str, dict[str, Any]] = {
    status: {"model": problems.Problem, "description": "Problem details; `code` is stable."}
    for status in ("4XX", "5XX")
}


def ensure_workspace(home: Path, name: str) -> None:
    """On a home without any workspace, make one that asks the demo's data."""
    folder = home / check_id("workspace", name)
    if folder.exists():
        return
    folder.mkdir(parents=True, mode=PRIVATE_DIR)
    text = DEMO_WORKSPACE.format(command=json.dumps(sys.executable))
    write_atomic(folder / "workspace.toml", text.encode(), mode=0o600)


def create_app(tenuto: App, identity: Identity) -> FastAPI:
    """The ASGI application. It opens and closes `tenuto` with its own life."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncGenerator[None]:
        async with tenuto:
            yield

    app = FastAPI(
        title="Tenuto",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation,
        exception_handlers={
            TenutoError: problems.on_tenuto,
            HTTPException: problems.on_http,
            RequestValidationError: problems.on_invalid,
            Exception: problems.on_crash,
        },
    )
    app.state.tenuto, app.state.identity = tenuto, identity
    app.state.runs = Runs(tenuto)
    app.state.metrics = Metrics(app.state.runs)
    for one in (threads, turns, kept, files, place, additions, foreign):
        app.include_router(one.router, prefix="/api", responses=PROBLEM)
    app.include_router(place.health)
    app.include_router(assets.router)
    app.add_middleware(app.state.metrics.middleware)
    app.add_middleware(Guard)
    return app


def _operation(route: APIRoute) -> str:
    return route.name
