"""The window: which turns of the history stay, and where the marks stand. Pure; O(turns in the window).

A turn is the unit: a question with everything until the next one. `Marks` say where the window starts and
which turns count as old. With the stepped policy both marks stand still until the history exceeds its budget,
then move at once to 60 % of it, so that between steps every request begins with the bytes of the last one and
provider caches hit. `sliding` moves them every turn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tenuto.codec import JsonObject, digest
from tenuto.context.pair import call_ids, pair_turn, rename_repeated
from tenuto.context.shape import Shaped, Tier, shape
from tenuto.context.tokens import Family, Measure, images, measure_message, total
from tenuto.errors import ContextUnfittable
from tenuto.log.record import Record


@dataclass(frozen=True, slots=True)
class Turn:
    """The records of one turn on the active branch, oldest first."""

    number: int
    records: tuple[Record, ...]
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)

    @property
    def questions(self) -> tuple[Record, ...]:
        return tuple(record for record in self.records if record.is_question)

    @property
    def first_seq(self) -> int:
        return self.records[0].seq

    @property
    def last_seq(self) -> int:
        return self.records[-1].seq


def turns_of(records: Iterable[Record]) -> list[Turn]:
    """Group a branch's records, oldest first, into turns."""
    return grown([], records)


def grown(turns: Sequence[Turn], records: Iterable[Record]) -> list[Turn]:
    """`turns` with newer records of the same branch; turns that get none keep their object and its memo."""
    made = list(turns)
    group: list[Record] = []
    for record in records:
        if record.message is None:
            continue
        if group and record.turn != group[0].turn:
            made.append(Turn(group[0].turn, tuple(group)))
            group = []
        if not group and made and made[-1].number == record.turn:
            group = list(made.pop().records)
        group.append(record)
    if group:
        made.append(Turn(group[0].turn, tuple(group)))
    return made


def reaching(turns: Sequence[Turn], seq: int) -> int:
    """Index of the first of `turns` that reaches record `seq`: earlier ones ended before it."""
    return bisect_left(turns, seq, key=lambda turn: turn.last_seq)


@dataclass(frozen=True, slots=True)
class Marks:
    """Where the window stands. Kept with every request, so that a restart goes on with the same bytes (I17)."""

    start: int = 0
    """Sequence number of the first record in the window, beside the question of its turn."""
    clip: int = 0
    """Turns below this number show their tool results in the short form."""
    squeeze: int = 0
    """How often the limit of recent results was reduced to make the current turn fit; at most 2 (I18)."""
    lost: int = 0
    """The newest question that is neither in the window, nor covered, nor had room in the bridge.

    The bridge is every question of the branch after this one and before `start`.
    """
    covers: int = 0
    """The task covers records up to here, as the bridge knows it: nothing below is bridged.

    Taken over when the window moves, so that a refresh in between doesn't change the stable prefix.
    """

    @property
    def floor(self) -> int:
        """The bridge begins behind this record."""
        return max(self.lost, self.covers)

    def as_json(self) -> JsonObject:
        return {
            "start": self.start,
            "clip": self.clip,
            "squeeze": self.squeeze,
            "lost": self.lost,
            "covers": self.covers,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Marks:
        return cls(value["start"], value["clip"], value["squeeze"], value["lost"], value.get("covers", 0))


@dataclass(frozen=True, slots=True)
class WindowRules:
    """The limits that decide; defaults stand in `settings`."""

    budget: int
    """Tokens for the history, tool steps of the current turn included, its question not."""
    trim_to: float
    policy: Literal["stepped", "sliding"]
    recent_turns: int
    recent_chars: int
    old_chars: int
    images: int
    family: Family
    provider: str
    expired: frozenset[str] = frozenset()

    @property
    def shaping(self) -> tuple[object, ...]:
        """All of the rules that a turn's shape depends on."""
        return (self.recent_chars, self.old_chars, self.family, self.provider, self.expired)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A turn as it stands in the request."""

    turn: Turn
    messages: list[JsonObject]
    cost: Measure
    """Without the questions of the current turn."""
    question_cost: Measure
    seqs: tuple[int, ...]
    shown: tuple[JsonObject, ...]
    """The messages of `seqs` as cut, before pairing."""
    clipped: tuple[int, ...]
    elided: tuple[int, ...]
    repairs: tuple[str, ...]
    calls: tuple[str, ...]
    digest: str
    old: bool


SQUEEZE = (1.0, 0.25, 0.05)
"""Share of the recent result limit at each squeeze."""


def render(turn: Turn, marks: Marks, rules: WindowRules, *, closed: bool, image_room: int) -> Rendered:
    """One turn under the marks. Memoised on the turn: the same marks give the same object."""
    old = turn.number < marks.clip
    skip = marks.start if turn.first_seq < marks.start <= turn.last_seq else 0
    squeeze = 0 if closed and old else marks.squeeze
    key = (rules.shaping, old, skip, squeeze, closed, image_room)
    known: Rendered | None = turn.memo.get(key)
    if known is None:
        limit = rules.old_chars if old else rules.recent_chars
        limit = max(rules.old_chars, int(limit * SQUEEZE[squeeze]))
        tier = Tier(limit, image_room, closed, rules.provider, rules.expired)
        turn.memo[key] = known = _render(turn, tier, skip, old, rules.family)
    return known


def _render(turn: Turn, tier: Tier, skip: int, old: bool, family: Family) -> Rendered:
    messages: list[JsonObject] = []
    cost, question_cost = Measure(), Measure()
    seqs: list[int] = []
    clipped: list[int] = []
    elided: list[int] = []
    for record in turn.records:
        if record.message is None or (record.seq < skip and not record.is_question):
            continue
        shaped, size = _shaped(record, tier, family)
        messages.append(shaped.message)
        seqs.append(record.seq)
        if shaped.clipped:
            clipped.append(record.seq)
        if shaped.elided:
            elided.append(record.seq)
        if record.is_question:
            question_cost += size
        else:
            cost += size
    paired = pair_turn(messages)
    for repair in paired.repairs:
        if repair.startswith("missing"):
            cost += Measure(tokens=16, chars=40)
    return Rendered(
        turn,
        paired.messages,
        cost,
        question_cost,
        tuple(seqs),
        tuple(messages),
        tuple(clipped),
        tuple(elided),
        paired.repairs,
        tuple(call_ids(paired.messages)),
        digest(paired.messages),
        old,
    )


def _shaped(record: Record, tier: Tier, family: Family) -> tuple[Shaped, Measure]:
    key = (tier, family)
    if (known := record.memo.get(key)) is None:
        assert record.message is not None
        shaped = shape(record.message, record.seq, tier)
        tokens = None if shaped.text_changed else record.tokens or None
        if family == "o200k" and tokens is not None:
            size = Measure(tokens, _chars(record.message))
        else:
            size = measure_message(shaped.message, tokens)
        record.memo[key] = known = (shaped, size)
    return known


def _chars(message: JsonObject) -> int:
    total = 0
    for part in message["parts"]:
        content = part.get("content", part.get("args"))
        total += len(content) if isinstance(content, str) else 0
    return total


@dataclass(frozen=True, slots=True)
class Closed:
    """The closed turns of a window, rendered, with what every request needs of them."""

    rendered: tuple[Rendered, ...] = ()
    cost: Measure = field(default_factory=Measure)
    """Questions included."""
    messages: tuple[JsonObject, ...] = ()
    """With repeated call ids renamed."""
    used: frozenset[str] = frozenset()
    """The call ids of `messages`."""
    digest: str = ""
    memo: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False, repr=False)

    def plus(self, rendered: Rendered) -> Closed:
        used = set(self.used)
        messages = rename_repeated(rendered.messages, used, str(rendered.turn.number), rendered.calls)
        return Closed(
            (*self.rendered, rendered),
            total((self.cost, rendered.cost, rendered.question_cost)),
            (*self.messages, *messages),
            frozenset(used),
            digest([self.digest, rendered.digest]),
        )


@dataclass(frozen=True, slots=True)
class Window:
    """What was chosen: the closed turns and the current one as rendered, the marks, and whether they moved."""

    closed: Closed
    current: Rendered
    marks: Marks
    moved: bool

    @property
    def turns(self) -> tuple[Rendered, ...]:
        return (*self.closed.rendered, self.current)

    @property
    def history_tokens(self) -> Measure:
        """Everything but the current question."""
        return self.closed.cost + self.current.cost


def choose(turns: Sequence[Turn], marks: Marks, rules: WindowRules) -> Window:
    """The window over `turns` (the last one is the current turn).

    Raises `ContextUnfittable` when the current turn's last step can't be made to fit in two attempts (I18).
    """
    current = turns[-1]
    if rules.policy == "sliding":
        marks = replace(marks, clip=max(0, current.number - rules.recent_turns + 1), squeeze=0)
    before = turns[:-1]
    shown = before[reaching(before, marks.start) :]
    window = _window(shown, current, marks, rules, moved=rules.policy == "sliding")
    if window.history_tokens.of(rules.family) <= rules.budget:
        return window

    target = rules.budget if rules.policy == "sliding" else int(rules.budget * rules.trim_to)
    clip = max(marks.clip, current.number - rules.recent_turns + 1)
    for squeeze in range(marks.squeeze, len(SQUEEZE)):
        trial = replace(marks, clip=clip, squeeze=squeeze)
        window = _drop_oldest(shown, current, trial, rules, target)
        if window.history_tokens.of(rules.family) <= rules.budget:
            return window
    raise _unfittable(window.current, rules)


def _window(
    closed: Sequence[Turn], current: Turn, marks: Marks, rules: WindowRules, *, moved: bool
) -> Window:
    has = _images(current)
    rendered = render(current, marks, rules, closed=False, image_room=min(has, rules.images))
    return Window(_closed(closed, marks, rules, max(0, rules.images - has)), rendered, marks, moved)


def _closed(turns: Sequence[Turn], marks: Marks, rules: WindowRules, room: int) -> Closed:
    """Render the closed turns. Kept on the last of them: the next request adds at most one turn to it."""
    if not turns:
        return Closed()
    key = ("closed", rules.shaping, marks.start, marks.clip, marks.squeeze, turns[0].number)
    known: Closed | None = turns[-1].memo.get(key)
    if known is None and any(_images(turn) for turn in turns):
        return _closed_with_images(turns, marks, rules, room)
    if known is None:
        before: Closed | None = turns[-2].memo.pop(key, None) if len(turns) > 1 else Closed()
        known, fresh = (Closed(), turns) if before is None else (before, turns[-1:])
        for turn in fresh:
            known = known.plus(render(turn, marks, rules, closed=True, image_room=0))
        turns[-1].memo[key] = known
    return known


def _closed_with_images(turns: Sequence[Turn], marks: Marks, rules: WindowRules, room: int) -> Closed:
    """Images are counted from the newest back, so that each turn's share depends on the later ones."""
    rooms: list[int] = []
    for turn in reversed(turns):
        has = _images(turn)
        rooms.append(min(has, room))
        room = max(0, room - has)
    rooms.reverse()
    closed = Closed()
    for turn, share in zip(turns, rooms, strict=True):
        closed = closed.plus(render(turn, marks, rules, closed=True, image_room=share))
    return closed


def _images(turn: Turn) -> int:
    if "images" not in turn.memo:
        turn.memo["images"] = sum(images(record.message) for record in turn.records if record.message)
    return turn.memo["images"]


def _drop_oldest(
    closed: Sequence[Turn], current: Turn, marks: Marks, rules: WindowRules, target: int
) -> Window:
    """Leave out whole turns, oldest first, then the current turn's oldest steps, until `target` holds.

    The current question and the newest step always stay.
    """
    window = _window(closed, current, marks, rules, moved=True)
    spent = window.history_tokens.of(rules.family)
    first = 0
    for rendered in window.closed.rendered:
        if spent <= target:
            break
        spent -= rendered.cost.of(rules.family) + rendered.question_cost.of(rules.family)
        first += 1
    if first == 0 and spent <= target:
        return window
    kept = closed[first:]
    start = max(marks.start, kept[0].first_seq if kept else current.first_seq)
    window = _window(kept, current, replace(marks, start=start), rules, moved=True)
    if spent > target and not kept:
        steps = [record.seq for record in current.records if _starts_step(record) and record.seq >= start]
        for step in steps[1:]:
            window = _window(kept, current, replace(marks, start=step), rules, moved=True)
            if window.history_tokens.of(rules.family) <= target:
                break
    return window


def _starts_step(record: Record) -> bool:
    return record.message is not None and record.message["kind"] == "response"


def _unfittable(current: Rendered, rules: WindowRules) -> ContextUnfittable:
    largest = max(
        (record for record in current.turn.records if not record.is_question),
        key=lambda record: record.tokens,
        default=current.turn.records[-1],
    )
    return ContextUnfittable(
        f"record #{largest.seq} (about {largest.tokens:,} tokens) doesn't fit the {rules.budget:,} tokens "
        "left for this turn",
        hint="ask for less at once, or choose a model with a larger window",
        item=largest.seq,
        tokens=largest.tokens,
        budget=rules.budget,
    )


def enough(budget: int, bridge_tokens: int) -> Callable[[Record], bool]:
    """A stop condition for reading a log without marks back from its tail.

    Holds once more was read than any window and bridge can show.
    """
    seen = {"history": 0, "questions": 0, "records": 0}

    def stop(record: Record) -> bool:
        if record.message is None:
            return False
        seen["records"] += 1
        least = 100 if len(record.message["parts"]) and not record.is_question else record.tokens
        seen["history"] += min(record.tokens, least)
        if record.is_question and seen["history"] > budget * 2:
            seen["questions"] += record.tokens
        return record.is_question and (seen["questions"] > bridge_tokens or seen["records"] > 5_000)

    return stop
