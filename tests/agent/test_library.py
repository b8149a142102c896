"""Tenuto as a library, and its context layers in somebody's own agent."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenuto import Tenuto
from tenuto.agent.events import TurnEnded

from .conftest import MEMBERS

SETTINGS = {
    "members": MEMBERS,
    "sandbox": {"enabled": False},
    "agent": {"model": "demo"},
    "context": {"history_tokens": 700},
}


async def test_a_thread_is_asked_looked_at_and_cleared(home):
    async with Tenuto(home, settings=SETTINGS) as app:
        thread = app.thread(workspace="w", user="ming", thread="t")
        events = [event async for event in thread.send("leave out public holidays")]
        assert isinstance(events[-1], TurnEnded) and events[-1].reason == "answered"
        assert (await thread.ask("which conditions hold?")) == "Holidays are left out."
        assert [record.turn for record in thread.records()][-1] == 2
        assert thread.context()["coverage"] == "full"
        assert thread.why("holidays")["context"]
        assert [known.scope.thread for known in app.threads(workspace="w", user="ming")] == ["t"]
        assert app.search("holidays", workspace="w", user="ming")[0].record == 3
        for number in range(12):
            await thread.ask(f"teal bars please {number} " + "and " * 40)
        await app.app.jobs.settled("w")
        assert [item.quote for item in thread.task()] == ["leave out public holidays"]
        receipt = await thread.clear()
        assert receipt["removed"]["log"]["count"] == 1 and thread.task() == []
        assert app.verify(workspace="w").findings == []


async def test_with_meaning_switched_on_vectors_come_in_the_background_and_go_with_a_clear(home):
    settings = {**SETTINGS, "search": {"semantic": True}}
    async with Tenuto(home, settings=settings) as app:
        thread = app.thread(workspace="w", user="ming", thread="t")
        await thread.ask("The heating failed last night")
        await app.app.jobs.settled("w")
        assert app.search("radiators stayed cold", workspace="w", user="ming", limit=1)[0].record == 3
        await thread.clear()
        assert app.search("radiators stayed cold", workspace="w", user="ming") == []
        assert app.app.jobs.counts["failed"] == 0


async def test_memory_is_written_explained_and_deleted(home):
    async with Tenuto(home, settings=SETTINGS) as app:
        memory = app.memory(workspace="w", user="ming")
        memory.switch(use=True)
        fact = memory.add("Monthly reports are in English", importance=5)
        assert memory.facts() == [fact] and memory.explain(fact.id)["in_the_next_request"]
        assert memory.delete()["facts"] == 1 and memory.facts() == []


@pytest.fixture
def own_agent():
    from pydantic_ai import Agent
    from pydantic_ai.models.function import FunctionModel

    seen: list = []

    async def stream(messages, info):
        seen.append(list(messages))
        if "how many" in str(messages[-1].parts[-1]) and not any(
            p.part_kind == "tool-return" for p in messages[-1].parts
        ):
            from pydantic_ai.models.function import DeltaToolCall

            yield {0: DeltaToolCall(name="buildings", json_args="{}", tool_call_id="c1")}
            return
        yield "answer " * 30

    def answer(messages, info):
        raise AssertionError("only streamed here")

    agent = Agent(FunctionModel(answer, stream_function=stream, model_name="own"), instructions="Be kind.")

    @agent.tool_plain
    def buildings() -> int:
        return 12

    return agent, seen


async def run(agent, text, capability):
    async with agent.run_stream(text, capabilities=[capability]) as result:
        return await result.get_output()


async def test_somebodys_own_agent_gets_the_context_layers(home, own_agent):
    agent, seen = own_agent
    async with Tenuto(home, settings=SETTINGS) as app:
        thread = app.thread(workspace="w", user="ming", thread="own")
        app.memory(workspace="w", user="ming").switch(use=True)
        app.memory(workspace="w", user="ming").add("Monthly reports are in English")
        await run(agent, "leave out public holidays", thread.continuity())
        for number in range(12):
            await run(agent, f"question {number} " + "and " * 40, thread.continuity())
        assert "leave out public holidays" in str(seen[-1]), "bridged or in the task"
        assert "Monthly reports are in English" in str(seen[-1])
        assert len(seen[-1]) < 20 and thread.context()["rebuilt_equal"]
        await run(agent, "how many buildings are there?", thread.continuity())
        kinds = [part["part_kind"] for r in thread.records() if r.message for part in r.message["parts"]]
        assert kinds[-4:] == ["user-prompt", "tool-call", "tool-return", "text"]


async def test_a_run_that_breaks_is_logged_and_the_next_one_goes_on(home, own_agent):
    agent, _ = own_agent

    @agent.tool_plain
    def broken() -> int:
        raise RuntimeError("no")

    from pydantic_ai.models.function import DeltaToolCall, FunctionModel

    async def calls(messages, info):
        yield {0: DeltaToolCall(name="broken", json_args="{}", tool_call_id="c1")}

    async with Tenuto(home, settings=SETTINGS) as app:
        thread = app.thread(workspace="w", user="ming", thread="own")
        with pytest.raises(RuntimeError):
            async with agent.run_stream(
                "go",
                model=FunctionModel(stream_function=calls, model_name="own"),
                capabilities=[thread.continuity()],
            ) as result:
                await result.get_output()
        assert thread.records()[-1].event["reason"] == "failed"
        assert (await run(agent, "again", thread.continuity())).startswith("answer")


def test_importing_the_library_loads_nothing_heavy():
    code = "import sys, tenuto; print([m for m in ('pydantic_ai', 'pydantic', 'sqlite3', 'openai') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"
    )
