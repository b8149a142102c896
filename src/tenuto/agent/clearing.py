"""Clearing: every place that holds a thread's content, in an order that a crash can't turn into a leak.

A journal is written first. Then the thread's epoch rises, from where on no late write is taken (I10), and each
place is emptied; each step can be done again. A clear that was cut short is finished when the workspace is
opened next (I11). Deleting, and retention, are the same with one step more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.codec import JsonError, JsonObject, dumps, dumps_pretty, loads, now, stamp
from tenuto.disk import append_durably, locked, sync_dir, write_atomic
from tenuto.log.store import ThreadLog
from tenuto.log.threads import Thread
from tenuto.scope import Scope, check_id

if TYPE_CHECKING:
    from tenuto.agent.app import Workspace

JOURNAL = ".clearing"
RECEIPTS = "receipts.jsonl"
"""Counts of every clear, without content."""


@dataclass(slots=True)
class Journal:
    """A clear that was begun."""

    scope: Scope
    delete: bool
    path: Path
    keep_files: bool = False
    """The thread's files stay; a deleted thread keeps none."""
    removed: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def as_json(self) -> JsonObject:
        return {
            "workspace": self.scope.workspace,
            "user": self.scope.user,
            "thread": self.scope.thread,
            "delete": self.delete,
            "keep_files": self.keep_files,
            "removed": self.removed,
        }

    def write(self) -> None:
        write_atomic(self.path, dumps_pretty(self.as_json()), mode=0o600)

    def count(self, what: str, files: int, size: int) -> None:
        """Add to what was removed; a step done again after a crash adds what was still there."""
        known = self.removed.get(what, {"count": 0, "bytes": 0})
        self.removed[what] = {"count": known["count"] + files, "bytes": known["bytes"] + size}


def begin_clear(workspace: Workspace, scope: Scope, *, delete: bool, keep_files: bool = False) -> Journal:
    """Write the journal and raise the epoch: from here on the clear will be finished, whatever happens."""
    path = workspace.threads.log_path(scope.thread).with_suffix(JOURNAL)
    journal = Journal(scope, delete, path, keep_files and not delete)
    journal.write()
    workspace.threads.raise_epoch(scope.thread)
    return journal


def erase(workspace: Workspace, journal: Journal) -> JsonObject:
    """Empty every place; returns the receipt. Each step may have been done before."""
    with locked(journal.path.with_suffix(".clearing.lock")):
        for step in steps(workspace, journal):
            step()
            journal.write()
        receipt = _receipt(journal)
        append_durably(journal.path.parent / RECEIPTS, dumps(receipt) + b"\n")
        journal.path.unlink(missing_ok=True)
        sync_dir(journal.path.parent)
    journal.path.with_suffix(".clearing.lock").unlink(missing_ok=True)
    return receipt


def steps(workspace: Workspace, journal: Journal) -> Iterator[Callable[[], None]]:
    """The places, one step each."""
    scope, threads = journal.scope, workspace.threads
    log = ThreadLog(threads.log_path(scope.thread))

    def counted(what: str, paths: list[Path]) -> None:
        journal.count(what, len(paths), sum(path.stat().st_size for path in paths if path.exists()))

    def memory() -> None:
        workspace.forget(scope.thread)

    def logged() -> None:
        paths = log.paths()
        counted("log", [path for path in paths if path.parent == log.path.parent])
        counted("blobs", [path for path in paths if path.parent != log.path.parent])
        if journal.delete:
            log.remove()
        else:
            log.clear(threads.created_record(scope, threads.epoch(scope.thread)))

    def task() -> None:
        store = workspace.tasks.store(scope.thread)
        counted("task", [path for path in (store.path, store.history_path) if path.exists()])
        store.remove()
        workspace.forget(scope.thread)

    def folder(what: str, path: Path) -> Callable[[], None]:
        def remove() -> None:
            counted(what, [found for found in path.rglob("*") if found.is_file() and found.name != ".lock"])
            _remove_folder(path)

        return remove

    def index() -> None:
        journal.count("index_rows", workspace.history.index.remove(thread=scope.thread), 0)

    def extraction() -> None:
        workspace.memories.forget_thread(scope.user, scope.thread)

    def name() -> None:
        threads.drop(scope.thread)
        for suffix in (".lock", ".turn", ".ledger-lock"):
            log.path.with_suffix(suffix).unlink(missing_ok=True)

    yield memory
    yield logged
    yield task
    yield folder("results", workspace.folder / ".results" / scope.user / scope.thread)
    if not journal.keep_files:
        yield folder("files", workspace.folder / "files" / scope.user / scope.thread)
    yield index
    yield extraction
    if journal.delete:
        yield name


def _remove_folder(path: Path) -> None:
    """Delete a folder under its lock, the lock file last."""
    if path.is_dir():
        with locked(path / ".lock"):
            shutil.rmtree(path)
        sync_dir(path.parent)


def _receipt(journal: Journal) -> JsonObject:
    kept = ["memory: facts noted from this thread stay until they are deleted", "settings"]
    if not journal.delete:
        kept.append("the thread's name, owner and model")
    if journal.keep_files:
        kept.append("the thread's files")
    return {
        "thread": journal.scope.thread,
        "user": journal.scope.user,
        "what": "deleted" if journal.delete else "cleared",
        "at": stamp(),
        "removed": journal.removed,
        "kept": kept,
    }


def journals(folder: Path) -> Iterator[Journal]:
    """The clears of a workspace that were begun and not finished."""
    for path in sorted(folder.glob(f"conv-*{JOURNAL}")):
        try:
            raw = loads(path.read_bytes())
            scope = Scope(raw["workspace"], raw["user"], raw["thread"])
            yield Journal(scope, bool(raw["delete"]), path, bool(raw.get("keep_files")), raw["removed"])
        except (JsonError, KeyError, TypeError, FileNotFoundError):
            continue


def begin_user(workspace: Workspace, user: str) -> None:
    """Write down that a user is to be deleted: from here on it will be finished, whatever happens."""
    write_atomic(_user_journal(workspace, user), dumps_pretty({"user": user}), mode=0o600)


def _user_journal(workspace: Workspace, user: str) -> Path:
    return workspace.folder / ".logs" / f"user-{check_id('user', user)}{JOURNAL}"


def finish_clears(workspace: Workspace) -> list[JsonObject]:
    """Finish what a crash cut short; returns the receipts."""
    receipts: list[JsonObject] = []
    for journal in journals(workspace.folder / ".logs"):
        log = ThreadLog(workspace.threads.log_path(journal.scope.thread))
        records = log.page(None, 1)
        if records and records[0].epoch == workspace.threads.epoch(journal.scope.thread):
            # The crash came before the epoch rose, or after the log was emptied: rising once more harms nothing.
            workspace.threads.raise_epoch(journal.scope.thread)
        receipts.append(erase(workspace, journal))
    for path in sorted((workspace.folder / ".logs").glob(f"user-*{JOURNAL}")):
        user = path.name.removeprefix("user-").removesuffix(JOURNAL)
        scopes = [Scope(workspace.name, user, thread.thread) for thread in workspace.threads.of(user)]
        gone = [erase(workspace, begin_clear(workspace, scope, delete=True)) for scope in scopes]
        receipts.append(delete_user_files(workspace, user, gone))
    return receipts


def overdue(workspace: Workspace) -> list[Thread]:
    """The threads not used for longer than the workspace keeps them."""
    keep = workspace.settings.retention.threads
    if not keep:
        return []
    limit = stamp(now() - timedelta(seconds=keep))
    return [thread for thread in workspace.threads.all() if workspace.threads.used(thread.thread) < limit]


def delete_user_files(workspace: Workspace, user: str, receipts: list[JsonObject]) -> JsonObject:
    """What belongs to a user beside threads: memory with its tombstones and key, empty folders, index rows."""
    memory = workspace.memories.store(user).remove()
    for path in (workspace.folder / ".results" / user, workspace.folder / "files" / user):
        if path.is_dir():
            shutil.rmtree(path)
    rows = workspace.history.index.remove(user=user)
    receipt: JsonObject = {
        "user": user,
        "what": "user deleted",
        "at": stamp(),
        "threads": len(receipts),
        "memory_files": len(memory),
        "index_rows": rows + sum(r["removed"].get("index_rows", {}).get("count", 0) for r in receipts),
        "kept": ["the user's entry in the workspace's settings, which an owner edits"],
    }
    append_durably(workspace.folder / ".logs" / RECEIPTS, dumps(receipt) + b"\n")
    _user_journal(workspace, user).unlink(missing_ok=True)
    return {**receipt, "receipts": receipts}
