"""Facts: values, limits, and what may be done to them. Pure; O(facts).

Every limit is the program's: a model can propose, it can't overfill (I12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from tenuto.codec import JsonObject, new_id
from tenuto.errors import FactRefused, NotFound
from tenuto.memory.scanner import check
from tenuto.settings import MemorySettings
from tenuto.words import same_words

VERSION = 1
KEPT_HISTORY = 50
"""Facts that are no longer active and still kept, for the panel's history."""
CONDITION_CHARS = 80

Status: TypeAlias = Literal["active", "forgotten", "superseded", "evicted"]
Origin: TypeAlias = Literal["tool", "extracted", "user"]
Hash: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class FactSource:
    """The user's own words that a fact rests on."""

    thread: str
    record: int
    quote: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing remembered."""

    id: str
    text: str
    importance: int
    """1 to 5."""
    status: Status
    origin: Origin
    source: FactSource | None
    applies_to: str
    """When it holds, in the user's words (`monthly reports`); empty: always."""
    created_at: str
    confirmed_at: str
    updated_at: str
    superseded_by: str | None = None
    until: str = ""
    """Last day it holds, `2027-03-31`; empty: no end."""

    def as_json(self) -> JsonObject:
        raw = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.source is not None:
            raw["source"] = {
                "thread": self.source.thread,
                "record": self.source.record,
                "quote": self.source.quote,
            }
        return raw

    @classmethod
    def from_json(cls, raw: JsonObject) -> Fact:
        """Raises KeyError, TypeError or ValueError for what is no fact."""
        source = raw.get("source")
        known = {one.name: raw[one.name] for one in fields(cls) if one.name in raw and one.name != "source"}
        return cls(**known, source=None if source is None else FactSource(**source))


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered of one user in one workspace."""

    epoch: int = 1
    """Raised by every hard delete: an extraction that began earlier can't write (I12)."""
    facts: tuple[Fact, ...] = ()
    use: bool = False
    """Whether facts go into requests."""
    extract: bool = False
    """Whether facts are extracted from what the user says."""
    since: str = ""
    """Extraction looks at nothing said before it was switched on, nor before the last hard delete."""
    read: dict[str, int] = field(default_factory=dict[str, int])
    """For each `thread@epoch`, the newest record that extraction has dealt with."""
    stuck: dict[str, int] = field(default_factory=dict[str, int])
    """For each `thread@epoch`, how often its next turn failed."""
    tombstones: dict[str, str] = field(default_factory=dict[str, str])
    """Keyed hashes of deleted facts, and when: what was deleted can't be written again by a job."""
    v: int = VERSION

    @property
    def active(self) -> list[Fact]:
        return [fact for fact in self.facts if fact.status == "active"]

    def as_json(self) -> JsonObject:
        raw: JsonObject = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "facts"}
        return {**raw, "facts": [fact.as_json() for fact in self.facts]}

    @classmethod
    def from_json(cls, raw: JsonObject) -> Memory:
        """Raises KeyError, TypeError or ValueError for what is no memory of this version."""
        if raw["v"] != VERSION:
            raise ValueError(f"memory version {raw['v']!r} is unknown")
        known: dict[str, Any] = {one.name: raw[one.name] for one in fields(cls) if one.name in raw}
        known["facts"] = tuple(Fact.from_json(fact) for fact in raw["facts"])
        return cls(**known)


def holds(fact: Fact, day: str) -> bool:
    """Whether an active fact holds on `day` (`2026-12-01`)."""
    return fact.status == "active" and (not fact.until or day <= fact.until)


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """By score, best first: importance, then how lately it was confirmed."""
    return sorted(facts, key=lambda fact: (fact.importance, fact.confirmed_at, fact.id), reverse=True)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A fact as somebody proposes it."""

    text: str
    origin: Origin
    importance: int = 3
    source: FactSource | None = None
    applies_to: str = ""
    until: str = ""


def _checked(proposal: Proposal, rules: MemorySettings) -> Proposal:
    """The proposal within its limits. Raises `FactRefused`."""
    text = " ".join(proposal.text.split())
    if not text:
        raise FactRefused("the fact has no text", hint="say what to remember")
    if len(text) > rules.fact_chars:
        raise FactRefused(
            f"a fact has at most {rules.fact_chars} characters, this has {len(text)}", hint="say it shorter"
        )
    until = proposal.until.strip()
    if until and not _is_day(until):
        raise FactRefused(f"{until[:20]!r} is not a day", hint="write the last day as 2027-03-31")
    check(text, proposal.source.quote if proposal.source else "")
    condition = " ".join(proposal.applies_to.split())[:CONDITION_CHARS]
    importance = min(5, max(1, proposal.importance))
    return replace(proposal, text=text, applies_to=condition, until=until, importance=importance)


def _is_day(text: str) -> bool:
    from datetime import date

    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def added(
    memory: Memory, proposal: Proposal, rules: MemorySettings, at: str, hashed: Hash
) -> tuple[Memory, Fact]:
    """The memory with one more fact; one that says the same is confirmed instead.

    Over a limit the lowest score goes, which may be the new one. Raises `FactRefused`, also for what a job
    would write again after it was deleted.
    """
    proposal = _checked(proposal, rules)
    key = same_words(proposal.text)
    for fact in memory.active:
        if same_words(fact.text) == key:
            best = max(fact.importance, proposal.importance)
            confirmed = replace(fact, confirmed_at=at, importance=best)
            return _with(memory, confirmed), confirmed
    tombstones = memory.tombstones
    mark = hashed(key)
    if mark in tombstones:
        if proposal.origin == "extracted":
            raise FactRefused("this was deleted and is not written again", hint="say it anew to keep it")
        tombstones = {known: when for known, when in tombstones.items() if known != mark}
    fact = Fact(
        id=_new_id(memory),
        text=proposal.text,
        importance=proposal.importance,
        status="active",
        origin=proposal.origin,
        source=proposal.source,
        applies_to=proposal.applies_to,
        created_at=at,
        confirmed_at=at,
        updated_at=at,
        until=proposal.until,
    )
    memory = replace(memory, facts=(*memory.facts, fact), tombstones=tombstones)
    return _within_limits(memory, rules, at), fact


def _new_id(memory: Memory) -> str:
    """A short id that was never used in this memory: models read and write it."""
    known = {fact.id for fact in memory.facts}
    while (identity := f"f{new_id()[-5:]}") in known:
        pass
    return identity


def _with(memory: Memory, changed: Fact) -> Memory:
    return replace(memory, facts=tuple(changed if fact.id == changed.id else fact for fact in memory.facts))


def find(memory: Memory, identity: str) -> Fact:
    """The fact with this id. Raises `NotFound`."""
    for fact in memory.facts:
        if fact.id == identity:
            return fact
    raise NotFound(f"there is no fact {identity!r}", hint="see `tenuto memory list`")


def superseded(
    memory: Memory, identity: str, proposal: Proposal, rules: MemorySettings, at: str, hashed: Hash
) -> tuple[Memory, Fact]:
    """The memory with another fact in the place of one. Raises `FactRefused` or `NotFound`."""
    old = find(memory, identity)
    changed, new = added(memory, proposal, rules, at, hashed)
    if new.id == old.id:
        return changed, new
    gone = replace(old, status="superseded", superseded_by=new.id, updated_at=at)
    return _within_limits(_with(changed, gone), rules, at), new


def edited(memory: Memory, identity: str, text: str, rules: MemorySettings, at: str) -> Memory:
    """A fact with another text, by the user's hand. Raises `FactRefused` or `NotFound`."""
    old = find(memory, identity)
    proposal = _checked(Proposal(text, "user"), rules)
    new = replace(
        old, text=proposal.text, origin="user", source=None, status="active", confirmed_at=at, updated_at=at
    )
    return _within_limits(_with(memory, new), rules, at)


def forgotten(memory: Memory, identities: Sequence[str], at: str) -> tuple[Memory, int]:
    """Facts taken out of use; a bounded history keeps them (I12). Returns how many there were."""
    wanted = {fact.id for fact in memory.active if fact.id in identities}
    facts = tuple(
        replace(fact, status="forgotten", updated_at=at) if fact.id in wanted else fact
        for fact in memory.facts
    )
    return _bounded(replace(memory, facts=facts)), len(wanted)


def deleted(
    memory: Memory, identities: Sequence[str] | None, at: str, hashed: Hash
) -> tuple[Memory, list[Fact]]:
    """Facts gone for good (None: all): no text stays, only keyed hashes.

    Running jobs lose their right to write, and what was said before is not looked at again.
    """
    gone = [fact for fact in memory.facts if identities is None or fact.id in identities]
    kept = tuple(fact for fact in memory.facts if fact not in gone)
    marks = {hashed(same_words(fact.text)): at for fact in gone}
    tombstones = {**memory.tombstones, **marks}
    changed = replace(memory, facts=kept, tombstones=tombstones, epoch=memory.epoch + 1, since=at)
    return changed, gone


def _within_limits(memory: Memory, rules: MemorySettings, at: str) -> Memory:
    """Evict by score until the active facts keep to their limits."""
    active = in_order(memory.active)
    kept, spent = 0, 0
    for fact in active:
        if kept == rules.facts or spent + len(fact.text) > rules.chars:
            break
        kept, spent = kept + 1, spent + len(fact.text)
    gone = {fact.id for fact in active[kept:]}
    facts = tuple(
        replace(fact, status="evicted", updated_at=at) if fact.id in gone else fact for fact in memory.facts
    )
    return _bounded(replace(memory, facts=facts))


def _bounded(memory: Memory) -> Memory:
    """The newest of what is no longer active."""
    past = [fact for fact in memory.facts if fact.status != "active"]
    if len(past) <= KEPT_HISTORY:
        return memory
    newest = sorted(past, key=lambda fact: fact.updated_at)[-KEPT_HISTORY:]
    return replace(
        memory, facts=tuple(fact for fact in memory.facts if fact.status == "active" or fact in newest)
    )


def render(memory: Memory, day: str) -> tuple[str, tuple[str, ...]]:
    """The facts as the model reads them, and their ids. Most important first."""
    shown = in_order(fact for fact in memory.facts if holds(fact, day))
    lines = [_line(fact) for fact in shown]
    return "\n".join(lines), tuple(fact.id for fact in shown)


LINE_START = "- [f"
"""How a rendered memory begins."""


def _line(fact: Fact) -> str:
    notes = [f"for {fact.applies_to}" if fact.applies_to else "", f"until {fact.until}" if fact.until else ""]
    held = "; ".join(note for note in notes if note)
    return f"- [{fact.id}] {fact.text}" + (f" ({held})" if held else "") + f", since {fact.created_at[:10]}"
