"""Cutting one message down to its tier: clipped results, elided images, no foreign provider's opaque parts.

A cut never passes silently: the text says how much is missing, and which record has the rest (I9). Cuts fall
between graphemes, so that no character is split. Inputs are never changed (I2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import regex

from tenuto.codec import JsonObject, dumps
from tenuto.context.tokens import is_media

_GRAPHEME = regex.compile(r"\X")
_LOOK = 64
"""Characters looked at on each side of a cut; longer clusters than this are pathological and may be split."""

OPAQUE = frozenset({"builtin-tool-call", "builtin-tool-return", "compaction"})
"""Parts that only the provider which made them understands."""


def cut(text: str, at: int) -> int:
    """The nearest place at or before `at` where `text` can be cut between two graphemes."""
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    if _plain(text[at - 1]) and _plain(text[at]) and text[at] != "\n":
        return at
    start = max(0, at - _LOOK)
    best = start
    for match in _GRAPHEME.finditer(text, start, min(len(text), at + _LOOK)):
        if match.end() > at:
            break
        best = match.end()
    return best if best > start or start == 0 else at


def _plain(char: str) -> bool:
    """Whether a character never joins with its neighbours: ASCII and CJK ideographs, the common case."""
    return char < "\x7f" or "\u4e00" <= char <= "\u9fff"


def clip(text: str, limit: int, whole: str) -> str:
    """`text`, or its head and tail in at most `limit` characters with a note of what is missing.

    `whole` says where the rest is, for example `record #231: read_record(231)`.
    """
    if len(text) <= limit:
        return text
    note = f"\n[clipped: this is a part; the whole has {len(text):,} characters; {whole}]\n"
    room = limit - len(note)
    if room < 40:
        return note.strip()[:limit]
    head = cut(text, room * 2 // 3)
    wanted = len(text) - (room - head)
    tail = cut(text, wanted)
    if tail < wanted and (match := _GRAPHEME.match(text, tail)):
        tail = max(match.end(), wanted) if match.end() - tail > _LOOK else match.end()
    return text[:head] + note + text[tail:]


@dataclass(frozen=True, slots=True)
class Tier:
    """How much of a record is shown."""

    result_chars: int
    """Most characters of one tool result."""
    images: int
    """How many of the record's images (its last ones) stay images."""
    closed: bool
    """Whether the record's turn is over: thinking and provider ids are then left out."""
    provider: str
    """System name of the serving provider, for example `anthropic`."""
    expired: frozenset[str] = frozenset()
    """Names of result files that were reclaimed."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """A message as it will be sent, and what was done to it."""

    message: JsonObject
    clipped: bool = False
    elided: int = 0
    text_changed: bool = False


def shape(message: JsonObject, seq: int, tier: Tier) -> Shaped:
    """Cut `message` (record `seq`) down to `tier`. Returns the very same object where nothing changes."""
    if message.get("kind") == "response":
        return _shape_response(message, tier)
    parts: list[JsonObject] = []
    clipped, changed, elided = False, False, 0
    media = sum(_media_in(part) for part in message["parts"])
    spare = max(0, media - tier.images)
    for part in message["parts"]:
        new = part
        if part.get("part_kind") in ("tool-return", "retry-prompt"):
            new = _mark_expired(new, tier.expired)
            new = _clip_content(new, tier.result_chars, seq)
            clipped = clipped or new is not part
        if spare and _media_in(new):
            new, gone = _elide(new, spare)
            spare -= gone
            elided += gone
        changed = changed or new is not part
        parts.append(new)
    if not changed:
        return Shaped(message)
    return Shaped({**message, "parts": parts}, clipped, elided, text_changed=True)


def _shape_response(message: JsonObject, tier: Tier) -> Shaped:
    parts: list[JsonObject] = []
    changed = lost = False
    origin = message.get("provider_name")
    for part in message["parts"]:
        kind = part.get("part_kind")
        maker = part.get("provider_name") or origin
        foreign = maker is not None and maker != tier.provider
        if kind == "thinking" and (tier.closed or foreign or not part.get("signature")):
            lost = True
            continue
        if kind in OPAQUE and foreign:
            lost = True
            continue
        if (tier.closed or foreign) and (part.get("id") or part.get("provider_details")):
            part = {**part, "id": None, "provider_details": None}
            changed = True
        parts.append(part)
    if not changed and not lost:
        return Shaped(message)
    slim = {**message, "parts": parts}
    if tier.closed or origin != tier.provider:
        slim |= {"provider_details": None, "provider_response_id": None}
    return Shaped(slim, text_changed=lost)


def _media_in(part: JsonObject) -> int:
    content = part.get("content")
    items: list[Any] = cast("list[Any]", content) if isinstance(content, list) else [content]
    return sum(is_media(item) and item.get("kind") != "cache-point" for item in items)


def _elide(part: JsonObject, most: int) -> tuple[JsonObject, int]:
    content = part["content"]
    items: list[Any] = cast("list[Any]", content) if isinstance(content, list) else [content]
    kept: list[Any] = []
    gone = 0
    for item in items:
        if gone < most and is_media(item) and item.get("kind") != "cache-point":
            kept.append(f"[an earlier {item.get('media_type') or 'file'}, no longer shown]")
            gone += 1
        else:
            kept.append(item)
    return {**part, "content": kept if isinstance(content, list) else kept[0]}, gone


def _clip_content(part: JsonObject, limit: int, seq: int) -> JsonObject:
    content = part.get("content")
    whole = f"record #{seq}: read_record({seq})"
    if isinstance(content, str):
        short: Any = clip(content, limit, whole)
        return part if short is content or short == content else {**part, "content": short}
    if isinstance(content, list) and any(is_media(item) for item in cast("list[Any]", content)):
        items = [
            clip(item, limit, whole) if isinstance(item, str) else item for item in cast("list[Any]", content)
        ]
        return part if items == content else {**part, "content": items}
    if content is None or is_media(content):
        return part
    text = dumps(content).decode()
    return part if len(text) <= limit else {**part, "content": clip(text, limit, whole)}


def _mark_expired(part: JsonObject, expired: frozenset[str]) -> JsonObject:
    """Replace a preview whose file is gone by a note with the call that makes it again (I14)."""
    if not expired:
        return part
    metadata = part.get("metadata")
    if not isinstance(metadata, dict):
        return part
    known = cast("JsonObject", metadata)
    if known.get("result") not in expired:
        return part
    call = f"{part.get('tool_name')}({dumps(known.get('arguments') or {}).decode()})"
    note = (
        f"[expired: the file {known['result']} was reclaimed and its figures are not available. "
        f"If they are needed, query again: {call}]"
    )
    return {**part, "content": note}
