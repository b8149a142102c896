"""A thread ready for turns: what is logged, and the request made from it.

Both halves of a turn that touch the disk meet here and nowhere else: records are appended as they settle,
and every request is assembled from the log, so that what the model sees is always what is on record (I1).
No model library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from tenuto.codec import JsonObject, new_id, parse_stamp, stamp
from tenuto.context.assemble import Fixed, Inputs, ModelFacts, Request, assemble
from tenuto.context.fence import Section
from tenuto.context.tokens import Anchor, count_message
from tenuto.context.window import Marks, Turn, enough, grown, reaching, turns_of
from tenuto.errors import NotFound
from tenuto.log.blobs import has_binary
from tenuto.log.record import Draft, Record
from tenuto.log.store import ThreadLog
from tenuto.settings import ContextSettings

TURN_STARTED = "turn_started"
TURN_ENDED = "turn_ended"
REQUEST = "request"
INTERRUPTED = "interrupted"
COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What stays the same for all requests of one turn."""

    fixed: Fixed
    model: ModelFacts
    settings: ContextSettings
    expired: frozenset[str] = frozenset()
    sections: tuple[Section, ...] = ()
    covers_seq: int = 0


@dataclass(frozen=True, slots=True)
class Live:
    """The newest finished request of a living process: what the provider's prompt cache still holds."""

    request: Request
    instructions: str
    tools: tuple[JsonObject, ...]
    messages: tuple[JsonObject, ...]
    """The request's messages and the answer."""


class Conversation:
    """One thread's log with the newest part of its active branch in memory."""

    def __init__(self, log: ThreadLog, *, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        self.live: Live | None = None
        self._view: _View | None = None
        self._questions: tuple[tuple[int, int], list[tuple[int, Record]]] | None = None
        self._moved = False

    # -- writing: each method is one durable append ---------------------------------------------------------

    def begin(
        self, message: JsonObject, *, zone: str = "UTC", parent: Record | None = None, message_id: str = ""
    ) -> Record:
        """Log the user's message; returns its record. `parent` makes it a branch (an edit).

        `message_id` is the sender's name for the message: the turn is found by it after a restart.
        """
        previous = parent or self._newest()
        turn = (previous.turn if previous else 0) + 1
        started: JsonObject = {"type": TURN_STARTED, "zone": zone}
        if message_id:
            started["message"] = message_id
        drafts = [Draft(turn, event=started), self._draft(turn, message)]
        return self.log.append(drafts, epoch=self.epoch, parent=parent.id if parent else None)[-1]

    def settle_response(
        self, turn: int, request: Request | None, message: JsonObject, *events: JsonObject
    ) -> list[Record]:
        """Log a model response together with the manifest of its request, and events that settle with it."""
        drafts: list[Draft] = []
        if request is not None:
            drafts.append(Draft(turn, event=self._request_event(request)))
        drafts.append(self._draft(turn, message))
        drafts.extend(Draft(turn, event=event) for event in events)
        return self.log.append(drafts, epoch=self.epoch)

    def _request_event(self, request: Request) -> JsonObject:
        """The manifest, and where the bridge's lines are when this request moved the window."""
        event: JsonObject = {"type": REQUEST, "manifest": request.manifest}
        if self._moved and self._questions is not None:
            event["bridge"] = [[record.seq, offset] for offset, record in self._questions[1]]
        self._moved = False
        return event

    def settle_results(self, turn: int, parts: Sequence[JsonObject]) -> list[Record]:
        """Log tool results that settled together, as one request message."""
        return self.log.append(
            [self._draft(turn, {"kind": "request", "parts": list(parts)})], epoch=self.epoch
        )

    def note(self, turn: int, *events: JsonObject) -> list[Record]:
        """Log events that are no messages."""
        return self.log.append([Draft(turn, event=event) for event in events], epoch=self.epoch)

    def compact(self, settings: ContextSettings, *, covers: int, focus: str = "") -> Record:
        """Move the window to the last `recent_turns` turns; the task covers records up to `covers`."""
        view = self._look(settings)
        kept = view.turns[-max(1, settings.recent_turns) :]
        start = max(view.marks.start, kept[0].first_seq)
        marks = replace(view.marks, start=start, squeeze=0, covers=covers)
        event = {"type": COMPACTED, "marks": marks.as_json(), "focus": focus}
        return self.note(view.newest.turn, event)[0]

    @property
    def loaded(self) -> list[Turn]:
        """The turns of the window, oldest first, as the last request left them."""
        return self._view.turns if self._view is not None else []

    def window_after_compaction(self, settings: ContextSettings) -> int:
        """Where the window would start after `compact`."""
        view = self._look(settings)
        return max(view.marks.start, view.turns[-max(1, settings.recent_turns) :][0].first_seq)

    def marks(self, settings: ContextSettings) -> Marks:
        """Where the window stands now."""
        return self._look(settings).marks if self.log.last_seq else Marks()

    def _draft(self, turn: int, message: JsonObject) -> Draft:
        stored = self.log.blobs.deflate(message) if has_binary(message) else message
        return Draft(turn, message=stored, tokens=count_message(stored))

    def _newest(self) -> Record | None:
        page = self.log.page(None, 1)
        return page[-1] if page else None

    # -- reading --------------------------------------------------------------------------------------------

    def request(self, rules: RequestRules, *, step: int) -> Request:
        """The next model request of the running turn, assembled from the log."""
        view, request = self._assembled(self._look(rules.settings), rules, step)
        self._keep_bridge(view, request)
        # What the logged marks still show is kept: this request counts only once its response is logged.
        kept = view.turns[reaching(view.turns, view.marks.start) :]
        self._view = replace(view, turns=kept)
        self.log.forget_before(kept[0].first_seq - 1)
        return request

    def imagined(self, message: JsonObject, *, zone: str = "UTC") -> list[Record]:
        """The records that `begin` would log for a message. Nothing is logged."""
        newest = self._newest()
        if newest is None:
            raise NotFound("nothing is logged in this thread", hint="send a message first")
        turn, at = newest.turn + 1, stamp()
        drafts = [Draft(turn, event={"type": TURN_STARTED, "zone": zone}), self._draft(turn, message)]
        made: list[Record] = []
        for draft in drafts:
            parent = made[-1] if made else newest
            seq = self.log.last_seq + len(made) + 1
            made.append(
                Record(
                    seq, new_id(), parent.id, turn, at, self.epoch, draft.tokens, draft.message, draft.event
                )
            )
        return made

    def preview(self, rules: RequestRules, records: Sequence[Record]) -> Request:
        """The request that would be sent if `records` were logged now. Nothing is logged or kept."""
        view = self._look(rules.settings)
        return self._assembled(_seen(grown(view.turns, records), records, view), rules, 0)[1]

    def _assembled(self, view: _View, rules: RequestRules, step: int) -> tuple[_View, Request]:
        if rules.covers_seq < view.marks.covers:
            # On this branch the task covers less than where the marks were made: the bridge carries it (I16).
            view = replace(view, marks=replace(view.marks, covers=rules.covers_seq), bridge=None)
        started = view.started
        zone = str(started.event.get("zone", "UTC")) if started and started.event else "UTC"
        moment = parse_stamp(started.at if started else view.newest.at).astimezone(ZoneInfo(zone))
        request = assemble(
            Inputs(
                turns=view.turns,
                marks=view.marks,
                fixed=rules.fixed,
                model=rules.model,
                settings=rules.settings,
                moment=moment,
                zone=zone,
                bridge=self._bridge(view),
                covers_seq=rules.covers_seq,
                sections=rules.sections,
                expired=rules.expired,
                anchor=view.anchor,
                step=step,
            )
        )
        return view, request

    def _bridge(self, view: _View) -> list[Record]:
        """The questions that left the window and aren't covered; read from the log only in a fresh process.

        The place of a window's start decides all that lies before it, on any branch, so that it is a key.
        """
        return [record for _, record in self._placed_bridge(view)]

    def _placed_bridge(self, view: _View) -> list[tuple[int, Record]]:
        marks = view.marks
        place = (marks.start, marks.floor)
        if self._questions is None or self._questions[0] != place:
            found = self.log.read_at(view.bridge) if view.bridge is not None else None
            if found is None:
                older = self.log.questions_after(marks.floor) if marks.start else []
                shown = next((turn.number for turn in view.turns if turn.last_seq >= marks.start), 0)
                found = [(at, q) for at, q in older if q.seq < marks.start and q.turn != shown]
            self._questions = (place, found)
        return self._questions[1]

    def _keep_bridge(self, view: _View, request: Request) -> None:
        """Carry the bridge over a move of the window, without reading the log again."""
        marks = request.marks
        if marks == view.marks:
            return
        known = {record.seq: (offset, record) for offset, record in self._placed_bridge(view)}
        for turn in view.turns[: reaching(view.turns[:-1], marks.start)]:
            known |= {record.seq: (self.log.offset_of(record), record) for record in turn.questions}
        kept = [known[seq] for seq in sorted(known) if seq > marks.floor]
        self._questions = ((marks.start, marks.floor), kept)
        self._moved = True

    def _look(self, settings: ContextSettings) -> _View:
        """The branch as the window may need it: what is in memory and what came since, else from the log."""
        view = self._view
        fresh = self.log.after(view.newest) if view is not None else None
        if view is None or fresh is None:
            return self._load(settings)
        if not fresh:
            return view
        return _seen(grown(view.turns, fresh), fresh, view)

    def _load(self, settings: ContextSettings) -> _View:
        """Read back from the tail as far as the newest request's window goes."""
        found: list[Marks] = []
        bound = enough(settings.history_tokens, settings.bridge_tokens)

        def stop(record: Record) -> bool:
            if not found and record.event is not None and (marks := _marks_in(record.event)):
                found.append(marks)
            if not found:
                return bound(record)
            return record.seq <= found[0].start and record.is_question

        records = self.log.back_to(stop)
        unknown = Marks(lost=records[0].seq - 1 if records[0].parent else 0)
        return _seen(turns_of(records), records, _View([], unknown, None, None, None, records[-1]))


@dataclass(frozen=True, slots=True)
class _View:
    """The newest part of the active branch, as the next request starts from it."""

    turns: list[Turn]
    marks: Marks
    anchor: Anchor | None
    started: Record | None
    """The newest `turn_started`."""
    bridge: list[tuple[int, int]] | None
    """`(seq, offset)` of the bridged questions, as the last move of the window left them."""
    newest: Record


def _seen(turns: list[Turn], records: Sequence[Record], before: _View) -> _View:
    """The view after `records`: marks, anchor and bridge of their newest request, and their newest start of a turn.

    An anchor needs the usage that the response reported; a request without one leaves none behind.
    """
    marks, anchor, started, bridge = before.marks, before.anchor, before.started, before.bridge
    manifest: JsonObject | None = None
    for record in records:
        event = record.event
        if event is not None and event["type"] == REQUEST:
            manifest = event["manifest"]
            marks, anchor = Marks.from_json(event["manifest"]["marks"]), None
            if "bridge" in event:
                bridge = [(seq, offset) for seq, offset in event["bridge"]]
        elif event is not None and event["type"] == TURN_STARTED:
            started = record
        elif event is not None and event["type"] == COMPACTED:
            marks, anchor, bridge = Marks.from_json(event["marks"]), None, None
        elif manifest is not None and record.message is not None and record.message["kind"] == "response":
            usage: JsonObject = record.message.get("usage") or {}
            if reported := int(usage.get("input_tokens") or 0):
                anchor = Anchor(manifest["key"], reported, manifest["summed"])
            manifest = None
    return _View(turns, marks, anchor, started, bridge, records[-1])


def _marks_in(event: JsonObject) -> Marks | None:
    """The marks that a request or a compaction left."""
    if event["type"] == REQUEST:
        return Marks.from_json(event["manifest"]["marks"])
    return Marks.from_json(event["marks"]) if event["type"] == COMPACTED else None


def questions_between(records: Sequence[Record], marks: Marks) -> list[Record]:
    """The questions of turns that ended before the window's start, after `marks.floor`."""
    shown = next((record.turn for record in records if record.seq >= marks.start), 0)
    return [
        record
        for record in records
        if record.is_question and marks.floor < record.seq < marks.start and record.turn != shown
    ]


def rebuild(
    log: ThreadLog, manifest: JsonObject, fixed: Fixed, sections: tuple[Section, ...] = ()
) -> Request:
    """The request that a manifest describes, built again from the log (I17).

    The result's `manifest["hash"]` equals the stored one unless the log was damaged since. Raises `NotFound`.
    """
    marks = Marks.from_json(manifest["marks"])
    newest = log.find(manifest["through"])
    if newest is None:
        raise NotFound(f"record #{manifest['through']} is not readable", hint="see `tenuto doctor`")
    first = min(marks.start, marks.floor + 1)
    branch = log.branch(newest, lambda record: record.seq <= first and record.is_question)
    shown = next((at for at, r in enumerate(branch) if r.seq >= marks.start), 0)
    while shown > 0 and branch[shown].turn == branch[shown - 1].turn:
        shown -= 1
    budget = manifest["budget"]
    inputs = Inputs(
        turns=turns_of(branch[shown:]),
        marks=marks,
        fixed=fixed,
        model=ModelFacts(
            manifest["model"], manifest["provider"], manifest["family"], budget["window"], budget["output"]
        ),
        settings=ContextSettings(**dict(zip(ContextSettings.model_fields, manifest["rules"], strict=True))),
        moment=datetime.fromisoformat(manifest["moment"]),
        zone=manifest["zone"],
        bridge=questions_between(branch, marks),
        covers_seq=marks.covers,
        sections=sections,
        expired=frozenset(manifest.get("expired", ())),
        step=manifest["step"],
    )
    return assemble(inputs)
