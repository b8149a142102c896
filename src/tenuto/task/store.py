"""The ledger on disk: `conv-<thread>.summary.json`, and every earlier version beside it.

Every change is made under a lock that other processes respect, on the newest version, and only in the epoch it
was begun in (I10). A crash between the two writes leaves a version in the history that the next change writes
again. Costs O(ledger).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tenuto.codec import JsonError, JsonObject, dumps, dumps_pretty, loads
from tenuto.disk import append_durably, locked, write_atomic
from tenuto.errors import LateWrite
from tenuto.task.ledger import Ledger


class TaskStore:
    """One thread's ledger."""

    def __init__(self, log_path: Path, epoch: Callable[[], int]) -> None:
        self.path = log_path.with_suffix(".summary.json")
        self.history_path = log_path.with_suffix(".summary.versions")
        self._lock = log_path.with_suffix(".ledger-lock")
        self._epoch = epoch
        self._known: tuple[tuple[int, int, int], Ledger] | None = None

    def load(self) -> Ledger:
        """The newest version; an empty ledger where there is none. Read again only when the file changed."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._known = None
            return Ledger(self._epoch())
        mark = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._known is None or self._known[0] != mark:
            self._known = (mark, self._read())
        return self._known[1]

    def _read(self) -> Ledger:
        """The file, or where it is damaged the newest readable version of the history (I19)."""
        try:
            return Ledger.from_json(loads(self.path.read_bytes()))
        except (JsonError, KeyError, TypeError, ValueError):
            versions = [Ledger.from_json(line["ledger"]) for line in self.history()]
            return versions[-1] if versions else Ledger(self._epoch())

    @property
    def damaged(self) -> bool:
        """Whether the file itself can't be read."""
        try:
            Ledger.from_json(loads(self.path.read_bytes()))
        except FileNotFoundError:
            return False
        except (JsonError, KeyError, TypeError, ValueError):
            return True
        return False

    def change(
        self, epoch: int, edit: Callable[[Ledger], tuple[Ledger, JsonObject] | None], *, note: bool = True
    ) -> Ledger:
        """Put `edit` of the newest ledger in its place; None leaves it as it is.

        `edit` returns the new ledger and what to keep of the change in the history. With `note` unset, no
        version is made: the items are the same. Raises `LateWrite` when the thread was cleared since `epoch`.
        """
        with locked(self._lock):
            if self._epoch() != epoch:
                raise LateWrite("the thread was cleared meanwhile; nothing was written", hint="start again")
            edited = edit(self.load())
            if edited is None:
                return self.load()
            ledger, change = edited
            if note:
                line: JsonObject = {"change": change, "ledger": ledger.as_json()}
                append_durably(self.history_path, dumps(line) + b"\n")
            write_atomic(self.path, dumps_pretty(ledger.as_json()), mode=0o600)
            self._known = None
        return ledger

    def history(self) -> list[JsonObject]:
        """Every version with its change, oldest first: `{change, ledger}`. A line cut short is left out."""
        try:
            raw = self.history_path.read_bytes()
        except FileNotFoundError:
            return []
        found: dict[int, JsonObject] = {}
        for line in raw.split(b"\n"):
            try:
                value = loads(line)
                found[int(value["ledger"]["version"])] = value
            except (JsonError, KeyError, TypeError, ValueError):
                continue
        return [found[version] for version in sorted(found)]

    def remove(self) -> list[Path]:
        """Delete ledger and history under the lock; returns what was there."""
        with locked(self._lock):
            gone = [path for path in (self.history_path, self.path) if path.exists()]
            for path in gone:
                path.unlink()
            self._known = None
        return gone
