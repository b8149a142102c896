"""The threads of a workspace: who owns each, its epoch and title, and where its log is.

A small file beside each log holds what must outlive the log's content (owner, epoch). Where it is damaged,
the log's first record names the owner, so that the thread stays in the list (I19).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tenuto.codec import JsonError, dumps_pretty, loads, new_id, stamp
from tenuto.disk import locked, write_atomic
from tenuto.errors import LogVersion, NotFound
from tenuto.log.record import Draft, Record
from tenuto.log.store import ThreadLog
from tenuto.scope import Scope, check_id

CREATED = "thread_created"
EPOCHS = "epochs.json"


@dataclass(frozen=True, slots=True)
class Thread:
    """What is known of a thread without reading its log."""

    thread: str
    user: str
    title: str
    epoch: int
    """Raised by every clear; a job of an older epoch can't write (I10)."""
    created: str
    model: str = ""
    """The model chosen for the thread, empty for the workspace's default."""
    pinned: bool = False
    archived: bool = False
    branched: bool = False
    """Whether an edit or a regeneration made a branch: only then a record may lie on another one."""
    state: str = "ok"
    """`ok`, or what is wrong with its files."""
    v: int = 1


class Threads:
    """The registry of one workspace, on its `.logs` folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log_path(self, thread: str) -> Path:
        return self._folder / f"conv-{check_id('thread', thread)}.jsonl"

    def _meta_path(self, thread: str) -> Path:
        return self._folder / f"conv-{check_id('thread', thread)}.meta.json"

    def open(self, scope: Scope, *, create: bool = False) -> Thread:
        """The thread, if it belongs to the user; created when allowed.

        Raises `NotFound` for a foreign thread exactly as for one that doesn't exist (I13).
        """
        known = self._read(scope.thread)
        if known is None and create:
            with locked(self._folder / ".threads.lock"):
                known = self._read(scope.thread) or self._create(scope)
        if known is None or known.user != scope.user:
            raise NotFound(f"there is no thread {scope.thread!r}", hint="see `tenuto threads`")
        return known

    def _create(self, scope: Scope) -> Thread:
        thread = Thread(scope.thread, scope.user, "", self.next_epoch(), stamp())
        log = ThreadLog(self.log_path(scope.thread))
        if not log.path.exists():
            event = {
                "type": CREATED,
                "workspace": scope.workspace,
                "user": scope.user,
                "thread": scope.thread,
            }
            log.append([Draft(0, event=event)], epoch=thread.epoch)
        self._write(thread)
        return thread

    def change(
        self,
        scope: Scope,
        *,
        title: str | None = None,
        model: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
        branched: bool = False,
    ) -> Thread:
        """Set what is given of a thread, or note that it has branches."""
        with locked(self._folder / ".threads.lock"):
            known = self.open(scope)
            changed = replace(
                known,
                title=known.title if title is None else title[:200],
                model=known.model if model is None else model,
                pinned=known.pinned if pinned is None else pinned,
                archived=known.archived if archived is None else archived,
                branched=known.branched or branched,
            )
            self._write(changed)
        return changed

    def next_epoch(self) -> int:
        """The epoch of a new thread: above that of every deleted one, so that no late job can write into it."""
        try:
            return int(loads((self._folder / EPOCHS).read_bytes())["deleted"]) + 1
        except (FileNotFoundError, JsonError, KeyError, TypeError, ValueError):
            return 1

    def raise_epoch(self, thread: str) -> Thread | None:
        """Begin the next epoch of a thread and forget its title, durably: from here on late writes die (I10)."""
        with locked(self._folder / ".threads.lock"):
            known = self._read(thread)
            if known is not None:
                known = replace(known, epoch=known.epoch + 1, title="", branched=False, state="ok")
                self._write(known)
        return known

    def drop(self, thread: str) -> None:
        """Forget a thread whose content is gone. Its epoch lives on in a number of the whole workspace."""
        with locked(self._folder / ".threads.lock"):
            highest = max(self.next_epoch() - 1, self.epoch(thread))
            write_atomic(self._folder / EPOCHS, dumps_pretty({"deleted": highest}), mode=0o600)
            self._meta_path(thread).unlink(missing_ok=True)

    def created_record(self, scope: Scope, epoch: int) -> Record:
        """The first record of a log: whose thread it is."""
        event = {"type": CREATED, "workspace": scope.workspace, "user": scope.user, "thread": scope.thread}
        return Record(1, new_id(), None, 0, stamp(), epoch, 0, None, event)

    def epoch(self, thread: str) -> int:
        """The thread's epoch as it is on disk now; 0 for a thread that is gone."""
        known = self._read(thread)
        return known.epoch if known is not None else 0

    def all(self) -> list[Thread]:
        """Every thread of the workspace, by name."""
        return list(self._all())

    def of(self, user: str) -> list[Thread]:
        """The user's threads, the latest used first. O(threads of the workspace)."""
        mine = [thread for thread in self._all() if thread.user == user]
        return sorted(mine, key=lambda thread: self._used(thread.thread), reverse=True)

    def repair(self) -> list[str]:
        """Write damaged or missing meta files anew from the logs; returns the names of the threads."""
        repaired: list[str] = []
        for thread in self._all():
            if thread.user and not self._sound(thread.thread):
                with locked(self._folder / ".threads.lock"):
                    self._write(replace(thread, state="ok"))
                repaired.append(thread.thread)
        return repaired

    def _sound(self, thread: str) -> bool:
        try:
            return "user" in loads(self._meta_path(thread).read_bytes())
        except (FileNotFoundError, JsonError, TypeError):
            return False

    def used(self, thread: str) -> str:
        """When the thread was last written, UTC."""
        from datetime import UTC, datetime

        return stamp(datetime.fromtimestamp(self._used(thread), UTC))

    def _used(self, thread: str) -> float:
        try:
            return self.log_path(thread).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _all(self) -> Iterator[Thread]:
        names = {path.name[5:-6] for path in self._folder.glob("conv-*.jsonl")}
        names |= {path.name[5:-10] for path in self._folder.glob("conv-*.meta.json")}
        for name in sorted(names):
            if (thread := self._read(name)) is not None:
                yield thread

    def _write(self, thread: Thread) -> None:
        write_atomic(self._meta_path(thread.thread), dumps_pretty(asdict(thread)), mode=0o600)

    def _read(self, thread: str) -> Thread | None:
        try:
            raw = loads(self._meta_path(thread).read_bytes())
            return Thread(**{key: raw[key] for key in Thread.__dataclass_fields__ if key in raw})
        except FileNotFoundError:
            damage = ""
        except (JsonError, TypeError, KeyError):
            damage = "its meta file is damaged; "
        return self._recover(thread, damage)

    def _recover(self, thread: str, damage: str) -> Thread | None:
        """What the log itself tells, when the file beside it is missing or damaged."""
        log = ThreadLog(self.log_path(thread))
        if not log.path.exists():
            return None
        user, epoch, created, readable, before, branched = "", 1, "", 0, "", False
        try:
            for record in log.scan():
                readable += 1
                branched = branched or (record.parent or "") != before
                before = record.id
                epoch = max(epoch, record.epoch)
                if record.event_type == CREATED and record.event is not None:
                    user, created = str(record.event.get("user", "")), record.at
        except LogVersion as error:
            damage += error.message
        lost = sum(gap.kind == "damaged" for gap in log.gaps)
        state = f"{damage}{readable} of {readable + lost} lines readable" if damage or lost else "ok"
        return Thread(thread, user, "", epoch, created, branched=branched, state=state)
