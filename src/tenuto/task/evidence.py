"""Evidence: what a record of the log says, and who says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tenuto.context.tokens import texts
from tenuto.log.record import Record

Speaker: TypeAlias = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Said:
    """What one record says, as evidence."""

    record: int
    speaker: Speaker
    text: str
    turn: int
    at: str
    tokens: int


def said(record: Record) -> Said | None:
    """A message record as evidence, None for an event."""
    message = record.message
    if message is None:
        return None
    if record.is_question:
        speaker: Speaker = "user"
        parts = [part for part in message["parts"] if part.get("part_kind") == "user-prompt"]
        text = "\n".join(texts({**message, "parts": parts}))
    else:
        speaker = "assistant" if message["kind"] == "response" else "tool"
        text = "\n".join(texts(message))
    return Said(record.seq, speaker, text, record.turn, record.at, record.tokens)
