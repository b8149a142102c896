"""The official clients of other protocols drive the API unchanged."""

from __future__ import annotations

import asyncio
import shutil

import orjson
import pytest
from pydantic import TypeAdapter

from tests.server.conftest import THREAD, calling, speaking

from .conftest import ROOT

CLIENTS = ROOT / "web" / "test" / "clients.mjs"


async def client_of(server, which: str, text: str) -> dict:
    if shutil.which("node") is None or not (ROOT / "web" / "node_modules" / "ai").is_dir():
        pytest.skip("no Node, or its packages are not installed")
    address = str(server.base_url).rstrip("/") + THREAD
    process = await asyncio.create_subprocess_exec(
        "node",
        str(CLIENTS),
        address,
        which,
        text,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, wrong = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, wrong.decode()
    return orjson.loads(told.splitlines()[-1])


@pytest.mark.parametrize("version", ["ai", "ai7"])
async def test_the_ai_sdk_s_transport_reads_a_turn_with_its_tool_call(serve, version):
    async with serve(calling("read_record", {"seq": 3}, "done")) as server:
        told = await client_of(server, version, "look it up")
        kinds = [part["type"] for part in told["parts"]]
        assert kinds == [
            "step-start", "data-manifest", "dynamic-tool", "step-start", "data-manifest", "text", "data-task", "data-memory",
        ]  # fmt: skip
        tool = told["parts"][2]
        assert (tool["toolName"], tool["state"], tool["input"]) == (
            "read_record",
            "output-available",
            {"seq": 3},
        )
        assert (told["parts"][5]["text"], told["parts"][5]["state"]) == ("done", "done")
        assert told["resumed"] is False
        (question,) = [
            r for r in (await server.get(f"{THREAD}/records")).json()["records"] if r["kind"] == "question"
        ]
        assert question["parts"][0]["text"] == "look it up"


async def test_an_ai_sdk_stream_is_taken_up_again_while_its_turn_runs(serve):
    gate = asyncio.Event()
    async with serve(speaking("one ", "two", gate=gate)) as server:
        body = {"messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "go"}]}]}
        async with server.stream("POST", f"{THREAD}/ai", json=body) as first:
            assert first.headers["x-vercel-ai-ui-message-stream"] == "v1"
            async for line in first.aiter_lines():
                if '"one ' in line:
                    break
        seen: list[str] = []
        async with server.stream("GET", f"{THREAD}/ai/c/stream") as again:
            async for line in again.aiter_lines():
                if line.startswith("data: {"):
                    part = orjson.loads(line[6:])
                    seen.append(part.get("delta", ""))
                    if part.get("delta") == "one ":
                        gate.set()
        assert "".join(seen) == "one two"
        assert (await server.get(f"{THREAD}/ai/c/stream")).status_code == 204


async def test_an_ag_ui_agent_reads_a_turn_with_its_tool_call(serve):
    async with serve(calling("read_record", {"seq": 1}, "done")) as server:
        told = await client_of(server, "agui", "look it up")
        assert [message["role"] for message in told["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert told["messages"][1]["toolCalls"][0]["function"]["name"] == "read_record"
        assert told["messages"][3]["content"] == "done"
        assert {"RUN_STARTED", "STEP_STARTED", "CUSTOM", "TOOL_CALL_RESULT", "RUN_FINISHED"} <= set(
            told["events"]
        )


@pytest.mark.parametrize("fails", [False, True])
async def test_every_ag_ui_event_has_the_shape_that_the_protocol_s_own_types_ask_for(serve, fails):
    from ag_ui.core import Event

    model = speaking("one ", "two") if not fails else calling("no_such_tool", {}, "done")
    body = {"threadId": "t", "runId": "r1", "messages": [{"id": "u", "role": "user", "content": "go"}]}
    async with serve(model) as server:
        answer = await server.post(f"{THREAD}/agui", json=body)
        again = await server.post(f"{THREAD}/agui", json=body)
    events = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    adapter = TypeAdapter(Event)
    assert all(adapter.validate_python(event) for event in events) and events[0]["type"] == "RUN_STARTED"
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    assert again.text == answer.text, "a run that is asked for twice is one run"


async def test_a_message_without_words_is_refused(serve):
    async with serve() as server:
        refused = await server.post(
            f"{THREAD}/ai", json={"messages": [{"role": "assistant", "content": "x"}]}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "usage")
