"""One question to a model outside a turn: for a refresh or an extraction. Structured where the model can.

The request begins with the thread's own instructions, tools and messages, so that the provider's prompt cache
serves what the last turn paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tenuto.agent.models import Served, request_settings
from tenuto.codec import JsonObject
from tenuto.errors import ModelFailed

if TYPE_CHECKING:
    from pydantic_ai.models import Model


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked."""

    prompt: str
    schema: JsonObject
    name: str
    """Name of the answer's schema: `task_operations`, `memory_operations`."""
    answer_tokens: int
    instructions: str = ""
    tools: Sequence[JsonObject] = ()
    """Tool definitions `{name, description, schema}`: they belong to the prefix and are not to be called."""
    messages: Sequence[JsonObject] = ()
    """The conversation so far."""


async def ask(served: Served, model: Model, asked: Asked, *, structured: bool = True) -> str:
    """The model's answer as text. Raises `ModelFailed`."""
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.exceptions import AgentRunError, UserError
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, UserPromptPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.tools import ToolDefinition

    history = ModelMessagesTypeAdapter.validate_python(list(asked.messages))
    question = ModelRequest([UserPromptPart(asked.prompt)], instructions=asked.instructions or None)
    # OpenAI puts an answer's schema in front of everything: it would cost the whole cached prefix.
    cached = bool(asked.messages) and served.facts.name.startswith("openai")
    able = bool(cast("Any", model.profile).get("supports_json_schema_output"))
    native = structured and able and not cached
    parameters = ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool["name"], parameters_json_schema=tool["schema"], description=tool["description"]
            )
            for tool in asked.tools
        ],
        output_mode="native" if native else "text",
        output_object=OutputObjectDefinition(asked.schema, asked.name) if native else None,
    )
    try:
        async with model_request_stream(
            model,
            [*history, question],
            model_settings=cast("Any", request_settings(served.facts, asked.answer_tokens)),
            model_request_parameters=parameters,
        ) as stream:
            async for _ in stream:
                pass
            response = stream.get()
    except (AgentRunError, UserError, OSError, AssertionError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelFailed(f"{served.facts.name} failed: {reason}", hint="it is tried again later") from error
    return "".join(part.content for part in response.parts if part.part_kind == "text")
