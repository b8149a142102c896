"""The models a workspace can choose from: its own, and those of a server that runs on this machine.

Ollama, LM Studio and llama.cpp are asked at their usual places.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from tenuto.codec import JsonObject

if TYPE_CHECKING:
    from tenuto.settings import Settings

PLACES = (
    ("ollama", "http://127.0.0.1:11434/v1"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("llamacpp", "http://127.0.0.1:8080/v1"),
)
WAIT_S = 0.5
MOST_MODELS = 50


async def running_models(places: tuple[tuple[str, str], ...] = PLACES) -> list[JsonObject]:
    """The models that local servers offer: `{name, model, base_url}`. A place where nobody answers offers none."""
    import httpx

    async def ask(client: httpx.AsyncClient, server: str, url: str) -> list[JsonObject]:
        try:
            answer = await client.get(f"{url}/models")
            listed: Any = answer.raise_for_status().json()["data"]
            names = [str(one["id"]) for one in listed][:MOST_MODELS]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return []
        short = [re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") for name in names]
        return [
            {"name": f"{server}-{short[at]}"[:64], "model": name, "base_url": url}
            for at, name in enumerate(names)
        ]

    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        found = await asyncio.gather(*(ask(client, server, url) for server, url in places))
    return [model for models in found for model in models]


async def all_models(settings: Settings) -> list[JsonObject]:
    """`{name, model, base_url, default, found}` by name; then those found on this machine and not named yet."""
    default = settings.agent.model
    named = {name: one.model for name, one in settings.models.items()}
    known = {**({} if default in named else {default: default}), "demo": "demo", **named}
    addresses = {(one.model, one.base_url) for one in settings.models.values()}
    models: list[JsonObject] = [
        {"name": name, "model": model, "default": name == default, "found": False, "base_url": ""}
        for name, model in known.items()
    ]
    models += [
        {**one, "default": False, "found": True}
        for one in await running_models()
        if (one["model"], one["base_url"]) not in addresses
    ]
    return models
