"""Clear and delete: every place is empty, late writes die, a crash is finished, verify proves it (I10 to I12)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.agent import clearing
from tenuto.agent.verify import verify
from tenuto.errors import LateWrite, NotFound, ThreadCleared
from tenuto.log.record import Draft
from tenuto.log.store import ThreadLog
from tenuto.scope import Scope

from .conftest import SCOPE, ask, conversation
from .test_memory import SAYS, everything_on_disk, extracting  # noqa: F401
from .test_tasks import RULE, SMALL, chat, talking  # noqa: F401

SECRET = "XYLOPHONE"


async def furnish(app) -> None:
    """Content in every place that a thread has."""
    await ask(app, f"{RULE} {SECRET}")
    await chat(app, 1, 16)
    await app.jobs.settled("w")
    workspace = app.workspace("w")
    workspace.files(SCOPE).add("note.txt", SECRET.encode())
    from tenuto.results.structure import describe

    workspace.results(SCOPE).save("query", {"q": SECRET}, SECRET.encode(), describe(SECRET, 100))
    assert workspace.history.search("ming", SECRET)
    torn = workspace.threads.log_path("t").with_suffix(".torn-7")
    torn.write_text(SECRET)


async def test_i11_after_a_clear_nothing_on_disk_holds_the_threads_words(open_app, home, talking):  # noqa: F811
    talking()
    async with open_app(task={}, context=SMALL) as app:
        await furnish(app)
        assert everything_on_disk(home).count(SECRET) >= 6
        receipt = await app.clear(SCOPE)
        assert SECRET not in everything_on_disk(home)
        removed = receipt["removed"]
        assert {name for name, one in removed.items() if one["count"]} == {
            "log", "blobs", "task", "results", "files", "index_rows",
        }  # fmt: skip
        assert all(one["bytes"] for name, one in removed.items() if name != "index_rows")
        assert any("memory" in kept for kept in receipt["kept"])
        thread = app.workspace("w").thread(SCOPE)
        assert (thread.epoch, thread.title) == (2, "")
        assert verify(app.workspace("w")).findings == []
        await ask(app, "hello again")
        assert conversation(app).log.page(None, 10)[0].epoch == 2


async def test_i11_memory_stays_and_the_next_exchange_is_looked_at(open_app, extracting):  # noqa: F811
    prompts = extracting()
    async with open_app() as app:
        app.workspace("w").memories.switch("ming", extract=True)
        await ask(app, SAYS)
        await app.jobs.settled("w")
        await app.clear(SCOPE)
        await ask(app, SAYS + " Again.")
        await app.jobs.settled("w")
        assert len(prompts) == 2
        assert [fact.text for fact in app.workspace("w").memories.store("ming").load().active]


async def test_i10_clear_under_a_running_summary_and_extraction_brings_nothing_back(open_app, home, talking):  # noqa: F811
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(prompt):
        reached.set()
        await go_on.wait()
        return json.dumps({"operations": []})

    talking(slow)
    async with open_app(task={}, context=SMALL) as app:
        await ask(app, f"{RULE} {SECRET}")
        await chat(app, 1, 16)
        await reached.wait()
        receipt = await app.clear(SCOPE)
        go_on.set()
        await app.jobs.settled("w")
        assert receipt["jobs"] == 1 and SECRET not in everything_on_disk(home)
        assert not app.workspace("w").tasks.store("t").path.exists()


async def test_i10_an_extraction_of_a_cleared_thread_writes_nothing(open_app, extracting):  # noqa: F811
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_):
        reached.set()
        await go_on.wait()
        from .test_memory import FACT

        return json.dumps({"operations": [FACT]})

    extracting(slow)
    async with open_app() as app:
        app.workspace("w").memories.switch("ming", extract=True)
        await ask(app, SAYS)
        await reached.wait()
        await app.clear(SCOPE)
        go_on.set()
        await app.jobs.settled("w")
        assert app.workspace("w").memories.store("ming").load().facts == ()
        assert app.jobs.counts["late"] == 1


async def test_i10_without_the_epoch_the_late_fact_would_be_there(open_app, extracting, monkeypatch):  # noqa: F811
    """The mechanism switched off."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_):
        reached.set()
        await go_on.wait()
        from .test_memory import FACT

        return json.dumps({"operations": [FACT]})

    extracting(slow)
    async with open_app() as app:
        monkeypatch.setattr(app.workspace("w").threads, "epoch", lambda _: 1)
        app.workspace("w").memories.switch("ming", extract=True)
        await ask(app, SAYS)
        await reached.wait()
        await app.clear(SCOPE)
        go_on.set()
        await app.jobs.settled("w")
        assert app.workspace("w").memories.store("ming").load().facts


async def test_a_clear_ends_the_running_turn_and_drops_what_no_reader_took(open_app, home, monkeypatch):
    from pydantic_ai.models.function import FunctionModel

    from tenuto.agent import models

    begun = asyncio.Event()

    async def stream(messages, info):
        yield SECRET
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(models, "_build", lambda *_: FunctionModel(stream_function=stream, model_name="demo"))
    async with open_app() as app:
        running = app.send(SCOPE, "tell me")
        await begun.wait()
        receipt = await app.clear(SCOPE)
        assert receipt["turns_stopped"] == 1 and receipt["events_dropped"] > 0
        assert [event async for event in running.events()] == []
        assert SECRET not in everything_on_disk(home)


async def test_i10_late_writers_of_a_cleared_thread_are_refused(open_app, scripted):
    scripted("a")
    async with open_app() as app:
        await ask(app, "hello")
        workspace = app.workspace("w")
        results, files = workspace.results(SCOPE), workspace.files(SCOPE)
        other = ThreadLog(workspace.threads.log_path("t"))
        assert other.last_seq
        await app.clear(SCOPE)
        with pytest.raises(ThreadCleared):
            other.append([Draft(1, event={"type": "late"})], epoch=1)
        with pytest.raises(LateWrite):
            files.add("late.txt", b"late")
        from tenuto.results.structure import describe

        with pytest.raises(LateWrite):
            results.save("late", {}, b"late", describe("late", 100))


async def test_a_deleted_thread_is_gone_and_a_new_one_of_its_name_takes_no_late_write(
    open_app, home, scripted
):
    scripted("a", "b")
    async with open_app() as app:
        await ask(app, f"hello {SECRET}")
        late = ThreadLog(app.workspace("w").threads.log_path("t"))
        assert late.last_seq
        await app.delete(SCOPE)
        assert SECRET not in everything_on_disk(home) and "conv-t." not in everything_on_disk(home)
        with pytest.raises(NotFound):
            app.workspace("w").thread(SCOPE)
        with pytest.raises(ThreadCleared):
            late.append([Draft(1, event={"type": "late"})], epoch=1)
        await ask(app, "a new one")
        assert app.workspace("w").thread(SCOPE).epoch == 3
        with pytest.raises(ThreadCleared):
            late.append([Draft(1, event={"type": "late"})], epoch=1)
        assert verify(app.workspace("w")).findings == []


async def test_deleting_a_user_leaves_the_others(open_app, home, scripted):
    scripted("a", "b", "c")
    anna = Scope("w", "anna", "a")
    async with open_app() as app:
        for scope, words in ((SCOPE, SECRET), (Scope("w", "ming", "t2"), SECRET), (anna, "ZITHER")):
            await ask(app, words, scope)
        workspace = app.workspace("w")
        workspace.memories.add("ming", f"likes the {SECRET}")
        workspace.history.search("ming", SECRET)
        receipt = await app.delete_user("w", "ming")
        assert (receipt["threads"], receipt["memory_files"]) == (2, 2)
        assert SECRET not in everything_on_disk(home) and "ZITHER" in everything_on_disk(home)
        assert workspace.threads.of("ming") == [] and verify(workspace).findings == []


async def test_retention_deletes_what_was_not_used_for_too_long(open_app, scripted):
    import os

    scripted("a", "b")
    old = Scope("w", "ming", "old")
    async with open_app(retention={"threads": "30 d"}) as app:
        await ask(app, "hello", old)
        await ask(app, "hello")
        path = app.workspace("w").threads.log_path("old")
        os.utime(path, (1, 1))
        receipts = await app.retain("w")
        assert [receipt["thread"] for receipt in receipts] == ["old"]
        assert [thread.thread for thread in app.workspace("w").threads.all()] == ["t"]


async def test_verify_finds_each_kind_of_residue_and_damage(open_app, talking):  # noqa: F811
    talking()
    async with open_app(task={}, context=SMALL) as app:
        await furnish(app)
        workspace = app.workspace("w")
        assert verify(workspace).findings == []
        memories = workspace.memories
        memories.switch("ming", use=True)
        fact = memories.add("ming", "Phone number 13812345678").id
        await ask(app, "hello")
        store = memories.store("ming")
        from dataclasses import replace

        store.change(lambda m: replace(m, tombstones={store.hashed("phone number 13812345678"): "2026"}))
        found = {finding.what for finding in verify(workspace).findings}
        assert {f"fact {fact} was deleted", "shows a deleted fact"} <= found
        ledger = workspace.tasks.store("t")
        raw = ledger.path.read_text().replace("leave out public holidays", "leave out everything here")
        ledger.path.write_text(raw)
        workspace.threads.raise_epoch("t")
        (workspace.folder / "files" / "ming" / "ghost").mkdir(parents=True)
        log = workspace.threads.log_path("t")
        log.write_bytes(log.read_bytes() + b"{broken\n")
        kinds = {(finding.kind, finding.where) for finding in verify(workspace).findings}
        assert {
            ("unproven", "conv-t.summary.json"),
            ("residue", "conv-t.summary.json"),
            ("residue", "conv-t.jsonl"),
            ("damage", "conv-t.jsonl"),
            ("residue", "files/ming/ghost"),
            ("residue", "history.sqlite"),
        } <= kinds


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tenuto.agent import app as application, clearing
from tenuto.agent.app import App
from tenuto.scope import Scope

at, what = int(sys.argv[2]), sys.argv[3]
def die(): os.kill(os.getpid(), signal.SIGKILL)
plain = clearing.steps
def steps(workspace, journal):
    for number, step in enumerate(plain(workspace, journal)):
        if number == at: die()
        yield step
    if at == 99: die()

async def main():
    settings = {"members": {"ming": {"role": "owner"}}, "sandbox": {"enabled": False}, "context": {"history_tokens": 800}}
    scope = Scope("w", "ming", "t")
    async with App(Path(sys.argv[1]), overrides=settings) as app:
        if what == "finish":
            from tenuto.agent.verify import verify
            print([f.as_json() for f in verify(app.workspace("w")).findings], len(app.workspace("w").threads.all()))
            return
        for text in ["XYLOPHONE leave out public holidays", *["teal bars please, " + "and " * 60] * 10]:
            async for _ in app.send(scope, text, model="demo").events(): pass
        await app.jobs.settled("w")
        workspace = app.workspace("w")
        workspace.files(scope).add("note.txt", b"XYLOPHONE")
        workspace.history.search("ming", "XYLOPHONE")
        clearing.steps = steps
        if at == -1: workspace.threads.raise_epoch = lambda *_: die()
        await (app.delete(scope) if what == "delete" else app.clear(scope))
asyncio.run(main())
"""


@pytest.mark.parametrize("what", ["clear", "delete"])
@pytest.mark.parametrize("at", [-1, 0, 1, 2, 3, 4, 5, 6, 99])
def test_i11_kill_9_at_every_step_of_a_clear_is_finished_at_the_next_start(home: Path, at: int, what: str):
    def run(which: str):
        return subprocess.run(
            [sys.executable, "-c", KILLED, str(home), str(at), which], capture_output=True, check=False
        )

    killed = run(what)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    done = run("finish")
    assert done.stdout.decode().split() == ["[]", "0" if what == "delete" else "1"], done.stderr.decode()
    assert "XYLOPHONE" not in everything_on_disk(home)
    receipts = (home / "w" / ".logs" / clearing.RECEIPTS).read_text().splitlines()
    assert json.loads(receipts[-1])["what"] == ("deleted" if what == "delete" else "cleared")


KILLED_USER = KILLED.replace(
    'await (app.delete(scope) if what == "delete" else app.clear(scope))',
    """from tenuto.memory import store
        workspace.memories.add("ming", "likes the XYLOPHONE")
        workspace.memories.switch("ming", use=True)
        async for _ in app.send(Scope("w", "ming", "u"), "XYLOPHONE", model="demo").events(): pass
        if at == 100: store.MemoryStore.remove = lambda *_: die()
        await app.delete_user("w", "ming")""",
)


@pytest.mark.parametrize("at", [-1, 1, 5, 99, 100])
def test_i11_kill_9_while_a_user_is_deleted_is_finished_at_the_next_start(home: Path, at: int):
    def run(which: str):
        command = [sys.executable, "-c", KILLED_USER, str(home), str(at), which]
        return subprocess.run(command, capture_output=True, check=False)

    killed = run("user")
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    done = run("finish")
    assert done.stdout.decode().split() == ["[]", "0"], done.stderr.decode()
    assert "XYLOPHONE" not in everything_on_disk(home) and not list((home / "w" / ".memory").glob("*.json"))


KILLED_FACT = """
import os, signal, sys
from pathlib import Path
from tenuto.agent.app import App
from tenuto.log import blobs
from tenuto.memory import store
import asyncio
from tenuto.scope import Scope

step = sys.argv[2]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
async def main():
    async with App(Path(sys.argv[1]), overrides={"members": {"ming": {}}, "sandbox": {"enabled": False}}) as app:
        memories = app.workspace("w").memories
        if step == "again":
            memories.delete("ming", None)
            return
        memories.switch("ming", use=True)
        memories.add("ming", "likes the XYLOPHONE")
        async for _ in app.send(Scope("w", "ming", "t"), "hello", model="demo").events(): pass
        if step == "before the stored requests": blobs.Blobs.remove_if = die
        if step == "before the facts": store.write_atomic = die
        memories.delete("ming", None)
asyncio.run(main())
"""


@pytest.mark.parametrize("step", ["before the stored requests", "before the facts"])
def test_i12_kill_9_while_a_fact_is_deleted_leaves_it_to_be_deleted_again(home: Path, step: str):
    def run(which: str):
        return subprocess.run(
            [sys.executable, "-c", KILLED_FACT, str(home), which], capture_output=True, check=False
        )

    assert run(step).returncode == -signal.SIGKILL
    assert "XYLOPHONE" in (home / "w" / ".memory" / "conv-ming.json").read_text(), (
        "still listed, not half gone"
    )
    assert run("again").returncode == 0
    assert "XYLOPHONE" not in everything_on_disk(home)


# -- a living sandbox ------------------------------------------------------------------------------------------


@pytest.mark.sandbox
async def test_i11_a_clear_ends_the_threads_sandbox_and_what_it_held(open_app, home, scripted):
    keep = "from pathlib import Path\nkept = 'XYLO' + 'PHONE'\nPath('kept.txt').write_text(kept)"
    asked = "print('kept' in globals())"
    scripted([("run_python", {"code": keep})], "kept", [("run_python", {"code": asked})], "no")
    async with open_app(sandbox={"enabled": True, "spares": 0}) as app:
        await ask(app, "keep it")
        assert SECRET in everything_on_disk(home)
        receipt = await app.clear(SCOPE)
        assert receipt["sandbox"] is True
        assert SECRET not in everything_on_disk(home)
        await ask(app, "is it there?")
        printed = [
            part["content"]
            for record in conversation(app).log.scan()
            if record.message
            for part in record.message["parts"]
            if part["part_kind"] == "tool-return"
        ]
        assert "False" in str(printed) and "True" not in str(printed)
        assert verify(app.workspace("w")).findings == []
