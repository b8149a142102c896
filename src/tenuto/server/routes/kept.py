"""What is kept: the task of a thread, and the memory of a user."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tenuto.codec import JsonObject
from tenuto.errors import UsageError
from tenuto.server.identity import At, Here, InThread, InWorkspace
from tenuto.server.routes.turns import Focus
from tenuto.task.ledger import KINDS, Kind

router = APIRouter()

THREAD = "/workspaces/{workspace}/threads/{thread}"
MEMORY = "/workspaces/{workspace}/memory"


class ByHand(BaseModel):
    action: Literal["add", "edit", "withdraw", "done", "reopen", "pin", "unpin"]
    item: str = ""
    kind: Kind = "constraint"
    text: str = Field("", max_length=300)


class NewFact(BaseModel):
    text: str = Field(min_length=1, max_length=2_000)
    importance: int = Field(3, ge=1, le=5)
    applies_to: str = Field("", max_length=200)
    until: str = Field("", max_length=10, examples=["2027-03-31"])


class FactText(BaseModel):
    text: str = Field(min_length=1, max_length=2_000)


class Chosen(BaseModel):
    facts: list[str] = Field(default_factory=list[str], max_length=1_000)
    all: bool = Field(
        False, description="Delete every fact; said on purpose, never by leaving `facts` empty."
    )


class Switches(BaseModel):
    use: bool | None = None
    extract: bool | None = None


class Imported(BaseModel):
    facts: list[JsonObject] = Field(max_length=1_000)


def _task(at: At) -> JsonObject:
    ledger = at.workspace.tasks.store(at.scope.thread).load()
    items = at.workspace.tasks.items(at.thread, at.conversation)
    return {**ledger.as_json(), "items": [item.as_json() for item in items], "kinds": list(KINDS)}


@router.get(f"{THREAD}/task", tags=["task"])
async def read_task(at: InThread) -> JsonObject:
    """The items that apply on the active branch, each with its evidence."""
    return _task(at)


@router.post(f"{THREAD}/task", tags=["task"])
async def change_task(at: InThread, change: ByHand) -> JsonObject:
    """Add, edit, withdraw, finish, reopen, pin or unpin an item by hand."""
    at.here.need("send")
    kept = change.model_dump(exclude={"action"})
    at.workspace.tasks.by_hand(at.thread, at.conversation, change.action, **kept)
    at.runs.changed(at.scope, "task")
    return _task(at)


@router.get(f"{THREAD}/task/history", tags=["task"])
async def task_history(at: InThread) -> JsonObject:
    """Every version with what changed it, oldest first."""
    at.here.need("read")
    thread = at.thread
    return {"versions": at.workspace.tasks.store(thread.thread).history()}


@router.post(f"{THREAD}/task/refresh", tags=["task"])
async def refresh_task(at: InThread, focus: Focus) -> JsonObject:
    """Refresh the task now. The report says what was taken in, and why if nothing was."""
    at.here.need("send")
    report = await at.workspace.tasks.refresh(at.thread, focus=focus.focus, asked_for=True)
    at.runs.changed(at.scope, "task")
    return {"report": report.as_json(), "task": _task(at)}


def _memory(here: Here) -> JsonObject:
    store = here.workspace.memories.store(here.user)
    memory = store.load()
    rules = here.workspace.settings.memory
    uses = store.uses()
    return {
        "use": memory.use,
        "extract": memory.extract,
        "facts": [{**fact.as_json(), "used": uses.get(fact.id, {"count": 0})} for fact in memory.facts],
        "meters": {
            "facts": len(memory.active),
            "most_facts": rules.facts,
            "chars": sum(len(fact.text) for fact in memory.active),
            "most_chars": rules.chars,
        },
    }


@router.get(MEMORY, tags=["memory"])
async def read_memory(here: InWorkspace) -> JsonObject:
    """Every fact, active and not, with how often it was used; the switches; the meters."""
    here.need("read")
    return _memory(here)


@router.patch(MEMORY, tags=["memory"])
async def switch_memory(here: InWorkspace, switches: Switches) -> JsonObject:
    """Switch the use of memory and extraction, each by itself."""
    here.need("send")
    here.workspace.memories.switch(here.user, use=switches.use, extract=switches.extract)
    return _memory(here)


@router.post(f"{MEMORY}/facts", status_code=201, tags=["memory"])
async def add_fact(here: InWorkspace, fact: NewFact) -> JsonObject:
    here.need("send")
    kept = fact.model_dump(exclude={"text"})
    return here.workspace.memories.add(here.user, fact.text, **kept).as_json()


@router.get(f"{MEMORY}/facts/{{fact}}", tags=["memory"])
async def explain_fact(here: InWorkspace, fact: str) -> JsonObject:
    """When a fact was used, and why it isn't in the next request if it isn't."""
    here.need("read")
    return here.workspace.memories.explain(here.user, fact)


@router.patch(f"{MEMORY}/facts/{{fact}}", tags=["memory"])
async def edit_fact(here: InWorkspace, fact: str, text: FactText) -> JsonObject:
    here.need("send")
    here.workspace.memories.edit(here.user, fact, text.text)
    return _memory(here)


@router.post(f"{MEMORY}/forget", tags=["memory"])
async def forget_facts(here: InWorkspace, chosen: Chosen) -> JsonObject:
    """Take facts out of use; a bounded history keeps them."""
    here.need("send")
    return {"forgotten": here.workspace.memories.forget(here.user, chosen.facts), "memory": _memory(here)}


@router.post(f"{MEMORY}/delete", tags=["memory"])
async def delete_facts(here: InWorkspace, chosen: Chosen) -> JsonObject:
    """Delete facts for good. Answers the receipt."""
    here.need("send")
    if not chosen.facts and not chosen.all:
        raise UsageError("no fact is named", hint='name facts, or send {"all": true}')
    receipt = here.workspace.memories.delete(here.user, None if chosen.all else chosen.facts)
    return {"receipt": receipt, "memory": _memory(here)}


@router.post(f"{MEMORY}/import", tags=["memory"])
async def import_facts(here: InWorkspace, given: Imported) -> JsonObject:
    """Facts of an export; says how many were taken, and why others were not."""
    here.need("send")
    taken, refused = here.workspace.memories.import_facts(here.user, given.facts)
    return {"taken": taken, "refused": refused}
