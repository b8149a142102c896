"""Builders that many tests use. They make plain values; what a test is about stands in the test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tenuto.context.tokens import measure, measure_message
from tenuto.log.record import Record
from tenuto.log.store import ThreadLog


def user(text: str) -> dict:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def says(text: str) -> dict:
    return {"kind": "response", "parts": [{"part_kind": "text", "content": text}]}


def calls(*identities: str, tool: str = "query") -> dict:
    parts = [
        {"part_kind": "tool-call", "tool_name": tool, "args": "{}", "tool_call_id": i} for i in identities
    ]
    return {"kind": "response", "parts": parts}


def returns(*identities: str, content: str = "42", tool: str = "query") -> dict:
    parts = [
        {"part_kind": "tool-return", "tool_name": tool, "content": content, "tool_call_id": i}
        for i in identities
    ]
    return {"kind": "request", "parts": parts}


def records(*turns: list[dict], start: int = 1) -> list[Record]:
    """Records of whole turns, numbered from `start`, one turn a list of messages."""
    found: list[Record] = []
    for number, messages in enumerate(turns, 1):
        for message in messages:
            seq = start + len(found)
            previous = found[-1].id if found else None
            tokens = measure_message(message).tokens
            found.append(
                Record(
                    seq, f"id-{seq}", previous, number, "2026-12-01T09:00:00.000Z", 1, tokens, message, None
                )
            )
    return found


@pytest.fixture
def log(tmp_path: Path) -> ThreadLog:
    return ThreadLog(tmp_path / "conv-t.jsonl")


def energy_server(**more: object) -> dict:
    """Settings of the demo's MCP server, run by this interpreter over a real pipe."""
    return {"command": sys.executable, "args": ["-m", "tenuto.demo.server"], "prefix": "", **more}


def fixed_parts(text: str = "rules"):
    from tenuto.context.assemble import Fixed

    return Fixed("h-" + text, "h-tools", measure(text), measure("{}"))
