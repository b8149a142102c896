"""A folder shown inside a sandbox: hard links of its files, so that nothing is copied and no writable path leads in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def tree_mark(folder: Path) -> tuple[tuple[str, int], ...]:
    """What changes when an entry of `folder` or below is added, replaced or removed. O(entries)."""
    if not folder.is_dir():
        return ()
    return tuple((path, os.stat(path).st_mtime_ns) for path in _folders(str(folder)))


def _folders(folder: str) -> Iterator[str]:
    yield folder
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if _shown(entry) and entry.is_dir(follow_symlinks=False):
            yield from _folders(entry.path)


def _shown(entry: os.DirEntry[str]) -> bool:
    """Hidden entries and links stay outside: what a link names may lie anywhere."""
    return not entry.name.startswith(".") and not entry.is_symlink()


def mirror_tree(source: Path, target: Path) -> None:
    """Bring `target` in step with `source`: regular files as hard links (copies across devices), folders below."""
    wanted = {entry.name: entry for entry in os.scandir(source) if _shown(entry)} if source.is_dir() else {}
    for present in list(os.scandir(target)):
        entry = wanted.get(present.name)
        if entry is not None and entry.is_dir() and present.is_dir(follow_symlinks=False):
            continue
        if entry is not None and entry.is_file() and entry.inode() == present.inode():
            del wanted[present.name]
        elif present.is_dir(follow_symlinks=False):
            shutil.rmtree(present.path)
        else:
            os.unlink(present.path)
    for entry in wanted.values():
        if entry.is_dir(follow_symlinks=False):
            below = target / entry.name
            below.mkdir(mode=0o755, exist_ok=True)
            mirror_tree(Path(entry.path), below)
        elif entry.is_file(follow_symlinks=False):
            _link(entry.path, str(target / entry.name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError:
        shutil.copyfile(source, target, follow_symlinks=False)
