"""Runs: a turn's events, numbered, for any number of readers, from any number on, also after a restart.

A run is named by the client's message id, so that a message sent twice is one run. While the turn runs and some
time after, its events are in memory; later the run is read from the thread's log.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tenuto.agent.app import App, RunningTurn
from tenuto.agent.conversation import TURN_STARTED
from tenuto.agent.events import ApprovalAsked, TurnEnded, as_json
from tenuto.agent.tools import Approve
from tenuto.codec import JsonObject, dumps, stamp
from tenuto.context.fence import words
from tenuto.errors import NotFound, TenutoError
from tenuto.log.record import Record
from tenuto.scope import Scope, check_id
from tenuto.server.records import ended_event, request_summary, turn_events

KEPT_RUNS = 256
"""Ended runs kept in memory; older ones are read from the log."""
LOOKED_BACK = 64
"""Turns searched in the log for a message id that is not in memory."""
QUESTION_CHARS = 4_000


@dataclass(slots=True)
class Run:
    """One turn as its readers follow it. Event 1 says what was asked; event n+1 is the turn's n-th."""

    id: str
    scope: Scope
    epoch: int
    question: str
    turn: RunningTurn
    source: str = "live"
    """`live`, or `log` for a run that is told again from the records."""
    waiting: dict[str, asyncio.Future[bool]] = field(default_factory=dict[str, "asyncio.Future[bool]"])
    """Calls that wait for somebody's approval."""
    _encoded: list[tuple[str, JsonObject, bytes]] = field(default_factory=list[tuple[str, JsonObject, bytes]])

    @property
    def state(self) -> str:
        """`running`, or how it ended: `answered`, `stopped`, `failed`."""
        if not self.turn.is_over and self.source == "live":
            return "running"
        last = self.turn.said[-1] if self.turn.said else None
        return last.reason if isinstance(last, TurnEnded) else "failed"

    @property
    def last(self) -> int:
        """Number of the newest event."""
        return 1 + len(self.turn.said) + (self._failure() is not None)

    def _failure(self) -> JsonObject | None:
        """What kept the turn from starting, in place of the turn's own end."""
        error = self.turn.error
        if error is None or (self.turn.said and isinstance(self.turn.said[-1], TurnEnded)):
            return None
        if isinstance(error, TenutoError):
            return error.as_json()
        code = "stopped" if isinstance(error, asyncio.CancelledError) else "internal_error"
        return {"code": code, "message": type(error).__name__, "hint": "", "details": {}}

    def encoded(self, seq: int) -> tuple[str, JsonObject, bytes]:
        """Event `seq` as `(type, data, line)`. Each is made once, however many read it."""
        while len(self._encoded) < seq:
            number = len(self._encoded) + 1
            kind, data = self._data(number)
            event = {"v": 1, "seq": number, "run": self.id, "type": kind, "at": stamp(), "data": data}
            self._encoded.append((kind, data, dumps(event)))
        return self._encoded[seq - 1]

    def _data(self, number: int) -> tuple[str, JsonObject]:
        if number == 1:
            data: JsonObject = {"thread": self.scope.thread, "question": self.question, "source": self.source}
            return "run_started", data
        if number - 2 < len(self.turn.said):
            data = as_json(self.turn.said[number - 2])
            kind = data.pop("type")
            if kind == "request_sent":
                data = {"step": data["step"], "context": request_summary(data["manifest"])}
            return kind, data
        return "run_failed", {"error": self._failure()}

    async def follow(self, after: int, idle_s: float = 15.0) -> AsyncIterator[int | None]:
        """Numbers of the events after `after`, then of those to come; None after each idle stretch."""
        while True:
            while after < self.last:
                after += 1
                yield after
            if self.turn.is_over or self.source == "log":
                return
            try:
                async with asyncio.timeout(idle_s):
                    await self.turn.grown(max(0, after - 1))
            except TimeoutError:
                yield None

    def forget(self) -> None:
        """Let go of what the run holds in memory."""
        self._encoded.clear()
        self.question = ""


class Runs:
    """The runs of one process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._runs: OrderedDict[tuple[Scope, str], Run] = OrderedDict()
        self._feeds: dict[tuple[str, ...], set[asyncio.Queue[JsonObject]]] = {}
        app.watchers.append(self._told)

    def start(
        self, scope: Scope, identity: str, question: str, begin: Callable[[Approve], RunningTurn]
    ) -> Run:
        """The run of a message: begun by `begin`, or the one that the same id named before."""
        check_id("message", identity)
        if (known := self._find(scope, identity)) is not None:
            return known
        waiting: dict[str, asyncio.Future[bool]] = {}

        async def approve(asked: ApprovalAsked) -> bool:
            future = waiting[asked.call_id] = asyncio.get_running_loop().create_future()
            try:
                return await future
            finally:
                waiting.pop(asked.call_id, None)

        epoch = self._app.workspace(scope.workspace).threads.epoch(scope.thread)
        run = Run(identity, scope, epoch, question[:QUESTION_CHARS], begin(approve), waiting=waiting)
        self._runs[scope, identity] = run
        self._tell(scope, {"type": "run_started", "run": identity})
        self._trim()
        return run

    def _trim(self) -> None:
        for key in list(self._runs):
            if len(self._runs) <= KEPT_RUNS:
                break
            if self._runs[key].turn.is_over:
                del self._runs[key]

    def get(self, scope: Scope, identity: str) -> Run:
        """A run of the user's thread. Raises `NotFound`."""
        check_id("message", identity)
        found = self._find(scope, identity)
        if found is None:
            raise NotFound(f"there is no run {identity!r}", hint="read the thread's records instead")
        return found

    def _find(self, scope: Scope, identity: str) -> Run | None:
        epoch = self._app.workspace(scope.workspace).threads.epoch(scope.thread)
        known = self._runs.get((scope, identity))
        if known is not None:
            if known.epoch in (epoch, 0) or not known.turn.is_over:
                return known
            self._runs.pop((scope, identity)).forget()
        return self._from_log(scope, identity) if epoch else None

    def _from_log(self, scope: Scope, identity: str) -> Run | None:
        """The run of a message whose turn another process ran, told again from the records."""
        workspace = self._app.workspace(scope.workspace)
        try:
            thread = workspace.threads.open(scope)
        except NotFound:
            return None
        log = workspace.conversation(thread).log
        newest = log.page(None, 1)
        oldest = newest[-1].turn - LOOKED_BACK if newest else 0

        def found(record: Record) -> bool:
            return record.event_type == TURN_STARTED and (record.event or {}).get("message") == identity

        records = log.back_to(lambda record: found(record) or record.turn < oldest) if newest else []
        if not records or not found(records[0]):
            return None
        of_turn = [record for record in records if record.turn == records[0].turn]
        question = next((words(record) for record in of_turn if record.is_question), "")
        events = list(turn_events(of_turn))
        if not events or not isinstance(events[-1], TurnEnded):
            events.append(ended_event(of_turn, "stopped"))
        turn = RunningTurn(scope, said=events)
        return Run(identity, scope, thread.epoch, question[:QUESTION_CHARS], turn, source="log")

    def active(self, scope: Scope) -> list[Run]:
        """The runs of a thread that have not ended, oldest first."""
        return [run for (where, _), run in self._runs.items() if where == scope and run.state == "running"]

    @property
    def running(self) -> int:
        return sum(run.state == "running" for run in self._runs.values())

    # -- what else happens to a thread ----------------------------------------------------------------------

    def _told(self, what: str, key: tuple[str, ...]) -> None:
        """The application's own news, passed on to who follows the thread or the user."""
        if what == "cleared":
            for scope, identity in [known for known in self._runs if _key(known[0]) == key]:
                self._runs.pop((scope, identity)).forget()
        for known, queues in self._feeds.items():
            if known[: len(key)] == key:
                for queue in queues:
                    queue.put_nowait({"type": what})

    def _tell(self, scope: Scope, news: JsonObject) -> None:
        for queue in self._feeds.get(_key(scope), ()):
            queue.put_nowait(news)

    def changed(self, scope: Scope, what: str) -> None:
        """Tell every tab on a thread that something of it was changed by hand."""
        self._tell(scope, {"type": what})

    @contextmanager
    def feed(self, scope: Scope) -> Generator[asyncio.Queue[JsonObject]]:
        """News of a thread while the block runs; the first says which runs are going."""
        queue: asyncio.Queue[JsonObject] = asyncio.Queue()
        queue.put_nowait({"type": "hello", "runs": [run.id for run in self.active(scope)]})
        queues = self._feeds.setdefault(_key(scope), set())
        queues.add(queue)
        try:
            yield queue
        finally:
            queues.discard(queue)
            if not queues:
                self._feeds.pop(_key(scope), None)


def _key(scope: Scope) -> tuple[str, str, str]:
    return (scope.workspace, scope.user, scope.thread)
