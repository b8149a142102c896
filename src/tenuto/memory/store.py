"""A user's memory on disk: `.memory/conv-<user>.json`, its key for hashes, and how often facts were used."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from tenuto.codec import JsonError, JsonObject, dumps_pretty, loads, stamp
from tenuto.disk import locked, write_atomic
from tenuto.errors import LateWrite, MemoryDamaged
from tenuto.memory.facts import Memory


class MemoryStore:
    """One user's memory in one workspace. Every change is made on the newest version, under a lock."""

    def __init__(self, folder: Path, user: str) -> None:
        self.path = folder / f"conv-{user}.json"
        self.key_path = folder / f"conv-{user}.key"
        self.uses_path = folder / f"conv-{user}.uses.json"
        self._lock = folder / f"conv-{user}.lock"
        self._known: tuple[tuple[int, int, int], Memory] | None = None

    def load(self) -> Memory:
        """The newest version. Read again only when the file changed. Raises `MemoryDamaged`."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return Memory()
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._known is None or self._known[0] != mark:
            self._known = (mark, self._read())
        return self._known[1]

    def _read(self) -> Memory:
        try:
            return Memory.from_json(loads(self.path.read_bytes()))
        except (JsonError, KeyError, TypeError, ValueError) as error:
            raise MemoryDamaged(
                f"{self.path.name} can't be read: {error}",
                hint="restore it from a copy, or move it away to begin anew; nothing was changed",
            ) from error

    def change(self, edit: Callable[[Memory], Memory], *, epoch: int | None = None) -> Memory:
        """Put `edit` of the newest memory in its place.

        With `epoch`, for a job: raises `LateWrite` when a hard delete or a switch came in between (I12).
        """
        with locked(self._lock):
            memory = self.load()
            if epoch is not None and memory.epoch != epoch:
                raise LateWrite("the memory was changed meanwhile; nothing was written", hint="start again")
            edited = edit(memory)
            if edited != memory:
                write_atomic(self.path, dumps_pretty(edited.as_json()), mode=0o600)
                self._known = None
        return edited

    def hashed(self, text: str) -> str:
        """The keyed hash of a deleted fact. The key is made on first use and never leaves the folder."""
        if not self.key_path.exists():
            write_atomic(self.key_path, os.urandom(32), mode=0o600)
        return hmac.new(self.key_path.read_bytes(), text.encode(), hashlib.sha256).hexdigest()

    # -- use --------------------------------------------------------------------------------------------

    def uses(self) -> dict[str, JsonObject]:
        """For each fact `{count, thread, turn, at}` of its use in requests."""
        try:
            value: Any = loads(self.uses_path.read_bytes())
        except (FileNotFoundError, JsonError):
            return {}
        return cast("dict[str, JsonObject]", value) if isinstance(value, dict) else {}

    def count_use(self, facts: Sequence[str], thread: str, turn: int) -> None:
        """Note that a turn's request showed these facts. Not fsynced: a lost count costs nothing."""
        if not facts:
            return
        with locked(self._lock):
            uses = self.uses()
            known = {fact.id for fact in self.load().facts}
            for fact in facts:
                count = int(uses.get(fact, {}).get("count", 0)) + 1
                uses[fact] = {"count": count, "thread": thread, "turn": turn, "at": stamp()}
            kept = {fact: use for fact, use in uses.items() if fact in known}
            write_atomic(self.uses_path, dumps_pretty(kept), mode=0o600, durable=False)

    def remove(self) -> list[Path]:
        """Delete everything of this user; returns what was there."""
        with locked(self._lock):
            gone = [path for path in (self.path, self.uses_path, self.key_path) if path.exists()]
            for path in gone:
                path.unlink()
            self._known = None
        return gone
