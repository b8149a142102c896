"""The log record: values and their one-line JSON form, version 1. No I/O.

A record carries either `message` (Pydantic AI's `ModelMessage` JSON, kept as it came) or `event`
(`{"type": …}`: something that is no message). `parent` links records into branches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from tenuto.codec import JsonError, JsonObject, dumps, loads
from tenuto.errors import LogVersion, TenutoError

VERSION = 1


class DamagedLine(TenutoError):
    """A line that is no record. It costs itself only (I19)."""

    code = "damaged_line"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a caller wants logged; the store adds sequence, id, parent and time."""

    turn: int
    message: JsonObject | None = None
    event: JsonObject | None = None
    tokens: int = 0
    """o200k tokens of the message, counted once, here at the source."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a log."""

    seq: int
    """Dense: the line's number, from 1. A hole means a lost line."""
    id: str
    parent: str | None
    turn: int
    at: str
    """UTC with milliseconds."""
    epoch: int
    tokens: int
    message: JsonObject | None
    event: JsonObject | None
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)
    """Derived values that readers keep beside the record (never written)."""

    @property
    def event_type(self) -> str:
        """The event's type, empty for a message."""
        return str(self.event.get("type", "")) if self.event else ""

    @property
    def is_question(self) -> bool:
        """Whether this is what the user said, the start of a turn."""
        return (
            self.message is not None
            and self.message.get("kind") == "request"
            and any(part.get("part_kind") == "user-prompt" for part in self.message["parts"])
        )

    def dump(self) -> bytes:
        """The record as one line, newline included."""
        line: JsonObject = {
            "v": VERSION,
            "seq": self.seq,
            "id": self.id,
            "parent": self.parent,
            "turn": self.turn,
            "at": self.at,
            "epoch": self.epoch,
            "tokens": self.tokens,
        }
        if self.message is not None:
            line["message"] = self.message
        if self.event is not None:
            line["event"] = self.event
        return dumps(line) + b"\n"


def parse(line: bytes) -> Record:
    """One line (with or without its newline) as a record.

    Raises `DamagedLine`, or `LogVersion` for a record that a newer version wrote.
    """
    try:
        value = loads(line)
    except JsonError as error:
        raise DamagedLine(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedLine("not an object")
    return _read(cast("JsonObject", value))


def _read(value: JsonObject) -> Record:
    version = value.get("v")
    if isinstance(version, int) and version > VERSION:
        raise LogVersion(
            f"record version {version} is newer than this Tenuto reads ({VERSION})",
            hint="upgrade Tenuto to read this thread; nothing was changed",
        )
    if version != VERSION:
        raise DamagedLine(f"record version {version!r} is unknown")
    try:
        record = Record(
            seq=value["seq"],
            id=value["id"],
            parent=value["parent"],
            turn=value["turn"],
            at=value["at"],
            epoch=value["epoch"],
            tokens=value["tokens"],
            message=value.get("message"),
            event=value.get("event"),
        )
    except KeyError as error:
        raise DamagedLine(f"field {error} is missing") from error
    if not _sound(record):
        raise DamagedLine("a field has the wrong type")
    return record


def _sound(record: Record) -> bool:
    if type(record.seq) is not int or type(record.turn) is not int or type(record.tokens) is not int:
        return False
    if type(record.id) is not str or not (record.parent is None or type(record.parent) is str):
        return False
    if record.message is not None:
        message = record.message
        return (
            isinstance(message, dict)
            and isinstance(message.get("parts"), list)
            and all(isinstance(part, dict) for part in message["parts"])
        )
    return isinstance(record.event, dict)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something a reader had to step over; it is reported, and the rest is kept."""

    kind: str
    """`damaged`, `missing`, `torn` or `parent`."""
    near_seq: int
    """Sequence number of the record after (above) the gap."""
    detail: str
