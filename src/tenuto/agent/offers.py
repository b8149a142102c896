"""Tools as values: what is offered to the model, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tenuto.codec import JsonObject


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back: for the model, and for the interface."""

    text: str
    metadata: JsonObject | None = None
    media: Sequence[tuple[bytes, str]] = ()


Handler = Callable[[str, JsonObject], Awaitable[ToolResult]]
"""Takes the call's id and its arguments."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool on offer in a turn."""

    name: str
    description: str
    schema: JsonObject
    handler: Handler
    needs_approval: bool = False

    @property
    def definition(self) -> JsonObject:
        return {"name": self.name, "description": self.description, "schema": self.schema}


def schema(required: Sequence[str], **properties: JsonObject) -> JsonObject:
    """The JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
