"""A run's events in the words of other clients: the Vercel AI SDK's UI message stream (5 to 7), and AG-UI 1.0.

Each is a generator over run events that yields the other protocol's events; none reads or changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tenuto.codec import JsonObject, dumps

AI_HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
FAILED = ("failed", "denied", "interrupted")


@dataclass(slots=True)
class AiStream:
    """UI message stream parts."""

    run: str
    _step: bool = False
    _open: str = ""
    _texts: int = 0
    _printed: dict[str, str] = field(default_factory=dict[str, str])

    def parts(self, kind: str, data: JsonObject) -> Iterator[JsonObject]:
        """The parts that one event becomes."""
        match kind:
            case "run_started":
                yield {"type": "start", "messageId": self.run}
            case "request_sent":
                yield from self._close_step()
                self._step = True
                yield {"type": "start-step"}
                manifest = {"step": data["step"], **data["context"]}
                yield {"type": "data-manifest", "id": f"{self.run}-{data['step']}", "data": manifest}
            case "text_delta" | "thinking_delta":
                yield from self._text("text" if kind == "text_delta" else "reasoning", data["text"])
            case "tool_called":
                yield from self._close_text()
                yield {**_call(data), "type": "tool-input-available", "input": data["arguments"]}
            case "approval_asked":
                yield {
                    "type": "tool-approval-request",
                    "approvalId": data["call_id"],
                    "toolCallId": data["call_id"],
                }
            case "tool_output":
                call = data["call_id"]
                self._printed[call] = self._printed.get(call, "") + data["text"]
                shown = {"call": call, "output": self._printed[call][-20_000:]}
                yield {"type": "data-sandbox", "id": f"sandbox-{call}", "data": shown}
            case "tool_returned":
                yield from self._returned(data)
            case "turn_ended":
                yield from self._close_step()
                if data["reason"] == "failed":
                    yield {"type": "error", "errorText": _error(data)}
                elif data["reason"] == "stopped":
                    yield {"type": "abort"}
                reason = (
                    "stop"
                    if data["reason"] == "answered"
                    else "error"
                    if data["reason"] == "failed"
                    else "other"
                )
                yield {"type": "finish", "finishReason": reason}
            case "run_failed":
                yield from self._close_step()
                yield {"type": "error", "errorText": _error(data)}
                yield {"type": "finish", "finishReason": "error"}
            case _:
                return

    def _returned(self, data: JsonObject) -> Iterator[JsonObject]:
        call = {"toolCallId": data["call_id"], "dynamic": True}
        if data["outcome"] in FAILED:
            yield {**call, "type": "tool-output-error", "errorText": data["text"]}
        else:
            yield {**call, "type": "tool-output-available", "output": data["text"]}
        if data["result"]:
            result = {"name": data["result"], "rows": data["rows"], "call": data["call_id"]}
            yield {"type": "data-result", "id": f"result-{data['call_id']}", "data": result}
        for name in data["files"]:
            yield {
                "type": "data-artifact",
                "id": f"artifact-{name}",
                "data": {"name": name, "call": data["call_id"]},
            }

    def _text(self, kind: str, delta: str) -> Iterator[JsonObject]:
        if self._open != kind:
            yield from self._close_text()
            self._open = kind
            self._texts += 1
            yield {"type": f"{kind}-start", "id": str(self._texts)}
        yield {"type": f"{kind}-delta", "id": str(self._texts), "delta": delta}

    def _close_text(self) -> Iterator[JsonObject]:
        if self._open:
            yield {"type": f"{self._open}-end", "id": str(self._texts)}
            self._open = ""

    def _close_step(self) -> Iterator[JsonObject]:
        yield from self._close_text()
        if self._step:
            self._step = False
            yield {"type": "finish-step"}


def _call(data: JsonObject) -> JsonObject:
    return {"toolCallId": data["call_id"], "toolName": data["tool"], "dynamic": True}


def _error(data: JsonObject) -> str:
    error: JsonObject = data.get("error") or {}
    return f"{error.get('code', 'error')}: {error.get('message', '')}"


@dataclass(slots=True)
class AgUiStream:
    """AG-UI events."""

    thread: str
    run: str
    _open: str = ""
    _texts: int = 0
    _step: str = ""

    def parts(self, kind: str, data: JsonObject) -> Iterator[JsonObject]:
        """The events that one event becomes."""
        match kind:
            case "run_started":
                yield {"type": "RUN_STARTED", "threadId": self.thread, "runId": self.run}
            case "request_sent":
                yield from self._close_step()
                self._step = f"request-{data['step']}"
                yield {"type": "STEP_STARTED", "stepName": self._step}
                yield {"type": "CUSTOM", "name": "manifest", "value": data["context"]}
            case "text_delta":
                if not data["text"]:
                    return
                if not self._open:
                    self._texts += 1
                    self._open = f"{self.run}-{self._texts}"
                    yield {"type": "TEXT_MESSAGE_START", "messageId": self._open, "role": "assistant"}
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._open, "delta": data["text"]}
            case "tool_called":
                yield from self._close_text()
                call = data["call_id"]
                yield {"type": "TOOL_CALL_START", "toolCallId": call, "toolCallName": data["tool"]}
                yield {
                    "type": "TOOL_CALL_ARGS",
                    "toolCallId": call,
                    "delta": dumps(data["arguments"]).decode(),
                }
                yield {"type": "TOOL_CALL_END", "toolCallId": call}
            case "tool_returned":
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "messageId": f"{self.run}-{data['call_id']}",
                    "toolCallId": data["call_id"],
                    "content": data["text"],
                    "role": "tool",
                }
                if data["result"] or data["files"]:
                    made = {name: data[name] for name in ("call_id", "result", "rows", "files")}
                    yield {"type": "CUSTOM", "name": "results", "value": made}
            case "tool_output" | "thinking_delta" | "approval_asked":
                yield {"type": "CUSTOM", "name": kind, "value": data}
            case "turn_ended":
                yield from self._close_step()
                if data["reason"] == "failed":
                    yield {
                        "type": "RUN_ERROR",
                        "message": _error(data),
                        "code": (data["error"] or {}).get("code"),
                    }
                else:
                    result = {"reason": data["reason"], "usage": data["usage"]}
                    yield {
                        "type": "RUN_FINISHED",
                        "threadId": self.thread,
                        "runId": self.run,
                        "result": result,
                    }
            case "run_failed":
                yield from self._close_step()
                yield {"type": "RUN_ERROR", "message": _error(data), "code": data["error"]["code"]}
            case _:
                return

    def _close_text(self) -> Iterator[JsonObject]:
        if self._open:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._open}
            self._open = ""

    def _close_step(self) -> Iterator[JsonObject]:
        yield from self._close_text()
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
            self._step = ""
