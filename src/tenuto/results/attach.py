"""Attaching a folder or an archive to a thread: copied whole or not at all, and nothing that leads out of it."""

from __future__ import annotations

import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from tenuto.codec import new_id
from tenuto.disk import locked
from tenuto.errors import ArchiveRefused, NotFound
from tenuto.results.files import ThreadFiles, safe_name

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Attached:
    """What was taken."""

    name: str
    files: int
    bytes: int
    passed_over: int
    """Links, devices and hidden entries, which are never taken."""


def attach(files: ThreadFiles, source: Path, *, most_bytes: int, most_files: int, name: str = "") -> Attached:
    """Take a folder, or an archive (zip, tar and its compressed forms), into the thread's files as a folder.

    Raises `NotFound`, or `ArchiveRefused`, and then nothing is left behind.
    """
    if not source.exists():
        raise NotFound(f"there is no {source}", hint="give a folder, a zip or a tar file")
    chosen = safe_name(name or source.name.split(".")[0])
    files.folder.mkdir(parents=True, exist_ok=True)
    staging = files.folder / f".attach-{new_id()[-8:]}"
    staging.mkdir(mode=0o755)
    try:
        taken = _Taking(staging, most_bytes, most_files)
        if source.is_dir():
            taken.folder(source)
        elif zipfile.is_zipfile(source):
            taken.zip(source)
        elif tarfile.is_tarfile(source):
            taken.tar(source)
        else:
            raise ArchiveRefused(f"{source.name} is no archive", hint="give a folder, a zip or a tar file")
        with locked(files.folder / ".lock"):
            target, number = files.folder / chosen, 1
            while target.exists():
                number += 1
                target = files.folder / f"{chosen}-{number}"
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Attached(target.name, taken.files, taken.bytes, taken.passed_over)


class _Taking:
    """Writes entries below one folder and keeps count; sizes are counted as they come, never believed."""

    def __init__(self, target: Path, most_bytes: int, most_files: int) -> None:
        self._target = target
        self._most_bytes = most_bytes
        self._most_files = most_files
        self.files = self.bytes = self.passed_over = 0

    def folder(self, source: Path) -> None:
        for path in _walk(source):
            if path.is_symlink() or not path.is_file():
                self.passed_over += 1
                continue
            with path.open("rb") as stream:
                self._take(path.relative_to(source).as_posix(), stream)

    def zip(self, source: Path) -> None:
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                mode = info.external_attr >> 16
                if info.is_dir():
                    continue
                if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
                    self.passed_over += 1
                    continue
                with archive.open(info) as stream:
                    self._take(info.filename, stream)

    def tar(self, source: Path) -> None:
        with tarfile.open(source) as archive:
            for member in archive:
                if member.isdir():
                    continue
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is None:
                    self.passed_over += 1
                    continue
                with stream:
                    self._take(member.name, stream)

    def _take(self, name: str, stream: IO[bytes]) -> None:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if (
            not parts
            or name.startswith("/")
            or ".." in parts
            or any("\0" in part or ":" in part for part in parts)
        ):
            raise ArchiveRefused(
                f"the entry {name[:100]!r} leads out of the archive", hint="nothing was taken"
            )
        if any(part.startswith(".") and part != ".gitignore" for part in parts):
            self.passed_over += 1
            return
        self.files += 1
        if self.files > self._most_files:
            raise ArchiveRefused(f"more than {self._most_files:,} files", hint="attach a part of it")
        target = self._target.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            while chunk := stream.read(CHUNK):
                self.bytes += len(chunk)
                if self.bytes > self._most_bytes:
                    raise ArchiveRefused(f"more than {self._most_bytes:,} bytes", hint="attach a part of it")
                out.write(chunk)


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if not path.name.startswith("."):
                yield from _walk(path)
        else:
            yield path
