"""The conversation that the measurements use: half Chinese, one tool call a turn, every tenth result large."""

from __future__ import annotations

import random

from tenuto.codec import JsonObject, dumps

_ZH = "上个月办公楼的能耗按建筑和小时汇总，排除节假日后与去年同期比较，峰值出现在工作日上午，含税口径。"
_EN = "The weekday load of the offices peaks at ten and falls after six; holidays are left out of the mean. "


def text(rng: random.Random, chars: int, *, chinese: bool = True) -> str:
    """`chars` characters, about half of them Chinese unless that is switched off."""
    pieces: list[str] = []
    length = 0
    while length < chars:
        source = _ZH if chinese and rng.random() < 0.5 else _EN
        start = rng.randrange(len(source) // 2)
        piece = source[start : start + rng.randrange(12, 40)] + f" {rng.randrange(10_000)} "
        pieces.append(piece)
        length += len(piece)
    return "".join(pieces)[:chars]


def rows(rng: random.Random, chars: int) -> str:
    """JSON rows of a meter query, about `chars` characters."""
    found: list[JsonObject] = []
    length = 0
    while length < chars:
        row = {
            "building": f"B{rng.randrange(12):02d}",
            "hour": f"2026-10-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:00",
            "kwh": round(rng.random() * 400, 2),
        }
        found.append(row)
        length += len(dumps(row)) + 1
    return dumps(found).decode()


def question(rng: random.Random) -> JsonObject:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text(rng, 80)}]}


def call(rng: random.Random, identity: str) -> JsonObject:
    arguments = dumps({"month": f"2026-{rng.randrange(1, 13):02d}", "kind": "office"}).decode()
    part = {
        "part_kind": "tool-call",
        "tool_name": "query_energy",
        "args": arguments,
        "tool_call_id": identity,
    }
    return {"kind": "response", "parts": [part], "usage": {"input_tokens": 0, "output_tokens": 30}}


def result(rng: random.Random, identity: str, chars: int) -> JsonObject:
    return {
        "part_kind": "tool-return",
        "tool_name": "query_energy",
        "content": rows(rng, chars),
        "tool_call_id": identity,
    }


def answer(rng: random.Random) -> JsonObject:
    part = {"part_kind": "text", "content": text(rng, 600)}
    return {"kind": "response", "parts": [part], "usage": {"input_tokens": 0, "output_tokens": 300}}
