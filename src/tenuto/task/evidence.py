"""Evidence: whether a quote stands in a record, and what a text may claim beyond it. Pure; O(text)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tenuto.context.tokens import texts
from tenuto.log.record import Record

Speaker: TypeAlias = Literal["user", "assistant", "tool"]

LEAST_WEIGHT = 6
"""A quote shorter than this (a CJK character weighs two) proves nothing, unless it is the whole message."""

_SPACE = re.compile(r"\s+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NUMBER = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")
_END = " .。!！?？;；,，"


def folded(text: str) -> str:
    """`text` after NFKC with white space folded: what a quote is compared in."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text)).strip()


def same_words(text: str) -> str:
    """The key under which two texts say the same: folded, without case and final punctuation."""
    return folded(text).casefold().strip(_END)


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


def stands_in(quote: str, text: str) -> bool:
    """Whether `quote` is found in `text` and long enough to prove something."""
    wanted, whole = folded(quote), folded(text)
    if not wanted or wanted not in whole:
        return False
    return len(wanted) + len(_CJK.findall(wanted)) >= LEAST_WEIGHT or wanted == whole


def overlaps(one: str, other: str) -> bool:
    """Whether one quote contains the other."""
    a, b = folded(one), folded(other)
    return bool(a and b) and (a in b or b in a)


def faithful(text: str, evidence: str, quote: str) -> bool:
    """Whether `text` claims no number that `evidence` lacks, and is written in the script of the quote."""
    known = folded(evidence)
    if any(number not in known for number in _NUMBER.findall(folded(text))):
        return False
    return bool(_CJK.search(text)) == bool(_CJK.search(quote))
