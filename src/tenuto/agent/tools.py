"""What Tenuto itself offers the model, and how every tool call runs: approval, timeout, offloading, events.

Tenuto's own tools keep a stated contract (their results are bounded and say what they left out), so that they
pass through; text from MCP servers is offloaded when it is large.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tenuto.agent.events import ApprovalAsked, Event, ToolOutput
from tenuto.agent.filetools import file_tools
from tenuto.agent.mcp import McpServer, ToolSpec
from tenuto.agent.offers import Offer, ToolResult, schema
from tenuto.codec import JsonObject, dumps
from tenuto.context.shape import clip, cut
from tenuto.context.tokens import texts
from tenuto.errors import NotFound, TenutoError
from tenuto.instructions.skills import Skill, read_skill
from tenuto.log.store import ThreadLog
from tenuto.memory.facts import Fact
from tenuto.results.files import ThreadFiles
from tenuto.results.offload import FILES_IN_SANDBOX, offload
from tenuto.results.store import ResultStore
from tenuto.sandbox.protocol import Folders, RunResult, SandboxKey, SandboxManager
from tenuto.scope import PYTHON, Member
from tenuto.settings import Settings
from tenuto.task.ledger import Item
from tenuto.task.render import one_line

if TYPE_CHECKING:
    from pydantic_ai import RunContext, Tool

READ_CHARS = 7_000
"""Most characters of one read; below the clipping of recent results, so that a read is never cut again."""

Approve = Callable[[ApprovalAsked], Awaitable[bool]]


class MemoryDesk(Protocol):
    """What tools may do to the user's memory."""

    writes: int

    def remember(self, arguments: JsonObject) -> Fact: ...

    def forget(self, facts: Sequence[str]) -> int: ...

    def unsaved_claim(self, answer: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ToolPlace:
    """What the tools of one turn work on: the thread's own things, nothing else (I13)."""

    key: SandboxKey
    member: Member
    settings: Settings
    log: ThreadLog
    results: ResultStore
    files: ThreadFiles
    shared: Path
    """The workspace's shared folder, read-only."""
    skills: Sequence[Skill]
    sandbox: SandboxManager | None
    emit: Callable[[Event], None]
    memory: MemoryDesk | None = None
    """None while the user's memory is switched off."""
    history: Callable[[JsonObject], str] | None = None
    """Searches the user's own history; returns what the model reads."""
    task_items: Callable[[], Sequence[Item]] = tuple
    """The items of the task on the active branch."""
    approve: Approve | None = None

    @property
    def may_run_code(self) -> bool:
        return self.sandbox is not None and self.member.has(PYTHON)


def offers(place: ToolPlace, servers: Sequence[tuple[McpServer, ToolSpec]]) -> list[Offer]:
    """The tools of a turn, by name: the order is part of the stable prefix."""
    found = [
        *_own(place),
        *_skill_tools(place.skills),
        *(_from_server(place, server, spec) for server, spec in servers),
    ]
    by_name: dict[str, Offer] = {}
    for offer in found:
        by_name.setdefault(offer.name, offer)
    return [by_name[name] for name in sorted(by_name)]


def _own(place: ToolPlace) -> list[Offer]:
    offset: JsonObject = {"type": "integer", "minimum": 0, "description": "First character, 0 by default."}
    own = [
        Offer(
            "read_record",
            "Read a record of this conversation by the number shown as #n, in pieces of "
            f"{READ_CHARS:,} characters.",
            schema(["seq"], seq={"type": "integer", "minimum": 1}, offset=offset),
            lambda _, a: _read_record(place, a),
        ),
        Offer(
            "list_results",
            "List the saved tool results of this conversation with size, rows and state.",
            schema([]),
            lambda _, a: _list_results(place),
        ),
        Offer(
            "read_task",
            "Read every item of this conversation's task: goals, conditions, decisions, open questions, with the "
            "records they rest on, also those that had no room above.",
            schema([]),
            lambda _, a: _read_task(place),
        ),
    ]
    own += file_tools(place.files, place.shared)
    if (search := place.history) is not None:
        own.append(
            Offer(
                "search_history",
                "Search what this user and you said in all of this user's conversations, this one's dropped part "
                "included. Returns the original words with record, conversation and date, and later words about "
                "the same thing: the later ones count. Dates as 2026-11-30.",
                schema(
                    ["query"],
                    query={"type": "string"},
                    since={"type": "string"},
                    until={"type": "string"},
                    thread={"type": "string"},
                ),
                lambda _, a: _search(search, a),
            )
        )
    if place.memory is not None:
        own += _memory_tools(place.memory)
    if place.may_run_code:
        own += [
            Offer(
                "read_result",
                f"Read a saved result as text, in pieces of {READ_CHARS:,} characters. To compute over it, "
                "use run_python instead.",
                schema(["name"], name={"type": "string"}, offset=offset),
                lambda _, a: _read_result(place, a),
            ),
            Offer(
                "run_python",
                (files("tenuto.agent") / "prompts" / "run_python.md").read_text("utf-8").strip(),
                schema(["code"], code={"type": "string", "description": "Python source."}),
                lambda call, a: _run_python(place, call, a),
            ),
        ]
    return own


def _skill_tools(skills: Sequence[Skill]) -> list[Offer]:
    if not skills:
        return []
    text: JsonObject = {"type": "string"}

    async def read(_: str, a: JsonObject) -> ToolResult:
        found = read_skill(skills, str(a.get("name", "")), str(a.get("resource") or ""))
        return ToolResult(clip(found, READ_CHARS * 2, "the rest has no room in one read"))

    return [
        Offer(
            "read_skill",
            "Read a skill from the catalogue, or one of its resources, before the task it is for.",
            schema(["name"], name=text, resource=text),
            read,
        )
    ]


def _memory_tools(memory: MemoryDesk) -> list[Offer]:
    text: JsonObject = {"type": "string"}
    return [
        Offer(
            "remember",
            "Remember a lasting fact about the user for later conversations, when the user asks for it. `quote` is "
            "copied exactly from the user's own words in this conversation; `replaces` is the id of a fact that no "
            "longer holds. Only this call saves anything: never say that something is remembered without it.",
            schema(
                ["text", "quote"],
                text={"type": "string", "description": "One short sentence in the user's language."},
                quote=text,
                importance={"type": "integer", "minimum": 1, "maximum": 5},
                applies_to={"type": "string", "description": "When it holds; empty for always."},
                until={
                    "type": "string",
                    "description": "Last day it holds, as 2027-03-31; empty for no end.",
                },
                replaces=text,
            ),
            lambda _, a: _remember(memory, a),
        ),
        Offer(
            "forget",
            "Forget facts by their ids (shown as [f…] in memory) when the user asks for it. Do not repeat what was "
            "forgotten.",
            schema(["facts"], facts={"type": "array", "items": text}),
            lambda _, a: _forget(memory, a),
        ),
    ]


async def _remember(memory: MemoryDesk, arguments: JsonObject) -> ToolResult:
    fact = memory.remember(arguments)
    kept = "" if fact.status == "active" else " It was not important enough to keep: the memory is full."
    return ToolResult(f"Saved as [{fact.id}].{kept}", {"fact": fact.id})


async def _forget(memory: MemoryDesk, arguments: JsonObject) -> ToolResult:
    given: Any = arguments.get("facts")
    wanted = [str(one).strip("[] ") for one in cast("list[Any]", given)] if isinstance(given, list) else []
    gone = memory.forget(wanted)
    if not gone:
        raise NotFound("no such fact is remembered", hint="use the ids shown in memory")
    return ToolResult(
        f"Forgotten: {gone}. It is no longer used; the user can delete it for good in the memory."
    )


def _from_server(place: ToolPlace, server: McpServer, spec: ToolSpec) -> Offer:
    async def call(_: str, arguments: JsonObject) -> ToolResult:
        answer = await server.call(spec.original, arguments)
        if answer.is_error:
            raise NotFound(
                f"{spec.name} reports an error: {clip(answer.text, 2_000, 'the rest was not kept')}"
            )
        saved = await asyncio.to_thread(
            offload,
            answer.text,
            tool=spec.name,
            arguments=arguments,
            store=place.results,
            rules=place.settings.results,
            may_run_code=place.may_run_code,
        )
        return ToolResult(saved.text, saved.metadata(arguments), answer.media)

    return Offer(spec.name, spec.description, spec.schema, call, spec.needs_approval)


async def _read_record(place: ToolPlace, arguments: JsonObject) -> ToolResult:
    record = place.log.find(int(arguments["seq"]))
    if record is None or record.message is None:
        raise NotFound(
            f"this conversation has no record #{arguments['seq']}", hint="use a number shown as #n"
        )
    return ToolResult(_piece("\n".join(texts(record.message)), int(arguments.get("offset") or 0)))


async def _search(search: Callable[[JsonObject], str], arguments: JsonObject) -> ToolResult:
    return ToolResult(await asyncio.to_thread(search, arguments))


async def _read_task(place: ToolPlace) -> ToolResult:
    items = place.task_items()
    if not items:
        return ToolResult("The task has no items yet.")
    lines = [
        f"[{item.id}] {item.kind}, {item.status}{'' if item.verified else ', unconfirmed'}: {one_line(item.text)}"
        + "".join(f' — "{one_line(change.quote)}" (#{change.record})' for change in item.source)
        for item in items
    ]
    return ToolResult(clip("\n".join(lines), READ_CHARS, "the rest has no room in one read"))


async def _list_results(place: ToolPlace) -> ToolResult:
    found = place.results.all()
    if not found:
        return ToolResult("There are no saved results.")
    lines = [
        f"{result.name}: {result.state}, {result.bytes:,} bytes, "
        f"{'' if result.rows is None else f'{result.rows:,} rows, '}"
        f"from {result.tool}({dumps(result.arguments).decode()}), expires {result.expires[:10]}"
        for result in found
    ]
    return ToolResult(clip("\n".join(lines), READ_CHARS, "older ones are listed first"))


async def _read_result(place: ToolPlace, arguments: JsonObject) -> ToolResult:
    content = place.results.read(str(arguments["name"]))
    return ToolResult(_piece(content.decode("utf-8", "replace"), int(arguments.get("offset") or 0)))


def _piece(text: str, offset: int) -> str:
    """One bounded piece, which says where it stands in the whole (I9)."""
    end = cut(text, min(len(text), offset + READ_CHARS))
    if offset == 0 and end == len(text):
        return text
    more = f"; continue with offset={end}" if end < len(text) else "; this is the end"
    return f"[characters {offset:,} to {end:,} of {len(text):,}{more}]\n{text[offset:end]}"


async def _run_python(place: ToolPlace, call_id: str, arguments: JsonObject) -> ToolResult:
    assert place.sandbox is not None
    skills = tuple((skill.name, skill.folder) for skill in place.skills)
    folders = Folders(place.results.folder, place.files.folder, place.shared, skills)
    place.results.all()
    run = asyncio.create_task(
        place.sandbox.run(
            place.key,
            folders,
            str(arguments["code"]),
            on_output=lambda _, data: place.emit(ToolOutput(call_id, data.decode("utf-8", "replace"))),
        )
    )
    try:
        result = await asyncio.shield(run)
    except asyncio.CancelledError:
        # The turn was stopped: the cell is interrupted, and its state kept, before the turn ends.
        await place.sandbox.interrupt(place.key)
        with contextlib.suppress(TenutoError):
            await run
        raise
    _count_reads(place, str(arguments["code"]))
    saved = [place.files.add(artifact.name, artifact.content).name for artifact in result.artifacts]
    return ToolResult(run_text(result, saved, place.settings.sandbox.output_model), {"files": saved})


def _count_reads(place: ToolPlace, code: str) -> None:
    """A result named in the code counts as used, so that it isn't the next to be evicted."""
    used = [result.name for result in place.results.all() if result.state == "kept" and result.name in code]
    if used:
        place.results.touch(used)


REASONS = {
    "idle": "it was idle for too long",
    "max_age": "it reached its greatest age",
    "evicted": "other conversations needed the memory",
    "crashed": "it crashed",
    "oom": "it used too much memory",
    "timeout_kill": "it had to be killed after the time limit",
    "server_restart": "the server was restarted",
    "user_reset": "the user restarted it",
    "output": "it printed too much",
}


def run_text(result: RunResult, saved: Sequence[str], limit: int) -> str:
    """A call's outcome as the model reads it. Notices stand before output, where no cut can hide them (I14)."""
    lines: list[str] = []
    if result.lost_before is not None:
        names = ", ".join(result.lost_names[:40])
        lines.append(
            f"[new interpreter: the earlier one is gone because {REASONS[result.lost_before]}. "
            f"Variables that no longer exist: {names}. Files in /results and /files are still there.]"
        )
    if result.status == "not_run":
        lines.append(
            f"[not run: the code reads {', '.join(result.missing)}, which no longer exist. "
            "Make them again from the files in /results and call run_python once more.]"
        )
        return "\n".join(lines)
    if result.status in ("timeout", "interrupted", "died"):
        kept = "; variables are kept" if result.lost_after is None else ""
        ends = {"timeout": "stopped after the time limit", "interrupted": "stopped by the user"}
        lines.append(f"[{ends.get(result.status, 'the interpreter ended')}{kept}]")
    if result.lost_after is not None:
        lines.append(f"[the interpreter is gone because {REASONS[result.lost_after]}]")
    printed = result.stdout + (f"\n[stderr]\n{result.stderr}" if result.stderr.strip() else "")
    if printed.strip():
        lines.append(clip(printed.rstrip(), limit, f"all in all {result.output_bytes:,} bytes were printed"))
    if result.error is not None:
        lines.append(result.error.traceback.rstrip() or f"{result.error.type}: {result.error.message}")
    if result.value:
        lines.append(clip(result.value, limit, "print a part of it"))
    lines.extend(f"[file] {FILES_IN_SANDBOX}/{name}" for name in saved)
    lines.extend(f"[not kept] {name}" for name in result.skipped)
    return "\n".join(lines) or "[done, no output]"


def as_tool(offer: Offer, place: ToolPlace) -> Tool[None]:
    """The offer as a Pydantic AI tool: asks for approval, keeps the time limit, turns our errors into results."""
    from pydantic_ai import Tool
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_ai.messages import BinaryContent, ToolReturn

    async def run(ctx: RunContext[None], **arguments: Any) -> ToolReturn[Any]:
        identity = ctx.tool_call_id or ""
        if offer.needs_approval and not await _allowed(place, identity, offer.name, arguments):
            raise ToolFailed("The user did not allow this call. Go on without it, or ask the user.")
        started = time.monotonic()
        try:
            async with asyncio.timeout(place.settings.agent.tool):
                result = await offer.handler(identity, arguments)
        except TenutoError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise ToolFailed(f"{error.message}{hint}") from error
        except TimeoutError as error:
            raise ToolFailed(f"{offer.name} took longer than {place.settings.agent.tool:g} s") from error
        metadata = {**(result.metadata or {}), "ms": round((time.monotonic() - started) * 1000, 1)}
        shown: Any = result.text
        if result.media:
            shown = [result.text, *(BinaryContent(data=raw, media_type=kind) for raw, kind in result.media)]
        return ToolReturn(return_value=shown, metadata=metadata)

    return Tool.from_schema(run, offer.name, offer.description, offer.schema, takes_ctx=True)


async def _allowed(place: ToolPlace, identity: str, tool: str, arguments: JsonObject) -> bool:
    asked = ApprovalAsked(identity, tool, arguments)
    place.emit(asked)
    return place.approve is not None and await place.approve(asked)
