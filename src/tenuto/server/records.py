"""Records as the interface shows them: bounded previews, the layers of a request, and a turn's events again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

from tenuto.agent.conversation import REQUEST, TURN_ENDED, TURN_STARTED
from tenuto.agent.events import (
    Event,
    RequestSent,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from tenuto.codec import JsonError, JsonObject, dumps, loads
from tenuto.log.record import Record
from tenuto.log.store import ThreadLog
from tenuto.log.threads import CREATED

PREVIEW_CHARS = 12_000
"""Most characters of one part in a page of records; the whole text is asked for by record."""
TOOL_PREVIEW_CHARS = 2_000
HIDDEN = frozenset({TURN_STARTED, CREATED})
"""Events that carry nothing to show."""


def shown(record: Record, *, whole: bool = False) -> JsonObject | None:
    """One record for the interface, None for one with nothing to show.

    `{seq, id, parent, turn, at, tokens, kind, parts | event}`; `kind` is `question`, `answer`, `results` or `event`.
    """
    head: JsonObject = {
        "seq": record.seq,
        "id": record.id,
        "parent": record.parent,
        "turn": record.turn,
        "at": record.at,
        "tokens": record.tokens,
    }
    if record.event is not None:
        kind = record.event_type
        if kind in HIDDEN:
            return None
        event = dict(record.event)
        if kind == REQUEST:
            event = {"type": kind, "context": request_summary(event["manifest"])}
        return {**head, "kind": "event", "event": event}
    message = record.message or {}
    parts = [_part(part, whole=whole) for part in message.get("parts", ())]
    kind = "answer" if message.get("kind") == "response" else "question" if record.is_question else "results"
    return {**head, "kind": kind, "cut": message.get("state") == "interrupted", "parts": parts}


def _part(part: JsonObject, *, whole: bool) -> JsonObject:
    kind = str(part.get("part_kind", ""))
    most = None if whole else (TOOL_PREVIEW_CHARS if kind == "tool-return" else PREVIEW_CHARS)
    if kind == "tool-call":
        text = dumps(arguments_of(part)).decode()
        return {
            "kind": "call",
            "call_id": part.get("tool_call_id", ""),
            "tool": part.get("tool_name", ""),
            **_bounded(text, most),
        }
    content = part.get("content", "")
    text = content if isinstance(content, str) else _joined(content)
    if kind in ("tool-return", "retry-prompt"):
        metadata: JsonObject = part.get("metadata") or {}
        return {
            "kind": "returned",
            "call_id": part.get("tool_call_id", ""),
            "tool": part.get("tool_name", ""),
            "outcome": str(part.get("outcome", "retried" if kind == "retry-prompt" else "success")),
            "ms": float(metadata.get("ms", 0)),
            "result": str(metadata.get("result", "")),
            "rows": metadata.get("rows"),
            "files": list(metadata.get("files", ())),
            **_bounded(text, most),
        }
    names = {"text": "text", "thinking": "thinking", "user-prompt": "text"}
    return {"kind": names.get(kind, "other"), **_bounded(text, most)}


def _bounded(text: str, most: int | None) -> JsonObject:
    """The beginning of a text, its whole length, and whether it was cut."""
    kept = text if most is None else text[:most]
    return {"text": kept, "chars": len(text), "cut": len(kept) < len(text)}


def _joined(content: Any) -> str:
    if isinstance(content, list):
        pieces = [piece if isinstance(piece, str) else "" for piece in cast("list[Any]", content)]
        return "\n".join(piece for piece in pieces if piece)
    return dumps(content).decode()


def arguments_of(part: JsonObject) -> JsonObject:
    """A call's arguments as an object, however the model gave them."""
    raw = part.get("args")
    if isinstance(raw, str):
        try:
            raw = loads(raw.encode())
        except JsonError:
            return {"text": raw}
    return cast("JsonObject", raw) if isinstance(raw, dict) else {}


def as_markdown(title: str, log: ThreadLog) -> str:
    """The active branch as a text to read: questions, answers, and what each tool was asked and gave."""
    lines = [f"# {title or 'Tenuto'}", ""]
    for record in log.back_to(lambda _: False):
        told = shown(record) if record.message is not None else None
        if told is None:
            continue
        if told["kind"] == "question":
            lines += [f"## {told['at'][:16].replace('T', ' ')}", ""]
        for part in told["parts"]:
            if part["kind"] == "text":
                quoted = told["kind"] == "question"
                lines += [
                    "\n".join(f"> {line}" for line in part["text"].split("\n")) if quoted else part["text"],
                    "",
                ]
            elif part["kind"] == "call":
                lines += [f"`{part['tool']}` {_fenced(part['text'])}", ""]
            elif part["kind"] == "returned":
                lines += [_fenced(part["text"]), *(f"![{name}]({name})" for name in part["files"]), ""]
            if part["cut"]:
                lines += [f"*[{part['chars']:,} characters in all]*", ""]
    return "\n".join(lines)


def _fenced(text: str) -> str:
    """A code block that its own text can't close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"\n{fence}\n{text}\n{fence}"


def request_summary(manifest: JsonObject) -> JsonObject:
    """What the strip under an answer shows of a request: tokens by layer, in the order the model got them."""
    layers: dict[str, int] = {}
    for block in manifest["blocks"]:
        layers[block["layer"]] = layers.get(block["layer"], 0) + int(block["tokens"])
    return {
        "step": manifest["step"],
        "model": manifest["model"],
        "layers": [{"layer": layer, "tokens": tokens} for layer, tokens in layers.items()],
        "tokens": manifest["summed"],
        "window": manifest["budget"]["window"],
        "output": manifest["budget"]["output"],
        "stable_share": manifest["prefix"]["stable_share"],
        "coverage": manifest["coverage"],
        "left_out": len(manifest["left_out"]),
    }


def turn_events(records: Sequence[Record]) -> Iterator[Event]:
    """A turn's events told again from its records: whole texts instead of pieces."""
    for record in records:
        event, message = record.event, record.message
        if event is not None and record.event_type == REQUEST:
            yield RequestSent(event["manifest"]["step"], event["manifest"])
        elif event is not None and record.event_type == TURN_ENDED:
            yield ended_event(records, event["reason"])
        elif record.is_question:
            model = next(
                (r.event["manifest"]["model"] for r in records if r.event and r.event_type == REQUEST), ""
            )
            yield TurnStarted(record.turn, record.seq, model)
        elif message is not None:
            yield from _of_message(message)


def _of_message(message: JsonObject) -> Iterator[Event]:
    for part in message["parts"]:
        kind = part.get("part_kind")
        if kind == "text":
            yield TextDelta(part["content"])
        elif kind == "thinking":
            yield ThinkingDelta(part.get("content") or "")
        elif kind == "tool-call":
            yield ToolCalled(part["tool_call_id"], part["tool_name"], arguments_of(part))
        elif kind in ("tool-return", "retry-prompt") and part.get("tool_name"):
            told = _part(part, whole=False)
            yield ToolReturned(
                told["call_id"],
                told["tool"],
                told["outcome"],
                told["text"],
                told["ms"],
                told["result"],
                told["rows"],
                told["files"],
            )


def ended_event(records: Sequence[Record], reason: str) -> TurnEnded:
    """How a turn ended, by its records."""
    end = next((r.event for r in reversed(records) if r.event and r.event_type == TURN_ENDED), None) or {}
    answer = next(
        (
            "".join(p["content"] for p in r.message["parts"] if p.get("part_kind") == "text")
            for r in reversed(records)
            if r.message is not None and r.message["kind"] == "response"
        ),
        "",
    )
    return TurnEnded(
        records[-1].turn,
        cast('Literal["answered", "stopped", "failed"]', reason),
        answer,
        end.get("usage", {}),
        end.get("error"),
        bool(end.get("not_saved", False)),
    )
