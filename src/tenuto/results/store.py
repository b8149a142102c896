"""Saved tool results of one thread: whole files, an index, a quota with least recently used first, expiry.

A file appears under its name only when it is complete, and in the index only after that; a crash or a full
disk leaves nothing half-written to read. A reclaimed result stays in the index with the call that made it, so
that the context can say what happened and how to get it again (I14).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from tenuto.codec import JsonError, JsonObject, dumps_pretty, loads, now, parse_stamp, sha256, stamp
from tenuto.disk import locked, write_atomic
from tenuto.errors import ResultNotFound, ResultTooLarge
from tenuto.results.structure import Structure
from tenuto.settings import ResultSettings

INDEX = "index.json"
KEPT_GONE = 256
"""Reclaimed entries remembered in the index."""


@dataclass(frozen=True, slots=True)
class Result:
    """One saved result, as the index keeps it."""

    name: str
    tool: str
    arguments: JsonObject
    bytes: int
    sha256: str
    media_type: str
    rows: int | None
    columns: list[dict[str, str]]
    created: str
    last_read: str
    expires: str
    state: Literal["kept", "expired", "evicted"] = "kept"
    kind: str = ""
    path: str = ""
    outline: list[str] = field(default_factory=list[str])


class ResultStore:
    """The results of one thread. Several processes may use it: changes happen under a file lock."""

    def __init__(
        self,
        folder: Path,
        rules: ResultSettings,
        clock: Callable[[], datetime] = now,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """`guard` is called before anything new is written; it raises when the thread was cleared (I10)."""
        self.folder = folder
        self._guard = guard
        self._rules = rules
        self._clock = clock

    def save(self, tool: str, arguments: JsonObject, content: bytes, structure: Structure) -> Result:
        """Store `content` whole, reclaiming older results for the quota.

        Raises `ResultTooLarge` if it alone exceeds the quota, `DiskFull` if the disk does. Nothing is changed
        then.
        """
        if len(content) > self._rules.size:
            raise ResultTooLarge(
                f"the result has {len(content):,} bytes, more than the thread's quota of {self._rules.size:,}",
                hint="narrow the query",
            )
        with locked(self.folder / ".lock"):
            self._guard()
            index = self._read()
            moment = self._clock()
            name = f"{slug(tool)}-{index['next']:04d}{structure.extension}"
            result = Result(
                name=name,
                tool=tool,
                arguments=arguments,
                bytes=len(content),
                sha256=sha256(content),
                media_type=structure.media_type,
                rows=structure.rows,
                columns=[asdict(column) for column in structure.columns],
                created=stamp(moment),
                last_read=stamp(moment),
                expires=stamp(moment + timedelta(seconds=self._rules.ttl)),
                kind=structure.kind,
                path=structure.path,
                outline=list(structure.outline),
            )
            entries = self._reclaim(index["results"], moment, need=len(content))
            write_atomic(self.folder / name, content)
            self._write(index["next"] + 1, [*entries, result])
        return result

    def all(self) -> list[Result]:
        """Every result, reclaimed ones too, oldest first; what is due expires now."""
        with locked(self.folder / ".lock"):
            index = self._read()
            entries = self._reclaim(index["results"], self._clock(), need=0)
            if entries != index["results"]:
                self._write(index["next"], entries)
        return entries

    def get(self, name: str) -> Result:
        """The entry of a result. Raises `ResultNotFound`; names are looked up, never used as paths."""
        found = next((result for result in self.all() if result.name == name.rsplit("/", 1)[-1]), None)
        if found is None:
            raise ResultNotFound(f"there is no result {name!r}", hint="see list_results")
        return found

    def read(self, name: str) -> bytes:
        """The whole content, verified against its SHA-256; counts as use.

        Raises `ResultNotFound`, also for a reclaimed result: its message has the call that makes it again.
        """
        result = self.get(name)
        if result.state != "kept":
            raise ResultNotFound(
                f"{result.name} was reclaimed ({result.state})",
                hint=f"call {result.tool} again with {result.arguments}",
            )
        content = (self.folder / result.name).read_bytes()
        if sha256(content) != result.sha256:
            raise ResultNotFound(f"{result.name} is damaged", hint=f"call {result.tool} again")
        self.touch([result.name])
        return content

    def touch(self, names: list[str]) -> None:
        """Count `names` as used now."""
        with locked(self.folder / ".lock"):
            index = self._read()
            moment = stamp(self._clock())
            entries = [
                replace(entry, last_read=moment) if entry.name in names else entry
                for entry in index["results"]
            ]
            self._write(index["next"], entries)

    def gone(self) -> frozenset[str]:
        """Names of reclaimed results. Cheap when there are no results."""
        if not (self.folder / INDEX).exists():
            return frozenset()
        return frozenset(result.name for result in self.all() if result.state != "kept")

    def _reclaim(self, entries: list[Result], moment: datetime, *, need: int) -> list[Result]:
        """Expire what is due and evict the least recently used until `need` more bytes fit the quota."""
        kept = [entry for entry in entries if entry.state == "kept"]
        out: dict[str, Literal["expired", "evicted"]] = {
            entry.name: "expired"
            for entry in kept
            if parse_stamp(entry.expires) <= moment or not (self.folder / entry.name).exists()
        }
        living = sorted(
            (e for e in kept if e.name not in out), key=lambda entry: (entry.last_read, entry.name)
        )
        files, size = len(living) + (need > 0), sum(entry.bytes for entry in living) + need
        for entry in living:
            if files <= self._rules.files and size <= self._rules.size:
                break
            out[entry.name] = "evicted"
            files, size = files - 1, size - entry.bytes
        for name in out:
            (self.folder / name).unlink(missing_ok=True)
        changed = [replace(e, state=out[e.name]) if e.name in out else e for e in entries]
        gone = [entry for entry in changed if entry.state != "kept"]
        forgotten = {entry.name for entry in gone[:-KEPT_GONE]}
        return [entry for entry in changed if entry.name not in forgotten]

    def _read(self) -> dict[str, Any]:
        try:
            raw = loads((self.folder / INDEX).read_bytes())
            known = set(Result.__dataclass_fields__)
            results = [
                Result(**{key: value for key, value in entry.items() if key in known})
                for entry in raw["results"]
            ]
            return {"next": int(raw["next"]), "results": results}
        except FileNotFoundError:
            return {"next": 1, "results": []}
        except (JsonError, KeyError, TypeError, ValueError):
            return self._recover()

    def _recover(self) -> dict[str, Any]:
        """A damaged index is set aside; files keep their names, new ones get higher numbers (I19)."""
        damaged = self.folder / INDEX
        damaged.replace(self.folder / f".{INDEX}.damaged")
        numbers = [
            int(match[1])
            for path in self.folder.iterdir()
            if (match := re.search(r"-([0-9]{4,})\.[a-z]+$", path.name))
        ]
        return {"next": max(numbers, default=0) + 1, "results": []}

    def _write(self, following: int, entries: list[Result]) -> None:
        value = {"v": 1, "next": following, "results": [asdict(entry) for entry in entries]}
        write_atomic(self.folder / INDEX, dumps_pretty(value))


def slug(name: str) -> str:
    """A harmless file name made from untrusted text: ASCII letters, digits, `_` and `-`, at most 40."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:40] or "result"
