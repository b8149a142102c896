"""What OpenAI and Anthropic demand of a request, checked on the very JSON that their libraries put on the wire."""

from __future__ import annotations

from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models import Model, ModelRequestParameters

from .provider import Provider, error


async def _on_the_wire(model: Model, provider: Provider, messages: list[dict]) -> list[dict]:
    from pydantic_ai.exceptions import ModelHTTPError

    try:
        await model.request(
            ModelMessagesTypeAdapter.validate_python(messages), None, ModelRequestParameters()
        )
    except ModelHTTPError:
        pass
    return provider.requests[0]["messages"]


async def openai_rules(messages: list[dict]) -> list[str]:
    """Every assistant message with tool calls is followed by exactly their tool messages."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    with Provider(error(400, {"error": {"message": "only recorded"}})) as provider:
        client = AsyncOpenAI(api_key="k", base_url=provider.url, max_retries=0)
        sent = await _on_the_wire(
            OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client)), provider, messages
        )
    return check_openai(sent)


def check_openai(sent: list[dict]) -> list[str]:
    wrong: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    for message in sent:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"tool message {message['tool_call_id']} answers nothing")
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            wrong.append(f"{waiting} have no tool message")
            waiting = []
        for call in message.get("tool_calls") or []:
            if call["id"] in seen:
                wrong.append(f"{call['id']} is used twice")
            seen.add(call["id"])
            waiting.append(call["id"])
    return wrong + ([f"{waiting} have no tool message"] if waiting else [])


async def anthropic_rules(messages: list[dict]) -> list[str]:
    """The first message is the user's, and each tool_use has its tool_result in the next message, first."""
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "only recorded"}}
    with Provider(error(400, refused)) as provider:
        async with AsyncAnthropic(api_key="k", base_url=provider.url, max_retries=0) as client:
            model = AnthropicModel("claude-sonnet-4-6", provider=AnthropicProvider(anthropic_client=client))
            sent = await _on_the_wire(model, provider, messages)
    return check_anthropic(sent)


def check_anthropic(messages: list[dict]) -> list[str]:
    """The API joins neighbouring messages of one role; so does this check, before it looks."""
    sent: list[dict] = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        if sent and sent[-1]["role"] == message["role"]:
            sent[-1] = {**sent[-1], "content": [*sent[-1]["content"], *blocks]}
        else:
            sent.append({**message, "content": blocks})
    wrong: list[str] = []
    used: list[str] = []
    for at, message in enumerate(sent):
        if message["role"] != ("user" if at % 2 == 0 else "assistant"):
            wrong.append(f"message {at} has role {message['role']}")
        blocks = message["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(used):
            wrong.append(f"message {at}: {used} are answered by {results}")
        kinds = [block["type"] == "tool_result" for block in blocks]
        if kinds != sorted(kinds, reverse=True):
            wrong.append(f"message {at}: a result stands behind other content")
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(used)) < len(used):
            wrong.append(f"message {at}: an id is used twice")
    return wrong
