"""Instructions and skills in a conversation: each file exactly once, a change counts from the next turn on."""

from __future__ import annotations

import pytest

from tenuto.agent.inspect import context_of

from .conftest import ask, conversation


def base_of(app) -> str:
    blocks = context_of(conversation(app), texts_too=True)["blocks"]
    return next(block for block in blocks if block["layer"] == "base")["entries"][0]["text"]


async def test_each_instruction_file_stands_once_in_the_request_after_compactions_too(
    open_app, home, scripted
):
    (home / "w").mkdir(parents=True)
    (home / "AGENTS.md").write_text("Never add a signature.")
    (home / "w" / "CLAUDE.md").write_text("Units are kWh.")
    scripted(*["answer"] * 20)
    async with open_app(task={}) as app:
        for number in range(8):
            await ask(app, f"question {number}")
            if number % 3 == 2:
                await app.compact(conversation_scope())
        for rule in ("Never add a signature.", "Units are kWh."):
            assert base_of(app).count(rule) == 1
        assert '<instructions source="global/AGENTS.md">' in base_of(app)


def conversation_scope():
    from .conftest import SCOPE

    return SCOPE


async def test_a_change_counts_from_the_next_turn_on_and_notices_are_shown(open_app, home, scripted):
    (home / "w").mkdir(parents=True)
    (home / "w" / "AGENTS.md").write_text("Answer in English.\n@gone.md")
    scripted("a", "b")
    async with open_app() as app:
        _, events = await ask(app, "one")
        assert any("@gone.md is not there" in notice for notice in events[0].notices)
        (home / "w" / "AGENTS.md").write_text("Answer in Chinese.")
        _, events = await ask(app, "two")
        assert "Answer in Chinese." in base_of(app)
        assert not any("gone.md" in notice for notice in events[0].notices)


async def test_the_summariser_sees_the_instructions(open_app, home):
    (home / "w").mkdir(parents=True)
    (home / "w" / "AGENTS.md").write_text("Holidays matter here.")
    async with open_app() as app:
        await_thread = app.workspace("w").threads.open(conversation_scope(), create=True)
        assert "Holidays matter here." in app.workspace("w").instructions(await_thread)


@pytest.mark.sandbox
async def test_a_skill_is_read_and_its_script_runs_in_the_sandbox(open_app, home, scripted):
    folder = home / "w" / "skills" / "answer"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: answer\ndescription: Finds the answer\n---\nRun scripts/answer.py."
    )
    (folder / "scripts" / "answer.py").write_text("print(6 * 7)")
    scripted(
        [("read_skill", {"name": "answer"})],
        [("run_python", {"code": "exec(open('/skills/answer/scripts/answer.py').read())"})],
        "done",
    )
    async with open_app(sandbox={"enabled": True, "spares": 0}) as app:
        _, events = await ask(app, "what is the answer?")
        told = [event.text for event in events if event.type == "tool_returned"]
        assert told[0].startswith("Run scripts/answer.py.") and told[1].strip() == "42"
        assert "- answer: Finds the answer" in base_of(app)
