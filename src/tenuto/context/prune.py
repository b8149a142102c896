"""Pruning as one function on plain messages, in the shape people know from the AI SDK's `pruneMessages`.

For programs that keep their own history; Tenuto's own requests go through `assemble`. Differences, on
purpose: `before-last-0-messages` prunes every message's tool calls rather than none, and a call
always goes together with its result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tenuto.codec import JsonObject
from tenuto.context.pair import is_result
from tenuto.errors import UsageError

Reasoning: TypeAlias = Literal["none", "all", "before-last-message"]


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Which tool calls go: `type` as for all tools, restricted to `tools` if given."""

    type: str
    """`all`, `before-last-message` or `before-last-<n>-messages`."""
    tools: tuple[str, ...] | None = None


def prune(
    messages: Sequence[JsonObject],
    *,
    reasoning: Reasoning = "none",
    tool_calls: str | Sequence[ToolRule] = "none",
    empty_messages: Literal["keep", "remove"] = "remove",
) -> list[JsonObject]:
    """A copy of `messages` without the named parts. Raises `UsageError` for an unknown rule.

    A call whose result is in the kept tail is protected, and a result whose call is: pairs stay whole (I7).
    """
    rules = [ToolRule(tool_calls)] if isinstance(tool_calls, str) else list(tool_calls)
    gone: set[str] = set()
    for rule in rules:
        gone |= _calls_to_drop(messages, rule)
    if reasoning not in ("none", "all", "before-last-message"):
        raise UsageError(f"reasoning {reasoning!r} is unknown", hint="use none, all or before-last-message")
    pruned: list[JsonObject] = []
    for at, message in enumerate(messages):
        last = at == len(messages) - 1
        drop_thinking = reasoning == "all" or (reasoning == "before-last-message" and not last)
        parts = [
            part
            for part in message["parts"]
            if not (drop_thinking and part.get("part_kind") == "thinking")
            and not (_is_tool_part(part) and part.get("tool_call_id") in gone)
        ]
        if len(parts) == len(message["parts"]):
            pruned.append(message)
        elif parts or empty_messages == "keep":
            pruned.append({**message, "parts": parts})
    if empty_messages == "remove":
        pruned = [message for message in pruned if message["parts"]]
    return pruned


def _is_tool_part(part: JsonObject) -> bool:
    return part.get("part_kind") == "tool-call" or is_result(part)


def _calls_to_drop(messages: Sequence[JsonObject], rule: ToolRule) -> set[str]:
    if rule.type == "none":
        return set()
    if rule.type == "all":
        kept = 0
    elif rule.type == "before-last-message":
        kept = 1
    elif match := re.fullmatch(r"before-last-([0-9]+)-messages", rule.type):
        kept = int(match[1])
    else:
        raise UsageError(
            f"tool call rule {rule.type!r} is unknown",
            hint="use none, all, before-last-message or before-last-<n>-messages",
        )
    edge = len(messages) - kept
    protected = {
        part["tool_call_id"]
        for message in messages[edge:]
        for part in message["parts"]
        if _is_tool_part(part)
    }
    return {
        part["tool_call_id"]
        for message in messages[:edge]
        for part in message["parts"]
        if _is_tool_part(part)
        and part["tool_call_id"] not in protected
        and (rule.tools is None or part.get("tool_name") in rule.tools)
    }
