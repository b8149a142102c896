from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import orjson
import pytest
import uvicorn
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from tenuto.agent.app import App
from tenuto.server.app import create_app
from tenuto.server.identity import LocalUser

MEMBERS = {"ming": {"role": "member"}, "anna": {"role": "member"}, "vera": {"role": "viewer"}}
THREAD = "/api/workspaces/w/threads/t"


def speaking(*pieces: str, gate: asyncio.Event | None = None) -> FunctionModel:
    """A model that says `pieces`; it waits for `gate` before the last one. A list is a round of tool calls."""

    async def stream(messages, info):
        for number, piece in enumerate(pieces):
            if gate is not None and number == len(pieces) - 1:
                await gate.wait()
            yield piece

    def answer(messages, info):
        return ModelResponse(parts=[TextPart("".join(pieces))])

    return FunctionModel(answer, stream_function=stream, model_name="speaking")


def calling(tool: str, arguments: dict, answer: str) -> FunctionModel:
    """A model that calls a tool, then answers."""

    async def stream(messages, info):
        if any(part.part_kind in ("tool-return", "retry-prompt") for part in messages[-1].parts):
            yield answer
        else:
            yield {0: DeltaToolCall(tool, orjson.dumps(arguments).decode(), tool_call_id="c1")}

    return FunctionModel(stream_function=stream, model_name="calling")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "w").mkdir(parents=True)
    (tmp_path / "home" / "w" / "workspace.toml").write_text("")
    return tmp_path / "home"


@pytest.fixture
def serve(home: Path):
    """`async with serve(model) as client`: the real server on a free port, a real HTTP client on it."""

    @asynccontextmanager
    async def running(model=None, user="ming", **settings):
        base = {"members": MEMBERS, "sandbox": {"enabled": False}, "task": {"enabled": False}}
        models = {"m": model or speaking("hello ", "there")}
        app = App(home, overrides={**base, "agent": {"model": "m"}, **settings}, models=models)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            web = create_app(app, LocalUser(user))
            server = uvicorn.Server(uvicorn.Config(web, log_level="error", timeout_graceful_shutdown=1))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            port = listening.getsockname()[1]
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
                client.tenuto = app
                try:
                    yield client
                finally:
                    server.should_exit = True
                    await serving

    return running


async def events(
    client, run: str, *, after: int = 0, headers: dict | None = None, until: str = ""
) -> list[dict]:
    """The events of a run, to its end or to the first of type `until`."""
    found: list[dict] = []
    url = f"{THREAD}/runs/{run}/events"
    async with client.stream("GET", url, params={"after": after}, headers=headers or {}) as response:
        assert response.status_code in (200, 204)
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                found.append(orjson.loads(line[6:]))
                if found[-1]["type"] == until:
                    break
    return found


async def send(client, text: str, identity: str = "m1") -> dict:
    response = await client.post(f"{THREAD}/messages", json={"id": identity, "text": text})
    assert response.status_code == 202, response.text
    return response.json()
