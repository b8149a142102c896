"""Turns: sending, following, stopping; branches; what a model was given, and why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tenuto.agent.app import RunningTurn
from tenuto.agent.inspect import PastRequest, context_of, forks, opened, outlook, past_request
from tenuto.agent.inspect import why as why_of
from tenuto.agent.tools import Approve
from tenuto.codec import JsonObject, dumps, new_id
from tenuto.errors import NotFound
from tenuto.server.identity import InThread
from tenuto.server.runs import Run

router = APIRouter(tags=["turns"])

HEARTBEAT = b": alive\n\n"
SSE = "text/event-stream"
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class Message(BaseModel):
    id: str = Field("", description="The client's own id: sent twice, it is one message.")
    text: str = Field(min_length=1, max_length=20_000_000, examples=["Energy of the offices in October?"])
    model: str = Field("", max_length=200, description="For this turn only.")


class Edit(BaseModel):
    id: str = ""
    text: str = Field(min_length=1, max_length=20_000_000)


class Again(BaseModel):
    id: str = ""


class Decision(BaseModel):
    allow: bool


class Branch(BaseModel):
    record: int = Field(ge=1)


class Draft(BaseModel):
    text: str = Field("", max_length=1_000_000)


class Focus(BaseModel):
    focus: str = Field("", max_length=2_000)


def described(run: Run) -> JsonObject:
    return {"run": run.id, "thread": run.scope.thread, "state": run.state, "last": run.last}


@router.post("/workspaces/{workspace}/threads/{thread}/messages", status_code=202)
async def send(at: InThread, message: Message) -> JsonObject:
    """Ask. Answers at once with the run to follow; the turn goes on whether somebody follows or not."""
    at.here.need("send")

    def begin(approve: Approve) -> RunningTurn:
        model = message.model or None
        return at.app.send(at.scope, message.text, model=model, approve=approve, message_id=identity)

    identity = message.id or new_id()
    return described(at.runs.start(at.scope, identity, message.text, begin))


@router.post("/workspaces/{workspace}/threads/{thread}/turns/{turn}/edit", status_code=202)
async def edit(at: InThread, turn: int, asked: Edit) -> JsonObject:
    """Ask an earlier turn's question in other words, on a branch; nothing is lost."""
    at.here.need("send")
    identity = asked.id or new_id()

    def begin(approve: Approve) -> RunningTurn:
        return at.app.edit(at.scope, turn, asked.text, approve=approve, message_id=identity)

    return described(at.runs.start(at.scope, identity, asked.text, begin))


@router.post("/workspaces/{workspace}/threads/{thread}/turns/{turn}/regenerate", status_code=202)
async def regenerate(at: InThread, turn: int, asked: Again) -> JsonObject:
    """Answer an earlier turn's question once more, on a branch."""
    at.here.need("send")
    identity = asked.id or new_id()

    def begin(approve: Approve) -> RunningTurn:
        return at.app.regenerate(at.scope, turn, approve=approve, message_id=identity)

    return described(at.runs.start(at.scope, identity, "", begin))


@router.get("/workspaces/{workspace}/threads/{thread}/runs/{run}")
async def read_run(at: InThread, run: str) -> JsonObject:
    return described(at.runs.get(at.scope, run))


@router.get("/workspaces/{workspace}/threads/{thread}/runs/{run}/events", response_class=StreamingResponse)
async def follow_run(
    at: InThread,
    run: str,
    after: Annotated[int, Query(ge=0, description="Number of the last event seen.")] = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Server-sent events: those after `after` again, then new ones as they come. 204 when there are no more.

    A run with `source: log` in its first event is told anew from the records: its numbers are its own.
    """
    found = at.runs.get(at.scope, run)
    if last_event_id.isdigit():
        after = int(last_event_id)
    if found.source == "log" and after > found.last:
        after = 0
    if after >= found.last and found.state != "running":
        return Response(status_code=204)

    async def lines() -> AsyncIterator[bytes]:
        async for seq in found.follow(after):
            yield HEARTBEAT if seq is None else b"id: %d\ndata: %b\n\n" % (seq, found.encoded(seq)[2])

    return StreamingResponse(lines(), media_type=SSE, headers=STREAM_HEADERS)


@router.post("/workspaces/{workspace}/threads/{thread}/runs/{run}/stop")
async def stop_run(at: InThread, run: str) -> JsonObject:
    """End a run; what came so far is kept. Closing a connection never stops one."""
    at.here.need("send")
    found = at.runs.get(at.scope, run)
    found.turn.stop()
    await found.turn.over()
    return described(found)


@router.post("/workspaces/{workspace}/threads/{thread}/runs/{run}/calls/{call}")
async def decide(at: InThread, run: str, call: str, decision: Decision) -> JsonObject:
    """Allow or refuse a call that waits for approval."""
    at.here.need("send")
    waiting = at.runs.get(at.scope, run).waiting.get(call)
    if waiting is None or waiting.done():
        raise NotFound(f"no call {call!r} waits for approval", hint="follow the run's events")
    waiting.set_result(decision.allow)
    return {"call": call, "allowed": decision.allow}


@router.get("/workspaces/{workspace}/threads/{thread}/events", response_class=StreamingResponse)
async def follow_thread(at: InThread) -> Response:
    """News of a thread, for every tab on it: `hello` with the runs that go, then `run_started`, `turn_ended`,
    `task`, `memory`, `thread`, `branch`, `cleared`."""
    at.here.need("read")

    async def lines() -> AsyncIterator[bytes]:
        with at.runs.feed(at.scope) as news:
            while True:
                try:
                    async with asyncio.timeout(15):
                        yield b"data: %b\n\n" % dumps(await news.get())
                except TimeoutError:
                    yield HEARTBEAT

    return StreamingResponse(lines(), media_type=SSE, headers=STREAM_HEADERS)


@router.get("/workspaces/{workspace}/threads/{thread}/branches")
async def list_branches(at: InThread) -> JsonObject:
    """Every branch by its newest record, and the places where branches part."""
    return {"branches": at.app.branches(at.scope), "forks": forks(at.conversation.log)}


@router.post("/workspaces/{workspace}/threads/{thread}/branches")
async def select_branch(at: InThread, branch: Branch) -> JsonObject:
    """Make the branch that ends in a record the active one."""
    await at.app.go_back(at.scope, branch.record)
    at.runs.changed(at.scope, "branch")
    return {"branches": at.app.branches(at.scope)}


@router.get("/workspaces/{workspace}/threads/{thread}/context")
async def read_context(
    at: InThread, turn: int | None = None, step: int | None = None, texts: bool = True
) -> JsonObject:
    """What the model was given: the manifest of a request with the exact text of every block.

    `steps` is how many requests the turn made; `outlook` what grew, and when the window will step.
    """
    view = context_of(at.conversation, turn, step, texts_too=texts)
    steps = (
        view["step"] + 1 if step is None else past_request(at.conversation, view["turn"]).manifest["step"] + 1
    )
    return {**view, "steps": steps, "outlook": outlook(at.conversation, view)}


@router.post("/workspaces/{workspace}/threads/{thread}/context/next")
async def next_context(at: InThread, draft: Draft) -> JsonObject:
    """The request as it would be sent now with `text` as the question. Nothing is sent or logged."""
    at.here.need("read")
    request, question = await at.app.preview(at.scope, draft.text)
    past = PastRequest(request.manifest, request, True, question)
    view = opened(at.conversation, past, texts_too=True)
    return {**view, "steps": 1, "outlook": outlook(at.conversation, view)}


@router.get("/workspaces/{workspace}/threads/{thread}/why")
async def why(
    at: InThread, words: Annotated[str, Query(min_length=1, max_length=500)], turn: int | None = None
) -> JsonObject:
    """Each place where words stand: in the context, in the log (and why it was left out), task, memory, files."""
    return why_of(at.workspace, at.scope, words, turn)


@router.post("/workspaces/{workspace}/threads/{thread}/compact")
async def compact(at: InThread, focus: Focus) -> JsonObject:
    """Refresh the task and move the window to the last turns."""
    report = await at.app.compact(at.scope, focus.focus)
    at.runs.changed(at.scope, "task")
    return report.as_json()
