"""Behaviours 1, 3, 4 and 6 of what is kept, with the rule-based demo model: each also with its mechanism switched off.

The demo (`tests/cli`) tells the same with numbers; behaviour 6 has its faults in `test_clearing.py`.
"""

from __future__ import annotations

import json

from tenuto.scope import Scope
from tenuto.task import ledger

from .conftest import SCOPE, ask, conversation

SMALL = {"history_tokens": 800, "bridge_tokens": 300}
RULE = "leave out public holidays"
CONDITIONS = "which conditions hold?"


async def fill(app, turns: int) -> None:
    for number in range(turns):
        await ask(app, f"use teal for the bars, variant {number} " + "and " * 30)
    await app.jobs.settled("w")


async def test_behaviour_1_forty_turns_about_styling_later_the_condition_holds(open_app):
    async with open_app(task={}, context=SMALL, agent={"model": "demo"}) as app:
        await ask(app, RULE)
        await fill(app, 40)
        end, _ = await ask(app, CONDITIONS)
        assert end.answer == "Holidays are left out."


async def test_behaviour_1_switched_off_without_the_task_it_is_forgotten(open_app):
    async with open_app(context=SMALL, agent={"model": "demo"}) as app:
        await ask(app, RULE)
        await fill(app, 40)
        end, _ = await ask(app, CONDITIONS)
        assert end.answer == "No condition on holidays: they are counted."


async def withdrawn_then_three_refreshes(app) -> str:
    await ask(app, RULE)
    await fill(app, 12)
    await ask(app, "count the holidays after all")
    for _ in range(3):
        await fill(app, 4)
        await app.compact(SCOPE)
    end, _ = await ask(app, CONDITIONS)
    return end.answer


def stubborn(monkeypatch) -> None:
    """The summariser adds the condition again at every refresh, with its old quote."""
    from tenuto.demo import keeper

    again = {"op": "add", "kind": "constraint", "item": "", "text": RULE, "record": 3, "quote": RULE}
    plain = keeper._refresh
    monkeypatch.setattr(keeper, "_refresh", lambda prompt: [*plain(prompt), again])


async def test_behaviour_3_a_withdrawn_condition_stays_withdrawn_through_three_refreshes(
    open_app, monkeypatch
):
    stubborn(monkeypatch)
    async with open_app(task={}, context=SMALL, agent={"model": "demo"}) as app:
        assert await withdrawn_then_three_refreshes(app) == "No condition on holidays: they are counted."
        items = app.workspace("w").tasks.items(app.workspace("w").thread(SCOPE), conversation(app))
        assert [item.status for item in items if item.kind == "constraint" and item.verified] == ["withdrawn"]


async def test_behaviour_3_switched_off_without_evidence_it_comes_back(open_app, monkeypatch):
    stubborn(monkeypatch)

    def anything(edit, operation):
        made = ledger._made(edit, "constraint", operation, next(iter(edit.said.values())))
        edit.items[made.id] = made
        return ledger.Outcome(operation, "applied", "", made.id)

    monkeypatch.setattr(ledger, "_add", lambda edit, operation, _: anything(edit, operation))
    async with open_app(task={}, context=SMALL, agent={"model": "demo"}) as app:
        assert await withdrawn_then_three_refreshes(app) == "Holidays are left out."


async def corrected_preference(app) -> str:
    app.workspace("w").memories.switch("ming", use=True, extract=True)
    for text in ("My monthly reports are in Chinese", "I want my monthly reports in English"):
        await ask(app, text)
        await app.jobs.settled("w")
    end, _ = await ask(app, "Which language are my monthly reports in?", Scope("w", "ming", "second"))
    return end.answer


async def test_behaviour_4_a_new_thread_sees_the_corrected_preference_and_not_the_old_one(open_app):
    async with open_app(agent={"model": "demo"}) as app:
        assert await corrected_preference(app) == "Your monthly reports are in English."


async def test_behaviour_4_switched_off_without_supersession_both_are_seen(open_app, monkeypatch):
    from tenuto.demo import keeper

    plain = keeper._extract
    monkeypatch.setattr(keeper, "_extract", lambda prompt: [{**op, "op": "add"} for op in plain(prompt)])
    async with open_app(agent={"model": "demo"}) as app:
        assert await corrected_preference(app) == "Your monthly reports are in English and Chinese."
        assert json.dumps([fact.status for fact in app.workspace("w").memories.store("ming").load().facts])
