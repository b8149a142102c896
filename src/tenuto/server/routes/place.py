"""What belongs to a workspace as a whole: search, skills, settings, usage; and the server's own health."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tenuto import __version__
from tenuto.agent.conversation import TURN_ENDED
from tenuto.codec import JsonObject
from tenuto.server.identity import InWorkspace

router = APIRouter()
health = APIRouter(tags=["health"])

HERE = "/workspaces/{workspace}"
Day = Annotated[str, Query(max_length=10, examples=["2026-11-30"])]


@router.get(f"{HERE}/search", tags=["search"])
async def search(
    here: InWorkspace,
    q: Annotated[str, Query(min_length=1, max_length=500)],
    since: Day = "",
    until: Day = "",
    thread: str = "",
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> JsonObject:
    """The user's own history, in the original words, with thread, record and date."""
    here.need("read")
    found = here.workspace.history.search(here.user, q, since=since, until=until, thread=thread, limit=limit)
    return {"found": [one.as_json() for one in found]}


@router.get(f"{HERE}/skills", tags=["instructions"])
async def skills(here: InWorkspace) -> JsonObject:
    """Skills and instruction files as the next turn finds them, with what is wrong with them."""
    here.need("read")
    guidance = here.workspace.guidance()
    found = [
        {"name": one.name, "description": one.description, "resources": one.resources}
        for one in guidance.skills
    ]
    return {"skills": found, "instructions": guidance.text, "notices": list(guidance.notices)}


@router.get(f"{HERE}/settings", tags=["settings"])
async def settings(here: InWorkspace) -> JsonObject:
    """Every setting with its value, unit and origin; secrets are named, never shown."""
    here.need("read")
    return {"settings": here.workspace.loaded.rows()}


@router.get(f"{HERE}/usage", tags=["usage"])
async def usage(here: InWorkspace) -> JsonObject:
    """Requests, tokens and known cost of each of the user's threads. O(their logs)."""
    here.need("read")
    threads: list[JsonObject] = []
    for thread in here.workspace.threads.of(here.user):
        spent = {"requests": 0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
        cost, turns = 0.0, 0
        for record in here.workspace.conversation(thread).log.scan():
            if record.event is None or record.event_type != TURN_ENDED:
                continue
            turns += 1
            for name in spent:
                spent[name] += int(record.event["usage"].get(name) or 0)
            cost += float(record.event["usage"].get("cost_usd") or 0)
        threads.append(
            {"thread": thread.thread, "title": thread.title, "turns": turns, **spent, "cost_usd": cost}
        )
    return {"threads": threads}


@health.get("/healthz")
async def healthz() -> JsonObject:
    """The process answers."""
    return {"status": "ok", "version": __version__}


@health.get("/readyz")
async def readyz(request: Request, response: Response) -> JsonObject:
    """The home folder can be written; 503 where it can't."""
    import os

    ready = os.access(request.app.state.tenuto.home, os.W_OK)
    response.status_code = 200 if ready else 503
    return {"status": "ready" if ready else "the home folder can't be written"}


@health.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Prometheus text."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
