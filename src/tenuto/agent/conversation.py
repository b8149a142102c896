"""A thread ready for turns: what is logged, and the request made from it.

Both halves of a turn that touch the disk meet here and nowhere else: records are appended as they settle,
and every request is assembled from the log, so that what the model sees is always what is on record (I1).
No model library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from tenuto.codec import JsonObject, parse_stamp
from tenuto.context.assemble import Fixed, Inputs, ModelFacts, Request, assemble
from tenuto.context.fence import Section
from tenuto.context.tokens import Anchor, measure_message
from tenuto.context.window import Marks, Turn, WindowRules, enough, turns_of
from tenuto.errors import NotFound
from tenuto.log.blobs import has_binary
from tenuto.log.record import Draft, Record
from tenuto.log.store import ThreadLog
from tenuto.settings import ContextSettings

TURN_STARTED = "turn_started"
TURN_ENDED = "turn_ended"
REQUEST = "request"
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What stays the same for all requests of one turn."""

    fixed: Fixed
    model: ModelFacts
    settings: ContextSettings
    expired: frozenset[str] = frozenset()
    sections: tuple[Section, ...] = ()
    covers_seq: int = 0


class Conversation:
    """One thread's log with the newest part of its active branch in memory."""

    def __init__(self, log: ThreadLog, *, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        self._turns: list[Turn] = []
        self._questions: tuple[tuple[int, int], list[Record]] | None = None

    # -- writing: each method is one durable append ---------------------------------------------------------

    def begin(self, message: JsonObject, *, zone: str = "UTC", parent: Record | None = None) -> Record:
        """Log the user's message; returns its record. `parent` makes it a branch (an edit)."""
        previous = parent or self._newest()
        turn = (previous.turn if previous else 0) + 1
        drafts = [Draft(turn, event={"type": TURN_STARTED, "zone": zone}), self._draft(turn, message)]
        return self.log.append(drafts, epoch=self.epoch, parent=parent.id if parent else None)[-1]

    def settle_response(
        self, turn: int, request: Request | None, message: JsonObject, *events: JsonObject
    ) -> list[Record]:
        """Log a model response together with the manifest of its request, and events that settle with it."""
        drafts: list[Draft] = []
        if request is not None:
            drafts.append(Draft(turn, event={"type": REQUEST, "manifest": request.manifest}))
        drafts.append(self._draft(turn, message))
        drafts.extend(Draft(turn, event=event) for event in events)
        return self.log.append(drafts, epoch=self.epoch)

    def settle_results(self, turn: int, parts: Sequence[JsonObject]) -> list[Record]:
        """Log tool results that settled together, as one request message."""
        return self.log.append(
            [self._draft(turn, {"kind": "request", "parts": list(parts)})], epoch=self.epoch
        )

    def note(self, turn: int, *events: JsonObject) -> list[Record]:
        """Log events that are no messages."""
        return self.log.append([Draft(turn, event=event) for event in events], epoch=self.epoch)

    def _draft(self, turn: int, message: JsonObject) -> Draft:
        stored = self.log.blobs.deflate(message) if has_binary(message) else message
        return Draft(turn, message=stored, tokens=measure_message(stored).tokens)

    def _newest(self) -> Record | None:
        page = self.log.page(None, 1)
        return page[-1] if page else None

    # -- reading --------------------------------------------------------------------------------------------

    def request(self, rules: RequestRules, *, step: int) -> Request:
        """The next model request of the running turn, assembled from the log."""
        records, marks, anchor, started = self._load(rules)
        self._turns = turns_of(records, self._turns)
        zone = str(started.event.get("zone", "UTC")) if started and started.event else "UTC"
        moment = parse_stamp(started.at if started else records[-1].at).astimezone(ZoneInfo(zone))
        request = assemble(
            Inputs(
                turns=self._turns,
                marks=marks,
                fixed=rules.fixed,
                model=rules.model,
                settings=rules.settings,
                moment=moment,
                zone=zone,
                bridge=self._bridge(marks),
                covers_seq=rules.covers_seq,
                sections=rules.sections,
                expired=rules.expired,
                anchor=anchor,
                step=step,
            )
        )
        self._keep_bridge(marks, request)
        self.log.forget_before(request.rendered[0].turn.first_seq - 1)
        return request

    def _bridge(self, marks: Marks) -> list[Record]:
        """The questions that left the window and aren't covered; read from the log only in a fresh process.

        The place of a window's start decides all that lies before it, on any branch, so that it is a key.
        """
        place = (marks.start, marks.lost)
        if self._questions is None or self._questions[0] != place:
            older = self.log.questions_after(marks.lost) if marks.start else []
            self._questions = (place, questions_between(older, marks))
        return self._questions[1]

    def _keep_bridge(self, before: Marks, request: Request) -> None:
        """Carry the bridge over a move of the window, without reading the log again."""
        marks = request.marks
        known = {record.seq: record for record in self._bridge(before)}
        for turn in self._turns[:-1]:
            if turn.last_seq < marks.start:
                known |= {record.seq: record for record in turn.questions}
        kept = [known[seq] for seq in sorted(known) if seq > marks.lost]
        self._questions = ((marks.start, marks.lost), kept)

    def _load(self, rules: RequestRules) -> tuple[list[Record], Marks, Anchor | None, Record | None]:
        """The records the window may need, the marks and the anchor of the newest request on this branch."""
        found: list[Marks] = []
        bound = enough(_reading_rules(rules), rules.settings.bridge_tokens)

        def stop(record: Record) -> bool:
            if not found and record.event_type == REQUEST and record.event is not None:
                found.append(Marks.from_json(record.event["manifest"]["marks"]))
            if not found:
                return bound(record)
            return record.seq <= found[0].start and record.is_question

        records = self.log.back_to(stop)
        marks = found[0] if found else Marks(lost=records[0].seq - 1 if records[0].parent else 0)
        anchor = _anchor(records)
        started = next((r for r in reversed(records) if r.event_type == TURN_STARTED), None)
        return records, marks, anchor, started


def _reading_rules(rules: RequestRules) -> WindowRules:
    settings = rules.settings
    return WindowRules(
        budget=settings.history_tokens,
        trim_to=settings.trim_to,
        policy=settings.policy,
        recent_turns=settings.recent_turns,
        recent_chars=settings.recent_result_chars,
        old_chars=settings.old_result_chars,
        images=settings.images,
        family=rules.model.family,
        provider=rules.model.provider,
    )


def _anchor(records: Sequence[Record]) -> Anchor | None:
    """The newest request whose response reported its usage."""
    reported = 0
    for record in reversed(records):
        if record.message is not None and record.message["kind"] == "response":
            usage = record.message.get("usage") or {}
            reported = int(usage.get("input_tokens") or 0)
        elif record.event_type == REQUEST and record.event is not None:
            manifest = record.event["manifest"]
            return Anchor(manifest["key"], reported, manifest["summed"]) if reported else None
    return None


def questions_between(records: Sequence[Record], marks: Marks) -> list[Record]:
    """The questions of turns that ended before the window's start, after `marks.lost`."""
    shown = next((record.turn for record in records if record.seq >= marks.start), 0)
    return [
        record
        for record in records
        if record.is_question and marks.lost < record.seq < marks.start and record.turn != shown
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
    first = min(marks.start, marks.lost + 1)
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
        settings=ContextSettings(**manifest["rules"]),
        moment=datetime.fromisoformat(manifest["moment"]),
        zone=manifest["zone"],
        bridge=questions_between(branch, marks),
        sections=sections,
        expired=frozenset(manifest.get("expired", ())),
        step=manifest["step"],
    )
    return assemble(inputs)
