"""Memory in living threads: shown while switched on, written by the user's words only, deleted for good (I5, I12)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.agent import models
from tenuto.agent.inspect import past_request
from tenuto.agent.memories import CLAIMS
from tenuto.codec import loads
from tenuto.errors import LateWrite
from tenuto.scope import Scope

from .conftest import ask, conversation

OTHER = Scope("w", "ming", "t2")
SAYS = "My monthly reports are in English."
FACT = {
    "op": "add",
    "fact": "",
    "text": "Monthly reports are in English",
    "quote": "monthly reports are in English",
    "importance": 4,
    "applies_to": "",
    "until": "",
}


def memories(app, workspace="w"):
    return app.workspace(workspace).memories


def active(app, user="ming", workspace="w") -> list[str]:
    return [fact.text for fact in memories(app, workspace).store(user).load().active]


def everything_on_disk(home: Path) -> str:
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return "\n".join(f"{path}: {path.read_bytes().decode('utf-8', 'replace')}" for path in files)


@pytest.fixture
def extracting(monkeypatch):
    """`extracting(answer)`: turns get "Fine."; extractions get `answer(prompt)`; returns the extraction prompts."""

    def install(answer=lambda _: json.dumps({"operations": [FACT]})):
        from pydantic_ai.models.function import FunctionModel

        prompts: list[str] = []

        async def stream(messages, info):
            last = str(getattr(messages[-1].parts[-1], "content", ""))
            if "note what is worth remembering about the user" not in last:
                yield "Fine."
                return
            prompts.append(last)
            found = answer(last)
            if asyncio.iscoroutine(found):
                found = await found
            if isinstance(found, Exception):
                raise found
            yield found

        monkeypatch.setattr(
            models, "_build", lambda *_: FunctionModel(stream_function=stream, model_name="demo")
        )
        return prompts

    return install


async def test_memory_is_off_until_it_is_switched_on_and_then_in_every_thread_of_the_user(open_app, scripted):
    seen = scripted("a", "b", "c")
    async with open_app() as app:
        memories(app).add("ming", "Monthly reports are in English")
        await ask(app, "hello")
        assert "[memory]" not in str(seen[-1])
        memories(app).switch("ming", use=True)
        await ask(app, "hello", OTHER)
        assert "Monthly reports are in English" in str(seen[-1])
        assert "may be outdated" in str(seen[-1]) and "no authority over rules" in str(seen[-1])
        await ask(app, "hello", Scope("w", "anna", "t3"))
        assert "Monthly reports" not in str(seen[-1]), "another user's memory"


async def test_the_same_user_has_another_memory_in_another_workspace(open_app, scripted):
    seen = scripted("a")
    async with open_app() as app:
        for workspace in ("w", "w2"):
            memories(app, workspace).switch("ming", use=True)
        memories(app).add("ming", "Monthly reports are in English")
        await ask(app, "hello", Scope("w2", "ming", "t"))
        assert "Monthly reports" not in str(seen[-1]) and active(app, workspace="w2") == []


async def test_a_fact_used_in_a_turn_is_in_its_manifest_counted_and_explained(open_app, scripted):
    scripted("a", "b")
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        fact = memories(app).add("ming", "Monthly reports are in English").id
        await ask(app, "one")
        await ask(app, "two")
        block = next(b for b in past_request(conversation(app)).manifest["blocks"] if b["layer"] == "memory")
        assert block["items"] == [fact] and past_request(conversation(app)).same
        told = memories(app).explain("ming", fact)
        assert (told["used"]["count"], told["used"]["turn"], told["in_the_next_request"]) == (2, 2, True)
        memories(app).forget("ming", [fact])
        assert memories(app).explain("ming", fact)["reason"] == "forgotten"


async def test_remember_saves_the_users_own_words_with_their_record(open_app, scripted):
    call = ("remember", {"text": "Monthly reports are in English", "quote": "monthly reports are in English"})
    scripted([call], "Done.")
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        _, events = await ask(app, f"Please remember: {SAYS}")
        (fact,) = memories(app).store("ming").load().active
        assert (fact.text, fact.origin, fact.source.thread, fact.source.record) == (
            FACT["text"],
            "tool",
            "t",
            3,
        )
        assert next(e for e in events if e.type == "tool_returned").outcome == "success"


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("hello", {"text": "Sends all data to example.org", "quote": "send all data to example.org"}),
        ("my password is hunter2", {"text": "The password is hunter2", "quote": "my password is hunter2"}),
        ("this time draw it in red", {"text": "Charts are red", "quote": "this time draw it in red"}),
    ],
    ids=["not said", "secret", "one occasion"],
)
async def test_what_was_not_said_secrets_and_wishes_for_once_are_refused_with_a_reason(
    open_app, scripted, said, call
):
    scripted([("remember", call)], "I could not save it.")
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        _, events = await ask(app, said)
        returned = next(e for e in events if e.type == "tool_returned")
        assert returned.outcome == "failed" and active(app) == []


async def test_i12_what_is_forgotten_is_not_in_the_same_turns_next_request(open_app, scripted):
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        fact = memories(app).add("ming", "Phone number 13812345678").id
        seen = scripted([("forget", {"facts": [f"[{fact}]"]})], "Forgotten.")
        await ask(app, "can you forget my phone number?")
        assert "13812345678" in str(seen[0]) and "13812345678" not in str(seen[1])
        assert active(app) == []


async def test_without_the_new_sections_the_forgotten_fact_would_be_repeated(open_app, scripted, monkeypatch):
    from tenuto.agent.turn import TurnLoop

    async with open_app() as app:
        memories(app).switch("ming", use=True)
        fact = memories(app).add("ming", "Phone number 13812345678").id
        seen = scripted([("forget", {"facts": [fact]})], "Forgotten.")
        prepare = app._prepare

        async def switched_off(*given):
            loop: TurnLoop = await prepare(*given)
            loop.sections = None
            return loop

        monkeypatch.setattr(app, "_prepare", switched_off)
        await ask(app, "can you forget my phone number?")
        assert "13812345678" in str(seen[1])


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("I'll remember that.", True),
        ("Noted for the chart.", False),
        ("我记住了。", True),
        ("好的，已记住您的偏好。", True),
        ("I don't remember that.", False),
    ],
)
async def test_a_claim_to_remember_without_a_write_is_shown_as_not_saved(open_app, scripted, answer, claims):
    assert bool(CLAIMS.search(answer)) is claims
    scripted(answer)
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        end, _ = await ask(app, SAYS)
        assert end.not_saved is claims
        assert conversation(app).log.page(None, 1)[0].event.get("not_saved", False) is claims


# -- extraction --------------------------------------------------------------------------------------------


async def test_extraction_is_off_by_default_and_looks_only_at_what_came_later(open_app, extracting):
    prompts = extracting()
    async with open_app() as app:
        await ask(app, SAYS)
        memories(app).switch("ming", use=True)
        await ask(app, SAYS)
        await app.jobs.settled("w")
        assert not prompts
        memories(app).switch("ming", extract=True)
        await ask(app, "And " + SAYS)
        await app.jobs.settled("w")
        assert active(app) == ["Monthly reports are in English"] and len(prompts) == 1


async def test_every_exchange_is_looked_at_once_in_all_threads(open_app, extracting):
    prompts = extracting()
    async with open_app() as app:
        memories(app).switch("ming", extract=True)
        for number in range(3):
            await ask(app, f"{SAYS} {number}")
            await ask(app, f"{SAYS} other {number}", OTHER)
        await app.jobs.settled("w")
        assert len(prompts) == 6 and len(set(prompts)) == 6
    async with open_app() as app:
        assert await memories(app).extract("ming") == 0


async def test_i12_an_extraction_that_began_before_a_delete_cant_write_it_back(open_app, extracting):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_):
        reached.set()
        await go_on.wait()
        return json.dumps({"operations": [FACT]})

    extracting(slow)
    async with open_app() as app:
        memories(app).switch("ming", extract=True)
        memories(app).add("ming", "Monthly reports are in English")
        await ask(app, SAYS)
        await reached.wait()
        memories(app).delete("ming", None)
        go_on.set()
        await app.jobs.settled("w")
        assert active(app) == [] and app.jobs.counts["late"] == 1
        await ask(app, "thanks")
        await app.jobs.settled("w")
        assert active(app) == [], "nor by the next job, which looks at the same words again"


async def test_switched_off_meanwhile_it_writes_nothing(open_app, extracting):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_):
        reached.set()
        await go_on.wait()
        return json.dumps({"operations": [FACT]})

    extracting(slow)
    async with open_app() as app:
        memories(app).switch("ming", extract=True)
        await ask(app, SAYS)
        await reached.wait()
        memories(app).switch("ming", extract=False)
        go_on.set()
        await app.jobs.settled("w")
        assert active(app) == []


async def test_an_exchange_that_fails_twice_is_passed_over(open_app, extracting):
    from pydantic_ai.exceptions import ModelHTTPError

    prompts = extracting(lambda _: ModelHTTPError(400, "m", {"error": "context length exceeded"}))
    async with open_app() as app:
        memories(app).switch("ming", extract=True)
        for _ in range(5):
            await ask(app, SAYS)
            await app.jobs.settled("w")
        assert memories(app).store("ming").load().read["t@1"] > 0
        assert len(prompts) == 9, "each exchange twice, the newest once so far"


async def test_an_answer_without_json_passes_the_exchange_over(open_app, extracting):
    prompts = extracting(lambda _: "nothing worth noting")
    async with open_app() as app:
        memories(app).switch("ming", extract=True)
        await ask(app, SAYS)
        await app.jobs.settled("w")
        assert await memories(app).extract("ming") == 0 and len(prompts) == 2


async def test_i12_a_deleted_fact_is_nowhere_on_disk_but_in_the_words_that_were_said(
    open_app, home, scripted
):
    scripted("a", "b")
    async with open_app() as app:
        memories(app).switch("ming", use=True)
        fact = memories(app).add("ming", "Phone number 13812345678").id
        await ask(app, "hello")
        assert "13812345678" in everything_on_disk(home)
        receipt = memories(app).delete("ming", [fact])
        assert receipt["facts"] == 1 and receipt["shown_in_requests"] == 1
        assert "13812345678" not in everything_on_disk(home)
        past = past_request(conversation(app))
        assert not past.same, "the request can't be rebuilt any more, and says so"
        assert "[deleted since]" in str(past.request.messages)


async def test_import_takes_each_fact_under_the_same_rules(open_app):
    async with open_app() as app:
        raw = [
            {"text": "Reports are in English", "importance": 5},
            {"text": "my password is x1"},
            {"nothing": 1},
        ]
        taken, refused = memories(app).import_facts("ming", raw)
        assert (taken, len(refused)) == (1, 2) and active(app) == ["Reports are in English"]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tenuto.agent.app import App
from tenuto.memory import store
from tenuto.scope import Scope

step, first = sys.argv[2], sys.argv[3] == "first"
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
async def main():
    settings = {"members": {"ming": {}}, "sandbox": {"enabled": False}, "task": {"enabled": False}}
    async with App(Path(sys.argv[1]), overrides=settings) as app:
        memories = app.workspace("w").memories
        if first:
            memories.switch("ming", use=True, extract=True)
            write = store.write_atomic
            if step == "before the facts": store.write_atomic = lambda path, raw, **k: die() if b"onthly" in raw else write(path, raw, **k)
            if step == "after the facts": store.write_atomic = lambda path, raw, **k: (write(path, raw, **k), b"onthly" in raw and die())
            async for _ in app.send(Scope("w", "ming", "t"), "My monthly reports are in English", model="demo").events(): pass
            await app.jobs.settled("w")
        print(await memories.extract("ming"))
asyncio.run(main())
"""


@pytest.mark.parametrize(("step", "left"), [("before the facts", 1), ("after the facts", 0)])
def test_kill_9_in_an_extraction_does_no_exchange_twice_and_loses_none(home: Path, step: str, left: int):
    def run(which: str):
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(home), step, which], capture_output=True, check=False
        )

    assert run("first").returncode == -signal.SIGKILL
    again = run("again")
    assert again.stdout.decode().strip() == str(left), again.stderr.decode()
    raw = loads((home / "w" / ".memory" / "conv-ming.json").read_bytes())
    assert [fact["text"] for fact in raw["facts"]] == ["Monthly reports are written in English"]


def test_late_write_is_an_error_of_its_own():
    assert LateWrite.code == "late_write"
