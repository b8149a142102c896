"""The ledger: items, and the operations that change them. Values and pure functions.

A model proposes operations; the program decides (I4 to I6). What an item is on a branch follows from its
changes whose evidence stands on that branch (I16), so that nothing is rewritten when a user edits or goes back.
Costs O(items × operations).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from tenuto.codec import JsonObject
from tenuto.task.evidence import Said
from tenuto.words import faithful, folded, overlaps, same_words, stands_in

VERSION = 1

Kind: TypeAlias = Literal["goal", "constraint", "decision", "reference", "progress", "open"]
Status: TypeAlias = Literal["active", "pending", "done", "withdrawn", "superseded"]
KINDS: tuple[Kind, ...] = ("goal", "constraint", "decision", "reference", "progress", "open")
OPERATIONS = ("add", "confirm", "withdraw", "supersede", "done")

USERS_OWN: frozenset[Kind] = frozenset({"goal", "constraint", "decision"})
"""Kinds that only the user's own words can make or end."""
CLOSED: frozenset[Status] = frozenset({"done", "withdrawn", "superseded"})

MOST_OPERATIONS = 40
MOST_ITEMS = 120
MOST_CLOSED = 60
MOST_UNVERIFIED = 10
TEXT_CHARS = 300
QUOTE_CHARS = 500

OnBranch: TypeAlias = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Change:
    """One step in an item's life, and the words it rests on."""

    status: Status
    record: int
    """The record that holds the quote; for a change by hand, the newest one at that time."""
    quote: str
    verified: bool
    turn: int
    by: str = ""
    """For `superseded`: the id of the item that took its place."""
    hand: bool = False
    """Made by the user's hand: it holds on every branch, and nothing older can undo it."""

    def holds(self, on_branch: OnBranch) -> bool:
        return self.hand or on_branch(self.record)


@dataclass(frozen=True, slots=True)
class Item:
    """One thing the task knows. `status`, `verified` and `superseded_by` are as of `seen`'s branch."""

    id: str
    kind: Kind
    text: str
    changes: tuple[Change, ...]
    pinned: bool = False
    status: Status = "active"
    verified: bool = True
    superseded_by: str | None = None

    @property
    def since_turn(self) -> int:
        return self.changes[0].turn

    @property
    def source(self) -> list[Change]:
        """The changes that keep it alive, with their quotes."""
        return [change for change in self.changes if change.status not in CLOSED and not change.hand]

    @property
    def last_record(self) -> int:
        return max(change.record for change in self.changes)

    @property
    def quote(self) -> str:
        """The words it rests on; empty where a person wrote the item."""
        return self.source[0].quote if self.source else ""

    def seen(self, on_branch: OnBranch) -> Item | None:
        """The item as it stands on a branch, None where nothing on that branch made it (I16)."""
        here = [change for change in self.changes if change.holds(on_branch)]
        if not here or here[0].status in CLOSED:
            return None
        last = here[-1]
        verified = last.status in CLOSED or any(change.verified for change in here)
        by = last.by if last.status == "superseded" else None
        return replace(self, status=last.status, verified=verified, superseded_by=by)

    def plus(self, change: Change) -> Item:
        return replace(self, changes=(*self.changes, change))

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "kind": self.kind,
            "text": self.text,
            "status": self.status,
            "source": [{"record": change.record, "quote": change.quote} for change in self.source],
            "verified": self.verified,
            "pinned": self.pinned,
            "superseded_by": self.superseded_by,
            "since_turn": self.since_turn,
            "changes": [
                {
                    "status": change.status,
                    "record": change.record,
                    "quote": change.quote,
                    "verified": change.verified,
                    "turn": change.turn,
                    "by": change.by,
                    "hand": change.hand,
                }
                for change in self.changes
            ],
        }

    @classmethod
    def from_json(cls, raw: JsonObject) -> Item:
        """Raises KeyError, TypeError or ValueError for what is no item."""
        if raw["kind"] not in KINDS:
            raise ValueError(f"unknown kind {raw['kind']!r}")
        kept = raw.get("changes")
        changes = tuple(Change(**change) for change in kept) if kept else _changes_of(raw)
        return cls(
            id=str(raw["id"]),
            kind=raw["kind"],
            text=str(raw["text"]),
            changes=changes,
            pinned=bool(raw.get("pinned", False)),
            status=raw["status"],
            verified=bool(raw["verified"]),
            superseded_by=raw.get("superseded_by"),
        )


def _changes_of(raw: JsonObject) -> tuple[Change, ...]:
    """The changes of an item that carries only its present state."""
    since, verified = int(raw.get("since_turn", 0)), bool(raw["verified"])
    born: Status = "pending" if raw["status"] == "pending" else "active"
    changes = [Change(born, int(s["record"]), str(s["quote"]), verified, since) for s in raw["source"]]
    changes = changes or [Change(born, 0, "", verified, since, hand=True)]
    if raw["status"] in CLOSED:
        last = changes[-1]
        changes.append(
            Change(raw["status"], last.record, "", True, since, raw.get("superseded_by") or "", last.hand)
        )
    return tuple(changes)


Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive ranges of sequence numbers, in order, apart."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All that is known of one thread's task."""

    epoch: int
    items: tuple[Item, ...] = ()
    covered: Spans = ()
    """The records that refreshes have taken in."""
    version: int = 0
    model: str = ""
    at: str = ""
    failures: int = 0
    """Refreshes that failed since the last good one."""
    retry_at: str = ""
    """No refresh before this time: the cooldown after failures, kept over restarts (I18)."""
    error: str = ""
    v: int = VERSION

    @property
    def covers_seq(self) -> int:
        return self.covered[-1][1] if self.covered else 0

    def seen(self, on_branch: OnBranch) -> list[Item]:
        """The items that apply on a branch."""
        return [known for item in self.items if (known := item.seen(on_branch)) is not None]

    def as_json(self) -> JsonObject:
        return {
            "v": self.v,
            "epoch": self.epoch,
            "covers_seq": self.covers_seq,
            "covered": [list(span) for span in self.covered],
            "version": self.version,
            "items": [item.as_json() for item in self.items],
            "model": self.model,
            "at": self.at,
            "failures": self.failures,
            "retry_at": self.retry_at,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, raw: JsonObject) -> Ledger:
        """Raises KeyError, TypeError or ValueError for what is no ledger of this version."""
        if raw["v"] != VERSION:
            raise ValueError(f"ledger version {raw['v']!r} is unknown")
        covered = raw.get("covered") or ([[1, raw["covers_seq"]]] if raw["covers_seq"] else [])
        return cls(
            epoch=int(raw["epoch"]),
            items=tuple(Item.from_json(item) for item in raw["items"]),
            covered=tuple((int(first), int(last)) for first, last in covered),
            version=int(raw["version"]),
            model=str(raw.get("model") or ""),
            at=str(raw.get("at") or ""),
            failures=int(raw.get("failures", 0)),
            retry_at=str(raw.get("retry_at", "")),
            error=str(raw.get("error", "")),
        )


def joined(one: Spans, other: Spans) -> Spans:
    """The union of two sets of ranges."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*one, *other)):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def covers(covered: Spans, branch: Spans) -> int:
    """The last record of a branch before which all of the branch is covered."""
    reached = 0
    for first, last in branch:
        while first <= last:
            span = next((span for span in covered if span[0] <= first <= span[1]), None)
            if span is None:
                return reached
            reached = min(last, span[1])
            first = reached + 1
    return reached


# -- operations --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operation:
    """What a model proposes."""

    op: str
    kind: str = ""
    text: str = ""
    item: str = ""
    record: int = -1
    quote: str = ""

    @classmethod
    def from_json(cls, raw: Any) -> Operation:
        """Whatever a model wrote, as an operation; what has the wrong type is left empty."""
        values = cast("JsonObject", raw) if isinstance(raw, dict) else {}
        record = values.get("record")
        if isinstance(record, str) and record.lstrip("#").isdigit():
            record = int(record.lstrip("#"))
        return cls(
            op=_text(values.get("op")),
            kind=_text(values.get("kind")),
            text=_text(values.get("text")),
            item=_text(values.get("item")),
            record=record if type(record) is int else -1,
            quote=_text(values.get("quote"))[:QUOTE_CHARS],
        )

    def as_json(self) -> JsonObject:
        return {
            name: getattr(self, name) for name in Operation.__slots__ if getattr(self, name) not in ("", -1)
        }


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation."""

    operation: Operation
    result: Literal["applied", "unverified", "refused"]
    reason: str = ""
    item: str = ""

    def as_json(self) -> JsonObject:
        return {
            **self.operation.as_json(),
            "result": self.result,
            "reason": self.reason,
            "applied_to": self.item,
        }


@dataclass(slots=True)
class _Edit:
    """A ledger's items while operations are applied."""

    items: dict[str, Item]
    said: Mapping[int, Said]
    on_branch: OnBranch
    rules: str
    """The workspace's instructions, folded: nobody's words in them are the user's."""
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def here(self, identity: str) -> Item | None:
        item = self.items.get(identity)
        return item.seen(self.on_branch) if item is not None else None

    def living(self) -> list[Item]:
        return [seen for item in self.items.values() if (seen := item.seen(self.on_branch)) is not None]


def apply(
    items: Sequence[Item],
    operations: Sequence[Operation],
    said: Mapping[int, Said],
    *,
    on_branch: OnBranch = lambda _: True,
    instructions: str = "",
) -> tuple[tuple[Item, ...], list[Outcome]]:
    """Apply what holds of a model's operations; every other item is carried forward as it is (I4).

    `said` are the records that this refresh covers: nothing older can be evidence, so that what was withdrawn
    can't come back from an older source (I6).
    """
    edit = _Edit({item.id: item for item in items}, said, on_branch, folded(instructions))
    for operation in operations[:MOST_OPERATIONS]:
        edit.outcomes.append(_apply_one(edit, operation))
    for operation in operations[MOST_OPERATIONS:]:
        edit.outcomes.append(Outcome(operation, "refused", f"more than {MOST_OPERATIONS} operations"))
    return _bounded(tuple(edit.items.values())), edit.outcomes


def _apply_one(edit: _Edit, operation: Operation) -> Outcome:
    if operation.op not in OPERATIONS:
        return Outcome(operation, "refused", "unknown operation")
    evidence = _evidence(edit, operation)
    if operation.op == "add":
        return _add(edit, operation, evidence)
    item = edit.here(operation.item)
    if item is None:
        return Outcome(operation, "refused", "no such item")
    if evidence is None:
        return Outcome(operation, "refused", "the quote does not stand in any of the records", item.id)
    if item.kind in USERS_OWN and evidence.speaker != "user":
        return Outcome(operation, "refused", "only the user's own words can change this", item.id)
    if evidence.speaker == "tool" and item.kind != "reference":
        return Outcome(operation, "refused", "a tool's text can't change this", item.id)
    if evidence.record <= max(change.record for change in item.changes if change.holds(edit.on_branch)):
        return Outcome(operation, "refused", "the source is not newer than the item's", item.id)
    if operation.op == "confirm":
        return _confirm(edit, operation, item, evidence)
    if item.status in CLOSED:
        return Outcome(operation, "refused", f"it is {item.status} already", item.id)
    if operation.op == "supersede":
        return _supersede(edit, operation, item, evidence)
    status: Status = "withdrawn" if operation.op == "withdraw" else "done"
    _close(edit, item, status, operation, evidence)
    return Outcome(operation, "applied", "", item.id)


def _evidence(edit: _Edit, operation: Operation) -> Said | None:
    """The record that the quote stands in: the one named, else the newest one where it does, the user's first.

    The quote is the evidence; the number is only where a model thinks it is, and weak models count badly.
    """
    named = edit.said.get(operation.record)
    if named is not None and stands_in(operation.quote, named.text):
        return named
    holding = [one for one in edit.said.values() if stands_in(operation.quote, one.text)]
    return max(holding, key=lambda one: (one.speaker == "user", one.record), default=None)


def _close(
    edit: _Edit, item: Item, status: Status, operation: Operation, evidence: Said, by: str = ""
) -> None:
    change = Change(status, evidence.record, operation.quote, True, evidence.turn, by)
    edit.items[item.id] = edit.items[item.id].plus(change)


def _confirm(edit: _Edit, operation: Operation, item: Item, evidence: Said) -> Outcome:
    # Only newer words of the user bring something back; that they are newer was checked above.
    if item.status in CLOSED and evidence.speaker != "user":
        return Outcome(
            operation, "refused", f"it is {item.status}; only the user can take it up again", item.id
        )
    change = Change("active", evidence.record, operation.quote, True, evidence.turn)
    edit.items[item.id] = edit.items[item.id].plus(change)
    return Outcome(operation, "applied", "", item.id)


def _supersede(edit: _Edit, operation: Operation, item: Item, evidence: Said) -> Outcome:
    new = _made(edit, item.kind, operation, evidence)
    edit.items[new.id] = replace(new, pinned=item.pinned)
    _close(edit, item, "superseded", operation, evidence, by=new.id)
    return Outcome(operation, "applied", "", new.id)


def _made(edit: _Edit, kind: Kind, operation: Operation, evidence: Said) -> Item:
    """A new item; its text is the quote itself where the model's words claim more than the record says."""
    text = operation.text[:TEXT_CHARS]
    if not text or not faithful(text, evidence.text, operation.quote):
        text = operation.quote[:TEXT_CHARS]
    change = Change("active", evidence.record, operation.quote, True, evidence.turn)
    return Item(new_id(edit.items, kind), kind, text, (change,))


def new_id(items: Mapping[str, Item], kind: Kind) -> str:
    """The next id of a kind: `c3`. Ids are never used again."""
    used = [int(known[1:]) for known in items if known[:1] == kind[0] and known[1:].isdigit()]
    return f"{kind[0]}{max(used, default=0) + 1}"


def _add(edit: _Edit, operation: Operation, evidence: Said | None) -> Outcome:
    if operation.kind not in KINDS:
        return Outcome(operation, "refused", "unknown kind")
    kind: Kind = operation.kind
    if not operation.text and not operation.quote:
        return Outcome(operation, "refused", "no text")
    if evidence is None:
        return _unverified(edit, kind, operation, "the quote does not stand in any of the records")
    if kind in USERS_OWN and evidence.speaker != "user":
        if evidence.speaker == "tool":
            return Outcome(operation, "refused", "a tool's text can't set goals, constraints or decisions")
        return _unverified(edit, kind, operation, "not the user's own words")
    if len(edit.items) >= MOST_ITEMS and kind not in ("goal", "constraint"):
        return Outcome(operation, "refused", "the ledger is full")
    words = same_words(operation.text or operation.quote)
    for item in edit.living():
        alike = item.kind == kind and (
            same_words(item.text) == words
            or any(c.record == evidence.record and overlaps(c.quote, operation.quote) for c in item.changes)
        )
        if not alike:
            continue
        if item.status in CLOSED and evidence.record <= item.last_record:
            return Outcome(operation, "refused", f"it is {item.status}, by a later record", item.id)
        if item.status not in CLOSED:
            if evidence.record <= item.last_record and item.verified:
                return Outcome(operation, "refused", "it is there already", item.id)
            return _confirm(edit, replace(operation, op="confirm"), item, evidence)
    made = _made(edit, kind, operation, evidence)
    edit.items[made.id] = made
    return Outcome(operation, "applied", "", made.id)


def _unverified(edit: _Edit, kind: Kind, operation: Operation, reason: str) -> Outcome:
    """Keep what can't be verified as unconfirmed (I5), unless it is the workspace's own rules or known already."""
    text = (operation.text or operation.quote)[:TEXT_CHARS]
    words = folded(text)
    if edit.rules and (words in edit.rules or (operation.quote and folded(operation.quote) in edit.rules)):
        return Outcome(operation, "refused", "that is an instruction of the workspace, not the user's")
    if any(same_words(item.text) == same_words(text) for item in edit.living()):
        return Outcome(operation, "refused", reason)
    record = operation.record if operation.record in edit.said else max(edit.said, default=0)
    turn = edit.said[record].turn if record in edit.said else 0
    change = Change("pending", record, operation.quote, False, turn)
    made = Item(new_id(edit.items, kind), kind, text, (change,), status="pending", verified=False)
    edit.items[made.id] = made
    return Outcome(operation, "unverified", reason, made.id)


def _bounded(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Let the oldest go of what was never agreed and of what is over. Living, agreed items always stay (I4)."""
    settled = tuple(item.seen(lambda _: True) or item for item in items)
    loose = [item for item in settled if not item.verified and not item.pinned]
    closed = [item for item in settled if item.status in CLOSED and item.verified and not item.pinned]
    gone = {item.id for item in loose[: max(0, len(loose) - MOST_UNVERIFIED)]}
    gone |= {item.id for item in closed[: max(0, len(closed) - MOST_CLOSED)]}
    return tuple(item for item in settled if item.id not in gone)


# -- by hand -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hand:
    """When a person changes the ledger: after which record, in which turn."""

    record: int
    turn: int

    def change(self, status: Status) -> Change:
        return Change(status, self.record, "", True, self.turn, hand=True)


def added_by_hand(items: Sequence[Item], kind: Kind, text: str, hand: Hand) -> tuple[Item, ...]:
    """A new item in the user's own words."""
    known = {item.id: item for item in items}
    return (*items, Item(new_id(known, kind), kind, text, (hand.change("active"),)))


def set_by_hand(items: Sequence[Item], identity: str, status: Status, hand: Hand) -> tuple[Item, ...]:
    """An item set to `status` by the user, whatever it was."""

    def changed(item: Item) -> Item:
        return replace(item.plus(hand.change(status)), status=status, verified=True, superseded_by=None)

    return tuple(changed(item) if item.id == identity else item for item in items)


def edited_by_hand(items: Sequence[Item], identity: str, text: str, hand: Hand) -> tuple[Item, ...]:
    """An item with another text: from now on it rests on the user's hand alone."""

    def changed(item: Item) -> Item:
        change = replace(hand.change("active"), turn=item.since_turn)
        return Item(item.id, item.kind, text, (change,), item.pinned)

    return tuple(changed(item) if item.id == identity else item for item in items)


def pinned_by_hand(items: Sequence[Item], identity: str, pinned: bool) -> tuple[Item, ...]:
    """An item pinned: shown first, never let go."""
    return tuple(replace(item, pinned=pinned) if item.id == identity else item for item in items)
