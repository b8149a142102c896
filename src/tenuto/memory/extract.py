"""Extraction: what the model is asked about one exchange, and what of its answer may become a fact. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from tenuto.codec import JsonObject, dumps
from tenuto.context.shape import clip
from tenuto.errors import FactRefused, NotFound
from tenuto.memory.facts import Fact, FactSource, Hash, Memory, Proposal, added, find, superseded
from tenuto.prompting import fill
from tenuto.settings import MemorySettings
from tenuto.words import faithful, stands_in

QUESTION_CHARS = 8_000
ANSWER_CHARS = 2_000
ANSWER_TOKENS = 1_000
OPERATIONS = ("add", "update", "supersede")

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "operations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "op": {"type": "string", "enum": list(OPERATIONS)},
                    "fact": {"type": "string"},
                    "text": {"type": "string"},
                    "quote": {"type": "string"},
                    "importance": {"type": "integer", "minimum": 1, "maximum": 5},
                    "applies_to": {"type": "string"},
                    "until": {"type": "string"},
                },
                "required": ["op", "fact", "text", "quote", "importance", "applies_to", "until"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["operations"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question with its answer."""

    thread: str
    record: int
    """Of the question."""
    question: str
    answer: str
    through: int
    """The last record of the turn."""
    epoch: int = 1
    """Of the thread, when it was read."""

    @property
    def place(self) -> str:
        return place_of(self.thread, self.epoch)


def place_of(thread: str, epoch: int) -> str:
    """The key under which extraction notes how far it came: a cleared thread begins anew."""
    return f"{thread}@{epoch}"


def prompt(facts: Sequence[Fact], exchange: Exchange) -> str:
    """What the extractor is told; facts and words stand as JSON lines."""
    text = (files("tenuto.memory") / "prompts" / "extract.md").read_text("utf-8").strip()
    known = "\n".join(dumps({"id": fact.id, "text": fact.text}).decode() for fact in facts) or "(none yet)"
    said = [
        {"speaker": "user", "text": clip(exchange.question, QUESTION_CHARS, "the rest is not shown")},
        {"speaker": "assistant", "text": clip(exchange.answer, ANSWER_CHARS, "the rest is not shown")},
    ]
    return fill(text, facts=known, said="\n".join(dumps(one).decode() for one in said))


def applied(
    memory: Memory,
    operations: Sequence[JsonObject],
    exchange: Exchange,
    rules: MemorySettings,
    at: str,
    hashed: Hash,
) -> tuple[Memory, list[JsonObject]]:
    """The memory after the operations that hold; each outcome is `{op, result, reason, fact}` without the text.

    Only the user's own words make a fact (I5): the quote must stand in the question.
    """
    outcomes: list[JsonObject] = []
    new = 0
    for raw in operations[: rules.new_per_turn * 4]:
        op = str(raw.get("op", ""))
        outcome: JsonObject = {"op": op, "result": "refused", "reason": "", "fact": ""}
        outcomes.append(outcome)
        if op not in OPERATIONS:
            outcome["reason"] = "unknown operation"
            continue
        if new >= rules.new_per_turn:
            outcome["reason"] = f"more than {rules.new_per_turn} facts from one turn"
            continue
        try:
            before = {fact.id for fact in memory.facts}
            memory, fact = _one(memory, op, raw, exchange, rules, at, hashed)
        except (FactRefused, NotFound) as error:
            outcome["reason"] = error.message
            continue
        new += fact.id not in before
        outcome |= {"result": "applied", "fact": fact.id}
    return memory, outcomes


def _one(
    memory: Memory,
    op: str,
    raw: JsonObject,
    exchange: Exchange,
    rules: MemorySettings,
    at: str,
    hashed: Hash,
) -> tuple[Memory, Fact]:
    quote = str(raw.get("quote", ""))[: rules.fact_chars]
    if not stands_in(quote, exchange.question):
        raise FactRefused("the quote does not stand in the user's words")
    text = str(raw.get("text", "")).strip()
    if not text or not faithful(text, exchange.question, quote):
        text = quote
    importance: Any = raw.get("importance")
    proposal = Proposal(
        text,
        "extracted",
        importance if type(importance) is int else 3,
        FactSource(exchange.thread, exchange.record, quote),
        str(raw.get("applies_to") or ""),
        str(raw.get("until") or ""),
    )
    if op == "add":
        return added(memory, proposal, rules, at, hashed)
    named = str(raw.get("fact", ""))
    if all(fact.id != named for fact in memory.facts):
        # Nothing of that name is known: what the user said is new.
        return added(memory, proposal, rules, at, hashed)
    old = find(memory, named)
    if old.status != "active":
        raise FactRefused(f"the fact is {old.status}")
    if op == "supersede":
        return superseded(memory, old.id, proposal, rules, at, hashed)
    changed, new = superseded(memory, old.id, replace(proposal, importance=old.importance), rules, at, hashed)
    return changed, new
