"""Reading folders on demand: list, read by lines, search. Over the thread's files and the workspace's shared folder.

Paths come from models. They are walked segment by segment below one of the named roots; `..`, links that lead
out, and hidden entries don't exist. Vendored folders and what a `.gitignore` names are passed over in a search, as
people know it from ripgrep.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex

from tenuto.errors import NotFound, UsageError

MOST_ENTRIES = 400
MOST_MATCHES = 200
LINE_CHARS = 400
FILE_BYTES = 8 << 20
"""Larger files are not searched."""
SEARCH_S = 5.0
"""For one pattern over all files: a pattern can be made to take for ever."""
PASSED_OVER = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target"})


@dataclass(frozen=True, slots=True)
class Match:
    """A line that matches."""

    path: str
    line: int
    text: str


class Browser:
    """Some folders by name, for example `{"files": …, "shared": …}`; a path begins with one of the names."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self._roots = dict(roots)
        self._first = next(iter(self._roots))

    def find(self, path: str) -> Path:
        """The real path of an existing file or folder. Raises `NotFound`, also for whatever leads out."""
        segments = [segment for segment in path.strip().split("/") if segment not in ("", ".")]
        root = self._roots.get(segments[0]) if segments else None
        if root is None:
            root = self._roots[self._first]
        else:
            segments = segments[1:]
        here = root
        for segment in segments:
            if segment.startswith(".") or "\0" in segment:
                raise _missing(path)
            here = here / segment
        resolved = here.resolve()
        if not (resolved == root.resolve() or root.resolve() in resolved.parents) or not resolved.exists():
            raise _missing(path)
        return resolved

    def named(self, real: Path) -> str:
        """How a real path is called outside: `shared/src/a.py`."""
        for name, root in self._roots.items():
            base = root.resolve()
            if real == base or base in real.parents:
                below = real.relative_to(base).as_posix()
                return name if below == "." else f"{name}/{below}"
        raise _missing(str(real))

    def list(self, path: str = "") -> list[tuple[str, int | None]]:
        """`(name, bytes)` below a folder, folders with None, two levels deep. Without a path: every root."""
        tops = (
            [self.find(path)]
            if path.strip("/ ")
            else [root for root in self._roots.values() if root.is_dir()]
        )
        found: list[tuple[str, int | None]] = []
        for top in tops:
            if top.is_file():
                return [(self.named(top), top.stat().st_size)]
            for here, size in _entries(top, depth=2):
                found.append((self.named(here), size))
        return found

    def read(self, path: str, first: int = 1, count: int = 200) -> tuple[list[str], int]:
        """`count` lines from line `first` (from 1), and how many there are. Raises `NotFound`."""
        real = self.find(path)
        if not real.is_file():
            raise NotFound(f"{path!r} is a folder", hint="list_files shows what is in it")
        lines = real.read_bytes().decode("utf-8", "replace").splitlines()
        start = max(0, first - 1)
        return lines[start : start + max(1, count)], len(lines)

    def search(self, pattern: str, path: str = "", glob: str = "") -> tuple[list[Match], bool]:
        """Lines that match a regular expression (small letters match both cases), and whether there are more.

        Raises `UsageError` for a pattern that is none or takes too long.
        """
        flags = regex.IGNORECASE if pattern == pattern.lower() else 0
        try:
            compiled = regex.compile(pattern, flags)
        except regex.error as error:
            raise UsageError(
                f"not a regular expression: {error}", hint="escape special characters"
            ) from error
        tops = (
            [self.find(path)]
            if path.strip("/ ")
            else [root for root in self._roots.values() if root.is_dir()]
        )
        found: list[Match] = []
        try:
            for top in tops:
                for real in _files(top):
                    if glob and not real.match(glob):
                        continue
                    for number, line in _lines(real):
                        if compiled.search(line, timeout=SEARCH_S):
                            found.append(Match(self.named(real), number, line[:LINE_CHARS]))
                            if len(found) > MOST_MATCHES:
                                return found[:MOST_MATCHES], True
        except TimeoutError as error:
            raise UsageError("the pattern takes too long", hint="use a simpler pattern") from error
        return found, False


def _missing(path: str) -> NotFound:
    return NotFound(f"there is no file or folder {path[:200]!r}", hint="list_files shows what there is")


def _entries(folder: Path, depth: int) -> Iterator[tuple[Path, int | None]]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            yield Path(entry.path).resolve(), None
            if depth > 1 and entry.name not in PASSED_OVER:
                yield from _entries(Path(entry.path), depth - 1)
        elif entry.is_file():
            yield Path(entry.path).resolve(), entry.stat().st_size


def _files(top: Path) -> Iterator[Path]:
    """Every file below `top` that a search looks into."""
    if top.is_file():
        yield top.resolve()
        return
    yield from _below(top, top, [])


def _below(top: Path, folder: Path, rules: list[tuple[Path, Any]]) -> Iterator[Path]:
    ignore = folder / ".gitignore"
    if ignore.is_file():
        from pathspec import GitIgnoreSpec

        rules = [
            *rules,
            (folder, GitIgnoreSpec.from_lines(ignore.read_text("utf-8", "replace").splitlines())),
        ]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        path = Path(entry.path)
        slash = "/" if entry.is_dir() else ""
        if any(spec.match_file(path.relative_to(base).as_posix() + slash) for base, spec in rules):
            continue
        if entry.is_dir():
            if entry.name not in PASSED_OVER:
                yield from _below(top, path, rules)
        elif entry.is_file() and entry.stat().st_size <= FILE_BYTES:
            yield path.resolve()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    raw = path.read_bytes()
    if b"\0" in raw[:8_192]:
        return
    yield from enumerate(raw.decode("utf-8", "replace").splitlines(), 1)
