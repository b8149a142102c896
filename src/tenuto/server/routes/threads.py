"""Workspaces, threads and their records."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from tenuto.codec import JsonObject, new_id
from tenuto.errors import NotFound
from tenuto.log.threads import Thread
from tenuto.scope import Scope
from tenuto.server.identity import Here, InThread, InWorkspace, User
from tenuto.server.records import as_markdown, shown

router = APIRouter(tags=["threads"])


class NewThread(BaseModel):
    thread: str = Field("", description="Its id; one is made when empty.", examples=["october"])
    title: str = Field("", max_length=200)
    model: str = Field("", max_length=200, description="The workspace's own model when empty.")


class ThreadChange(BaseModel):
    title: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=200)
    pinned: bool | None = None
    archived: bool | None = None


class Clear(BaseModel):
    keep_files: bool = Field(False, description="Leave charts, reports and uploads where they are.")


def described(here: Here, thread: Thread) -> JsonObject:
    """A thread in a list."""
    scope = Scope(here.workspace.name, here.user, thread.thread)
    return {
        "thread": thread.thread,
        "title": thread.title,
        "model": here.workspace.model_of(thread),
        "created": thread.created,
        "used": here.workspace.threads.used(thread.thread),
        "pinned": thread.pinned,
        "archived": thread.archived,
        "branched": thread.branched,
        "state": thread.state,
        "running": [run.id for run in here.runs.active(scope)],
    }


@router.get("/workspaces")
async def list_workspaces(request: Request, user: User) -> JsonObject:
    """The workspaces that the user is a member of."""
    app = request.app.state.tenuto
    found: list[JsonObject] = []
    for name in app.names():
        try:
            member = app.workspace(name).member(user)
        except NotFound:
            continue
        found.append({"workspace": name, "role": member.role, "grants": sorted(member.grants)})
    return {"workspaces": found, "user": user}


@router.get("/workspaces/{workspace}/threads")
async def list_threads(
    here: InWorkspace,
    cursor: Annotated[str, Query(description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    q: Annotated[str, Query(max_length=200, description="Words of the title.")] = "",
    archived: bool = False,
) -> JsonObject:
    """The user's threads, pinned ones first, then the latest used. O(threads of the workspace)."""
    here.need("read")
    words = q.casefold().split()
    mine = [
        thread
        for thread in here.workspace.threads.of(here.user)
        if thread.archived == archived and all(word in thread.title.casefold() for word in words)
    ]
    mine.sort(key=lambda thread: not thread.pinned)
    names = [thread.thread for thread in mine]
    start = names.index(cursor) + 1 if cursor in names else 0
    page = mine[start : start + limit]
    more = start + limit < len(mine)
    return {"threads": [described(here, one) for one in page], "next": page[-1].thread if more else ""}


@router.post("/workspaces/{workspace}/threads", status_code=201)
async def create_thread(here: InWorkspace, new: NewThread) -> JsonObject:
    """Make a thread; one that is there already is answered as it is."""
    scope = Scope(here.workspace.name, here.user, new.thread or new_id())
    thread = here.workspace.thread(scope, create=True)
    if new.title or new.model:
        thread = here.workspace.threads.change(scope, title=new.title or None, model=new.model or None)
    return described(here, thread)


@router.get("/workspaces/{workspace}/threads/{thread}")
async def read_thread(at: InThread) -> JsonObject:
    return described(at.here, at.thread)


@router.patch("/workspaces/{workspace}/threads/{thread}")
async def change_thread(at: InThread, change: ThreadChange) -> JsonObject:
    """Rename, pin or archive a thread, or choose its model."""
    at.here.need("send")
    changed = at.workspace.threads.change(at.scope, **change.model_dump())
    at.runs.changed(at.scope, "thread")
    return described(at.here, changed)


@router.delete("/workspaces/{workspace}/threads/{thread}")
async def delete_thread(at: InThread) -> JsonObject:
    """Clear a thread and forget that there was one. Answers the receipt."""
    return await at.app.delete(at.scope)


@router.post("/workspaces/{workspace}/threads/{thread}/clear")
async def clear_thread(at: InThread, clear: Clear | None = None) -> JsonObject:
    """Remove log, task, results, sandbox and stream of a thread; memory stays. Answers the receipt."""
    return await at.app.clear(at.scope, keep_files=clear is not None and clear.keep_files)


@router.get("/workspaces/{workspace}/threads/{thread}/records")
async def list_records(
    at: InThread,
    before: Annotated[int | None, Query(ge=1, description="First record of the page that follows.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> JsonObject:
    """A page from the end of the active branch, oldest first, with bounded previews. O(page)."""
    page = at.conversation.log.page(before, limit)
    found = [one for record in page if (one := shown(record)) is not None]
    more = bool(page) and page[0].parent is not None
    return {"records": found, "before": page[0].seq if more else None}


@router.get("/workspaces/{workspace}/threads/{thread}/records/{seq}")
async def read_record(at: InThread, seq: int) -> JsonObject:
    """One record with its whole texts."""
    record = at.conversation.log.find(seq)
    found = shown(record, whole=True) if record is not None else None
    if found is None:
        raise NotFound(f"there is no record #{seq} to show", hint="read the thread's records")
    return found


@router.get("/workspaces/{workspace}/threads/{thread}/export")
async def export_thread(at: InThread, format: Literal["jsonl", "markdown"] = "jsonl") -> Response:
    """The log as it is (JSON Lines, one record a line), or the active branch to read (Markdown)."""
    at.here.need("read")
    if format == "jsonl":
        content, ending = b"".join(record.dump() for record in at.conversation.log.scan()), "jsonl"
    else:
        content, ending = as_markdown(at.thread.title, at.conversation.log).encode(), "md"
    name = f'attachment; filename="{at.scope.thread}.{ending}"'
    kind = "application/jsonl" if format == "jsonl" else "text/markdown; charset=utf-8"
    return Response(content, media_type=kind, headers={"content-disposition": name})
