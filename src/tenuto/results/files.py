"""The lasting files of one thread: charts and other artifacts, and pasted texts.

Names come from models and users: they are reduced to one harmless segment. What is added never overwrites; what
is written again becomes a new version, and every version is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tenuto.codec import sha256, stamp
from tenuto.disk import locked, write_atomic
from tenuto.errors import EditRefused, NotFound


@dataclass(frozen=True, slots=True)
class ThreadFile:
    name: str
    bytes: int
    changed: str
    sha256: str = ""
    version: int = 1


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

    # -- versions ---------------------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> ThreadFile:
        """Put `content` into a file, new or not; every earlier version is kept. Raises `DiskFull`."""
        safe = safe_name(name)
        with locked(self.folder / ".lock"):
            self._guard()
            return self._write(safe, content)

    def edit(self, name: str, old: str, new: str) -> ThreadFile:
        """Replace `old`, which must stand in the text file exactly once, by `new`; the earlier version is kept.

        Raises `NotFound` for an unknown file, `EditRefused` where `old` isn't there exactly once.
        """
        path = self.path(name)
        with locked(self.folder / ".lock"):
            self._guard()
            text = path.read_bytes().decode("utf-8", "replace")
            times = text.count(old) if old else 0
            if times != 1:
                raise EditRefused(
                    f"the text to replace stands in {name!r} {times} times, not once",
                    hint="read the file again and give more of the lines around it",
                )
            return self._write(name, text.replace(old, new).encode())

    def _write(self, name: str, content: bytes) -> ThreadFile:
        versions = self._versions(name)
        current = self.folder / name
        if not versions and current.exists():
            # What stood there before it was first changed is version 1.
            write_atomic(self._version_path(name, 1), current.read_bytes())
            versions = [1]
        number = (versions[-1] if versions else 0) + 1
        write_atomic(self._version_path(name, number), content)
        write_atomic(current, content)
        return ThreadFile(name, len(content), stamp(), sha256(content), number)

    def _version_path(self, name: str, number: int) -> Path:
        return self.folder / ".versions" / name / f"{number:06d}"

    def _versions(self, name: str) -> list[int]:
        folder = self.folder / ".versions" / name
        return (
            sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
            if folder.is_dir()
            else []
        )

    def versions(self, name: str) -> list[ThreadFile]:
        """Every version of a file, oldest first. Raises `NotFound`."""
        current = self.path(name)
        numbers = self._versions(name)
        if not numbers:
            return [_described(current, name, 1)]
        return [_described(self._version_path(name, number), name, number) for number in numbers]

    def read(self, name: str, version: int | None = None) -> bytes:
        """The content of a file, or of one version of it. Raises `NotFound`."""
        if version is None:
            return self.path(name).read_bytes()
        numbers = self._versions(name) or [1]
        if version not in numbers:
            raise NotFound(f"{name!r} has no version {version}", hint=f"it has 1 to {numbers[-1]}")
        path = self._version_path(name, version)
        return path.read_bytes() if path.exists() else self.path(name).read_bytes()

    def difference(self, name: str, one: int, other: int) -> str:
        """What changed between two versions, as a unified diff."""
        from difflib import unified_diff

        before, after = (self.read(name, number).decode("utf-8", "replace") for number in (one, other))
        lines = unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"{name} version {one}",
            f"{name} version {other}",
            lineterm="",
        )
        return "\n".join(lines)

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


def _described(path: Path, name: str, number: int) -> ThreadFile:
    from datetime import UTC, datetime

    content = path.read_bytes()
    changed = stamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))
    return ThreadFile(name, len(content), changed, sha256(content), number)


def safe_name(name: str) -> str:
    """One path segment from untrusted text: no directory, no leading dot, no control character."""
    segment = re.split(r"[/\\]", name)[-1]
    segment = re.sub(r"[^\w.\- ]+", "-", segment).strip(" .-")
    stem, dot, extension = segment.rpartition(".")
    if not dot:
        return segment[:80] or "file"
    return f"{stem[:80] or 'file'}.{extension[:12]}"
