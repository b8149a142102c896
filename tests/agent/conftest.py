from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tenuto.agent import models
from tenuto.agent.app import App
from tenuto.agent.events import TurnEnded
from tenuto.agent.inspect import past_request
from tenuto.scope import Scope

SCOPE = Scope("w", "ming", "t")
MEMBERS = {
    "ming": {"role": "member", "grants": ["python"]},
    "anna": {"role": "member", "grants": ["python"]},
    "bob": {"role": "member"},
    "vera": {"role": "viewer"},
}


def stdio_server(**more) -> dict:
    return {
        "command": sys.executable,
        "args": [str(Path(__file__).with_name("mcp_server.py"))],
        "prefix": "",
        **more,
    }


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def open_app(home: Path):
    """`open_app(mcp=…, context=…)`: an App on this test's home, without a sandbox unless asked for."""

    def build(**overrides) -> App:
        base = {"members": MEMBERS, "sandbox": {"enabled": False}, "task": {"enabled": False}}
        return App(home, overrides={**base, **overrides})

    return build


@pytest.fixture
def scripted(monkeypatch) -> Callable[..., list]:
    """`scripted(step, …)`: the model answers with these steps in turn; returns the requests it was sent.

    A step is a text, a list of `(tool, arguments)` called in parallel, or a function of the messages.
    """

    def install(*steps, provider: str | None = None) -> list:
        from pydantic_ai.models.function import DeltaToolCall, FunctionModel

        seen: list = []
        left = list(steps)

        async def stream(messages, info):
            seen.append(list(messages))
            step = left.pop(0) if left else "(no more steps)"
            if callable(step):
                step = step(messages)
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, str):
                for piece in (step[: len(step) // 2], step[len(step) // 2 :]):
                    yield piece
                return
            for index, (tool, arguments) in enumerate(step):
                import json

                identity = f"c{len(seen)}_{index}"
                yield {
                    index: DeltaToolCall(name=tool, json_args=json.dumps(arguments), tool_call_id=identity)
                }

        monkeypatch.setattr(
            models, "_build", lambda *_: FunctionModel(stream_function=stream, model_name="demo")
        )
        return seen

    return install


async def ask(app: App, text: str, scope: Scope = SCOPE, **more) -> tuple[TurnEnded, list]:
    """One turn; returns its end and all events."""
    events = [event async for event in app.send(scope, text, **more).events()]
    assert isinstance(events[-1], TurnEnded)
    return events[-1], events


def conversation(app: App, scope: Scope = SCOPE):
    workspace = app.workspace(scope.workspace)
    return workspace.conversation(workspace.thread(scope))


def sent(app: App, scope: Scope = SCOPE, turn: int | None = None) -> list[dict]:
    """The messages of a turn's last request, rebuilt from the log."""
    return past_request(conversation(app, scope), turn).request.messages
