"""The composition root: one home folder, its workspaces, and turns on their threads.

A turn runs in a task of its own, so that a reader who goes away doesn't end it. A thread's turns run one after
the other, in this process and across processes; a few may wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tenuto.additions import Keys, add_model, add_server, use_model
from tenuto.agent.ask import Asked, ask
from tenuto.agent.clearing import begin_clear, begin_user, delete_user_files, erase, finish_clears, overdue
from tenuto.agent.conversation import TURN_ENDED, Conversation, RequestRules
from tenuto.agent.events import Event, Queued, TurnEnded, TurnStarted
from tenuto.agent.history import History, searched
from tenuto.agent.mcp import McpHub
from tenuto.agent.memories import Desk, Memories
from tenuto.agent.models import LearnedWindows, ModelPool, Served, find, named_facts
from tenuto.agent.tasks import Report, Tasks
from tenuto.agent.tools import Approve, ToolPlace, offers
from tenuto.agent.turn import TurnLoop
from tenuto.codec import JsonObject, dumps
from tenuto.context.assemble import Fixed, Request
from tenuto.context.fence import Section, words
from tenuto.context.tokens import measure
from tenuto.disk import PRIVATE_DIR
from tenuto.errors import LateWrite, NotFound, SandboxUnavailable, TenutoError, ThreadBusy
from tenuto.instructions.discover import Place, discover
from tenuto.instructions.skills import Skill, catalogue, load_skills
from tenuto.jobs.local import LocalJobs
from tenuto.jobs.protocol import Job
from tenuto.log.record import Record
from tenuto.log.store import ThreadLog
from tenuto.log.threads import Thread, Threads
from tenuto.results.attach import Attached, attach
from tenuto.results.files import ThreadFile, ThreadFiles
from tenuto.results.offload import paste
from tenuto.results.store import ResultStore
from tenuto.sandbox.bubblewrap import BubblewrapEngine
from tenuto.sandbox.manager import Lifetimes, Manager
from tenuto.sandbox.protocol import Limits, ProbeReport, SandboxKey
from tenuto.scope import PYTHON, Member, Scope, check_id, member_of, require
from tenuto.settings import Loaded, Settings, load

if TYPE_CHECKING:
    from pydantic_ai.models import Model

TITLE_CHARS = 60
REFRESH_TASK = "refresh_task"
EXTRACT_MEMORY = "extract_memory"
EMBED_HISTORY = "embed_history"
CLEAR_WAIT_S = 60.0
"""How long a clear waits for another process's turn, which ends at its next write."""
Watcher: TypeAlias = Callable[[str, tuple[str, ...]], None]
"""Told `turn_ended`, `task`, `memory` or `cleared`, and the (workspace, user, thread) or (workspace, user) of it."""
IN_MEMORY = 256
"""Conversations kept parsed in memory; an older one is read from its log again."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Instruction files and skills as one turn finds them."""

    text: str
    catalogue: str
    skills: tuple[Skill, ...]
    notices: tuple[str, ...]


class Workspace:
    """One workspace: settings, members, threads, tool servers."""

    def __init__(self, app: App, name: str, loaded: Loaded) -> None:
        self.name = check_id("workspace", name)
        self.loaded = loaded
        self.edition = 0
        """Grows when the settings are read again: a model built before is not asked by a turn after."""
        self.folder = app.home / name
        self.threads = Threads(self.folder / ".logs")
        self.mcp = McpHub(loaded.settings.mcp, self.folder / ".logs")
        self.keys = Keys(self.folder / ".keys.json")
        self._app = app
        self.tasks = Tasks(self, self._ask)
        self.memories = Memories(self, self._ask)
        self.history = History(self)
        self._conversations: dict[str, Conversation] = {}

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    def member(self, user: str) -> Member:
        return member_of(self.settings.people(), user, self.name)

    def thread(self, scope: Scope, *, create: bool = False) -> Thread:
        """The user's thread. Raises `NotFound`, also for somebody else's (I13)."""
        require(self.member(scope.user), "send" if create else "read")
        return self.threads.open(scope, create=create)

    def conversation(self, thread: Thread) -> Conversation:
        """The thread's conversation, kept in memory between turns."""
        known = self._conversations.get(thread.thread)
        if known is None or known.epoch != thread.epoch:
            log = ThreadLog(self.threads.log_path(thread.thread))
            known = Conversation(log, epoch=thread.epoch)
            self._conversations[thread.thread] = known
            while len(self._conversations) > IN_MEMORY:
                self._conversations.pop(next(iter(self._conversations)))
        return known

    def model_of(self, thread: Thread) -> str:
        """The name of the model that a thread talks to."""
        return thread.model or self.settings.agent.model

    def window_of(self, model: str) -> int:
        """The window of a model by name, in tokens. Raises `ModelFailed`."""
        return self._app.find(self, model).facts.window

    async def _ask(self, model: str, asked: Asked, structured: bool) -> str:
        return await self._app.ask(self, model, asked, structured)

    def guidance(self) -> Guidance:
        """How work is done here, as it stands on disk now: instruction files and skills."""
        home, shared = self._app.home, self.shared
        places = [
            Place("global", home, home, flat=True),
            Place(self.name, self.folder, self.folder, closed=("files",)),
            Place("shared", shared, shared / self.settings.agent.folder),
        ]
        found = discover([place for place in places if place.folder.is_dir()])
        skills, notices = load_skills([home / "skills", self.folder / "skills", shared / "skills"])
        return Guidance(found.text, catalogue(skills), tuple(skills), (*found.notices, *notices))

    def instructions(self, thread: Thread) -> str:
        """What the workspace tells every conversation, beside the base rules."""
        return "\n\n".join(
            text for text in (self.settings.agent.instructions.strip(), self.guidance().text) if text
        )

    def results(self, scope: Scope) -> ResultStore:
        folder = self.folder / ".results" / scope.user / scope.thread
        return ResultStore(folder, self.settings.results, guard=self._guard(scope))

    def files(self, scope: Scope) -> ThreadFiles:
        return ThreadFiles(self.folder / "files" / scope.user / scope.thread, self._guard(scope))

    def attach(self, scope: Scope, source: Path, name: str = "") -> Attached:
        """Take a folder or an archive into the thread's files. Raises `ArchiveRefused` or `NotFound`."""
        require(self.member(scope.user), "send")
        self.threads.open(scope, create=True)
        rules = self.settings.results
        files = self.files(scope)
        return attach(files, source, most_bytes=rules.attach_size, most_files=rules.attach_files, name=name)

    @property
    def shared(self) -> Path:
        """The workspace's shared folder: read-only for every conversation."""
        return self.folder / "shared"

    def _guard(self, scope: Scope) -> Callable[[], None]:
        """Refuses what a turn would still write after its thread was cleared."""
        epoch = self.threads.epoch(scope.thread)

        def check() -> None:
            if self.threads.epoch(scope.thread) != epoch:
                raise LateWrite("the thread was cleared meanwhile; nothing was written", hint="send it again")

        return check

    def forget(self, thread: str) -> None:
        """Drop what is kept in memory of a thread."""
        self._conversations.pop(thread, None)
        self.tasks.forget(thread)


@dataclass(slots=True, eq=False)
class RunningTurn:
    """A turn as its readers see it."""

    scope: Scope
    said: list[Event] = field(default_factory=list[Event])
    """Every event so far. Any number of readers follow it, each from where it likes."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[TurnEnded] | None = None

    def emit(self, event: Event) -> None:
        self.said.append(event)
        self._wake()

    def _wake(self) -> None:
        more, self._more = self._more, asyncio.Event()
        more.set()

    def run(self, work: Coroutine[Any, Any, TurnEnded]) -> asyncio.Task[TurnEnded]:
        """Begin; the turn goes on whether somebody reads or not."""
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(lambda _: self._wake())
        return self._task

    @property
    def is_over(self) -> bool:
        return self._task is not None and self._task.done()

    @property
    def error(self) -> BaseException | None:
        """What kept the turn from starting."""
        if self._task is None or not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    async def grown(self, beyond: int) -> None:
        """Wait until there are more than `beyond` events, or the turn is over."""
        while len(self.said) <= beyond and not self.is_over:
            await self._more.wait()

    async def events(self) -> AsyncIterator[Event]:
        """Every event, ending after `TurnEnded`. Raises what kept the turn from starting."""
        read = 0
        while True:
            await self.grown(read)
            if read >= len(self.said):
                break
            yield self.said[read]
            read += 1
        if (error := self.error) is not None:
            raise error

    def stop(self) -> None:
        """End the turn; what came so far is logged, and `TurnEnded` follows."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def over(self) -> None:
        """Wait for the end, whatever it is."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def drop_events(self) -> int:
        """Forget what was said; readers see the end of the stream. Returns how many events went."""
        dropped = len(self.said)
        self.said.clear()
        self._wake()
        return dropped

    async def ended(self) -> TurnEnded:
        """Wait for the end."""
        assert self._task is not None
        return await self._task


class App:
    """Tenuto on one home folder. Use it as an async context manager."""

    def __init__(
        self,
        home: Path,
        *,
        overrides: Mapping[str, Any] | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        """`models` are ready Pydantic AI models by the name under which threads use them."""
        self.home = home
        self._given = dict(models or {})
        self._overrides = overrides
        self._workspaces: dict[str, Workspace] = {}
        self._locks: dict[tuple[str, str], _TurnLock] = {}
        self.learned = LearnedWindows(home / "windows.json")
        self.jobs = LocalJobs()
        self.jobs.handle(REFRESH_TASK, self._refresh_task)
        self.jobs.handle(EXTRACT_MEMORY, self._extract_memory)
        self.jobs.handle(EMBED_HISTORY, self._embed_history)
        self._models = ModelPool()
        self._sandbox: asyncio.Task[Manager] | None = None
        self._turns: set[asyncio.Task[TurnEnded]] = set()
        self._running: set[RunningTurn] = set()
        self.watchers: list[Watcher] = []
        self._drain = 0.0

    async def __aenter__(self) -> App:
        self.home.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        return self

    async def __aexit__(self, *_: object) -> None:
        for turn in list(self._turns):
            turn.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)
        await self.jobs.close(self._drain)
        for workspace in self._workspaces.values():
            await workspace.mcp.close()
        await self._models.close()
        if self._sandbox is not None:
            try:
                manager = await self._sandbox
            except SandboxUnavailable:
                return
            await manager.close()

    def workspace(self, name: str) -> Workspace:
        """The workspace called `name`; its settings are read once, and clears that a crash cut short are finished.

        Raises `SettingsError`.
        """
        if name not in self._workspaces:
            self._workspaces[name] = Workspace(self, name, load(self.home, name, self._overrides))
            finish_clears(self._workspaces[name])
            self._drain = max(self._drain, self._workspaces[name].settings.agent.drain)
        return self._workspaces[name]

    def add_model(
        self, workspace: Workspace, name: str, model: str, *, base_url: str, key: str, default: bool
    ) -> None:
        """Add a model to a workspace's settings. Raises `InvalidId` or `UsageError`."""
        path = workspace.folder / "workspace.toml"
        add_model(path, workspace.keys, name, model=model, base_url=base_url, key=key, default=default)
        self._reload(workspace)

    def use_model(self, workspace: Workspace, name: str) -> None:
        """The model of new threads. Raises `NotFound` for one that isn't there."""
        if name != "demo" and name not in workspace.settings.models:
            raise NotFound(f"there is no model {name!r}", hint="add it first")
        use_model(workspace.folder / "workspace.toml", name)
        self._reload(workspace)

    def add_server(self, workspace: Workspace, name: str, where: str) -> None:
        """Add an MCP server to a workspace's settings. Raises `InvalidId` or `UsageError`."""
        add_server(workspace.folder / "workspace.toml", name, where)
        self._reload(workspace)

    def _reload(self, workspace: Workspace) -> None:
        """Read a workspace's settings again; turns that run keep those they began with."""
        workspace.loaded = load(self.home, workspace.name, self._overrides)
        workspace.edition += 1
        workspace.mcp.configure(workspace.settings.mcp)

    def names(self) -> list[str]:
        """The workspaces that have a folder here, by name."""
        found = (path.parent for path in self.home.glob("*/workspace.toml"))
        logs = (path.parent for path in self.home.glob("*/.logs"))
        return sorted({path.name for path in (*found, *logs)})

    def known(self, name: str) -> Workspace:
        """A workspace that is there already. Raises `NotFound`: asking for one doesn't make it."""
        check_id("workspace", name)
        if name not in self._workspaces and name not in self.names():
            raise NotFound(
                f"there is no workspace {name!r}", hint="make a folder with a workspace.toml for it"
            )
        return self.workspace(name)

    # -- sandbox ----------------------------------------------------------------------------------------

    def engine(self, settings: Settings) -> BubblewrapEngine:
        """The local engine with the limits of the settings."""
        rules = settings.sandbox
        limits = Limits(
            call_s=rules.call,
            grace_s=rules.grace,
            process_bytes=rules.process_memory,
            total_bytes=rules.total_memory,
            processes=rules.processes,
            open_files=rules.open_files,
            work_bytes=rules.work,
            tmp_bytes=rules.tmp,
            output_kept=rules.output_kept,
            output_kill=rules.output_kill,
            artifacts=rules.artifacts,
            artifact_bytes=rules.artifact_size,
        )
        env = Path(rules.env) if rules.env else None
        return BubblewrapEngine(self.home / "run", limits, env=env, uid=rules.uid)

    async def sandbox(self, settings: Settings) -> Manager:
        """The sandbox manager, after a probe with the production command line.

        Raises `SandboxUnavailable` with the cause, each time: there is no fallback.
        """
        if not settings.sandbox.enabled:
            raise SandboxUnavailable("code execution is switched off", hint="set sandbox.enabled = true")
        if self._sandbox is None:
            self._sandbox = asyncio.create_task(self._start_sandbox(settings))
        return await asyncio.shield(self._sandbox)

    async def _start_sandbox(self, settings: Settings) -> Manager:
        engine = self.engine(settings)
        report: ProbeReport = await engine.probe()
        if not report.ok:
            raise SandboxUnavailable(report.cause, hint=report.remedy)
        rules = settings.sandbox
        manager = Manager(
            engine, Lifetimes(rules.idle, rules.max_age, rules.call, rules.max_boxes, rules.spares)
        )
        manager.start()
        return manager

    # -- turns ------------------------------------------------------------------------------------------

    def send(
        self,
        scope: Scope,
        text: str,
        *,
        model: str | None = None,
        approve: Approve | None = None,
        parent: Record | None = None,
        message_id: str = "",
    ) -> RunningTurn:
        """Start a turn with the user's `text`; read `.events()` of what comes back.

        `parent` puts it behind an earlier record instead of the newest: an edit, a branch. `approve` is
        asked before tools that need it; without it they are refused. `message_id` is the sender's name for it.
        """
        turn = RunningTurn(scope)
        self._running.add(turn)
        task = turn.run(self._turn(turn, scope, text, model, approve, parent, message_id))
        self._turns.add(task)

        def over(_: object) -> None:
            self._turns.discard(task)
            self._running.discard(turn)
            self._tell("turn_ended", scope.workspace, scope.user, scope.thread)

        task.add_done_callback(over)
        return turn

    def _tell(self, what: str, *key: str) -> None:
        for watcher in self.watchers:
            watcher(what, key)

    async def _turn(
        self,
        turn: RunningTurn,
        scope: Scope,
        text: str,
        model: str | None,
        approve: Approve | None,
        parent: Record | None,
        message_id: str,
    ) -> TurnEnded:
        workspace = self.workspace(scope.workspace)
        workspace.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        thread = workspace.thread(scope, create=True)
        async with self.turn_lock(workspace, scope, turn.emit):
            settings = workspace.settings
            shown, attached = paste(text, files=workspace.files(scope), rules=settings.results)
            message = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": shown}]}
            conversation = workspace.conversation(thread)
            if parent is not None:
                thread = workspace.threads.change(scope, branched=True)
            question = conversation.begin(
                message, zone=settings.agent.timezone, parent=parent, message_id=message_id
            )
            if not thread.title:
                workspace.threads.change(scope, title=" ".join(text.split())[:TITLE_CHARS])
            try:
                loop = await self._prepare(turn, workspace, scope, thread, question, model, approve, attached)
            except TenutoError as error:
                return _not_begun(turn, conversation, question, error)
            ended = await loop.run()
            shown = [name for s in loop.rules.sections if s.layer == "memory" for name in s.items]
            workspace.memories.store(scope.user).count_use(shown, scope.thread, question.turn)
            with contextlib.suppress(NotFound):
                # The thread may have been deleted while the turn ended.
                self.afterwards(workspace, scope)
            return ended

    async def preview(self, scope: Scope, text: str) -> tuple[Request, Record]:
        """The request that `text` would lead to now, and its question's record. Nothing is sent or logged.

        Raises `NotFound`, also for a thread in which nothing was said.
        """
        workspace = self.workspace(scope.workspace)
        thread = workspace.thread(scope)
        conversation = workspace.conversation(thread)
        message = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}
        records = conversation.imagined(message, zone=workspace.settings.agent.timezone)
        turn = RunningTurn(scope)
        loop = await self._prepare(turn, workspace, scope, thread, records[-1], None, None, None)
        return conversation.preview(loop.rules, records), records[-1]

    def find(self, workspace: Workspace, name: str) -> Served:
        """The model of a name: a ready one, or by the settings. Raises `ModelFailed`."""
        if (given := self._given.get(name)) is not None:
            return Served(named_facts(name, workspace.settings), lambda: given)
        return find(name, workspace.settings, self.learned, workspace.keys.get)

    # -- background -------------------------------------------------------------------------------------

    async def ask(self, workspace: Workspace, model: str, asked: Asked, structured: bool) -> str:
        """Ask a model outside a turn. Raises `ModelFailed`."""
        served = self.find(workspace, model)
        built = self._models.get((workspace.name, workspace.edition, model), served)
        return await ask(served, built, asked, structured=structured)

    def afterwards(self, workspace: Workspace, scope: Scope) -> None:
        """What a turn leaves to do: found from the files, so that a job lost to a crash is asked for again."""
        thread = workspace.threads.open(scope)
        conversation = workspace.conversation(thread)
        if workspace.memories.due(scope.user, thread, conversation):
            self.jobs.submit(Job(EXTRACT_MEMORY, (scope.workspace, scope.user)))
        if workspace.history.semantic:
            self.jobs.submit(Job(EMBED_HISTORY, (scope.workspace, scope.user)))
        if workspace.tasks.due(thread, conversation):
            self.jobs.submit(Job(REFRESH_TASK, (scope.workspace, scope.user, scope.thread), thread.epoch))

    async def _refresh_task(self, job: Job) -> None:
        scope = Scope(*job.key)
        workspace = self.workspace(scope.workspace)
        thread = workspace.threads.open(scope)
        if thread.epoch == job.epoch:
            await workspace.tasks.refresh(thread)
            self._tell("task", *job.key)

    async def _embed_history(self, job: Job) -> None:
        workspace, user = job.key
        await asyncio.to_thread(self.workspace(workspace).history.embed, user)

    async def _extract_memory(self, job: Job) -> None:
        workspace, user = job.key
        if await self.workspace(workspace).memories.extract(user):
            self._tell("memory", workspace, user)

    async def compact(self, scope: Scope, focus: str = "") -> Report:
        """Refresh the task now and move the window to the last turns. The window stays if the refresh fails."""
        workspace = self.workspace(scope.workspace)
        thread = workspace.thread(scope)
        require(workspace.member(scope.user), "send")
        async with self.turn_lock(workspace, scope):
            conversation = workspace.conversation(thread)
            if not conversation.log.last_seq:
                return Report("nothing")
            start = conversation.window_after_compaction(workspace.settings.context)
            report = await workspace.tasks.refresh(thread, before=start, focus=focus, asked_for=True)
            if report.covers_seq >= start - 1 and report.result in ("done", "nothing"):
                conversation.compact(workspace.settings.context, covers=report.covers_seq, focus=focus)
            return report

    # -- branches ---------------------------------------------------------------------------------------

    def edit(self, scope: Scope, turn: int, text: str, **more: Any) -> RunningTurn:
        """Ask an earlier turn's question anew, in other words: a branch; what came after stays on its own.

        Raises `NotFound` for a turn that isn't on the active branch.
        """
        _, before = self._turn_of(scope, turn)
        return self.send(scope, text, parent=before, **more)

    def regenerate(self, scope: Scope, turn: int, **more: Any) -> RunningTurn:
        """Answer an earlier turn's question once more, on a branch. Raises `NotFound`."""
        question, before = self._turn_of(scope, turn)
        return self.send(scope, words(question), parent=before, **more)

    def _turn_of(self, scope: Scope, turn: int) -> tuple[Record, Record]:
        """The question of a turn on the active branch, and the record before the turn."""
        workspace = self.workspace(scope.workspace)
        log = workspace.conversation(workspace.thread(scope)).log
        records = log.back_to(lambda record: record.turn < turn)
        question = next((r for r in records if r.turn == turn and r.is_question), None)
        if question is None or records[0].turn >= turn:
            raise NotFound(f"turn {turn} is not on the active branch", hint="see `tenuto branch list`")
        return question, records[0]

    def branches(self, scope: Scope) -> list[JsonObject]:
        """Every branch by its newest record: `{record, turn, at, active, question}`. O(log)."""
        workspace = self.workspace(scope.workspace)
        log = workspace.conversation(workspace.thread(scope)).log
        head = log.head
        found: list[JsonObject] = []
        for leaf in log.leaves():
            asked = next(
                (r for r in reversed(log.branch(leaf, lambda r: r.is_question)) if r.is_question), None
            )
            question = words(asked)[:200] if asked is not None else ""
            found.append(
                {
                    "record": leaf.seq,
                    "turn": leaf.turn,
                    "at": leaf.at,
                    "active": leaf.id == head,
                    "question": question,
                }
            )
        return found

    async def go_back(self, scope: Scope, record: int) -> None:
        """Make the branch that ends in a record the active one; context, task and search follow (I16).

        Raises `NotFound` for a record that isn't there.
        """
        workspace = self.workspace(scope.workspace)
        require(workspace.member(scope.user), "send")
        thread = workspace.thread(scope)
        async with self.turn_lock(workspace, scope):
            log = workspace.conversation(thread).log
            found = log.find(record)
            if found is None:
                raise NotFound(f"there is no record #{record}", hint="see `tenuto branch list`")
            log.select(found.id, turn=found.turn, epoch=thread.epoch)
            workspace.threads.change(scope, branched=True)

    async def clear(self, scope: Scope, *, keep_files: bool = False) -> JsonObject:
        """Clear a thread: when this returns, nothing on disk or in memory holds its content (I11). A receipt.

        With `keep_files` its files (charts, reports, uploads) stay, and only those.
        """
        workspace = self.workspace(scope.workspace)
        require(workspace.member(scope.user), "send")
        workspace.thread(scope)
        return await self._erase(workspace, scope, delete=False, keep_files=keep_files)

    async def delete(self, scope: Scope) -> JsonObject:
        """Clear a thread and forget that there was one."""
        workspace = self.workspace(scope.workspace)
        require(workspace.member(scope.user), "send")
        workspace.thread(scope)
        return await self._erase(workspace, scope, delete=True)

    async def delete_user(self, workspace_name: str, user: str) -> JsonObject:
        """Everything of a user in a workspace: threads, memory with its tombstones, results, files."""
        workspace = self.workspace(workspace_name)
        check_id("user", user)
        begin_user(workspace, user)
        await self.jobs.cancel(workspace_name, user)
        receipts = [
            await self._erase(workspace, Scope(workspace_name, user, thread.thread), delete=True)
            for thread in workspace.threads.of(user)
        ]
        return delete_user_files(workspace, user, receipts)

    async def retain(self, workspace_name: str) -> list[JsonObject]:
        """Delete the threads that were not used for longer than the workspace keeps them."""
        workspace = self.workspace(workspace_name)
        return [
            await self._erase(workspace, Scope(workspace_name, thread.user, thread.thread), delete=True)
            for thread in overdue(workspace)
        ]

    async def _erase(
        self, workspace: Workspace, scope: Scope, *, delete: bool, keep_files: bool = False
    ) -> JsonObject:
        """Raise the epoch, end what runs, then remove every place (I10, I11)."""
        journal = begin_clear(workspace, scope, delete=delete, keep_files=keep_files)
        running = [turn for turn in self._running if turn.scope == scope]
        for turn in running:
            turn.stop()
        for turn in running:
            await turn.over()
        jobs = await self.jobs.cancel(scope.workspace, scope.user, scope.thread)
        sandbox = False
        if self._sandbox is not None and self._sandbox.done() and self._sandbox.exception() is None:
            key = SandboxKey(scope.workspace, scope.user, scope.thread)
            sandbox = self._sandbox.result().status(key) is not None
            await self._sandbox.result().clear(key)
        try:
            async with asyncio.timeout(CLEAR_WAIT_S), self.turn_lock(workspace, scope):
                receipt = erase(workspace, journal)
        except TimeoutError as error:
            raise ThreadBusy(
                "another process still runs a turn in this thread; its log is cleared already",
                hint="clear it once more when that turn has ended",
            ) from error
        buffered = sum(turn.drop_events() for turn in running)
        self._tell("cleared", scope.workspace, scope.user, scope.thread)
        return {
            **receipt,
            "turns_stopped": len(running),
            "events_dropped": buffered,
            "jobs": jobs,
            "sandbox": sandbox,
        }

    def turn_lock(
        self, workspace: Workspace, scope: Scope, emit: Callable[[Event], None] = lambda _: None
    ) -> AbstractAsyncContextManager[None]:
        """The thread to oneself: no turn runs, in this process or another."""
        lock = self._locks.setdefault((scope.workspace, scope.thread), _TurnLock())
        path = workspace.threads.log_path(scope.thread).with_suffix(".turn")
        return lock.held(path, workspace.settings.agent.queue, emit)

    async def _prepare(
        self,
        turn: RunningTurn,
        workspace: Workspace,
        scope: Scope,
        thread: Thread,
        question: Record,
        model: str | None,
        approve: Approve | None,
        attached: ThreadFile | None,
    ) -> TurnLoop:
        """Everything a turn needs once its question is on record: model, sandbox, servers, rules."""
        settings = workspace.settings
        name = model or thread.model or settings.agent.model
        served = self.find(workspace, name)
        built = self._models.get((workspace.name, workspace.edition, name), served)
        conversation = workspace.conversation(thread)
        member = workspace.member(scope.user)
        sandbox, notices = await self._sandbox_for(member, settings)
        tools, unreachable = await workspace.mcp.tools(scope.user)
        guidance = workspace.guidance()
        uses_memory = workspace.memories.store(scope.user).load().use
        place = ToolPlace(
            key=SandboxKey(scope.workspace, scope.user, scope.thread),
            member=member,
            settings=settings,
            log=conversation.log,
            results=workspace.results(scope),
            files=workspace.files(scope),
            shared=workspace.shared,
            skills=guidance.skills,
            sandbox=sandbox,
            emit=turn.emit,
            approve=approve,
            history=lambda arguments: searched(workspace.history, scope.user, arguments),
            memory=Desk(workspace.memories, scope.user, conversation, question.turn) if uses_memory else None,
            task_items=lambda: workspace.tasks.items(thread, conversation),
        )
        found = offers(place, tools)
        instructions = base_instructions(settings, guidance)
        tools_text = dumps([offer.definition for offer in found]).decode()
        task, covers_seq = workspace.tasks.in_request(thread, conversation)
        rules = RequestRules(
            fixed=fixed_parts(conversation.log, instructions, tools_text),
            model=served.facts,
            settings=settings.context,
            expired=place.results.gone(),
            sections=(*task, *workspace.memories.in_request(scope.user, conversation)),
            covers_seq=covers_seq,
        )
        attachment = attached.name if attached else ""
        turn.emit(
            TurnStarted(
                question.turn, question.seq, name, attachment, [*notices, *unreachable, *guidance.notices]
            )
        )

        def sections() -> tuple[Section, ...]:
            task, _ = workspace.tasks.in_request(thread, conversation)
            return (*task, *workspace.memories.in_request(scope.user, conversation))

        async def refresh(rules: RequestRules) -> RequestRules | None:
            report = await workspace.tasks.refresh(thread, before=question.seq, urgent=True)
            if report.result != "done":
                return None
            _, covers_seq = workspace.tasks.in_request(thread, conversation)
            return replace(rules, sections=sections(), covers_seq=covers_seq)

        return TurnLoop(
            conversation,
            question.turn,
            built,
            rules,
            instructions,
            found,
            place,
            self.learned,
            sections,
            refresh,
        )

    async def _sandbox_for(self, member: Member, settings: Settings) -> tuple[Manager | None, list[str]]:
        if not member.has(PYTHON):
            return None, []
        try:
            return await self.sandbox(settings), []
        except SandboxUnavailable as error:
            return None, [f"{error.message}; {error.hint}"]


def _not_begun(
    turn: RunningTurn, conversation: Conversation, question: Record, error: TenutoError
) -> TurnEnded:
    """A turn that failed before its first request: the question stays, and the log says why."""
    usage: JsonObject = {
        "requests": 0,
        "input_tokens": 0,
        "cached_tokens": 0,
        "output_tokens": 0,
        "cost_usd": 0.0,
    }
    event = {"type": TURN_ENDED, "reason": "failed", "usage": usage, "error": error.as_json()}
    conversation.note(question.turn, event)
    ended = TurnEnded(question.turn, "failed", "", usage, error.as_json())
    turn.emit(ended)
    return ended


def base_instructions(settings: Settings, guidance: Guidance) -> str:
    """Base rules, the workspace's settings, instruction files, skills: the beginning of every request."""
    base = (files("tenuto.agent") / "prompts" / "base.md").read_text("utf-8").strip()
    parts = (base, settings.agent.instructions.strip(), guidance.text, guidance.catalogue)
    return "\n\n".join(part for part in parts if part)


def fixed_parts(log: ThreadLog, instructions: str, tools_text: str) -> Fixed:
    """Base rules and tools, stored once beside the log so that a manifest's hashes can be resolved."""
    return Fixed(
        instructions_hash=log.blobs.put(instructions.encode()),
        tools_hash=log.blobs.put(tools_text.encode()),
        instructions=measure(instructions),
        tools=measure(tools_text),
    )


def stored_fixed(log: ThreadLog, manifest: JsonObject) -> Fixed:
    """The fixed parts of a past request, from the hashes in its manifest."""
    sources = {block["layer"]: block["source"].removeprefix("sha256:") for block in manifest["blocks"]}
    base, tools = log.blobs.get(sources["base"]), log.blobs.get(sources["tools"])
    return Fixed(
        instructions_hash=sources["base"],
        tools_hash=sources["tools"],
        instructions=measure((base or b"").decode()),
        tools=measure((tools or b"").decode()),
    )


def stored_sections(log: ThreadLog, manifest: JsonObject) -> tuple[Section, ...]:
    """Task and memory as a past request showed them. A text that was deleted since is said to be."""
    found: list[Section] = []
    for block in manifest["blocks"]:
        if block["layer"] in ("task", "memory"):
            raw = log.blobs.get(block["source"].removeprefix("sha256:"))
            text = "[deleted since]" if raw is None else raw.decode()
            items = tuple(block.get("items", ()))
            found.append(
                Section(block["layer"], block["source"], text, measure(text), (), items, block["note"])
            )
    return tuple(found)


class _TurnLock:
    """One turn at a time for a thread: in this process with a short queue, and across processes."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def held(self, path: Path, most: int, emit: Any) -> AsyncGenerator[None]:
        if self._lock.locked():
            if self._waiting >= most:
                raise ThreadBusy(
                    f"{self._waiting} messages wait in this thread already",
                    hint="wait until they are answered",
                )
            self._waiting += 1
            emit(Queued(self._waiting))
            try:
                await self._lock.acquire()
            finally:
                self._waiting -= 1
        else:
            await self._lock.acquire()
        try:
            async with _file_lock(path):
                yield
        finally:
            self._lock.release()


@asynccontextmanager
async def _file_lock(path: Path) -> AsyncGenerator[None]:
    """The thread's turn lock for other processes; waiting happens outside the event loop."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.to_thread(fcntl.flock, descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


__all__ = ["App", "RunningTurn", "TenutoError", "Workspace"]
