"""Memory in a workspace: what a request shows, what the model's tools may write, and the extraction job."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tenuto.agent.ask import Asked
from tenuto.agent.conversation import TURN_ENDED, Conversation
from tenuto.codec import JsonObject, now, stamp
from tenuto.context.fence import Section, words
from tenuto.context.tokens import measure, texts
from tenuto.errors import FactRefused, LateWrite, ModelFailed
from tenuto.log.record import Record
from tenuto.log.store import ThreadLog
from tenuto.log.threads import Thread
from tenuto.memory import facts as rules_of
from tenuto.memory.extract import ANSWER_TOKENS, SCHEMA, Exchange, applied, place_of, prompt
from tenuto.memory.facts import Fact, FactSource, Memory, Proposal
from tenuto.memory.store import MemoryStore
from tenuto.prompting import operations_in
from tenuto.words import stands_in

if TYPE_CHECKING:
    from tenuto.agent.app import Workspace

MOST_FAILURES = 2
"""Attempts at one exchange; then it is passed over, so that no exchange holds up the rest."""


@dataclass(slots=True)
class Memories:
    """The memories of one workspace's users."""

    workspace: Workspace
    ask: Callable[[str, Asked, bool], Awaitable[str]]

    def store(self, user: str) -> MemoryStore:
        """The store of a user's memory."""
        return MemoryStore(self.workspace.folder / ".memory", user)

    # -- in a request -----------------------------------------------------------------------------------

    def in_request(self, user: str, conversation: Conversation) -> tuple[Section, ...]:
        """The section for a request: every fact that holds today, while memory is switched on."""
        memory = self.store(user).load()
        if not memory.use:
            return ()
        text, shown = rules_of.render(memory, stamp()[:10])
        if not text:
            return ()
        source = f"sha256:{conversation.log.blobs.put(text.encode())}"
        return (Section("memory", source, text, measure(text), items=shown, note=f"{len(shown)} facts"),)

    # -- by hand ----------------------------------------------------------------------------------------

    def add(
        self, user: str, text: str, *, importance: int = 3, applies_to: str = "", until: str = ""
    ) -> Fact:
        """A fact by the user's hand. Raises `FactRefused`."""
        return self._add(user, Proposal(text, "user", importance, None, applies_to, until))

    def _add(self, user: str, proposal: Proposal) -> Fact:
        store = self.store(user)
        made: list[Fact] = []

        def edit(memory: Memory) -> Memory:
            memory, fact = rules_of.added(memory, proposal, self._rules, stamp(), store.hashed)
            made.append(fact)
            return memory

        store.change(edit)
        return made[0]

    @property
    def _rules(self) -> rules_of.MemorySettings:
        return self.workspace.settings.memory

    def edit(self, user: str, fact: str, text: str) -> None:
        """Another text for a fact, by the user's hand. Raises `FactRefused` or `NotFound`."""
        self.store(user).change(lambda memory: rules_of.edited(memory, fact, text, self._rules, stamp()))

    def forget(self, user: str, facts: Sequence[str]) -> int:
        """Take facts out of use; the panel's history keeps them for a while."""
        count: list[int] = []

        def edit(memory: Memory) -> Memory:
            memory, gone = rules_of.forgotten(memory, facts, stamp())
            count.append(gone)
            return memory

        self.store(user).change(edit)
        return count[0]

    def delete(self, user: str, facts: Sequence[str] | None) -> JsonObject:
        """Facts gone for good (None: all), with every place on disk that showed them. Returns a receipt.

        Raises `NotFound` for an unknown id. What was said in conversations stays there until they are cleared.
        """
        store = self.store(user)
        gone: list[Fact] = []

        def edit(memory: Memory) -> Memory:
            gone.clear()
            for identity in facts or ():
                rules_of.find(memory, identity)
            memory, found = rules_of.deleted(memory, facts, stamp(), store.hashed)
            gone.extend(found)
            return memory

        # Places that showed the facts go first: a crash in between leaves the facts to be deleted again.
        wanted = {fact.text for fact in store.load().facts if facts is None or fact.id in facts}
        shown = self._forget_shown(user, wanted)
        store.change(edit)
        kept = "conversations in which the facts were said, until they are cleared"
        return {"facts": len(gone), "shown_in_requests": shown, "kept": [kept]}

    def _forget_shown(self, user: str, texts_of: set[str]) -> int:
        """Remove the stored texts of requests that showed these facts. O(stored request texts of the user)."""
        removed = 0
        for thread in self.workspace.threads.of(user):
            blobs = ThreadLog(self.workspace.threads.log_path(thread.thread)).blobs
            removed += blobs.remove_if(
                lambda raw: raw.startswith(rules_of.LINE_START) and any(text in raw for text in texts_of)
            )
        return removed

    def switch(self, user: str, *, use: bool | None = None, extract: bool | None = None) -> Memory:
        """Switch use and extraction on or off, each by itself. What was said before is not extracted."""

        def edit(memory: Memory) -> Memory:
            on = memory.extract if extract is None else extract
            began = on and not memory.extract
            return replace(
                memory,
                use=memory.use if use is None else use,
                extract=on,
                since=stamp() if began else memory.since,
                # A job that runs while extraction is switched off has no right to write any more.
                epoch=memory.epoch + (memory.extract and not on),
            )

        return self.store(user).change(edit)

    def import_facts(self, user: str, raw: Sequence[JsonObject]) -> tuple[int, list[str]]:
        """Facts of an export, each under the same rules as any other; returns how many, and what was refused."""
        taken, refused = 0, list[str]()
        for one in raw:
            try:
                text, level = str(one["text"]), int(one.get("importance", 3))
                self.add(
                    user,
                    text,
                    importance=level,
                    applies_to=str(one.get("applies_to") or ""),
                    until=str(one.get("until") or ""),
                )
                taken += 1
            except (FactRefused, KeyError, TypeError, ValueError) as error:
                refused.append(error.message if isinstance(error, FactRefused) else "not a fact")
        return taken, refused

    def explain(self, user: str, fact: str) -> JsonObject:
        """When a fact was used, and why it isn't in the next request if it isn't. Raises `NotFound`."""
        store = self.store(user)
        memory = store.load()
        found = rules_of.find(memory, fact)
        reason = ""
        if not memory.use:
            reason = "memory is switched off"
        elif found.status != "active":
            reason = found.status
        elif not rules_of.holds(found, stamp()[:10]):
            reason = f"it held until {found.until}"
        return {
            "fact": found.as_json(),
            "in_the_next_request": not reason,
            "reason": reason,
            "used": store.uses().get(fact, {"count": 0}),
        }

    # -- tools ------------------------------------------------------------------------------------------

    def remember(self, user: str, conversation: Conversation, arguments: JsonObject) -> Fact:
        """The `remember` tool: only what the user said in this conversation becomes a fact. Raises `FactRefused`."""
        quote = str(arguments.get("quote", ""))
        place = next((r for r in _questions(conversation) if stands_in(quote, words(r))), None)
        if place is None:
            raise FactRefused(
                "the user did not say that in this conversation",
                hint="quote the user's own words exactly, or ask the user whether to remember it",
            )
        source = FactSource(conversation.log.path.stem.removeprefix("conv-"), place.seq, quote)
        importance = arguments.get("importance")
        proposal = Proposal(
            str(arguments.get("text", "")),
            "tool",
            importance if type(importance) is int else 3,
            source,
            str(arguments.get("applies_to") or ""),
            str(arguments.get("until") or ""),
        )
        replaces = str(arguments.get("replaces") or "")
        if not replaces:
            return self._add(user, proposal)
        store = self.store(user)
        made: list[Fact] = []

        def edit(memory: Memory) -> Memory:
            memory, fact = rules_of.superseded(memory, replaces, proposal, self._rules, stamp(), store.hashed)
            made.append(fact)
            return memory

        store.change(edit)
        return made[0]

    # -- extraction -------------------------------------------------------------------------------------

    def due(self, user: str, thread: Thread, conversation: Conversation) -> bool:
        """Whether an exchange of this thread still waits to be looked at. Reads nothing while it is off."""
        memory = self.store(user).load()
        return memory.extract and conversation.log.last_seq > memory.read.get(_place(thread), 0)

    async def extract(self, user: str) -> int:
        """Look at every exchange that waits, one at a time, oldest first. Returns how many there were.

        Facts and the place reached are written together: after a crash no exchange is looked at twice.
        """
        store = self.store(user)
        done = 0
        for thread in self.workspace.threads.of(user):
            memory = store.load()
            if not memory.extract:
                break
            log = ThreadLog(self.workspace.threads.log_path(thread.thread))
            if log.last_seq <= memory.read.get(_place(thread), 0):
                continue
            waiting = _exchanges(log, thread, memory.read.get(_place(thread), 0), memory.since)
            for exchange in list(waiting):
                if not await self._extract_one(store, exchange):
                    return done
                done += bool(exchange.question)
        return done

    async def _extract_one(self, store: MemoryStore, exchange: Exchange) -> bool:
        """One exchange. False: it is tried again another time."""
        memory = store.load()
        if not memory.extract:
            return False
        if not exchange.question:
            store.change(lambda memory: _passed(memory, exchange), epoch=memory.epoch)
            return True
        model = self._rules.model or self.workspace.settings.agent.model
        asked = Asked(prompt(memory.active, exchange), SCHEMA, "memory_operations", ANSWER_TOKENS)
        operations: list[JsonObject] | None = None
        for structured in (True, False):
            try:
                operations = operations_in(await self.ask(model, asked, structured))
            except ModelFailed:
                return self._failed(store, memory.epoch, exchange)
            if operations is not None:
                break
        found = operations or []

        def edit(memory: Memory) -> Memory:
            if not memory.extract:
                raise LateWrite("extraction was switched off meanwhile")
            if self.workspace.threads.epoch(exchange.thread) != exchange.epoch:
                raise LateWrite("the thread was cleared meanwhile")
            if memory.read.get(exchange.place, 0) >= exchange.through:
                return memory
            memory, _ = applied(memory, found, exchange, self._rules, stamp(now()), store.hashed)
            return _passed(memory, exchange)

        store.change(edit, epoch=memory.epoch)
        return True

    def forget_thread(self, user: str, thread: str) -> None:
        """Forget how far a cleared thread was looked at. Its facts stay."""

        def without(places: dict[str, int]) -> dict[str, int]:
            return {place: count for place, count in places.items() if place.rpartition("@")[0] != thread}

        store = self.store(user)
        if store.path.exists():
            store.change(lambda m: replace(m, read=without(m.read), stuck=without(m.stuck)))

    def _failed(self, store: MemoryStore, epoch: int, exchange: Exchange) -> bool:
        """Count a failed attempt; after two, pass the exchange over."""

        def edit(memory: Memory) -> Memory:
            failures = memory.stuck.get(exchange.place, 0) + 1
            if failures >= MOST_FAILURES:
                return _passed(memory, exchange)
            return replace(memory, stuck={**memory.stuck, exchange.place: failures})

        return exchange.place not in store.change(edit, epoch=epoch).stuck


def _passed(memory: Memory, exchange: Exchange) -> Memory:
    stuck = {place: count for place, count in memory.stuck.items() if place != exchange.place}
    return replace(memory, read={**memory.read, exchange.place: exchange.through}, stuck=stuck)


def _place(thread: Thread) -> str:
    return place_of(thread.thread, thread.epoch)


def _questions(conversation: Conversation) -> Iterator[Record]:
    """The user's messages of the window, newest first."""
    for turn in reversed(conversation.loaded):
        yield from reversed(turn.questions)


def _exchanges(log: ThreadLog, thread: Thread, after: int, since: str) -> Iterator[Exchange]:
    """The answered turns after record `after`, begun after `since`, in the file's order.

    Others come together as one exchange without a question, so that they are not looked at again.
    """
    question: Record | None = None
    answer, passed = "", 0
    for record in log.forward(after, log.last_seq + 1):
        if record.is_question:
            question, answer = record, ""
        elif record.message is not None and record.message["kind"] == "response":
            answer = "\n".join(texts(record.message))
        elif record.event_type == TURN_ENDED and question is not None:
            ended = record.event is not None and record.event.get("reason") == "answered"
            if ended and question.at >= since:
                yield Exchange(thread.thread, question.seq, words(question), answer, record.seq, thread.epoch)
                passed = 0
            else:
                passed = record.seq
            question = None
    if passed:
        yield Exchange(thread.thread, 0, "", "", passed, thread.epoch)


CLAIMS = re.compile(
    r"\bI(?:'ll| will| have|'ve)? (?:now )?(?:remember|noted|saved|memori[sz]ed?)\b(?! the (?:file|result|chart))"
    r"|(?:我)?(?:会|已|已经)?(?:记住了|记下了|记住你|会记住|已记住|已经记住)",
    re.IGNORECASE,
)
"""Words by which an answer claims that something was remembered."""


@dataclass(slots=True)
class Desk:
    """What the tools of one turn may do to the memory of its user."""

    memories: Memories
    user: str
    conversation: Conversation
    turn: int
    writes: int = 0

    def remember(self, arguments: JsonObject) -> Fact:
        """Raises `FactRefused` or `NotFound`."""
        fact = self.memories.remember(self.user, self.conversation, arguments)
        self.writes += 1
        return fact

    def forget(self, facts: Sequence[str]) -> int:
        """How many facts there were."""
        gone = self.memories.forget(self.user, facts)
        self.writes += bool(gone)
        return gone

    def unsaved_claim(self, answer: str) -> bool:
        """Whether an answer claims to remember and nothing was written in this turn."""
        return not self.writes and bool(CLAIMS.search(answer))
