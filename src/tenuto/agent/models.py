"""Models by name: `openai:…`, `anthropic:…`, `ollama:…`, any OpenAI-compatible URL, one of the settings, `demo`.

Heavy libraries are imported when a model is built, not before. The windows below are the vendors' published
ones; a setting overrides them, and a "context length exceeded" answer teaches the true one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.codec import JsonError, dumps_pretty, loads
from tenuto.context.assemble import ModelFacts
from tenuto.context.tokens import family_of
from tenuto.disk import write_atomic
from tenuto.errors import ModelFailed
from tenuto.settings import ModelSettings, Settings

if TYPE_CHECKING:
    from pydantic_ai.models import Model

UNKNOWN = (32_768, 4_096)
"""Window and output of a model about which nothing is known: small enough for most."""

WINDOWS: tuple[tuple[str, int, int], ...] = (
    ("gpt-5", 400_000, 128_000),
    ("gpt-4.1", 1_047_576, 32_768),
    ("gpt-4o", 128_000, 16_384),
    ("o3", 200_000, 100_000),
    ("o4", 200_000, 100_000),
    ("claude", 200_000, 64_000),
    ("gemini", 1_048_576, 65_536),
    ("deepseek", 128_000, 8_192),
    ("qwen3", 32_768, 8_192),
    ("llama", 131_072, 8_192),
    ("demo", 200_000, 8_192),
)
"""`(part of the name, window, largest output)` in tokens; the first match counts."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model that can be asked."""

    facts: ModelFacts
    build: Callable[[], Model]
    """Makes the Pydantic AI model. Raises `ModelFailed` with what to do."""


class ModelPool:
    """Built models, kept for their connections; closed together."""

    def __init__(self) -> None:
        self._models: dict[object, Model] = {}

    def get(self, key: object, served: Served) -> Model:
        """The model of `served`, built once for each `key`. Raises `ModelFailed`."""
        if key not in self._models:
            self._models[key] = served.build()
        return self._models[key]

    async def close(self) -> None:
        """Close the connections of all models."""
        for model in self._models.values():
            close = getattr(getattr(model, "client", None), "close", None)
            if close is not None:
                await close()
        self._models.clear()


class LearnedWindows:
    """True windows that providers told by refusing a request, kept over restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, model: str) -> int | None:
        return self._read().get(model)

    def learn(self, model: str, window: int) -> None:
        write_atomic(self._path, dumps_pretty({**self._read(), model: window}), mode=0o600)

    def _read(self) -> dict[str, int]:
        try:
            return {str(key): int(value) for key, value in loads(self._path.read_bytes()).items()}
        except (FileNotFoundError, JsonError, AttributeError, ValueError, TypeError):
            return {}


def find(
    name: str,
    settings: Settings,
    learned: LearnedWindows | None = None,
    keys: Callable[[str], str] = lambda variable: os.environ.get(variable, ""),
) -> Served:
    """The model called `name`; `keys` finds a key by its name. Raises `ModelFailed` for a name that can't be one."""
    chosen = settings.models.get(name)
    target = chosen.model if chosen else name
    url = chosen.base_url if chosen else None
    if re.match(r"https?://", target):
        url, _, target = target.partition("#")
    facts = _facts(name, target, url, settings, chosen)
    if learned is not None and (window := learned.get(name)) is not None:
        facts = replace(facts, window=window, output=min(facts.output, max(256, window // 4)))
    key = keys(chosen.api_key_env) if chosen and chosen.api_key_env else None
    return Served(facts, lambda: _build(target, url, key, settings.agent.retries))


def named_facts(name: str, settings: Settings) -> ModelFacts:
    """What the budget needs to know of a model that somebody else has built, by `system:name`."""
    return _facts(name, name, None, settings, settings.models.get(name))


def _facts(
    name: str, target: str, url: str | None, settings: Settings, chosen: ModelSettings | None
) -> ModelFacts:
    lower = target.lower()
    window, output = next(((w, o) for mark, w, o in WINDOWS if mark in lower), UNKNOWN)
    if target.startswith("ollama:"):
        window, output = UNKNOWN
    if chosen is not None:
        window, output = chosen.window or window, chosen.output or output
    output = min(output, max(256, window // 4))
    return ModelFacts(
        name=name,
        provider=_provider(target, url),
        family=family_of(target),
        window=window,
        output=output,
        thinking=settings.agent.thinking_tokens if chosen and chosen.thinking else 0,
        counts=target != "demo",
    )


def _provider(target: str, url: str | None) -> str:
    """Pydantic AI's system name, which responses carry as `provider_name`."""
    if url is not None:
        return "openai"
    if target == "demo":
        return "demo"
    prefix = target.partition(":")[0]
    return "openai" if prefix.startswith("openai") else prefix


def _build(target: str, url: str | None, key: str | None, retries: int) -> Model:
    if target == "demo":
        from tenuto.demo.model import demo_model

        return demo_model()
    prefix, _, model = target.partition(":")
    if url is not None:
        plain = model if prefix.startswith("openai") and model else target
        return _openai_chat(plain or "default", url, key or "none", retries)
    if not model:
        raise ModelFailed(
            f"model {target!r} has no provider",
            hint="write provider:model, for example openai:gpt-5, or name a [models.<name>] of the settings",
        )
    if prefix == "ollama":
        base = os.environ.get("OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1")
        return _openai_chat(model, base, "ollama", retries)
    if prefix in ("openai", "openai-responses", "openai-chat"):
        key = key or _key("OPENAI_API_KEY", target)
        base = os.environ.get("OPENAI_BASE_URL")
        chat = prefix == "openai-chat"
        return (
            _openai_chat(model, base, key, retries) if chat else _openai_responses(model, base, key, retries)
        )
    if prefix == "anthropic":
        return _anthropic(model, key or _key("ANTHROPIC_API_KEY", target), retries)
    return _other(target)


def _key(variable: str, target: str) -> str:
    if found := os.environ.get(variable):
        return found
    raise ModelFailed(f"{target} needs a key", hint=f"set the environment variable {variable}")


def _openai_client(base: str | None, key: str, retries: int) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=base, api_key=key, max_retries=retries)


def _openai_chat(model: str, base: str | None, key: str, retries: int) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(model, provider=OpenAIProvider(openai_client=_openai_client(base, key, retries)))


def _openai_responses(model: str, base: str | None, key: str, retries: int) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel(
        model, provider=OpenAIProvider(openai_client=_openai_client(base, key, retries))
    )


def _anthropic(model: str, key: str, retries: int) -> Model:
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(api_key=key, max_retries=retries)
    return AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client))


def _other(target: str) -> Model:
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        return infer_model(target)
    except (UserError, ValueError, ImportError) as error:
        raise ModelFailed(
            f"model {target!r} can't be used: {str(error).splitlines()[0][:200]}",
            hint="check the name, and that the provider's library and key are there",
        ) from error


def request_settings(facts: ModelFacts, output: int) -> dict[str, Any]:
    """Pydantic AI model settings of every request: at most the reserved output, cache marks where there are any.

    OpenAI: stateless replay, so that our log stays the only record. Anthropic: marks on instructions, tools
    and the newest message; `cache_mark` adds the one at the end of the stable prefix.
    """
    common: dict[str, Any] = {"max_tokens": output}
    if facts.provider == "anthropic":
        return {
            **common,
            "anthropic_cache_instructions": True,
            "anthropic_cache_tool_definitions": True,
            "anthropic_cache_messages": True,
        }
    if facts.provider == "openai" and facts.name.startswith("openai:"):
        return {**common, "openai_store": False}
    return common


def wants_cache_mark(facts: ModelFacts) -> bool:
    """Whether the provider takes an explicit mark inside the messages."""
    return facts.provider in ("anthropic", "bedrock")


_NUMBERS = re.compile(
    r"(?:maximum context length (?:is|of)|context (?:length|window|size)[^0-9]{0,40}|n_ctx[^0-9]{0,20}|> )"
    r"\s*([0-9][0-9,]{2,})",
    re.IGNORECASE,
)
_EXCEEDED = re.compile(
    r"context.{0,20}(length|window|size).{0,60}(exceed|large|maximum|limit)"
    r"|prompt is too long|exceed.{0,40}context",
    re.IGNORECASE | re.DOTALL,
)


def true_window(message: str) -> int | None:
    """The window that a provider's refusal names, None if it is another error; 0 if it names no number."""
    if not _EXCEEDED.search(message):
        return None
    found = _NUMBERS.search(message)
    return int(found[1].replace(",", "")) if found else 0
