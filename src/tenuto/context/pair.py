"""Pairs: every tool call has exactly one result, right after it, whatever the log looks like (I7).

Providers refuse a request with an unanswered call, an orphan result or an id used twice. A result is matched
by id within its own turn, never with a later turn's call. Costs O(parts).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JsonObject

INTERRUPTED = "interrupted: no result was recorded"


@dataclass(frozen=True, slots=True)
class Paired:
    """One turn's messages with its pairs in order."""

    messages: list[JsonObject]
    repairs: tuple[str, ...]
    """What was repaired, for the manifest: `missing c3`, `orphan c9`, `duplicate c1`, `early c2`."""


def is_result(part: JsonObject) -> bool:
    """Whether a part answers a tool call. A retry prompt does so only if it names its tool."""
    kind = part.get("part_kind")
    return kind == "tool-return" or (kind == "retry-prompt" and bool(part.get("tool_name")))


def pair_turn(messages: Sequence[JsonObject]) -> Paired:
    """Pair calls and results of one turn: missing, duplicate, orphan, early and out-of-order ones.

    Results follow their response at once, in the order of its calls; what a request held beside results
    follows them. Inputs are not changed.
    """
    calls: dict[str, deque[tuple[int, int]]] = {}
    for at, message in enumerate(messages):
        if message["kind"] == "response":
            for number, part in enumerate(message["parts"]):
                if part.get("part_kind") == "tool-call":
                    calls.setdefault(part["tool_call_id"], deque()).append((at, number))
    if not calls and not any(is_result(part) for message in messages for part in message["parts"]):
        return Paired([message for message in messages if message["parts"]], ())

    answers: dict[tuple[int, int], JsonObject] = {}
    repairs: list[str] = []
    for at, message in enumerate(messages):
        if message["kind"] != "request":
            continue
        for part in message["parts"]:
            if is_result(part):
                _answer(part, at, calls, answers, repairs)

    paired: list[JsonObject] = []
    for at, message in enumerate(messages):
        if message["kind"] == "request":
            rest = [part for part in message["parts"] if not is_result(part)]
            if rest:
                paired.append({**message, "parts": rest} if len(rest) < len(message["parts"]) else message)
            continue
        if not message["parts"]:
            continue
        paired.append(message)
        results: list[JsonObject] = []
        for number, part in enumerate(message["parts"]):
            if part.get("part_kind") == "tool-call":
                result = answers.get((at, number))
                if result is None:
                    repairs.append(f"missing {part['tool_call_id']}")
                    result = interrupted(part)
                results.append(result)
        if results:
            paired.append({"kind": "request", "parts": results})
    return Paired(_merge_requests(paired), tuple(repairs))


def _answer(
    part: JsonObject,
    at: int,
    calls: dict[str, deque[tuple[int, int]]],
    answers: dict[tuple[int, int], JsonObject],
    repairs: list[str],
) -> None:
    """Give a result to the oldest call of its id that has none, an earlier call before a later one."""
    identity = part.get("tool_call_id", "")
    places = calls.get(identity)
    if not places:
        repairs.append(f"orphan {identity}")
        return
    open_places = [place for place in places if place not in answers]
    before = [place for place in open_places if place[0] < at]
    if before:
        answers[before[0]] = part
    elif open_places and not any(place[0] < at for place in places):
        answers[open_places[0]] = part
        repairs.append(f"early {identity}")
    else:
        repairs.append(f"duplicate {identity}")


def interrupted(call: JsonObject) -> JsonObject:
    """The result of a call that has none on record. Deterministic, so that prefixes stay equal."""
    return {
        "part_kind": "tool-return",
        "tool_name": call["tool_name"],
        "content": INTERRUPTED,
        "tool_call_id": call["tool_call_id"],
        "outcome": "interrupted",
    }


def _merge_requests(messages: list[JsonObject]) -> list[JsonObject]:
    """Join neighbouring requests, results first, as every provider wants them."""
    merged: list[JsonObject] = []
    for message in messages:
        if merged and message["kind"] == merged[-1]["kind"] == "request":
            merged[-1] = {**merged[-1], "parts": [*merged[-1]["parts"], *message["parts"]]}
        else:
            merged.append(message)
    return merged


def call_ids(messages: Sequence[JsonObject]) -> list[str]:
    """The ids of the tool calls, in order, repeats included."""
    return [
        part["tool_call_id"]
        for message in messages
        if message["kind"] == "response"
        for part in message["parts"]
        if part.get("part_kind") == "tool-call"
    ]


def rename_repeated(
    messages: list[JsonObject], used: set[str], mark: str, known: Sequence[str] | None = None
) -> list[JsonObject]:
    """Give calls whose id is in `used` (or repeats here) a new id, with their results; adds to `used`.

    `messages` are paired; `known` are their call ids, if the caller has them. `mark` (the turn's number) makes
    new ids the same in every request.
    """
    identities = call_ids(messages) if known is None else known
    if not identities:
        return messages
    if len(set(identities)) == len(identities) and used.isdisjoint(identities):
        used.update(identities)
        return messages
    renamed: list[JsonObject] = []
    names: deque[str] = deque()
    for message in messages:
        if message["kind"] == "response":
            names.clear()
            parts = [_renamed_call(part, used, mark, names) for part in message["parts"]]
        else:
            parts = [
                {**part, "tool_call_id": names.popleft()} if is_result(part) and names else part
                for part in message["parts"]
            ]
        renamed.append({**message, "parts": parts})
    return renamed


def _renamed_call(part: JsonObject, used: set[str], mark: str, names: deque[str]) -> JsonObject:
    if part.get("part_kind") != "tool-call":
        return part
    identity: Any = part["tool_call_id"]
    number = 0
    while identity in used or not identity:
        number += 1
        identity = f"{str(part['tool_call_id'])[:40]}_t{mark}_{number}"
    used.add(identity)
    names.append(identity)
    return part if identity == part["tool_call_id"] else {**part, "tool_call_id": identity}


def violations(messages: Sequence[JsonObject]) -> list[str]:
    """What in a request breaks I7, for tests and checks; empty for a valid one."""
    found: list[str] = []
    seen: set[str] = set()
    nothing: JsonObject = {"kind": "request", "parts": []}
    for at, message in enumerate(messages):
        if message["kind"] == "response":
            wanted = call_ids([message])
            following = messages[at + 1] if at + 1 < len(messages) else nothing
            given = [part["tool_call_id"] for part in following["parts"] if is_result(part)]
            if wanted != given:
                found.append(f"message {at}: calls {wanted} are answered by {given}")
            found.extend(f"id {identity} is used twice" for identity in wanted if identity in seen)
            if len(set(wanted)) < len(wanted):
                found.append(f"message {at}: an id is used twice in {wanted}")
            seen.update(wanted)
        else:
            previous = messages[at - 1] if at else nothing
            if not call_ids([previous] if previous["kind"] == "response" else []):
                found.extend(
                    f"message {at}: orphan {part['tool_call_id']}"
                    for part in message["parts"]
                    if is_result(part)
                )
    return found
