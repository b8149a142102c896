"""A refresh: what the model is asked, how its answer is read, and whether the result may stand. Pure.

The model gets the present items and the records that left the window, as data, and gives back operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files

from tenuto.codec import JsonObject, dumps, now, parse_stamp, stamp
from tenuto.context.shape import clip
from tenuto.context.tokens import count
from tenuto.prompting import fill, operations_in
from tenuto.task.evidence import Said
from tenuto.task.ledger import (
    CLOSED,
    KINDS,
    OPERATIONS,
    Item,
    Ledger,
    OnBranch,
    Operation,
    Outcome,
    Spans,
    apply,
    joined,
)

SHOWN_CHARS = {"user": 4_000, "assistant": 1_200, "tool": 400}
"""Most characters of a record shown to the summariser, by who speaks."""
ANSWER_TOKENS = 1_500
ATTEMPTS = 2
GROWTH_FLOOR = 300
"""Tokens that a refresh may always add; beyond, it must not add more than it takes in (I18)."""
COOLDOWN_S = 60.0
COOLDOWN_MOST_S = 3_600.0

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "operations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "op": {"type": "string", "enum": list(OPERATIONS)},
                    "kind": {"type": "string", "enum": [*KINDS, ""]},
                    "item": {"type": "string"},
                    "text": {"type": "string"},
                    "record": {"type": "integer"},
                    "quote": {"type": "string"},
                },
                "required": ["op", "kind", "item", "text", "record", "quote"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["operations"],
    "additionalProperties": False,
}


def prompt(items: Sequence[Item], said: Sequence[Said], focus: str = "", problem: str = "") -> str:
    """What the summariser is told. Items and records stand as JSON lines, so that no text can pose as another."""
    text = (files("tenuto.task") / "prompts" / "refresh.md").read_text("utf-8").strip()
    known = "\n".join(_item_line(item) for item in items) or "(none yet)"
    records = "\n".join(_said_line(one) for one in said)
    text = fill(text, items=known, records=records)
    if focus:
        text += f"\n\nPay most attention to: {dumps(focus).decode()}"
    if problem:
        text += f"\n\nYour last answer could not be used: {problem}. Answer with the JSON object only."
    return text


def _item_line(item: Item) -> str:
    shown = {"id": item.id, "kind": item.kind, "status": item.status, "text": item.text}
    if not item.verified:
        shown["note"] = "unconfirmed"
    return dumps(shown).decode()


def _said_line(one: Said) -> str:
    text = clip(one.text, SHOWN_CHARS[one.speaker], "the rest is not shown")
    return dumps({"record": one.record, "speaker": one.speaker, "text": text}).decode()


def cost_of(one: Said) -> int:
    """Tokens of a record as the summariser sees it: a tenth more than its share of the counted ones."""
    chars = SHOWN_CHARS[one.speaker]
    share = min(1.0, chars / max(1, len(one.text)))
    return int(one.tokens * share * 1.1) + 30


def parse(answer: str) -> list[Operation] | None:
    """The operations of an answer, None if it holds none at all."""
    found = operations_in(answer)
    return None if found is None else [Operation.from_json(one) for one in found]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A ledger after a refresh, and what became of each operation."""

    ledger: Ledger
    outcomes: list[Outcome]


class Grew(ValueError):
    """The items grew by more than the records they stand for (I18)."""


def refreshed(
    ledger: Ledger,
    operations: Sequence[Operation],
    said: Mapping[int, Said],
    covering: Spans,
    *,
    on_branch: OnBranch,
    instructions: str,
    model: str,
) -> Refreshed | None:
    """The ledger with the operations applied and the records covered.

    None where all of them are covered already: a refresh that covers less can't replace one that covers more
    (I10). Raises `Grew`.
    """
    covered = joined(ledger.covered, covering)
    if covered == ledger.covered:
        return None
    items, outcomes = apply(ledger.items, operations, said, on_branch=on_branch, instructions=instructions)
    grown = weight(items) - weight(ledger.items)
    taken_in = sum(cost_of(one) for one in said.values())
    if grown > max(GROWTH_FLOOR, taken_in):
        raise Grew(f"the items grew by {grown:,} tokens for {taken_in:,} tokens of conversation")
    new = Ledger(ledger.epoch, items, covered, ledger.version + 1, model, stamp())
    return Refreshed(new, outcomes)


def weight(items: Sequence[Item]) -> int:
    """Tokens of the living items, unlimited."""
    return sum(count(item.text) + count(item.quote) for item in items if item.status not in CLOSED)


def failed(ledger: Ledger, reason: str) -> Ledger:
    """The same items after a refresh that failed, with the next cooldown: 1, 2, 4, … minutes, an hour at most."""
    failures = ledger.failures + 1
    wait = min(COOLDOWN_MOST_S, COOLDOWN_S * 2 ** (failures - 1))
    return Ledger(
        ledger.epoch,
        ledger.items,
        ledger.covered,
        ledger.version,
        ledger.model,
        ledger.at,
        failures,
        stamp(now() + timedelta(seconds=wait)),
        reason[:300],
    )


def cooling(ledger: Ledger) -> bool:
    """Whether the cooldown after failures still runs."""
    return bool(ledger.retry_at) and parse_stamp(ledger.retry_at) > now()
