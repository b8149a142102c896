"""The one JSON codec, the one clock, the one maker of ids.

Bytes in, bytes out: orjson writes compact UTF-8 without a newline inside, which is what a line of a log needs.
"""

from __future__ import annotations

import hashlib
import os
import time
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import orjson

JsonObject: TypeAlias = dict[str, Any]

JsonError = orjson.JSONDecodeError


def dumps(value: Any) -> bytes:
    """Compact JSON as UTF-8. A lone surrogate, which UTF-8 can't hold, becomes `?`."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_scrubbed(value))


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_scrubbed(key): _scrubbed(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in cast("list[Any]", value)]
    return value


def dumps_pretty(value: Any) -> bytes:
    """Indented JSON with a newline at the end, for files that people open."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def loads(raw: bytes | str) -> Any:
    """Parse JSON; raises `JsonError`."""
    return orjson.loads(raw)


def sha256(raw: bytes) -> str:
    """Hex SHA-256 of `raw`."""
    return hashlib.sha256(raw).hexdigest()


def digest(value: Any) -> str:
    """A short stable fingerprint of a JSON value (16 hex digits), for comparing prefixes."""
    return hashlib.blake2b(dumps(value), digest_size=8).hexdigest()


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime | None = None) -> str:
    """`moment` (or now) as UTC text with milliseconds: `2026-12-01T09:30:00.123Z`."""
    moment = (moment or now()).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def parse_stamp(text: str) -> datetime:
    """The inverse of `stamp`; raises ValueError."""
    return datetime.fromisoformat(text)


def new_id() -> str:
    """A UUID version 7 (RFC 9562): time-ordered, 74 random bits."""
    millis = time.time_ns() // 1_000_000
    value = int.from_bytes(os.urandom(10), "big")
    bits = (millis & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (value >> 64 & 0xFFF) << 64 | 0b10 << 62
    text = f"{bits | value & 0x3FFF_FFFF_FFFF_FFFF:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
