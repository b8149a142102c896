"""Writing files so that a reader never sees half of one, and locks between processes.

Every whole-file write of Tenuto goes through `write_atomic`; every append through the log.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tenuto.codec import new_id
from tenuto.errors import DiskFull

PRIVATE_DIR = 0o700
SHARED_FILE = 0o644
"""Mode of files that the sandbox's user must be able to read; their ancestors are private."""


def full_disk(error: OSError, path: Path) -> DiskFull | None:
    """The typed error for a full disk or an exhausted quota, None for any other fault."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return None
    return DiskFull(f"no space left to write {path.name}", hint="free disk space, then try again")


def write_atomic(path: Path, content: bytes, *, mode: int = SHARED_FILE, durable: bool = True) -> None:
    """Replace `path` by `content` in one step; a crash leaves the old file or the new one.

    Raises `DiskFull`, and then leaves nothing behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:60]}.{new_id()[-12:]}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise full_disk(error, path) or error from error
    if durable:
        sync_dir(path.parent)


def append_durably(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Append to a file, durably, behind the last whole line. The caller holds the file's lock.

    Raises `DiskFull`, and then the file is as before.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, mode)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            content = b"\n" + content
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise full_disk(error, path) or error from error
    finally:
        os.close(descriptor)
    if size == 0:
        sync_dir(path.parent)


def sync_dir(path: Path) -> None:
    """Make a created or renamed entry of directory `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock that other processes on this machine respect.

    The lock file stays: removing it would let two holders lock two different files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def free_bytes(path: Path) -> int:
    """Bytes free on the file system that holds `path` or its nearest existing ancestor."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
