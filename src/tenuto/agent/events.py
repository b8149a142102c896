"""What a turn tells its readers while it runs. Values only; `as_json` is the form on the wire.

Texts from models and tools are data: a reader shows them, and never treats them as markup or instructions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from tenuto.codec import JsonObject


@dataclass(frozen=True, slots=True)
class Queued:
    """The message waits behind the running turn."""

    position: int
    type: Literal["queued"] = "queued"


@dataclass(frozen=True, slots=True)
class TurnStarted:
    turn: int
    question_seq: int
    model: str
    attached: str = ""
    """Name of the file that a long pasted text became."""
    notices: list[str] = field(default_factory=list[str])
    """What the user should know, for example an MCP server that doesn't answer."""
    type: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, slots=True)
class RequestSent:
    """A model request was assembled; `manifest` is the account of it."""

    step: int
    manifest: JsonObject
    type: Literal["request_sent"] = "request_sent"


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    type: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str
    type: Literal["thinking_delta"] = "thinking_delta"


@dataclass(frozen=True, slots=True)
class ToolCalled:
    call_id: str
    tool: str
    arguments: JsonObject
    type: Literal["tool_called"] = "tool_called"


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The call waits until somebody allows or refuses it."""

    call_id: str
    tool: str
    arguments: JsonObject
    type: Literal["approval_asked"] = "approval_asked"


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """Output of running code, as it comes."""

    call_id: str
    text: str
    type: Literal["tool_output"] = "tool_output"


@dataclass(frozen=True, slots=True)
class ToolReturned:
    call_id: str
    tool: str
    outcome: str
    """`success`, `failed`, `denied`, `retried` or `interrupted`."""
    text: str
    """What the model is shown, at most 2,000 characters of it here."""
    ms: float
    result: str = ""
    """Name of the saved result."""
    rows: int | None = None
    files: list[str] = field(default_factory=list[str])
    """Names of new files of the thread (charts and other artifacts)."""
    type: Literal["tool_returned"] = "tool_returned"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The last event of every turn."""

    turn: int
    reason: Literal["answered", "stopped", "failed"]
    answer: str
    usage: JsonObject
    """`{requests, input_tokens, cached_tokens, output_tokens, cost_usd}`; cost null where no price is known."""
    error: JsonObject | None = None
    not_saved: bool = False
    """The answer claims to remember something, but nothing was written."""
    type: Literal["turn_ended"] = "turn_ended"


Event: TypeAlias = (
    Queued
    | TurnStarted
    | RequestSent
    | TextDelta
    | ThinkingDelta
    | ToolCalled
    | ApprovalAsked
    | ToolOutput
    | ToolReturned
    | TurnEnded
)


def as_json(event: Event) -> JsonObject:
    return asdict(event)
