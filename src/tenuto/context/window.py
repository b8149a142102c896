"""The window: which turns of the history stay, and where the marks stand. Pure; O(turns in the window).

A turn is the unit: a question with everything until the next one. `Marks` say where the window starts and
which turns count as old. With the stepped policy both marks stand still until the history exceeds its budget,
then move at once to 60 % of it, so that between steps every request begins with the bytes of the last one and
provider caches hit. `sliding` moves them every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tenuto.codec import JsonObject, digest
from tenuto.context.pair import call_ids, pair_turn
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

    def as_json(self) -> JsonObject:
        return {
            "start": self.start,
            "clip": self.clip,
            "squeeze": self.squeeze,
            "lost": self.lost,
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> Marks:
        return cls(value["start"], value["clip"], value["squeeze"], value["lost"])


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
class Window:
    """What was chosen: the turns as rendered, oldest first, the marks, and whether they moved."""

    turns: tuple[Rendered, ...]
    marks: Marks
    moved: bool

    @property
    def history_tokens(self) -> Measure:
        """Everything but the current question."""
        closed = self.turns[:-1]
        return total([*(r.cost for r in self.turns), *(r.question_cost for r in closed)])


def choose(turns: Sequence[Turn], marks: Marks, rules: WindowRules) -> Window:
    """The window over `turns` (the last one is the current turn).

    Raises `ContextUnfittable` when the current turn's last step can't be made to fit in two attempts (I18).
    """
    current = turns[-1]
    if rules.policy == "sliding":
        marks = replace(marks, clip=max(0, current.number - rules.recent_turns + 1), squeeze=0)
    shown = [turn for turn in turns if turn.last_seq >= marks.start or turn is current]
    window = _render_all(shown, marks, rules)
    if _cost(window, rules.family) <= rules.budget:
        return Window(tuple(window), marks, moved=rules.policy == "sliding")

    target = rules.budget if rules.policy == "sliding" else int(rules.budget * rules.trim_to)
    clip = max(marks.clip, current.number - rules.recent_turns + 1)
    for squeeze in range(marks.squeeze, len(SQUEEZE)):
        trial = replace(marks, clip=clip, squeeze=squeeze)
        trial, window = _drop_oldest(shown, trial, rules, target)
        if _cost(window, rules.family) <= rules.budget:
            return Window(tuple(window), trial, moved=True)
    raise _unfittable(window[-1], rules)


def _render_all(turns: Sequence[Turn], marks: Marks, rules: WindowRules) -> list[Rendered]:
    rendered: list[Rendered] = []
    room = rules.images
    for turn in reversed(turns):
        has = _images(turn)
        rendered.append(render(turn, marks, rules, closed=turn is not turns[-1], image_room=min(has, room)))
        room = max(0, room - has)
    rendered.reverse()
    return rendered


def _images(turn: Turn) -> int:
    if "images" not in turn.memo:
        turn.memo["images"] = sum(images(record.message) for record in turn.records if record.message)
    return turn.memo["images"]


def _cost(window: Sequence[Rendered], family: Family) -> int:
    return total([*(r.cost for r in window), *(r.question_cost for r in window[:-1])]).of(family)


def _drop_oldest(
    turns: Sequence[Turn], marks: Marks, rules: WindowRules, target: int
) -> tuple[Marks, list[Rendered]]:
    """Leave out whole turns, oldest first, then the current turn's oldest steps, until `target` holds.

    The current question and the newest step always stay.
    """
    window = _render_all(turns, marks, rules)
    spent = _cost(window, rules.family)
    first = 0
    while spent > target and first < len(window) - 1:
        spent -= window[first].cost.of(rules.family) + window[first].question_cost.of(rules.family)
        first += 1
    current = turns[-1]
    start = marks.start
    if first:
        start = window[first].turn.first_seq
        if start < marks.start <= window[first].turn.last_seq:
            start = marks.start
    if spent > target and first == len(window) - 1:
        steps = [record.seq for record in current.records if _starts_step(record) and record.seq >= start]
        for step in steps[1:]:
            start = step
            window = _render_all(turns[first:], replace(marks, start=start), rules)
            spent = _cost(window, rules.family)
            if spent <= target:
                break
    marks = replace(marks, start=start)
    return marks, _render_all(turns[first:], marks, rules)


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


def enough(rules: WindowRules, bridge_tokens: int) -> Callable[[Record], bool]:
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
        if record.is_question and seen["history"] > rules.budget * 2:
            seen["questions"] += record.tokens
        return record.is_question and (seen["questions"] > bridge_tokens or seen["records"] > 5_000)

    return stop
