"""The lasting files of one thread: charts and other artifacts, and pasted texts.

Names come from models and users: they are reduced to one harmless segment, and nothing is overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenuto.codec import sha256, stamp
from tenuto.disk import locked, write_atomic
from tenuto.errors import NotFound


@dataclass(frozen=True, slots=True)
class ThreadFile:
    name: str
    bytes: int
    changed: str
    sha256: str = ""


class ThreadFiles:
    """The `files/<user>/<thread>` folder."""

    def __init__(self, folder: Path, guard: Callable[[], None] = lambda: None) -> None:
        """`guard` is called before anything is written; it raises when the thread was cleared (I10)."""
        self.folder = folder
        self._guard = guard

    def add(self, name: str, content: bytes) -> ThreadFile:
        """Store a new file; a name in use gets `-2`, `-3`, … Raises `DiskFull`."""
        safe = safe_name(name)
        with locked(self.folder / ".lock"):
            self._guard()
            stem, dot, extension = safe.rpartition(".")
            stem, extension = (stem, dot + extension) if dot else (safe, "")
            number, chosen = 1, safe
            while (self.folder / chosen).exists():
                number += 1
                chosen = f"{stem}-{number}{extension}"
            write_atomic(self.folder / chosen, content)
        return ThreadFile(chosen, len(content), stamp(), sha256(content))

    def all(self) -> list[ThreadFile]:
        """The files, by name."""
        if not self.folder.exists():
            return []
        from datetime import UTC, datetime

        return [
            ThreadFile(path.name, found.st_size, stamp(datetime.fromtimestamp(found.st_mtime, UTC)))
            for path in sorted(self.folder.iterdir())
            if not path.name.startswith(".") and path.is_file() and (found := path.stat())
        ]

    def path(self, name: str) -> Path:
        """The path of an existing file. Raises `NotFound`; `name` is compared, never joined."""
        for found in self.all():
            if found.name == name:
                return self.folder / found.name
        raise NotFound(f"there is no file {name!r}", hint="see `tenuto results`")


def safe_name(name: str) -> str:
    """One path segment from untrusted text: no directory, no leading dot, no control character."""
    segment = re.split(r"[/\\]", name)[-1]
    segment = re.sub(r"[^\w.\- ]+", "-", segment).strip(" .-")
    stem, dot, extension = segment.rpartition(".")
    if not dot:
        return segment[:80] or "file"
    return f"{stem[:80] or 'file'}.{extension[:12]}"
