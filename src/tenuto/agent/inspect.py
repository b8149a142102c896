"""Looking at what a model was given: a turn's request layer by layer, and where some words stand.

Everything is rebuilt from the log and its manifests, so that it shows what was really sent (I17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tenuto.agent.app import Workspace, stored_fixed, stored_sections
from tenuto.agent.conversation import REQUEST, TURN_STARTED, Conversation, rebuild
from tenuto.codec import JsonObject
from tenuto.context.assemble import Request
from tenuto.context.tokens import texts
from tenuto.context.window import Marks
from tenuto.errors import NotFound
from tenuto.log.record import Record
from tenuto.log.store import BRANCH_SELECTED, ThreadLog
from tenuto.scope import Scope

AROUND = 60
"""Characters shown on each side of a hit."""
MOST_HITS = 50


@dataclass(frozen=True, slots=True)
class PastRequest:
    """A model request of the past, built again."""

    manifest: JsonObject
    request: Request
    same: bool
    """Whether its hash equals the one kept with the turn."""
    record: Record
    """The record that holds the manifest."""


def past_request(conversation: Conversation, turn: int | None = None, step: int | None = None) -> PastRequest:
    """The request of a turn (its last by default; the newest turn by default). Raises `NotFound`."""
    log = conversation.log

    def found(record: Record) -> bool:
        if record.event_type != REQUEST or record.event is None:
            return False
        manifest = record.event["manifest"]
        return (turn is None or record.turn == turn) and (step is None or manifest["step"] == step)

    records = log.back_to(lambda record: found(record) or (turn is not None and record.turn < turn))
    if not records or not found(records[0]) or records[0].event is None:
        which = "this thread" if turn is None else f"turn {turn}"
        raise NotFound(f"no model request is recorded for {which}", hint="see `tenuto threads`")
    manifest = records[0].event["manifest"]
    request = rebuild(log, manifest, stored_fixed(log, manifest), stored_sections(log, manifest))
    return PastRequest(manifest, request, request.manifest["hash"] == manifest["hash"], records[0])


def context_of(
    conversation: Conversation, turn: int | None = None, step: int | None = None, *, texts_too: bool = False
) -> JsonObject:
    """The manifest of a request with its blocks opened: `entries` are the records with their exact texts."""
    return opened(conversation, past_request(conversation, turn, step), texts_too=texts_too)


def opened(conversation: Conversation, past: PastRequest, *, texts_too: bool) -> JsonObject:
    """A request's manifest with its blocks opened."""
    blocks: list[JsonObject] = []
    for block in past.manifest["blocks"]:
        entries = [
            {"seq": seq, "kind": kind, "chars": len(text), **({"text": text} if texts_too else {})}
            for seq, kind, text in _entries(conversation, past, block)
        ]
        blocks.append({**block, "entries": entries})
    return {**past.manifest, "blocks": blocks, "rebuilt_equal": past.same}


def outlook(conversation: Conversation, manifest: JsonObject) -> JsonObject:
    """What grew since the turn before, and about how many turns are left before the window steps.

    `{since, grew: {layer, tokens} | null, turns_left: int | null}`; null where nothing grew or nothing is
    known. `turns_left` goes by the growth of the history since the turn before.
    """
    before = _last_before(conversation, manifest["turn"])
    if before is None:
        return {"since": None, "grew": None, "turns_left": None}
    now, then = _by_layer(manifest), _by_layer(before)
    more = {layer: tokens - then.get(layer, 0) for layer, tokens in now.items()}
    layer = max(more, key=lambda name: more[name])
    growth = more.get("history", 0)
    left = manifest["budget"]["history"] - now.get("history", 0)
    return {
        "since": before["turn"],
        "grew": {"layer": layer, "tokens": more[layer]} if more[layer] > 0 else None,
        "turns_left": max(0, left // growth) if growth > 0 else None,
    }


def forks(log: ThreadLog) -> list[JsonObject]:
    """The places where branches part: `[{options: [{turn, question, record, active}, …]}, …]`. O(file).

    An option is one turn among its siblings: its question's record, and the newest record that follows from it,
    by which its branch is selected.
    """
    parents: dict[str, str] = {}
    starts: dict[str, list[Record]] = {}
    questions: dict[str, int] = {}
    records = [record for record in log.scan() if record.event_type != BRANCH_SELECTED]
    for record in records:
        if record.parent is not None:
            parents[record.id] = record.parent
            if record.event_type == TURN_STARTED:
                starts.setdefault(record.parent, []).append(record)
            elif record.is_question:
                questions.setdefault(record.parent, record.seq)
    newest: dict[str, int] = {}
    for record in reversed(records):
        reached = newest.setdefault(record.id, record.seq)
        if record.parent is not None:
            newest[record.parent] = max(reached, newest.get(record.parent, 0))
    active: set[str] = set()
    at = log.head
    while at is not None:
        active.add(at)
        at = parents.get(at)
    return [
        {
            "options": [
                {
                    "turn": one.turn,
                    "question": questions.get(one.id, one.seq),
                    "record": newest[one.id],
                    "active": one.id in active,
                }
                for one in siblings
            ]
        }
        for siblings in starts.values()
        if len(siblings) > 1
    ]


def _by_layer(manifest: JsonObject) -> dict[str, int]:
    sums: dict[str, int] = {}
    for block in manifest["blocks"]:
        sums[block["layer"]] = sums.get(block["layer"], 0) + int(block["tokens"])
    return sums


def _last_before(conversation: Conversation, turn: int) -> JsonObject | None:
    """The manifest of the last request before a turn, on the active branch."""

    def found(record: Record) -> bool:
        return record.event_type == REQUEST and record.turn < turn

    records = conversation.log.back_to(found)
    event = records[0].event if records and found(records[0]) else None
    return event["manifest"] if event is not None else None


def _entries(
    conversation: Conversation, past: PastRequest, block: JsonObject
) -> Iterator[tuple[int, str, str]]:
    """`(record, kind, text)` of what stands in one block of the request."""
    layer = block["layer"]
    if layer in ("base", "tools"):
        raw = conversation.log.blobs.get(block["source"].removeprefix("sha256:"))
        yield 0, layer, (raw or b"").decode()
        return
    if layer in ("clock", "bridge", "task", "memory"):
        yield from ((0, layer, section.text) for section in past.request.sections if section.layer == layer)
        return
    ranges = block["records"]
    for rendered in past.request.rendered:
        for seq, message in zip(rendered.seqs, rendered.shown, strict=True):
            if any(first <= seq <= last for first, last in ranges):
                kind = message["parts"][0].get("part_kind", "") if message["parts"] else ""
                yield seq, kind, "\n".join(texts(message))


def why(workspace: Workspace, scope: Scope, words: str, turn: int | None = None) -> JsonObject:
    """Each place where `words` stand: in a turn's context by layer, in the log, in the task, in memory, in files.

    For a record that isn't in the context, `reason` says why it was left out. Case is ignored. O(log).
    """
    thread = workspace.thread(scope)
    conversation = workspace.conversation(thread)
    context, shown, reason_of = _in_context(conversation, words, turn)
    log: list[JsonObject] = []
    for record in conversation.log.scan():
        if record.message is None:
            continue
        for text in texts(record.message):
            if (hit := _hit(text, words)) is not None:
                in_context = record.seq in shown
                why_not = "" if in_context else reason_of(record)
                log.append({"seq": record.seq, "turn": record.turn, "in_context": in_context} | hit)
                log[-1]["reason"] = why_not
                break
    return {
        "words": words,
        "context": context[:MOST_HITS],
        "log": log[:MOST_HITS],
        "task": [
            {"id": item.id, "kind": item.kind, "status": item.status} | hit
            for item in workspace.tasks.items(thread, conversation)
            if (hit := _hit(item.text, words)) is not None
        ],
        "memory": [
            {"id": fact.id, "status": fact.status} | hit
            for fact in workspace.memories.store(scope.user).load().facts
            if (hit := _hit(fact.text, words)) is not None
        ],
        "results": list(_in_files(workspace, scope, words))[:MOST_HITS],
    }


def _in_context(
    conversation: Conversation, words: str, turn: int | None
) -> tuple[list[JsonObject], set[int], Callable[[Record], str]]:
    context: list[JsonObject] = []
    shown: set[int] = set()
    try:
        past = past_request(conversation, turn)
    except NotFound:
        return context, shown, _no_request
    for block in past.manifest["blocks"]:
        for seq, kind, text in _entries(conversation, past, block):
            if (hit := _hit(text, words)) is not None:
                context.append(
                    {"layer": block["layer"], "seq": seq, "kind": kind, "state": block["state"]} | hit
                )
                shown.add(seq)

    def reason(record: Record) -> str:
        marks = past.manifest["marks"]
        if record.seq > past.manifest["through"]:
            return "came after this request"
        if record.seq < marks["start"]:
            if Marks.from_json(marks).floor < record.seq and record.is_question:
                return "carried in the bridge"
            covered = record.seq <= marks.get("covers", 0)
            return (
                f"before the window; {'covered by the task' if covered else 'read_record or search finds it'}"
            )
        clipped = {seq for block in past.manifest["blocks"] for seq in block.get("clipped", ())}
        return "in a clipped part of this record" if record.seq in clipped else "on another branch"

    return context, shown, reason


def _no_request(_: Record) -> str:
    return "no request was made yet"


def _in_files(workspace: Workspace, scope: Scope, words: str) -> Iterator[JsonObject]:
    places = [("result", workspace.results(scope).folder, [r.name for r in workspace.results(scope).all()])]
    files = workspace.files(scope)
    places.append(("file", files.folder, [file.name for file in files.all()]))
    for kind, folder, names in places:
        for name in names:
            path = folder / name
            if path.is_file():
                text = path.read_bytes().decode("utf-8", "replace")
                if (hit := _hit(text, words)) is not None:
                    yield {"kind": kind, "name": name, "line": text[: hit["at"]].count("\n") + 1} | hit


def _hit(text: str, words: str) -> JsonObject | None:
    """Where `words` first stand in `text`, with what is around them, and how often."""
    at = text.lower().find(words.lower())
    if at < 0:
        return None
    start = max(0, at - AROUND)
    around = " ".join(text[start : at + len(words) + AROUND].split())
    return {"at": at, "times": text.lower().count(words.lower()), "text": around}
