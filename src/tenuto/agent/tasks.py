"""The task ledgers of a workspace's threads: what a request shows of them, when they are refreshed, and how.

The refresh asks a model; what its answer may do is decided in `tenuto.task`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from tenuto.agent.ask import Asked
from tenuto.agent.conversation import Conversation
from tenuto.codec import JsonObject, stamp
from tenuto.context.fence import Section
from tenuto.context.shape import clip
from tenuto.context.tokens import count, measure
from tenuto.errors import ModelFailed, NotFound
from tenuto.log.threads import Thread
from tenuto.task.evidence import Said, said
from tenuto.task.ledger import (
    Hand,
    Item,
    Kind,
    Ledger,
    Operation,
    Outcome,
    Spans,
    added_by_hand,
    covers,
    edited_by_hand,
    pinned_by_hand,
    set_by_hand,
)
from tenuto.task.refresh import (
    ANSWER_TOKENS,
    ATTEMPTS,
    SCHEMA,
    Grew,
    cooling,
    cost_of,
    failed,
    parse,
    prompt,
    refreshed,
)
from tenuto.task.render import render
from tenuto.task.store import TaskStore

if TYPE_CHECKING:
    from tenuto.agent.app import Workspace

MOST_CHUNKS = 8
"""Requests of one refresh; what is left over waits for the next one."""
EVERYTHING = 1 << 62

Asker = Callable[[str, Asked, bool], Awaitable[str]]
"""Asks the model of a name; the flag says whether it may use structured output."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Which records the active branch of a thread holds."""

    spans: Spans

    def __contains__(self, seq: object) -> bool:
        if not isinstance(seq, int):
            return False
        at = bisect_right(self.spans, (seq, EVERYTHING)) - 1
        return at >= 0 and self.spans[at][0] <= seq <= self.spans[at][1]

    def within(self, first: int, last: int) -> Spans:
        """The part of the branch between two records, both included."""
        cut = [(max(first, a), min(last, b)) for a, b in self.spans]
        return tuple((a, b) for a, b in cut if a <= b)


def branch_of(thread: Thread, conversation: Conversation) -> Branch:
    """The active branch; without reading anything for a thread that never branched."""
    return Branch(conversation.log.spans() if thread.branched else ((1, EVERYTHING),))


@dataclass(slots=True)
class Report:
    """What a refresh did."""

    result: str
    """`done`, `nothing` (too little left the window), `cooling`, `failed` or `off`."""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    requests: int = 0
    reason: str = ""
    covers_seq: int = 0
    version: int = 0

    def as_json(self) -> JsonObject:
        return {
            "result": self.result,
            "reason": self.reason,
            "requests": self.requests,
            "covers_seq": self.covers_seq,
            "version": self.version,
            "operations": [outcome.as_json() for outcome in self.outcomes],
        }


class Tasks:
    """The ledgers of one workspace."""

    def __init__(self, workspace: Workspace, ask: Asker) -> None:
        self._workspace = workspace
        self._ask = ask
        self._stores: dict[str, TaskStore] = {}

    def store(self, thread: str) -> TaskStore:
        """The store of a thread's ledger."""
        if thread not in self._stores:
            threads = self._workspace.threads
            self._stores[thread] = TaskStore(threads.log_path(thread), lambda: threads.epoch(thread))
        return self._stores[thread]

    def forget(self, thread: str) -> None:
        """Drop what is kept in memory of a thread's ledger."""
        self._stores.pop(thread, None)

    # -- reading ----------------------------------------------------------------------------------------

    def items(self, thread: Thread, conversation: Conversation) -> list[Item]:
        """The items that apply on the active branch (I16)."""
        branch = branch_of(thread, conversation)
        return self.store(thread.thread).load().seen(branch.__contains__)

    def in_request(self, thread: Thread, conversation: Conversation) -> tuple[tuple[Section, ...], int]:
        """The section for a request, and up to which record the task covers the active branch."""
        rules = self._workspace.settings.task
        ledger = self.store(thread.thread).load()
        if not rules.enabled or not (ledger.items or ledger.covered):
            return (), 0
        branch = branch_of(thread, conversation)
        reached = covers(ledger.covered, branch.spans)
        shown = render(ledger.seen(branch.__contains__), rules.tokens)
        if not shown.text:
            return (), reached
        source = f"sha256:{conversation.log.blobs.put(shown.text.encode())}"
        note = f"version {ledger.version}"
        if shown.left_out:
            note += f"; {len(shown.left_out)} items not shown"
        return (
            Section("task", source, shown.text, measure(shown.text), items=shown.items, note=note),
        ), reached

    # -- refreshing -------------------------------------------------------------------------------------

    def due(self, thread: Thread, conversation: Conversation) -> bool:
        """Whether enough left the window to refresh, and no cooldown runs. Found from the files alone."""
        rules = self._workspace.settings.task
        ledger = self.store(thread.thread).load()
        if not rules.enabled or cooling(ledger):
            return False
        branch = branch_of(thread, conversation)
        after, before = (
            covers(ledger.covered, branch.spans),
            conversation.marks(self._workspace.settings.context).start,
        )
        fresh = islice(self._dropped(conversation, branch, after, before), rules.refresh_after)
        return sum(1 for _ in fresh) >= max(1, rules.refresh_after)

    def _dropped(self, conversation: Conversation, branch: Branch, after: int, before: int) -> Iterator[Said]:
        """The messages of the branch between two records, both excluded, oldest first."""
        if before - after < 2:
            return
        for record in conversation.log.forward(after, before):
            if record.seq in branch and (one := said(record)) is not None and one.text:
                yield one

    async def refresh(
        self,
        thread: Thread,
        *,
        before: int | None = None,
        focus: str = "",
        urgent: bool = False,
        asked_for: bool = False,
    ) -> Report:
        """Take the records that left the window (or those before record `before`) into the ledger.

        `urgent`, for a full bridge: however little there is. `asked_for` by a person: in spite of a cooldown, too.
        Raises `LateWrite` when the thread was cleared meanwhile.
        """
        workspace, rules = self._workspace, self._workspace.settings.task
        store = self.store(thread.thread)
        ledger = store.load()
        if not rules.enabled:
            return Report("off")
        if cooling(ledger) and not asked_for:
            return Report("cooling", reason=ledger.error)
        conversation = workspace.conversation(thread)
        branch = branch_of(thread, conversation)
        if not (urgent or asked_for) and not self.due(thread, conversation):
            return Report("nothing", version=ledger.version)
        end = before if before is not None else conversation.marks(workspace.settings.context).start
        report = Report("nothing", covers_seq=covers(ledger.covered, branch.spans), version=ledger.version)
        for _ in range(MOST_CHUNKS):
            chunk, last = self._chunk(conversation, branch, report.covers_seq, end)
            if not chunk:
                return report
            covering = branch.within(report.covers_seq + 1, last)
            if not await self._refresh_chunk(thread, conversation, branch, chunk, covering, focus, report):
                return report
        return report

    def _chunk(
        self, conversation: Conversation, branch: Branch, after: int, end: int
    ) -> tuple[list[Said], int]:
        """As many records after `after` as one request may hold, at least one, and the last record they cover."""
        most = self._workspace.settings.task.chunk_tokens
        chunk: list[Said] = []
        spent = 0
        for one in self._dropped(conversation, branch, after, end):
            spent += cost_of(one)
            if chunk and spent > most:
                return chunk, chunk[-1].record
            chunk.append(one)
        return chunk, end - 1

    async def _refresh_chunk(
        self,
        thread: Thread,
        conversation: Conversation,
        branch: Branch,
        chunk: Sequence[Said],
        covering: Spans,
        focus: str,
        report: Report,
    ) -> bool:
        """One request, once more if its answer can't be used. False: the old version stays (I18)."""
        store = self.store(thread.thread)
        known = {one.record: one for one in chunk}
        instructions = self._workspace.instructions(thread)
        model = self._workspace.settings.task.model or self._workspace.model_of(thread)
        problem = ""
        for attempt in range(ATTEMPTS):
            items = store.load().seen(branch.__contains__)
            text = prompt(items, chunk, focus, problem)
            report.requests += 1
            try:
                answer = await self._ask(model, self._asked(thread, conversation, model, text), attempt == 0)
            except ModelFailed as error:
                problem = error.message
                continue
            operations = parse(answer)
            if operations is None:
                problem = "it held no JSON object with operations"
                continue
            edit = _Edit(operations, known, covering, branch, instructions, model)
            try:
                ledger = store.change(thread.epoch, edit)
            except Grew as error:
                problem = str(error)
                continue
            report.result, report.version = "done", ledger.version
            report.outcomes += edit.outcomes
            report.covers_seq = covers(ledger.covered, branch.spans)
            return True
        store.change(thread.epoch, lambda ledger: (failed(ledger, problem), {}), note=False)
        report.result, report.reason = "failed", problem
        return False

    def _asked(self, thread: Thread, conversation: Conversation, model: str, text: str) -> Asked:
        """The request: behind the thread's live prefix where one is known and both fit the window."""
        live = conversation.live
        own = model == self._workspace.model_of(thread)
        room = self._workspace.window_of(model) - count(text) - ANSWER_TOKENS
        if live is not None and own and live.request.predicted + 200 < room:
            return Asked(
                text, SCHEMA, "task_operations", ANSWER_TOKENS, live.instructions, live.tools, live.messages
            )
        instructions = clip(self._workspace.instructions(thread), 4_000, "the rest is not shown")
        return Asked(text, SCHEMA, "task_operations", ANSWER_TOKENS, instructions)

    # -- by hand ----------------------------------------------------------------------------------------

    def by_hand(
        self,
        thread: Thread,
        conversation: Conversation,
        action: str,
        *,
        item: str = "",
        kind: Kind = "constraint",
        text: str = "",
    ) -> Ledger:
        """`add`, `edit`, `withdraw`, `done`, `reopen`, `pin` or `unpin` by the user. Raises `NotFound`."""
        records = conversation.log.page(None, 1)
        newest = records[-1] if records else None
        hand = Hand(newest.seq if newest else 0, newest.turn if newest else 0)
        words = " ".join(text.split())[:300]

        def edit(ledger: Ledger) -> tuple[Ledger, JsonObject]:
            if action != "add" and all(known.id != item for known in ledger.items):
                raise NotFound(f"there is no item {item!r}", hint="see `tenuto task show`")
            if action in ("add", "edit") and not words:
                raise NotFound("the item has no text", hint="give its text")
            items = _by_hand(ledger.items, action, item, kind, words, hand)
            new = replace(ledger, items=items, version=ledger.version + 1, at=stamp())
            return new, {"by": "user", "action": action, "item": item, "kind": kind, "text": words}

        return self.store(thread.thread).change(thread.epoch, edit)


@dataclass(slots=True)
class _Edit:
    """The operations of one answer, to be applied to whatever version is newest under the lock."""

    operations: Sequence[Operation]
    known: Mapping[int, Said]
    covering: Spans
    branch: Branch
    instructions: str
    model: str
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def __call__(self, ledger: Ledger) -> tuple[Ledger, JsonObject] | None:
        new = refreshed(
            ledger,
            self.operations,
            self.known,
            self.covering,
            on_branch=self.branch.__contains__,
            instructions=self.instructions,
            model=self.model,
        )
        if new is None:
            return None
        self.outcomes = new.outcomes
        change: JsonObject = {
            "by": "refresh",
            "model": self.model,
            "took_in": [list(span) for span in self.covering],
            "operations": [outcome.as_json() for outcome in new.outcomes],
        }
        return new.ledger, change


def _by_hand(
    items: tuple[Item, ...], action: str, identity: str, kind: Kind, text: str, hand: Hand
) -> tuple[Item, ...]:
    if action == "add":
        return added_by_hand(items, kind, text, hand)
    if action == "edit":
        return edited_by_hand(items, identity, text, hand)
    if action in ("pin", "unpin"):
        return pinned_by_hand(items, identity, action == "pin")
    if action == "withdraw":
        return set_by_hand(items, identity, "withdrawn", hand)
    if action == "done":
        return set_by_hand(items, identity, "done", hand)
    return set_by_hand(items, identity, "active", hand)
