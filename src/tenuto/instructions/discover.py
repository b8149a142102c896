"""Instruction files from general to near: global, workspace, shared folder, folder. The nearest stands last.

Read again at every turn, so that an edit counts from the next one on. Costs O(bytes of the files), at most the
limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenuto.context.shape import cut

NAMES = ("AGENTS.md", "CLAUDE.md")
LIMIT_BYTES = 32 * 1024
"""Of all instructions together; what is beyond is left out, and that is said."""
DEPTH = 5
_IMPORT = re.compile(r"^[ \t]*@(\S+)[ \t]*$", re.MULTILINE)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the files say, and what is worth telling about them."""

    text: str = ""
    sources: tuple[str, ...] = ()
    """The files, in order; each once."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where instructions are looked for: the folders from `root` down to `folder`."""

    name: str
    """What `root` is called in what people read."""
    root: Path
    """Nothing outside of this folder is imported."""
    folder: Path
    flat: bool = False
    """Whether only files of `root` itself may be imported: below the global folder lie the workspaces."""
    closed: tuple[str, ...] = ()
    """Folders of `root` that belong to users and are never imported from."""


@dataclass(slots=True)
class _Reading:
    root: Path
    name: str
    flat: bool = False
    closed: tuple[str, ...] = ()
    seen: dict[Path, None] = field(default_factory=dict[Path, None])
    notices: list[str] = field(default_factory=list[str])

    def shown(self, path: Path) -> str:
        inside = path.is_relative_to(self.root)
        return f"{self.name}/{path.relative_to(self.root).as_posix()}" if inside else path.name

    def file(self, path: Path, chain: tuple[Path, ...]) -> str:
        """A file with its imports in place."""
        self.seen[path] = None
        text = path.read_bytes().decode("utf-8", "replace").strip()
        fenced = [match.span() for match in _CODE.finditer(text)]

        def imported(match: re.Match[str]) -> str:
            if any(first <= match.start() < last for first, last in fenced):
                return match[0]
            return self._import(match[1], path, (*chain, path))

        return _IMPORT.sub(imported, text)

    def _import(self, name: str, origin: Path, chain: tuple[Path, ...]) -> str:
        where = f"{self.shown(origin)}: @{name}"
        target = (origin.parent / name).resolve()
        inside = target.relative_to(self.root).parts if target.is_relative_to(self.root) else ("..",)
        if (
            (self.flat and len(inside) > 1)
            or any(part.startswith(".") for part in inside)
            or (inside and inside[0] in self.closed)
        ):
            return self._refuse(f"{where} leads out of {self.name} and was not read")
        if target in chain:
            return self._refuse(f"{where} is a circle and was not read again")
        if len(chain) > DEPTH:
            return self._refuse(f"{where} is deeper than {DEPTH} imports and was not read")
        if not target.is_file():
            return self._refuse(f"{where} is not there")
        if target in self.seen:
            return ""
        return self.file(target, chain)

    def _refuse(self, notice: str) -> str:
        self.notices.append(notice)
        return f"[{notice}]"


def discover(places: Sequence[Place], limit: int = LIMIT_BYTES) -> Instructions:
    """Read the instruction files of some places, in their order.

    A file that stands in several places (or is imported twice) is given once, where it comes first.
    """
    pieces: list[str] = []
    sources: list[str] = []
    notices: list[str] = []
    seen: dict[Path, None] = {}
    left = limit
    for place in places:
        reading = _Reading(place.root.resolve(), place.name, place.flat, place.closed, seen)
        for here in _from(reading.root, place.folder.resolve()):
            for path in (here / file for file in NAMES):
                real = path.resolve()
                if not path.is_file() or real in seen or not real.is_relative_to(reading.root):
                    continue
                source = reading.shown(real)
                text = reading.file(real, ())
                raw = text.encode()
                if len(raw) > left:
                    text = text[: cut(text, len(raw[: max(0, left)].decode("utf-8", "ignore")))]
                    notices.append(
                        f"{source}: instructions are cut at {limit:,} bytes in all; make them shorter"
                    )
                left -= len(raw)
                if text:
                    sources.append(source)
                    pieces.append(f'<instructions source="{source}">\n{text}\n</instructions>')
        notices += reading.notices
    return Instructions("\n\n".join(pieces), tuple(sources), tuple(dict.fromkeys(notices)))


def _from(root: Path, folder: Path) -> list[Path]:
    """The folders from `root` down to `folder`; only `root` where the other isn't below it."""
    if not folder.is_relative_to(root):
        return [root]
    between = [folder, *folder.parents]
    return [path for path in reversed(between) if path.is_relative_to(root)]
