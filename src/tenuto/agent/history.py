"""Search over one's own history: the index follows the logs when it is asked, and every hit is read from its log.

Separate from the context: nothing found here goes into a request unless the model or the user asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time
from functools import partial
from typing import TYPE_CHECKING

from tenuto.agent.tasks import Branch
from tenuto.codec import JsonObject, parse_stamp
from tenuto.context.fence import words
from tenuto.context.shape import clip
from tenuto.errors import UsageError
from tenuto.log.record import Record
from tenuto.log.store import ThreadLog
from tenuto.log.threads import Thread
from tenuto.search.index import Document, Hit, Index
from tenuto.search.semantic import available
from tenuto.task.ledger import CLOSED

if TYPE_CHECKING:
    from tenuto.agent.app import Workspace

SHOWN_CHARS = 1_200
"""Most characters of a hit's own words."""
MOST_HITS = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A message found, in its original words."""

    thread: str
    title: str
    record: int
    turn: int
    speaker: str
    at: str
    text: str
    later: tuple[JsonObject, ...]
    """What was said later about the same thing: `{record, at, text}`."""

    def as_json(self) -> JsonObject:
        return {**asdict(self), "later": list(self.later)}


class History:
    """The history of one workspace's users, each their own."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.index = Index(workspace.folder / ".index" / "history.sqlite")

    def search(
        self, user: str, query: str, *, since: str = "", until: str = "", thread: str = "", limit: int = 10
    ) -> list[Found]:
        """The user's own messages and answers that match best. `since` and `until` are days (2026-11-30).

        Raises `UsageError` for a day that is none, `NotFound` for somebody else's thread.
        """
        threads = {known.thread: known for known in self._workspace.threads.of(user)}
        first, last = _day(since, time.min), _day(until, time.max)
        if first is not None and last is None:
            last = datetime.now(UTC)
        self.follow(list(threads.values()))
        branches: dict[str, Branch] = {}

        def branch(name: str) -> Branch:
            if name not in branches:
                branches[name] = Branch(ThreadLog(self._workspace.threads.log_path(name)).spans())
            return branches[name]

        hits = self.index.search(
            user,
            query,
            limit=max(1, min(limit, MOST_HITS)),
            thread=thread,
            meaning=self.semantic,
            since=first,
            until=last,
            visible=lambda name, seq: name in threads and (not threads[name].branched or seq in branch(name)),
        )
        read = (self._read(threads[hit.thread], hit) for hit in hits)
        return [found for found in read if found is not None]

    def _read(self, thread: Thread, hit: Hit) -> Found | None:
        """The hit from its log; None for one that is not there any more."""
        log = ThreadLog(self._workspace.threads.log_path(thread.thread))
        places = log.read_at([(hit.seq, hit.offset)]) or []
        record = places[0][1] if places else None
        text = spoken(record) if record is not None else ""
        if record is None or not text:
            return None
        numbers = {*hit.later, *self._put_right(thread, hit.seq)}
        later = [one for seq in sorted(numbers) if (one := log.find(seq)) is not None]
        return Found(
            hit.thread,
            thread.title,
            hit.seq,
            record.turn,
            "user" if hit.role == "user" else "assistant",
            hit.at,
            clip(text, SHOWN_CHARS, f"record #{hit.seq}"),
            tuple(
                {
                    "record": one.seq,
                    "at": one.at,
                    "text": clip(spoken(one), SHOWN_CHARS, f"record #{one.seq}"),
                }
                for one in later
            ),
        )

    def _put_right(self, thread: Thread, seq: int) -> Iterator[int]:
        """The records by which the task says that what stands in record `seq` was taken back or replaced."""
        for item in self._workspace.tasks.store(thread.thread).load().items:
            if any(change.record == seq for change in item.source):
                yield from (
                    c.record for c in item.changes if c.status in CLOSED and not c.hand and c.record > seq
                )

    @property
    def semantic(self) -> bool:
        """Whether meaning counts: switched on, and the model is installed."""
        return self._workspace.settings.search.semantic and available()

    def embed(self, user: str) -> int:
        """Follow the user's logs, then give every message the vector it lacks; returns how many were made."""
        self.follow(self._workspace.threads.of(user))
        made = 0
        while batch := self.index.embed(user):
            made += batch
        return made

    # -- following the logs -----------------------------------------------------------------------------

    def follow(self, threads: Sequence[Thread]) -> int:
        """Take in what the logs have that the index hasn't; returns how many messages. O(what is new)."""
        reached = self.index.reached()
        added = 0
        for thread in threads:
            path = self._workspace.threads.log_path(thread.thread)
            size = path.stat().st_size if path.exists() else 0
            epoch, seq, known = reached.get(thread.thread, (thread.epoch, 0, 0))
            if epoch == thread.epoch and size == known:
                continue
            log = ThreadLog(path)
            last, after = log.last_seq, seq if epoch == thread.epoch else 0
            added += self.index.follow(
                thread.thread,
                thread.user,
                thread.epoch,
                list(_documents(log, after, last)),
                seq=last,
                size=size,
                still=partial(self._still, thread),
            )
        return added

    def _still(self, thread: Thread) -> bool:
        return self._workspace.threads.epoch(thread.thread) == thread.epoch

    def rebuild(self, user: str) -> int:
        """Throw the user's part of the index away and build it from the logs."""
        self.index.remove(user=user)
        return self.follow(self._workspace.threads.of(user))


def _documents(log: ThreadLog, after: int, last: int) -> Iterator[Document]:
    for offset, record in log.forward_places(after, last + 1):
        if text := spoken(record):
            role = "user" if record.is_question else "answer"
            yield Document(role, record.seq, record.at, offset, text, record.turn)


def spoken(record: Record) -> str:
    """What a person or the assistant said in a record; empty for tool calls, results and events."""
    message = record.message
    if message is None:
        return ""
    if record.is_question:
        return words(record)
    if message["kind"] != "response":
        return ""
    return "\n".join(str(part["content"]) for part in message["parts"] if part.get("part_kind") == "text")


def searched(history: History, user: str, arguments: JsonObject) -> str:
    """The `search_history` tool: hits as the model reads them, bounded."""
    hits = history.search(
        user,
        str(arguments.get("query", "")),
        since=str(arguments.get("since") or ""),
        until=str(arguments.get("until") or ""),
        thread=str(arguments.get("thread") or ""),
        limit=8,
    )
    if not hits:
        return "Nothing was found."
    lines: list[str] = []
    for hit in hits:
        lines.append(
            f"{hit.at[:10]} thread {hit.thread} #{hit.record} {hit.speaker}: {clip(hit.text, 500, '')}"
        )
        lines += [
            f"  later, {one['at'][:10]} #{one['record']}: {clip(one['text'], 300, '')}" for one in hit.later
        ]
    return clip("\n".join(lines), 7_000, "ask more narrowly")


def _day(text: str, moment: time) -> datetime | None:
    if not text:
        return None
    try:
        day = parse_stamp(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a day", hint="write it as 2026-11-30") from error
    if len(text) > 10:
        return day if day.tzinfo else day.replace(tzinfo=UTC)
    return datetime.combine(day.date(), moment, UTC)
