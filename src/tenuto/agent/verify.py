"""Proof on disk: nothing of a cleared thread or a deleted fact is left, and every file is what it should be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.agent.clearing import JOURNAL
from tenuto.codec import JsonObject
from tenuto.errors import MemoryDamaged, TenutoError
from tenuto.log.store import ThreadLog
from tenuto.log.threads import CREATED, Thread
from tenuto.memory.facts import LINE_START
from tenuto.task.evidence import said
from tenuto.words import same_words, stands_in

if TYPE_CHECKING:
    from tenuto.agent.app import Workspace


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should not be."""

    kind: str
    """`residue` (content that should be gone), `damage`, or `unproven` (an item whose evidence isn't there)."""
    where: str
    what: str

    def as_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what was found."""

    threads: int
    records: int
    facts: int
    findings: list[Finding]


def verify(workspace: Workspace) -> Verified:
    """Look at every file of a workspace. O(bytes of the workspace's logs)."""
    findings: list[Finding] = []
    records = 0
    threads = workspace.threads.all()
    for thread in threads:
        count, found = _thread(workspace, thread)
        records += count
        findings += found
    folder = workspace.folder / ".logs"
    findings += [
        Finding("residue", path.name, "a clear that was not finished")
        for path in sorted((*folder.glob(f"conv-*{JOURNAL}"), *folder.glob(f"user-*{JOURNAL}")))
    ]
    findings += _orphans(workspace, threads)
    facts = 0
    for path in sorted((workspace.folder / ".memory").glob("conv-*.json")):
        if not path.name.endswith(".uses.json"):
            count, found = _memory(workspace, path.name[5:-5], threads)
            facts += count
            findings += found
    return Verified(len(threads), records, facts, findings)


def _thread(workspace: Workspace, thread: Thread) -> tuple[int, list[Finding]]:
    found: list[Finding] = []
    log = ThreadLog(workspace.threads.log_path(thread.thread))
    where = log.path.name
    count, older, first = 0, 0, True
    try:
        for record in log.scan():
            count += 1
            older += record.epoch < thread.epoch
            if first and record.event_type != CREATED:
                found.append(Finding("damage", where, "the log doesn't begin with its thread's creation"))
            first = False
    except TenutoError as error:
        found.append(Finding("damage", where, error.message))
    if older:
        found.append(Finding("residue", where, f"{older} records of an earlier epoch"))
    found += [Finding("damage", where, f"{gap.kind} near #{gap.near_seq}: {gap.detail}") for gap in log.gaps]
    return count, found + list(_ledger(workspace, thread, log))


def _ledger(workspace: Workspace, thread: Thread, log: ThreadLog) -> Iterator[Finding]:
    store = workspace.tasks.store(thread.thread)
    if store.damaged:
        yield Finding("damage", store.path.name, "the ledger can't be read")
        return
    if not store.path.exists():
        return
    ledger = store.load()
    if ledger.epoch != thread.epoch:
        yield Finding("residue", store.path.name, f"a ledger of epoch {ledger.epoch}")
    for item in ledger.items:
        for change in item.changes:
            if change.hand or not change.verified:
                continue
            record = log.find(change.record)
            text = said(record) if record is not None else None
            if text is None or not stands_in(change.quote, text.text):
                yield Finding("unproven", store.path.name, f"{item.id}: its quote is not in #{change.record}")


def _memory(workspace: Workspace, user: str, threads: list[Thread]) -> tuple[int, list[Finding]]:
    store = workspace.memories.store(user)
    try:
        memory = store.load()
    except MemoryDamaged as error:
        return 0, [Finding("damage", store.path.name, error.message)]
    rules, active = workspace.settings.memory, memory.active
    found: list[Finding] = []
    if len(active) > rules.facts or sum(len(fact.text) for fact in active) > rules.chars:
        found.append(Finding("damage", store.path.name, "more facts than the limits allow"))
    if memory.tombstones:
        gone = set(memory.tombstones)

        def deleted(text: str) -> bool:
            return store.hashed(same_words(text)) in gone

        found += [
            Finding("residue", store.path.name, f"fact {fact.id} was deleted")
            for fact in memory.facts
            if deleted(fact.text)
        ]
        for thread in threads:
            if thread.user == user:
                blobs = ThreadLog(workspace.threads.log_path(thread.thread)).blobs
                found += [
                    Finding("residue", f"{path.parent.name}/{path.name[:12]}", "shows a deleted fact")
                    for path in blobs.paths()
                    if any(deleted(text) for text in _facts_in(path))
                ]
    return len(memory.facts), found


_FACT = re.compile(r"^- \[f\w+\] (.*?)(?: \((?:for|until) .*\))?, since \d{4}-\d{2}-\d{2}$", re.MULTILINE)


def _facts_in(path: Path) -> list[str]:
    """The facts that a stored request text shows."""
    with path.open("rb") as stream:
        if stream.read(len(LINE_START)) != LINE_START.encode():
            return []
    return _FACT.findall(path.read_bytes().decode("utf-8", "replace"))


def _orphans(workspace: Workspace, threads: list[Thread]) -> Iterator[Finding]:
    """Results, files, blobs, ledgers and index rows of threads that aren't there."""
    known = {(thread.user, thread.thread) for thread in threads}
    names = {thread.thread for thread in threads}
    for kind in (".results", "files"):
        for folder in sorted((workspace.folder / kind).glob("*/*")):
            if folder.is_dir() and (folder.parent.name, folder.name) not in known:
                yield Finding("residue", f"{kind}/{folder.parent.name}/{folder.name}", "its thread is gone")
    for path in sorted((workspace.folder / ".logs").glob("conv-*")):
        name = re.sub(
            r"\.(jsonl|blobs|meta\.json|summary\.json|summary\.versions|ledger-lock|torn-\d+|lock|turn|clearing.*)$",
            "",
            path.name[5:],
        )
        if name not in names:
            yield Finding("residue", path.name, "its thread is gone")
    epochs = {thread.thread: thread.epoch for thread in threads}
    for thread, (epoch, _, _) in workspace.history.index.reached().items():
        if epochs.get(thread) != epoch:
            yield Finding("residue", "history.sqlite", f"rows of {thread} in epoch {epoch}")
