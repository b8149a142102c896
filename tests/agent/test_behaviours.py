"""Behaviours that prove continuity, end to end: a real MCP server, a real sandbox, real kills.

2: right after the window first drops a condition, it is still obeyed. 5: an expired file is asked for again.
7: the aggregate over a saved result is the true total. 8: kill -9 at every step. 10: parallel calls.

Each names how it is switched off, and fails then: see the `switched_off` tests beside them.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from tenuto.agent.events import ToolReturned
from tenuto.codec import now
from tenuto.context.pair import INTERRUPTED, violations
from tenuto.demo import energy
from tenuto.log.record import Draft
from tenuto.log.store import ThreadLog
from tenuto.results.store import ResultStore
from tenuto.scope import Scope

from ..conftest import energy_server
from .conftest import SCOPE, ask, conversation, sent, stdio_server
from .rules import anthropic_rules, openai_rules

MONTH = "2026-10"
FIRST = "Analyse the energy use of the offices in October 2026, leave out public holidays"
TRUE_TOTAL = f"{energy.total(MONTH, holidays=False):,.2f}"


def demo_world(**more) -> dict:
    return {"mcp": {"energy": energy_server()}, "sandbox": {"enabled": True, "spares": 0}, **more}


# -- 7: the aggregate over an offloaded result is the true total ------------------------------------------


@pytest.mark.sandbox
async def test_7_the_aggregate_over_an_offloaded_result_is_the_true_total(open_app):
    async with open_app(**demo_world()) as app:
        end, events = await ask(app, FIRST, model="demo")
        saved = next(e for e in events if isinstance(e, ToolReturned) and e.result)
    assert saved.rows == 8_928
    assert TRUE_TOTAL in end.answer and "all 8,928 rows" in end.answer


@pytest.mark.sandbox
async def test_7_switched_off_without_offloading_there_is_no_total(open_app):
    async with open_app(**demo_world(results={"offload_chars": 10**9})) as app:
        end, _ = await ask(app, FIRST, model="demo")
    assert TRUE_TOTAL not in end.answer


async def test_7_without_the_right_to_run_code_no_total_is_invented(open_app):
    async with open_app(**demo_world()) as app:
        end, events = await ask(app, FIRST, Scope("w", "bob", "b"), model="demo")
    assert not any(e.result for e in events if isinstance(e, ToolReturned))
    assert "can't give a total" in end.answer


# -- 5: an expired file is asked for again ------------------------------------------------------------------


def expire(app) -> None:
    store = app.workspace("w").results(SCOPE)
    ResultStore(store.folder, app.workspace("w").settings.results, lambda: now() + timedelta(days=8)).all()


@pytest.mark.sandbox
async def test_5_an_expired_result_is_queried_again_and_the_answer_says_so(open_app):
    async with open_app(**demo_world()) as app:
        await ask(app, FIRST, model="demo")
        expire(app)
        end, events = await ask(app, "recompute the total", model="demo")
    tools = [e.tool for e in events if isinstance(e, ToolReturned)]
    assert tools == ["query_energy", "run_python"]
    assert "expired" in end.answer and "queried again" in end.answer and TRUE_TOTAL in end.answer


@pytest.mark.sandbox
async def test_5_switched_off_without_the_mark_the_model_trusts_a_file_that_is_gone(open_app, monkeypatch):
    async with open_app(**demo_world()) as app:
        await ask(app, FIRST, model="demo")
        expire(app)
        monkeypatch.setattr(ResultStore, "gone", lambda _: frozenset())
        end, events = await ask(app, "recompute the total", model="demo")
    assert [e.tool for e in events if isinstance(e, ToolReturned)] == ["run_python"]
    assert TRUE_TOTAL not in end.answer and "expired" not in end.answer


# -- 1 and 2 as far as there is no task yet: the bridge ---------------------------------------------------------


@pytest.mark.sandbox
async def test_2_right_after_the_window_drops_the_constraint_it_is_still_obeyed(open_app):
    async with open_app(**demo_world(context={"history_tokens": 2_500})) as app:
        await ask(app, FIRST, model="demo")
        turns = 0
        while "bridged" not in str(
            conversation(app).log.back_to(lambda r: r.event_type == "request")[0].event
        ):
            await ask(app, f"Make the bar colour teal {turns}", model="demo")
            turns += 1
            assert turns < 60
        assert [FIRST in text for text in str(sent(app)).split("</context ", 1)] == [True, False]
        end, _ = await ask(app, "Now recompute the total for October 2026", model="demo")
    assert TRUE_TOTAL in end.answer


@pytest.mark.sandbox
async def test_2_switched_off_without_a_bridge_the_constraint_is_lost_and_coverage_says_partial(open_app):
    async with open_app(**demo_world(context={"history_tokens": 2_500, "bridge_tokens": 0})) as app:
        await ask(app, FIRST, model="demo")
        for n in range(40):
            await ask(app, f"Make the bar colour teal {n}", model="demo")
        end, events = await ask(app, "Now recompute the total for October 2026", model="demo")
    assert TRUE_TOTAL not in end.answer
    assert events[1].manifest["coverage"] == "partial"


# -- 8: kill -9 at every step of a turn -----------------------------------------------------------------------

KILLER = """
import asyncio, os, signal, sys
from pathlib import Path
from tenuto.agent import models
from tenuto.agent.app import App
from tenuto.log.store import ThreadLog
from tenuto.scope import Scope
from pydantic_ai.models.function import FunctionModel, DeltaToolCall

home, when, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
count = 0
real = ThreadLog.append

def append(self, drafts, **more):
    global count
    if drafts[0].event and drafts[0].event["type"] == "thread_created":
        return real(self, drafts, **more)
    count += 1
    if count == step and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    written = real(self, drafts, **more)
    if count == step and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    if count == step and when == "torn":
        with self.path.open("ab") as stream:
            stream.write(b'{"v":1,"seq":99,"id":"half a li')
        os.kill(os.getpid(), signal.SIGKILL)
    return written

ThreadLog.append = append
left = [[("wait", '{"seconds": 0, "name": "a"}'), ("wait", '{"seconds": 0, "name": "b"}')], "the answer"]

async def stream(messages, info):
    now = left.pop(0)
    if isinstance(now, str):
        yield now
    else:
        for at, (tool, arguments) in enumerate(now):
            yield {at: DeltaToolCall(name=tool, json_args=arguments, tool_call_id=f"k{at}")}

models._build = lambda *_: FunctionModel(stream_function=stream, model_name="demo")

async def main():
    server = {"command": sys.executable, "args": [sys.argv[4]], "prefix": "", "env": {"CALLS_FILE": sys.argv[5]}}
    settings = {"members": {"ming": {}}, "sandbox": {"enabled": False}, "mcp": {"s": server}}
    async with App(home, overrides=settings) as app:
        async for _ in app.send(Scope("w", "ming", "t"), "the question").events():
            pass

asyncio.run(main())
"""

STEPS = 5
"""Appends of that turn: question, response with two calls, first result, second result, answer with end."""


@pytest.mark.parametrize("when", ["before", "after", "torn"])
@pytest.mark.parametrize("step", range(1, STEPS + 1))
async def test_8_kill_9_at_every_step(open_app, scripted, home, tmp_path, when, step):
    calls = tmp_path / "calls"
    server = stdio_server()["args"][0]
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(home), when, str(step), server, str(calls)], capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-800:]
    made = sorted(calls.read_text().split("\n")[:-1]) if calls.exists() else []

    seen = scripted("carried on")
    async with open_app(mcp={"s": stdio_server(env={"CALLS_FILE": str(calls)})}) as app:
        end, _ = await ask(app, "the next question")
        records = [r for r in conversation(app).log.scan() if r.message is not None]
        messages = sent(app)
    complete = step - (when == "before")
    kinds = [p["part_kind"] for r in records for p in r.message["parts"]]
    assert end.answer == "carried on"
    assert kinds.count("user-prompt") == (complete >= 1) + 1, "nothing that was logged is lost"
    assert kinds.count("tool-call") == 2 * (complete >= 2)
    assert kinds.count("tool-return") == (complete >= 3) + (complete >= 4)
    assert kinds.count("text") == (complete >= 5) + 1
    assert violations(messages) == []
    contents = [p["content"] for m in messages for p in m["parts"] if p["part_kind"] == "tool-return"]
    open_calls = 2 * (complete >= 2) - (complete >= 3) - (complete >= 4)
    assert contents.count(INTERRUPTED) == open_calls
    assert len(seen) == 1
    after = sorted(calls.read_text().split("\n")[:-1]) if calls.exists() else []
    assert after == made, "no call is repeated"


def _left_by_a_kill(home, tmp_path, when: str) -> ThreadLog:
    """The log of a process killed at the append of the response with two calls, as the next process finds it."""
    given = [str(home), when, "2", stdio_server()["args"][0], str(tmp_path / "calls")]
    done = subprocess.run([sys.executable, "-c", KILLER, *given], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-800:]
    return ThreadLog(next(home.rglob("conv-t.jsonl")))


def test_8_switched_off_without_pairing_the_next_request_breaks_the_providers_rules(home, tmp_path):
    log = _left_by_a_kill(home, tmp_path, "after")
    raw = [record.message for record in log.scan() if record.message is not None]
    assert violations(raw) != []


@pytest.mark.parametrize("repair", [True, False])
def test_8_switched_off_without_repair_the_next_record_is_lost_in_the_torn_line(
    home, tmp_path, monkeypatch, repair
):
    log = _left_by_a_kill(home, tmp_path, "torn")
    if not repair:
        monkeypatch.setattr(ThreadLog, "_repair", lambda *_: None)
    log.append([Draft(turn=1, event={"type": "note", "text": "the next record"})], epoch=1)
    found = [record.event for record in ThreadLog(log.path).scan() if record.event]
    assert any(event.get("text") == "the next record" for event in found) is repair


# -- 10: parallel calls, another order, one never finishing ---------------------------------------------------


PARALLEL = [
    ("wait", {"seconds": 0.4, "name": "a"}),
    ("wait", {"seconds": 0, "name": "b"}),
    ("wait", {"seconds": 90}),
]


async def _never_finishing(app) -> None:
    running = app.send(SCOPE, "all three")
    returned = 0
    async for event in running.events():
        if event.type == "tool_returned":
            returned += 1
            if returned == 2:
                running.stop()


async def test_10_parallel_calls_in_another_order_and_one_never_finishing(open_app, scripted):
    scripted(PARALLEL, "next turn")
    async with open_app(mcp={"s": stdio_server()}) as app:
        await _never_finishing(app)
        settled = [
            p["content"] for r in conversation(app).log.scan() if r.message for p in r.message["parts"]
            if p["part_kind"] == "tool-return"
        ]  # fmt: skip
        assert settled == ["b waited", "a waited"], "they settled in another order than they were called"
        await ask(app, "and the next turn?")
        messages = sent(app)
    contents = [p["content"] for m in messages for p in m["parts"] if p["part_kind"] == "tool-return"]
    assert contents == ["a waited", "b waited", INTERRUPTED]
    assert violations(messages) == []
    assert await openai_rules(messages) == []
    assert await anthropic_rules(messages) == []


async def test_10_switched_off_without_pairing_the_providers_rules_are_broken(open_app, scripted):
    scripted(PARALLEL, "next turn")
    async with open_app(mcp={"s": stdio_server()}) as app:
        await _never_finishing(app)
        raw = [r.message for r in conversation(app).log.scan() if r.message is not None]
    assert violations(raw) != []
