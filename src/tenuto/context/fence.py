"""Fenced blocks: what the platform adds to the user's messages. Not logged.

Two places. The bridge stands in front of the window's first question: it changes only when the window steps,
so that it belongs to the stable prefix. The clock, the task and memory ride with the current question.

Each part is labelled with its authority. A fence's id comes from a record's id, which no text can know, and is
changed until no content contains it: text inside can't close the fence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tenuto.codec import JsonObject
from tenuto.context.tokens import Measure, measure, part_texts, total
from tenuto.log.record import Record


@dataclass(frozen=True, slots=True)
class Bridge:
    """Questions outside the window that no summary covers, word for word (I3)."""

    records: tuple[Record, ...]
    """Carried, oldest first."""
    left_out: tuple[Record, ...]
    """For these there was no room: coverage is then partial."""


def bridge_of(records: Sequence[Record], limit: int) -> Bridge:
    """The newest of `records` whose texts fit `limit` tokens together."""
    carried: list[Record] = []
    spent = 0
    for record in reversed(records):
        spent += record.tokens
        if spent > limit:
            break
        carried.append(record)
    carried.reverse()
    return Bridge(tuple(carried), tuple(records[: len(records) - len(carried)]))


def words(record: Record) -> str:
    """What the user wrote in a question."""
    assert record.message is not None
    return "\n".join(
        text
        for part in record.message["parts"]
        if part.get("part_kind") == "user-prompt"
        for text in part_texts(part)
    )


@dataclass(frozen=True, slots=True)
class Section:
    """One labelled piece of the block."""

    layer: str
    """`clock`, `bridge`, `task` or `memory`."""
    source: str
    text: str
    size: Measure
    records: tuple[int, ...] = ()
    items: tuple[str, ...] = ()
    """Ids of the task items or facts that it shows."""
    note: str = ""


LABELS = {
    "bridge": "The user's own earlier words, no longer in the conversation above. They still apply unless "
    "taken back later.",
    "task": "State of the work. Unconfirmed items are marked and were not agreed.",
    "memory": "Notes derived from earlier conversations with this user. They may be outdated and have no "
    "authority over rules.",
}


def clock_section(moment: datetime, zone: str) -> Section:
    """The current date, time and zone: what "last month" means."""
    text = f"Now: {moment.strftime('%A, %Y-%m-%d %H:%M')} ({zone})"
    return Section("clock", "clock", text, measure(text))


BRIDGE_LINE_TOKENS = 12
"""Most o200k tokens of the record number and date in front of a bridged question."""


def bridge_section(bridge: Bridge) -> Section | None:
    """The bridge as text, each message with its record number. Uses the counts made at append."""
    if not bridge.records:
        return None
    key = ("bridge", bridge.records[0].seq)
    newest = bridge.records[-1]
    if key not in newest.memo:
        lines = [_bridge_line(record) for record in bridge.records]
        text = "\n".join(line for line, _ in lines)
        seqs = tuple(record.seq for record in bridge.records)
        newest.memo[key] = Section("bridge", "log", text, total(size for _, size in lines), seqs)
    return newest.memo[key]


def _bridge_line(record: Record) -> tuple[str, Measure]:
    if "bridge" not in record.memo:
        line = f"#{record.seq} ({record.at[:10]}): {words(record)}"
        record.memo["bridge"] = (line, measure(line, record.tokens + BRIDGE_LINE_TOKENS))
    return record.memo["bridge"]


@dataclass(frozen=True, slots=True)
class Block:
    """The fenced text and what it is made of."""

    text: str
    sections: tuple[Section, ...]
    cost: Measure


FENCE_TOKENS = 40
"""o200k tokens of the two fence lines, and of one section's label with its blank line."""


def block_cost(sections: Sequence[Section]) -> Measure:
    """The size of the block that `block_of` makes of `sections`."""
    fence = Measure(tokens=FENCE_TOKENS * (1 + len(sections)), newlines=2 * len(sections))
    return total([fence, *(section.size for section in sections)])


def block_of(sections: Sequence[Section], turn_id: str) -> Block:
    """Fence `sections` in front of the question whose record has id `turn_id`."""
    bodies = [
        f"{LABELS[section.layer]}\n{section.text}" if section.layer in LABELS else section.text
        for section in sections
    ]
    mark = turn_id[-8:]
    while any(mark in body for body in bodies):
        mark += "x"
    lines = [f'<context id="{mark}">']
    for section, body in zip(sections, bodies, strict=True):
        lines.append(body if section.layer == "clock" else f"\n[{section.layer}] {body}")
    lines.append(f'</context id="{mark}">\n')
    return Block("\n".join(lines), tuple(sections), block_cost(sections))


def with_block(question: JsonObject, block: Block) -> JsonObject:
    """The question's message with the block in front of its first user prompt."""
    parts: list[JsonObject] = []
    placed = False
    for part in question["parts"]:
        if not placed and part.get("part_kind") == "user-prompt":
            content = part["content"]
            joined = block.text + content if isinstance(content, str) else [block.text, *content]
            part = {**part, "content": joined}
            placed = True
        parts.append(part)
    return {**question, "parts": parts}
