"""Two thousand turns: at every one, exactly the conditions that hold are in force in the request (I3, I4, I6)."""

from __future__ import annotations

from tenuto import Tenuto
from tenuto.agent.verify import verify
from tenuto.bench.probe import in_force, summarise, talk
from tenuto.scope import Scope

from .conftest import MEMBERS

TURNS = 2_000


def words_of(messages) -> list[str]:
    return [
        part.content
        for message in messages
        for part in message.parts
        if part.part_kind == "user-prompt" and isinstance(part.content, str)
    ]


async def converse(home, *, task: bool = True, turns: int = TURNS) -> list[int]:
    """The turns whose request put other conditions in force than hold."""
    from pydantic_ai.models.function import FunctionModel

    said = talk(turns)
    wrong: list[int] = []
    turn = 0

    async def stream(messages, info):
        last = words_of(messages)[-1]
        if "keep the state of the work up to date" in last:
            yield summarise(last)
            return
        if in_force(words_of(messages)) != set(said.active[turn]):
            wrong.append(turn + 1)
        yield "Done. " * 20

    settings = {
        "members": MEMBERS,
        "sandbox": {"enabled": False},
        "agent": {"model": "probe"},
        "context": {"history_tokens": 2_000, "bridge_tokens": 1_500},
        "task": {"enabled": task},
    }
    model = FunctionModel(stream_function=stream, model_name="probe")
    async with Tenuto(home, settings=settings, models={"probe": model}) as app:
        thread = app.thread(workspace="w", user="ming", thread="long")
        for question in said.questions:
            await thread.ask(question)
            turn += 1
            if turn % 100 == 0:
                await app.app.jobs.settled("w")
        await app.app.jobs.settled("w")
        workspace = app.app.workspace("w")
        assert verify(workspace).findings == []
        if task:
            items = workspace.tasks.items(
                workspace.thread(Scope("w", "ming", "long")),
                workspace.conversation(workspace.thread(Scope("w", "ming", "long"))),
            )
            assert len([item for item in items if item.status == "withdrawn"]) > 20
    return wrong


async def test_over_2000_turns_every_condition_in_force_is_in_the_request_and_none_withdrawn_is(home):
    assert await converse(home) == []


async def test_without_the_task_conditions_are_lost(home):
    """The mechanism switched off."""
    assert await converse(home, task=False, turns=150)
