"""One model request: base rules, tools, bridge, history window, then the block with the question, in one budget.

`assemble` is pure: the same inputs give the same bytes, and the manifest it returns names everything needed
to build the request again from the log (I17). Costs O(turns in the window), not the length of the
conversation (I15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tenuto.codec import JsonObject, digest
from tenuto.context.fence import (
    Block,
    Bridge,
    Section,
    block_cost,
    block_of,
    bridge_of,
    bridge_section,
    clock_section,
    with_block,
)
from tenuto.context.pair import rename_repeated
from tenuto.context.tokens import RESERVE, Anchor, Family, Measure, predict, total
from tenuto.context.window import Closed, Marks, Rendered, Turn, Window, WindowRules, choose, reaching
from tenuto.errors import QuestionTooLarge
from tenuto.log.record import Record
from tenuto.settings import ContextSettings

MANIFEST_VERSION = 1
BRIDGE_SHARE = 0.25
"""Most of a small window's room that the bridge may take, so that history and answer have theirs."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the budget needs to know of the serving model."""

    name: str
    provider: str
    """Pydantic AI's system name, for example `openai`."""
    family: Family
    window: int
    """Tokens of the whole request and answer."""
    output: int
    """Tokens the model may answer with at most."""
    thinking: int = 0
    """Reserved for thinking, on top of the answer."""
    counts: bool = True
    """Whether the provider reports real token counts, which can anchor the next estimate."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The stable prefix that isn't history: base rules and tool definitions, with their hashes."""

    instructions_hash: str
    tools_hash: str
    instructions: Measure
    tools: Measure

    @property
    def cost(self) -> Measure:
        return self.instructions + self.tools


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a request is made of."""

    turns: Sequence[Turn]
    """The active branch, oldest first; the last one is the current turn."""
    marks: Marks
    fixed: Fixed
    model: ModelFacts
    settings: ContextSettings
    moment: datetime
    """Start of the turn, in the user's zone. The block stands still within a turn."""
    zone: str
    bridge: Sequence[Record] = ()
    """The branch's questions after `marks.floor` and before `marks.start`, oldest first."""
    covers_seq: int = 0
    """The task covers the branch's records up to here. The bridge follows when the window moves."""
    sections: Sequence[Section] = ()
    """Task and memory, rendered by their owners."""
    expired: frozenset[str] = frozenset()
    anchor: Anchor | None = None
    step: int = 0
    """Number of the model request within the turn, from 0."""


@dataclass(frozen=True, slots=True)
class Request:
    """The messages to send, with the account of them."""

    messages: list[JsonObject]
    rendered: tuple[Rendered, ...]
    marks: Marks
    manifest: JsonObject
    summed: int
    """Our formula's sum, for the next anchor."""
    key: str
    predicted: int
    head: int
    """Index of the current question: everything before it is the stable prefix."""
    sections: tuple[Section, ...]
    """What the platform added to the user's messages."""


def assemble(inputs: Inputs) -> Request:
    """Build the request. Raises `QuestionTooLarge` or `ContextUnfittable` (I8, I18)."""
    family = inputs.model.family
    reserved = reserved_output(inputs.model, inputs.settings)
    window, blocks, bridged = _fit(inputs, reserved)
    current, closed = window.current, window.closed
    used = set(closed.used)
    messages = list(closed.messages)
    head = len(messages)
    messages.extend(rename_repeated(current.messages, used, str(current.turn.number), current.calls))
    messages[head] = with_block(messages[head], blocks.now)
    if blocks.bridge is not None:
        messages[0] = with_block(messages[0], blocks.bridge)

    history = window.history_tokens
    summed = (inputs.fixed.cost + history + current.question_cost + blocks.cost).of(family)
    key = digest(
        [
            inputs.model.name,
            inputs.fixed.instructions_hash,
            inputs.fixed.tools_hash,
            window.marks.start,
            window.marks.clip,
            window.marks.squeeze,
        ]
    )
    anchor = inputs.anchor if inputs.model.counts else None
    predicted, how = predict(summed, key, anchor)
    manifest: JsonObject = {
        "v": MANIFEST_VERSION,
        "turn": current.turn.number,
        "step": inputs.step,
        "model": inputs.model.name,
        "provider": inputs.model.provider,
        "family": family,
        "moment": inputs.moment.isoformat(),
        "zone": inputs.zone,
        "through": current.turn.last_seq,
        "marks": window.marks.as_json(),
        "rules": list(inputs.settings.model_dump().values()),
        "blocks": _blocks(inputs, window, blocks, family),
        "left_out": _left_out(window, bridged),
        "budget": {
            "window": inputs.model.window,
            "output": reserved,
            "fixed": inputs.fixed.cost.of(family),
            "history": inputs.settings.history_tokens,
            "used": predicted,
            "estimated_by": how,
        },
        "prefix": _prefix(inputs, window, blocks, key, summed, family),
        "key": key,
        "summed": summed,
        "coverage": "partial" if window.marks.lost else "bridged" if bridged.records else "full",
        "hash": digest([closed.digest, current.digest, blocks.texts, sorted(used)]),
    }
    if inputs.expired:
        manifest["expired"] = sorted(inputs.expired)
    return Request(
        messages, window.turns, window.marks, manifest, summed, key, predicted, head, blocks.sections
    )


def reserved_output(model: ModelFacts, settings: ContextSettings) -> int:
    """Tokens kept free for the answer and for thinking: what the model is asked to keep to."""
    return min(settings.output_tokens, model.output) + model.thinking


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The fenced blocks of a request."""

    bridge: Block | None
    """In front of the window's first question; None if there is no bridge."""
    now: Block
    """In front of the current question."""

    @property
    def all(self) -> list[Block]:
        return [self.now] if self.bridge is None else [self.bridge, self.now]

    @property
    def cost(self) -> Measure:
        return total(block.cost for block in self.all)

    @property
    def texts(self) -> list[str]:
        return [block.text for block in self.all]

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(section for block in self.all for section in block.sections)


def _fit(inputs: Inputs, reserved: int) -> tuple[Window, _Blocks, Bridge]:
    """Choose window and bridge together: turns that leave the window make the bridge grow.

    Each round can only drop more turns, so that the rounds end; the last bridge always matches the last
    window (I3).
    """
    now = block_of(
        [clock_section(inputs.moment, inputs.zone), *inputs.sections], inputs.turns[-1].records[0].id
    )
    limit = min(inputs.settings.bridge_tokens, int(_room(inputs, reserved, now.cost) * BRIDGE_SHARE))
    covers = min(inputs.marks.covers, inputs.covers_seq)
    closed = inputs.turns[:-1]
    entered = left = reaching(closed, inputs.marks.start)
    while True:
        gone = [record for turn in closed[entered:left] for record in turn.questions]
        bridged = bridge_of([record for record in (*inputs.bridge, *gone) if record.seq > covers], limit)
        if bridged.left_out and covers < inputs.covers_seq:
            covers = inputs.covers_seq
            continue
        bridge = bridge_section(bridged)
        spent = now.cost + block_cost([bridge]) if bridge is not None else now.cost
        window = choose(inputs.turns, inputs.marks, _rules(inputs, reserved, spent))
        before, left = left, max(left, reaching(closed, window.marks.start))
        moved = window.marks.start != inputs.marks.start and covers < inputs.covers_seq
        if moved:
            covers = inputs.covers_seq
        if left == before and not moved:
            break
    lost = max([window.marks.lost, *(record.seq for record in bridged.left_out)])
    marks = replace(window.marks, lost=lost if lost > covers else 0, covers=covers)
    shown = window.closed.rendered[0] if window.closed.rendered else window.current
    blocks = _Blocks(block_of([bridge], shown.turn.records[0].id) if bridge is not None else None, now)
    return replace(window, marks=marks), blocks, bridged


def _room(inputs: Inputs, reserved: int, blocks: Measure) -> int:
    """Tokens that fixed parts, answer, blocks and question leave to the rest. Raises `QuestionTooLarge` (I8)."""
    family, model = inputs.model.family, inputs.model
    question = sum(record.tokens for record in inputs.turns[-1].questions)
    room = model.window - reserved - inputs.fixed.cost.of(family) - blocks.of(family) - question
    if room < 0:
        raise QuestionTooLarge(
            f"the question is {-room:,} tokens too large for {model.name}'s window of {model.window:,} tokens",
            hint="shorten it, attach it as a file, or choose a model with a larger window",
            over_tokens=-room,
        )
    return room


def _rules(inputs: Inputs, reserved: int, blocks: Measure) -> WindowRules:
    """The window's rules; the history gets what the whole request leaves it (I8)."""
    settings = inputs.settings
    room = _room(inputs, reserved, blocks)
    return WindowRules(
        budget=min(settings.history_tokens, int(room / RESERVE)),
        trim_to=settings.trim_to,
        policy=settings.policy,
        recent_turns=settings.recent_turns,
        recent_chars=settings.recent_result_chars,
        old_chars=settings.old_result_chars,
        images=settings.images,
        family=inputs.model.family,
        provider=inputs.model.provider,
        expired=inputs.expired,
    )


def _blocks(inputs: Inputs, window: Window, blocks: _Blocks, family: Family) -> list[JsonObject]:
    current = window.current
    entries = [
        _entry("base", f"sha256:{inputs.fixed.instructions_hash}", inputs.fixed.instructions, family),
        _entry("tools", f"sha256:{inputs.fixed.tools_hash}", inputs.fixed.tools, family),
    ]
    if blocks.bridge is not None:
        entries.extend(_section_entry(section, family) for section in blocks.bridge.sections)
    entries.extend(_closed_entries(window.closed, family))
    entries.extend(_section_entry(section, family) for section in blocks.now.sections)
    asked = [record.seq for record in current.turn.questions]
    question = _entry("question", "log", current.question_cost, family)
    entries.append(question | {"records": _ranges(asked)})
    steps = [seq for seq in current.seqs if seq not in asked]
    if steps:
        entry = _history_entry("turn", [current], "steps of this turn", family)
        entries.append(entry | {"records": _ranges(steps), "tokens": current.cost.of(family)})
    return entries


def _closed_entries(closed: Closed, family: Family) -> list[JsonObject]:
    """The closed turns in the manifest; all requests of a turn share them."""
    if family not in closed.memo:
        older = [rendered for rendered in closed.rendered if rendered.old]
        recent = [rendered for rendered in closed.rendered if not rendered.old]
        closed.memo[family] = [
            _history_entry("history", turns, note, family)
            for turns, note in ((older, "older turns"), (recent, "recent turns"))
            if turns
        ]
    return closed.memo[family]


def _section_entry(section: Section, family: Family) -> JsonObject:
    entry = _entry(section.layer, section.source, section.size, family) | {"note": section.note}
    if section.items:
        entry["items"] = list(section.items)
    if section.records:
        spread = [[section.records[0], section.records[-1]]]
        entry |= {"records": spread, "state": "bridge", "note": f"{len(section.records)} questions"}
    return entry


def _entry(layer: str, source: str, size: Measure, family: Family) -> JsonObject:
    return {
        "layer": layer,
        "source": source,
        "tokens": size.of(family),
        "chars": size.chars,
        "records": [],
        "state": "whole",
        "note": "",
    }


def _history_entry(layer: str, turns: Sequence[Rendered], note: str, family: Family) -> JsonObject:
    size = total([*(r.cost for r in turns), *(r.question_cost for r in turns)])
    clipped = [seq for rendered in turns for seq in rendered.clipped]
    elided = [seq for rendered in turns for seq in rendered.elided]
    repairs = [repair for rendered in turns for repair in rendered.repairs]
    entry = _entry(layer, "log", size, family)
    entry |= {
        "records": _ranges([seq for rendered in turns for seq in rendered.seqs]),
        "state": "clipped" if clipped else "elided" if elided else "whole",
        "note": note,
    }
    if clipped:
        entry["clipped"] = clipped
    if elided:
        entry["elided"] = elided
    if repairs:
        entry["repairs"] = repairs
    return entry


def _ranges(seqs: Sequence[int]) -> list[list[int]]:
    """Sequence numbers as inclusive `[from, to]` ranges. Events between two messages don't break a range."""
    ranges: list[list[int]] = []
    ordered = sorted(seqs)
    for seq in ordered:
        if ranges and seq - ranges[-1][1] <= 3:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ranges


def _left_out(window: Window, bridged: Bridge) -> list[JsonObject]:
    """What lies before the window, by what stands for it: the task, the bridge, or the log alone."""
    marks = window.marks
    left: list[JsonObject] = []

    def leave(first: int, last: int, reason: str, covered_by: str) -> None:
        if first <= last:
            left.append({"from_seq": first, "to_seq": last, "reason": reason, "covered_by": covered_by})

    dropped = marks.start - 1
    leave(1, min(marks.covers, dropped), "window", "task")
    leave(marks.covers + 1, min(marks.lost, dropped), "bridge_full", "log")
    leave(marks.floor + 1, dropped, "window", "bridge" if bridged.records else "log")
    return left


def _prefix(
    inputs: Inputs, window: Window, blocks: _Blocks, key: str, summed: int, family: Family
) -> JsonObject:
    """The stable prefix (fixed parts and history), and the share of this request the previous one began with.

    Within a turn that is the whole previous request. At a turn's first request it ends before the last
    closed turn, whose question then carried the block. When the marks moved, only the fixed parts are equal.
    """
    fixed = [inputs.fixed.instructions_hash, inputs.fixed.tools_hash]
    closed = window.closed.rendered
    stable = inputs.fixed.cost.of(family)
    if inputs.anchor is not None and inputs.anchor.key == key:
        if inputs.step > 0:
            stable = inputs.anchor.summed
        else:
            last = closed[-1].cost + closed[-1].question_cost if closed else Measure()
            bridge = blocks.bridge.cost if blocks.bridge is not None else Measure()
            stable += (window.closed.cost + bridge).of(family) - last.of(family)
    return {
        "hash": digest([*fixed, blocks.bridge.text if blocks.bridge else "", window.closed.digest]),
        "stable_share": round(stable / max(1, summed), 4),
    }


def common_prefix(first: Sequence[JsonObject], second: Sequence[JsonObject]) -> int:
    """How many leading messages of two requests are equal."""
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
