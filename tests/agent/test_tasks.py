"""The ledger in a living thread: the first overflow, a full bridge, failures, branches, crashes (I3, I10, I16 to I18)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.agent import models
from tenuto.agent.inspect import past_request
from tenuto.codec import loads
from tenuto.context.assemble import common_prefix
from tenuto.errors import LateWrite

from .conftest import SCOPE, ask, conversation, sent

SMALL = {"history_tokens": 800, "bridge_tokens": 4_000}
RULE = "Please leave out public holidays."
ADD = {
    "op": "add",
    "kind": "constraint",
    "item": "",
    "text": "Leave out public holidays",
    "quote": "leave out public holidays",
}


def operations(*found: dict) -> str:
    return json.dumps({"operations": list(found)})


def records_in(prompt: str) -> list[dict]:
    lines = prompt.partition("\nRecords that left the window:")[2].splitlines()[1:]
    return [loads(line) for line in lines if line.startswith("{")]


def keeps_the_rule(prompt: str) -> str:
    """A summariser that finds the rule where it stands."""
    found = [one for one in records_in(prompt) if "leave out public holidays" in one["text"]]
    return operations(*({**ADD, "record": one["record"]} for one in found if one["speaker"] == "user"))


@pytest.fixture
def talking(monkeypatch):
    """`talking(refresh)`: answers turns with filler, refreshes with `refresh(prompt)`; returns both kinds of request."""

    def install(refresh=keeps_the_rule, *, structured: bool = True):
        from pydantic_ai.messages import ModelMessagesTypeAdapter
        from pydantic_ai.models.function import FunctionModel
        from pydantic_ai.profiles import ModelProfile

        turns: list = []
        refreshes: list = []

        async def stream(messages, info):
            raw = without_times(loads(ModelMessagesTypeAdapter.dump_json(messages, exclude_none=True)))
            last = str(raw[-1]["parts"][-1].get("content", ""))
            if "keep the state of the work up to date" in last:
                refreshes.append((raw, info))
                answer = refresh(last)
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if isinstance(answer, Exception):
                    raise answer
                yield answer
                return
            turns.append(raw)
            yield "answer " * 100

        profile = ModelProfile(supports_json_schema_output=structured)
        monkeypatch.setattr(
            models,
            "_build",
            lambda *_: FunctionModel(stream_function=stream, model_name="demo", profile=profile),
        )
        return turns, refreshes

    return install


OWN = ("timestamp", "instructions", "run_id", "conversation_id")


def without_times(value):
    """Without what Pydantic AI adds to each message and no provider is sent in it."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in OWN}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def ledger(app):
    return app.workspace("w").tasks.store("t").load()


def manifest(app, turn=None):
    return past_request(conversation(app), turn).manifest


async def chat(app, first: int, last: int):
    for number in range(first, last):
        end, _ = await ask(app, f"question {number}: and in detail, " + "please " * 20)
        assert end.reason == "answered", end.error


async def test_i3_the_first_overflow_is_bridged_until_a_refresh_covers_it(open_app, talking):
    held = asyncio.Event()

    async def late(prompt):
        await held.wait()
        return keeps_the_rule(prompt)

    turns, _ = talking(late)
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        await chat(app, 1, 14)
        assert manifest(app)["coverage"] == "bridged" and RULE in str(turns[-1])
        held.set()
        await app.jobs.settled("w")
        await chat(app, 14, 30)
        assert ledger(app).items[0].quote == "leave out public holidays"
        last = manifest(app)
        assert "[task] State" in str(turns[-1]) and "leave out public holidays" in str(turns[-1])
        task = next(block for block in last["blocks"] if block["layer"] == "task")
        assert task["items"] == ["c1"] and last["left_out"][0]["covered_by"] == "task"
        assert RULE not in str(turns[-1][:-1]), "what the task covers is no longer bridged"


async def test_without_the_ledger_the_rule_would_be_gone_once_the_bridge_is_full(open_app, talking):
    """The mechanism switched off: that is what the test above is about."""
    turns, refreshes = talking()
    async with open_app(context={**SMALL, "bridge_tokens": 200}) as app:
        await ask(app, RULE)
        await chat(app, 1, 30)
        assert not refreshes and "leave out public holidays" not in str(turns[-1])
        assert manifest(app)["coverage"] == "partial"


async def test_i3_a_full_bridge_refreshes_before_the_request(open_app, talking):
    turns, refreshes = talking()
    async with open_app(task={"refresh_after": 1_000}, context={**SMALL, "bridge_tokens": 200}) as app:
        await ask(app, RULE)
        await chat(app, 1, 20)
        assert refreshes and all("leave out public holidays" in str(request) for request in turns)
        assert {manifest(app, turn)["coverage"] for turn in range(1, 21)} <= {"full", "bridged"}


async def test_i3_if_that_refresh_fails_the_manifest_says_partial_and_the_turn_goes_on(open_app, talking):
    _, refreshes = talking(lambda _: "no JSON here")
    async with open_app(task={"refresh_after": 1_000}, context={**SMALL, "bridge_tokens": 200}) as app:
        await ask(app, RULE)
        await chat(app, 1, 20)
        assert manifest(app)["coverage"] == "partial"
        assert ledger(app).failures == 1 and ledger(app).items == ()
        assert len(refreshes) == 2, (
            "two attempts, then the cooldown: a full bridge is no reason to go on spending"
        )


async def test_i18_after_two_attempts_a_background_refresh_cools_down_over_a_restart(open_app, talking):
    _, refreshes = talking(lambda _: "no JSON here")
    async with open_app(task={}, context=SMALL) as app:
        await chat(app, 0, 16)
        await app.jobs.settled("w")
        assert len(refreshes) == 2 and ledger(app).retry_at
    async with open_app(task={}, context=SMALL) as app:
        await chat(app, 16, 20)
        await app.jobs.settled("w")
        assert len(refreshes) == 2, "the cooldown survives a restart"


async def test_a_text_model_is_asked_once_more_and_told_what_was_wrong(open_app, talking):
    answers = iter(["I think nothing changed.", None])

    def second(prompt):
        return next(answers, None) or keeps_the_rule(prompt)

    _, refreshes = talking(second, structured=False)
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        await chat(app, 1, 12)
        await app.jobs.settled("w")
        assert ledger(app).items[0].id == "c1"
        assert "Your last answer could not be used" in str(refreshes[1][0])
        assert refreshes[0][1].model_request_parameters.output_mode == "text"


async def test_a_model_that_can_is_asked_for_structured_output(open_app, talking):
    _, refreshes = talking()
    async with open_app(task={}, context=SMALL) as app:
        await chat(app, 0, 12)
        await app.jobs.settled("w")
        parameters = refreshes[0][1].model_request_parameters
        assert parameters.output_mode == "native" and parameters.output_object.name == "task_operations"


async def test_the_refresh_shares_the_live_requests_prefix_tools_included(open_app, talking):
    turns, refreshes = talking()
    async with open_app(task={}, context=SMALL, agent={"instructions": "Be brief."}) as app:
        await chat(app, 0, 12)
        await app.jobs.settled("w")
        request, info = refreshes[0]
        at = next(n for n, turn in enumerate(turns) if common_prefix(turn, request) == len(turn))
        assert len(request) == len(turns[at]) + 2, "the turn's request, its answer, and the prompt"
        tools = next(block for block in manifest(app)["blocks"] if block["layer"] == "tools")
        offered = loads(conversation(app).log.blobs.get(tools["source"].removeprefix("sha256:")))
        assert [tool.name for tool in info.function_tools] == [tool["name"] for tool in offered]
        assert "Be brief." in info.instructions


async def test_a_refresh_that_would_not_fit_goes_without_the_prefix_and_in_pieces(open_app, talking):
    _, refreshes = talking()
    own = {"small": {"model": "http://127.0.0.1:9/v1#m", "window": 3_600, "output": 200}}
    async with open_app(
        task={"chunk_tokens": 200}, context=SMALL, models=own, agent={"model": "small"}
    ) as app:
        await ask(app, RULE)
        await chat(app, 1, 16)
        await app.jobs.settled("w")
        assert ledger(app).items and len(refreshes) > 2
        assert any(len(request) == 1 for request, _ in refreshes)


async def test_i10_a_refresh_begun_before_a_clear_writes_nothing(open_app, talking):
    talking()
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        store = app.workspace("w").tasks.store("t")
        with pytest.raises(LateWrite):
            store.change(7, lambda ledger: (ledger, {}))
        assert not store.path.exists() and not store.history_path.exists()


async def test_i17_a_request_with_a_task_rebuilds_to_the_same_bytes(open_app, talking):
    talking()
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        await chat(app, 1, 30)
        await app.jobs.settled("w")
        turns = range(1, 31)
        assert [past_request(conversation(app), turn).same for turn in turns] == [True] * 30
        living = sent(app)
    async with open_app(task={}, context=SMALL) as app:
        assert sent(app) == living


async def test_a_refresh_between_two_turns_leaves_the_prefix_alone(open_app, talking):
    held = asyncio.Event()

    async def late(prompt):
        await held.wait()
        return keeps_the_rule(prompt)

    turns, refreshes = talking(late)
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        number = 1
        while not refreshes:
            await chat(app, number, number + 1)
            number += 1
            await asyncio.sleep(0)
        # Right after the window moved it has room, so that the next turn doesn't move it.
        while common_prefix(turns[-2], turns[-1]) > 1:
            await chat(app, number, number + 1)
            number += 1
        held.set()
        await app.jobs.settled("w")
        await chat(app, number, number + 1)
        assert "[task]" in str(turns[-1][-1]) and "[task]" not in str(turns[-2])
        assert common_prefix(turns[-2], turns[-1]) >= len(turns[-2]) - 1


async def test_every_version_is_kept_with_what_the_refresh_changed_and_what_the_window_dropped(
    open_app, talking
):
    talking()
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, RULE)
        await chat(app, 1, 30)
        await app.jobs.settled("w")
        history = app.workspace("w").tasks.store("t").history()
        assert [line["ledger"]["version"] for line in history] == list(range(1, len(history) + 1))
        first = history[0]["change"]
        assert first["operations"][0]["result"] == "applied" and first["took_in"][0][0] == 1
        assert history[-1]["ledger"] == ledger(app).as_json()


async def test_compact_refreshes_with_a_focus_and_moves_the_window(open_app, talking):
    turns, refreshes = talking()
    async with open_app(task={}, context={}) as app:
        await ask(app, RULE)
        await chat(app, 1, 6)
        report = await app.compact(SCOPE, "the holidays")
        assert report.result == "done" and "Pay most attention to" in str(refreshes[0][0])
        await ask(app, "and now?")
        assert len(turns[-1]) == 2 * 2 + 1 and "leave out public holidays" in str(turns[-1])
        assert past_request(conversation(app)).same
    async with open_app(task={}, context={}) as app:
        await ask(app, "still?")
        assert len(turns[-1]) == 2 * 3 + 1, "the moved window survives a restart"


async def test_compact_leaves_the_window_alone_if_the_refresh_fails(open_app, talking):
    turns, _ = talking(lambda _: "no JSON")
    async with open_app(task={}, context={}) as app:
        await ask(app, RULE)
        await chat(app, 1, 6)
        assert (await app.compact(SCOPE)).result == "failed"
        await ask(app, "and now?")
        assert RULE in str(turns[-1]) and len(turns[-1]) == 2 * 6 + 1


async def test_i16_an_item_of_an_abandoned_branch_does_not_apply_and_comes_back(open_app, talking):
    turns, _ = talking()
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, "hello")
        log = conversation(app).log
        before_rule = log.page(None, 1)[-1]
        await ask(app, RULE)
        await chat(app, 2, 16)
        await app.jobs.settled("w")
        old_head = log.head
        await ask(app, "x")
        assert "leave out public holidays" in str(turns[-1])
        await ask(app, "start over, without rules", parent=before_rule)
        assert "leave out public holidays" not in str(turns[-1])
        assert app.workspace("w").tasks.items(app.workspace("w").thread(SCOPE), conversation(app)) == []
        log.select(old_head, turn=99, epoch=1)
        await ask(app, "back again")
        assert "leave out public holidays" in str(turns[-1]) and past_request(conversation(app)).same


async def test_by_hand_items_are_added_edited_withdrawn_and_pinned(open_app, talking):
    turns, _ = talking()
    async with open_app(task={}) as app:
        await ask(app, "hello")
        workspace = app.workspace("w")
        thread = workspace.thread(SCOPE)

        def hand(action, **more):
            return workspace.tasks.by_hand(thread, conversation(app), action, **more)

        hand("add", kind="constraint", text="Only floors 3 to 5")
        hand("edit", item="c1", text="Only floors 3 to 6")
        hand("pin", item="c1")
        await ask(app, "go on")
        assert "[c1] Only floors 3 to 6" in str(turns[-1][-1]) and ledger(app).items[0].pinned
        hand("withdraw", item="c1")
        await ask(app, "go on")
        assert "Taken back, no longer in force: [c1] Only floors 3 to 6" in str(turns[-1][-1])
        assert ledger(app).version == 4


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tenuto.agent.app import App
from tenuto.scope import Scope
from tenuto.task import store

step = sys.argv[2]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if step == "before the history": store.append_durably = die
if step == "between history and ledger": store.write_atomic = die
if step == "after the ledger":
    write = store.write_atomic
    store.write_atomic = lambda *a, **k: (write(*a, **k), die())

async def main():
    settings = {"members": {"ming": {}}, "sandbox": {"enabled": False}, "context": {"history_tokens": 800}}
    async with App(Path(sys.argv[1]), overrides=settings) as app:
        for text in ["leave out public holidays", *["teal bars please, " + "and " * 60] * 14]:
            async for _ in app.send(Scope("w", "ming", "t"), text, model="demo").events(): pass
            await app.jobs.settled("w")
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "step", ["before the history", "between history and ledger", "after the ledger", "never"]
)
def test_kill_9_at_every_step_of_a_refresh_loses_no_constraint(home: Path, step: str):
    done = subprocess.run([sys.executable, "-c", KILLED, str(home), step], capture_output=True, check=False)
    assert (done.returncode == -signal.SIGKILL) is (step != "never"), done.stderr.decode()
    again = subprocess.run(
        [sys.executable, "-c", KILLED, str(home), "never"], capture_output=True, check=False
    )
    assert again.returncode == 0, again.stderr.decode()
    raw = loads((home / "w" / ".logs" / "conv-t.summary.json").read_bytes())
    living = [item for item in raw["items"] if item["status"] == "active"]
    assert [item["source"][0]["quote"] for item in living] == ["leave out public holidays"]
    assert not [name for name in os.listdir(home / "w" / ".logs") if name.endswith(".tmp")] or step != "never"
