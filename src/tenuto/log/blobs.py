"""Binary content of a thread's messages, stored once by SHA-256 beside the log.

In a record, a binary part's `data` is replaced by `{"blob": "<sha256>", "bytes": n}`; `inflate` puts it back,
byte for byte. Texts that would repeat in many records (base instructions) use the same store.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tenuto.codec import JsonObject, sha256
from tenuto.disk import write_atomic

MISSING = "[binary content is missing]"


class Blobs:
    """The blob folder of one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, content: bytes) -> str:
        """Store `content`, durably, once. Returns its SHA-256."""
        name = sha256(content)
        if not (self._folder / name).exists():
            write_atomic(self._folder / name, content, mode=0o600)
        return name

    def get(self, name: str) -> bytes | None:
        """The content, or None if it is missing or doesn't match its name."""
        if len(name) != 64 or not all(char in "0123456789abcdef" for char in name):
            return None
        try:
            content = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return content if sha256(content) == name else None

    def paths(self) -> list[Path]:
        """The files of all blobs."""
        return (
            sorted(path for path in self._folder.iterdir() if path.is_file()) if self._folder.is_dir() else []
        )

    def remove_folder(self) -> None:
        """Delete all blobs."""
        for path in self.paths():
            path.unlink(missing_ok=True)
        if self._folder.is_dir():
            self._folder.rmdir()

    def remove_if(self, holds: Callable[[str], bool]) -> int:
        """Delete every text for which `holds` says so; returns how many. O(bytes stored)."""
        removed = 0
        for path in sorted(self._folder.glob("*")) if self._folder.is_dir() else ():
            if len(path.name) == 64 and holds(path.read_bytes().decode("utf-8", "replace")):
                path.unlink()
                removed += 1
        return removed

    def deflate(self, message: JsonObject) -> JsonObject:
        """A copy of `message` whose binary contents are references."""
        return cast("JsonObject", self._walk(message, self._out))

    def inflate(self, message: JsonObject) -> JsonObject:
        """The inverse of `deflate`; a lost blob becomes a text that says so."""
        return cast("JsonObject", self._walk(message, self._in))

    def _walk(self, value: Any, change: Any) -> Any:
        if isinstance(value, dict):
            known = cast("dict[str, Any]", value)
            if known.get("kind") == "binary":
                return change(known)
            if known.get("part_kind") == "file" and isinstance(known.get("content"), dict):
                return {**known, "content": change(known["content"])}
            return {key: self._walk(item, change) for key, item in known.items()}
        if isinstance(value, list):
            return [self._walk(item, change) for item in cast("list[Any]", value)]
        return value

    def _out(self, part: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(part.get("data"), str):
            return part
        content = base64.b64decode(part["data"] + "=" * (-len(part["data"]) % 4), altchars=b"-_")
        return {**part, "data": {"blob": self.put(content), "bytes": len(content)}}

    def _in(self, part: dict[str, Any]) -> Any:
        reference = part.get("data")
        if not isinstance(reference, dict):
            return part
        content = self.get(str(cast("dict[str, Any]", reference).get("blob")))
        return MISSING if content is None else {**part, "data": base64.urlsafe_b64encode(content).decode()}


def has_binary(message: JsonObject) -> bool:
    """Whether a message holds binary content, inline or by reference (a cheap check before a walk)."""
    for part in message["parts"]:
        content = part.get("content")
        if isinstance(content, list) and any(
            isinstance(item, dict) and cast("dict[str, Any]", item).get("kind") == "binary"
            for item in cast("list[Any]", content)
        ):
            return True
        if isinstance(content, dict) and (
            cast("dict[str, Any]", content).get("kind") == "binary" or part.get("part_kind") == "file"
        ):
            return True
    return False
