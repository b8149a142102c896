"""Runs for clients of another protocol: the Vercel AI SDK and AG-UI. A resumed stream is told from its start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from tenuto.agent.app import RunningTurn
from tenuto.agent.tools import Approve
from tenuto.codec import JsonObject, dumps, new_id
from tenuto.errors import UsageError
from tenuto.server.adapters import AI_HEADERS, AgUiStream, AiStream
from tenuto.server.identity import At, InThread
from tenuto.server.routes.turns import HEARTBEAT, SSE, STREAM_HEADERS
from tenuto.server.runs import Run

router = APIRouter(tags=["other clients"])

THREAD = "/workspaces/{workspace}/threads/{thread}"


class ClientMessage(BaseModel):
    """A message as the client has it; only the newest one of the user counts: the log has the others."""

    model_config = ConfigDict(extra="ignore")
    id: str = ""
    role: str
    content: str | list[dict[str, Any]] = ""
    parts: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])

    @property
    def text(self) -> str:
        pieces = self.content if isinstance(self.content, list) else self.parts
        said = "".join(str(piece.get("text", "")) for piece in pieces if piece.get("type") == "text")
        return said or (self.content if isinstance(self.content, str) else "")


class Posted(BaseModel):
    """The body of both protocols, as far as it is read."""

    model_config = ConfigDict(extra="ignore")
    messages: list[ClientMessage] = Field(max_length=100_000)
    trigger: str = "submit-message"
    runId: str = ""


def _newest(posted: Posted) -> ClientMessage:
    found = next((one for one in reversed(posted.messages) if one.role == "user" and one.text.strip()), None)
    if found is None:
        raise UsageError("no message of the user has a text", hint="send messages with one")
    return found


def _begun(at: At, posted: Posted, identity: str) -> Run:
    at.here.need("send")
    text = _newest(posted).text

    def begin(approve: Approve) -> RunningTurn:
        if posted.trigger == "regenerate-message":
            newest = at.conversation.log.page(None, 1)[-1].turn
            return at.app.regenerate(at.scope, newest, approve=approve, message_id=identity)
        return at.app.send(at.scope, text, approve=approve, message_id=identity)

    return at.runs.start(at.scope, identity, text, begin)


def _stream(
    run: Run,
    parts: Callable[[str, JsonObject], Iterator[JsonObject]],
    end: Callable[[], Iterator[JsonObject]] = lambda: iter(()),
    last: bytes = b"",
    headers: dict[str, str] | None = None,
) -> StreamingResponse:
    """The run from its first event; `end` yields what is told before the parts of its last one."""

    async def lines() -> AsyncIterator[bytes]:
        async for seq in run.follow(0):
            if seq is None:
                yield HEARTBEAT
                continue
            kind, data, _ = run.encoded(seq)
            if kind == "turn_ended":
                for part in end():
                    yield b"data: %b\n\n" % dumps(part)
            for part in parts(kind, data):
                yield b"data: %b\n\n" % dumps(part)
        yield last

    return StreamingResponse(lines(), media_type=SSE, headers={**STREAM_HEADERS, **(headers or {})})


def _ai(at: At, run: Run) -> StreamingResponse:
    def kept() -> Iterator[JsonObject]:
        """Where the task and memory stand when the turn has ended."""
        items = at.workspace.tasks.items(at.thread, at.conversation)
        memory = at.workspace.memories.store(at.scope.user).load()
        yield {"type": "data-task", "id": "task", "data": {"items": [item.as_json() for item in items]}}
        facts = [{"id": fact.id, "text": fact.text} for fact in memory.active]
        yield {"type": "data-memory", "id": "memory", "data": {"use": memory.use, "facts": facts}}

    return _stream(run, AiStream(run.id).parts, kept, b"data: [DONE]\n\n", AI_HEADERS)


@router.post(f"{THREAD}/ai", response_class=StreamingResponse)
async def ai_chat(at: InThread, posted: Posted) -> StreamingResponse:
    """Send, for the AI SDK's `DefaultChatTransport`. The user's message id makes it idempotent."""
    again = posted.trigger == "regenerate-message"
    return _ai(at, _begun(at, posted, new_id() if again else _newest(posted).id or new_id()))


@router.get(f"{THREAD}/ai/{{chat}}/stream", response_class=StreamingResponse)
async def ai_resume(at: InThread, chat: str) -> Response:
    """The running turn again, for the AI SDK's `reconnectToStream`; 204 when none runs."""
    at.here.need("read")
    active = at.runs.active(at.scope)
    return _ai(at, active[-1]) if active else Response(status_code=204)


@router.post(f"{THREAD}/agui", response_class=StreamingResponse)
async def agui_run(at: InThread, posted: Posted) -> StreamingResponse:
    """Run, for AG-UI's `HttpAgent`. The run's id makes it idempotent."""
    run = _begun(at, posted, posted.runId or new_id())
    return _stream(run, AgUiStream(at.scope.thread, run.id).parts)
