"""A turn: what is logged when, stopping, waiting, approving, failing, tools and their servers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.agent.events import ToolReturned
from tenuto.agent.inspect import context_of, past_request, why
from tenuto.agent.mcp import expand
from tenuto.context.pair import INTERRUPTED, violations
from tenuto.errors import Forbidden, NotFound, ThreadBusy
from tenuto.log.store import ThreadLog
from tenuto.scope import Scope

from .conftest import SCOPE, ask, conversation, sent, stdio_server


def logged(app, scope=SCOPE) -> list[str]:
    """The log as one word a record."""
    records = list(conversation(app, scope).log.scan())
    return [r.event_type or "+".join(p["part_kind"] for p in r.message["parts"]) for r in records]


async def test_i1_the_question_is_on_disk_before_the_model_is_called(open_app, scripted, home):
    on_disk = []
    scripted(lambda _: on_disk.append(b"how much?" in (home / "w/.logs/conv-t.jsonl").read_bytes()) or "much")
    async with open_app() as app:
        await ask(app, "how much?")
    assert on_disk == [True]


async def test_every_response_and_result_is_logged_as_it_settles(open_app, scripted):
    scripted([("list_results", {})], "none")
    async with open_app() as app:
        end, _ = await ask(app, "what is saved?")
        assert (end.reason, end.answer) == ("answered", "none")
        assert logged(app) == [
            "thread_created", "turn_started", "user-prompt", "request", "tool-call", "tool-return", "request", "text",
            "turn_ended",
        ]  # fmt: skip


async def test_the_model_sees_exactly_what_the_log_rebuilds(open_app, scripted):
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    seen = scripted([("list_results", {})], "one", "two")
    async with open_app() as app:
        await ask(app, "first")
        await ask(app, "second")
        rebuilt = ModelMessagesTypeAdapter.validate_python(sent(app))
        live = ModelMessagesTypeAdapter.dump_python(seen[-1], exclude={"__all__": {"timestamp"}})
        again = ModelMessagesTypeAdapter.dump_python(rebuilt, exclude={"__all__": {"timestamp"}})

    def texts(messages):
        return [(p.get("part_kind"), p.get("content", p.get("args"))) for m in messages for p in m["parts"]]

    assert texts(live) == texts(again)


async def test_i17_a_restart_goes_on_with_the_same_prefix_and_every_past_request_rebuilds(open_app, scripted):
    scripted(*["answer " * 120] * 30)
    async with open_app(context={"history_tokens": 800}) as app:
        for n in range(12):
            await ask(app, f"question {n}")
        living = sent(app)
    async with open_app(context={"history_tokens": 800}) as app:
        assert sent(app) == living
        for n in range(12, 16):
            await ask(app, f"question {n}")
        manifests = [r.event["manifest"] for r in conversation(app).log.scan() if r.event_type == "request"]
        assert len(manifests) == 16
        assert all(past_request(conversation(app), m["turn"], m["step"]).same for m in manifests)
        assert {m["coverage"] for m in manifests} == {"full", "bridged"}


async def test_i3_a_request_that_moved_the_window_and_failed_loses_nothing(open_app, scripted):
    """The window moved for a request whose answer never came: the next one starts from what is logged."""
    from pydantic_ai.exceptions import ModelHTTPError

    fails = ModelHTTPError(503, "m", {"error": "down"})
    seen = scripted(*["answer " * 120] * 7, *[fails] * 3, *["answer " * 120] * 2)
    async with open_app(context={"history_tokens": 800}) as app:
        ends = [(await ask(app, f"question {n:02d}"))[0].reason for n in range(12)]
        living = sent(app)
    async with open_app(context={"history_tokens": 800}) as app:
        assert sent(app) == living
    assert ends == ["answered"] * 7 + ["failed"] * 3 + ["answered"] * 2
    for number, request in enumerate(seen):
        words = str([part.content for message in request for part in message.parts])
        assert all(words.count(f"question {n:02d}") == 1 for n in range(number + 1)), f"request {number}"


async def test_stopping_keeps_what_came_and_the_next_turn_works(open_app, scripted):
    scripted("a first half and a second half", "fine")
    async with open_app() as app:
        running = app.send(SCOPE, "tell me")
        async for event in running.events():
            if event.type == "text_delta":
                running.stop()
        end = await running.ended()
        assert (end.reason, end.answer) == ("stopped", "a first half an")
        assert logged(app)[-3:] == ["text", "interrupted", "turn_ended"]
        end, _ = await ask(app, "go on")
        assert end.answer == "fine"
        assert any("a first half an" in str(m) for m in sent(app))


async def test_stopping_while_a_tool_runs_leaves_a_valid_next_request(open_app, scripted):
    scripted([("wait", {"seconds": 0, "name": "a"}), ("wait", {"seconds": 60, "name": "b"})], "ok")
    async with open_app(mcp={"s": stdio_server()}) as app:
        running = app.send(SCOPE, "both")
        async for event in running.events():
            if event.type == "tool_returned":
                running.stop()
        assert (await running.ended()).reason == "stopped"
        await ask(app, "and now?")
        messages = sent(app)
        assert violations(messages) == []
        contents = [p["content"] for m in messages for p in m["parts"] if p["part_kind"] == "tool-return"]
        assert contents == ["a waited", INTERRUPTED]


async def test_messages_wait_in_a_short_queue_and_beyond_it_the_thread_is_busy(open_app, scripted):
    scripted([("wait", {"seconds": 0.3})], "one", "two", "three")
    async with open_app(mcp={"s": stdio_server()}, agent={"queue": 1}) as app:
        first = app.send(SCOPE, "1")
        stream = first.events()
        assert (await anext(stream)).type == "turn_started"
        second = app.send(SCOPE, "2")
        queued = await anext(second.events())
        assert (queued.type, queued.position) == ("queued", 1)
        with pytest.raises(ThreadBusy):
            await ask(app, "3")
        assert (await first.ended()).answer == "one"
        assert (await second.ended()).answer == "two"
        questions = [r.message["parts"][0]["content"] for r in conversation(app).log.scan() if r.is_question]
        assert questions == ["1", "2"]


async def test_two_processes_take_turns_on_one_thread(open_app, scripted, home):
    scripted(*["x"] * 9)
    code = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom tenuto.agent import models\nfrom tenuto.agent.app import App\n"
        "from tenuto.scope import Scope\nfrom pydantic_ai.models.function import FunctionModel\n"
        "async def stream(messages, info):\n    await asyncio.sleep(0.01)\n    yield 'other'\n"
        "models._build = lambda *_: FunctionModel(stream_function=stream, model_name='demo')\n"
        "async def main():\n"
        "    async with App(Path(sys.argv[1]), overrides={'members': {'ming': {}}, 'sandbox': {'enabled': False}}) as app:\n"
        "        for n in range(5):\n"
        "            async for _ in app.send(Scope('w', 'ming', 't'), f'other {n}').events(): pass\n"
        "asyncio.run(main())"
    )
    async with open_app() as app:
        await ask(app, "mine first")
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(home))
        for n in range(5):
            await ask(app, f"mine {n}")
        assert await other.wait() == 0
        turns: dict[int, list[str]] = {}
        for record in conversation(app).log.scan():
            if record.message is not None:
                turns.setdefault(record.turn, []).append(record.message["parts"][0]["part_kind"])
        assert len(turns) == 11
        assert set(map(tuple, turns.values())) == {("user-prompt", "text")}


async def test_a_tool_that_needs_approval_waits_for_it(open_app, scripted):
    asked = []

    async def approve(request):
        asked.append((request.tool, request.arguments))
        return len(asked) == 1

    scripted(
        [("wait", {"seconds": 0, "name": "a"})], "done", [("wait", {"seconds": 0, "name": "b"})], "not done"
    )
    async with open_app(mcp={"s": stdio_server(approval=["wait"])}) as app:
        _, events = await ask(app, "do it", approve=approve)
        assert [e.text for e in events if isinstance(e, ToolReturned)] == ["a waited"]
        _, events = await ask(app, "again", approve=approve)
        returned = next(e for e in events if isinstance(e, ToolReturned))
        assert (returned.outcome, "did not allow" in returned.text) == ("failed", True)
        assert asked == [("wait", {"seconds": 0, "name": "a"}), ("wait", {"seconds": 0, "name": "b"})]


async def test_without_anybody_to_ask_the_call_is_refused_and_never_made(open_app, scripted, tmp_path):
    calls = tmp_path / "calls"
    scripted([("wait", {"seconds": 0})], "ok")
    async with open_app(mcp={"s": stdio_server(approval=["wait"], env={"CALLS_FILE": str(calls)})}) as app:
        _, events = await ask(app, "do it")
    assert [e.outcome for e in events if isinstance(e, ToolReturned)] == ["failed"]
    assert not calls.exists()


# -- servers ------------------------------------------------------------------------------------------------


async def test_a_server_that_dies_fails_its_tool_and_comes_back_at_the_next_call(open_app, scripted):
    scripted([("die", {})], "sorry", [("wait", {"seconds": 0, "name": "again"})], "back")
    async with open_app(mcp={"s": stdio_server()}) as app:
        end, events = await ask(app, "kill it")
        returned = next(e for e in events if isinstance(e, ToolReturned))
        assert (end.answer, returned.outcome) == ("sorry", "failed")
        assert "MCP server s failed while die ran" in returned.text
        _, events = await ask(app, "once more")
        assert [e.text for e in events if isinstance(e, ToolReturned)] == ["again waited"]


async def test_a_server_that_cant_be_reached_is_a_notice_and_the_turn_goes_on(open_app, scripted):
    scripted("fine without")
    dead = {"command": "/nonexistent/server", "start": 2}
    async with open_app(mcp={"dead": dead, "s": stdio_server()}) as app:
        end, events = await ask(app, "hello")
    assert end.answer == "fine without"
    assert any("MCP server dead can't be reached" in notice for notice in events[0].notices)


async def test_a_call_that_takes_too_long_fails_with_its_limit(open_app, scripted):
    scripted([("wait", {"seconds": 30})], "too slow")
    async with open_app(mcp={"s": stdio_server(call=0.5)}) as app:
        end, events = await ask(app, "wait")
    returned = next(e for e in events if isinstance(e, ToolReturned))
    assert (end.answer, returned.outcome) == ("too slow", "failed") and "0.5 s" in returned.text


async def test_an_error_of_a_tool_is_told_to_the_model(open_app, scripted):
    scripted([("boom", {})], "it failed")
    async with open_app(mcp={"s": stdio_server()}) as app:
        end, events = await ask(app, "boom")
    returned = next(e for e in events if isinstance(e, ToolReturned))
    assert end.answer == "it failed" and returned.outcome == "failed" and "boom" in returned.text


async def test_a_servers_environment_has_none_of_our_secrets(open_app, scripted, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    scripted([("secret_names", {})], "ok")
    async with open_app(mcp={"s": stdio_server()}) as app:
        _, events = await ask(app, "names")
    names = next(e for e in events if isinstance(e, ToolReturned)).text
    assert "PATH" in names and "OPENAI_API_KEY" not in names


async def test_pictures_pass_through_and_are_stored_once_beside_the_log(open_app, scripted, home):
    seen = scripted([("picture", {})], "a dot", "still")
    async with open_app(mcp={"s": stdio_server()}) as app:
        await ask(app, "show")
        await ask(app, "again")
    images = [
        item.media_type
        for message in seen[-1]
        for part in message.parts
        if part.part_kind == "tool-return"
        for item in part.content
        if not isinstance(item, str)
    ]
    assert images == ["image/png"]
    assert b"iVBORw0KGgo" not in (home / "w/.logs/conv-t.jsonl").read_bytes()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_a_server_over_streamable_http_with_a_prefix_and_users(open_app, scripted):
    port = _free_port()
    script = Path(__file__).with_name("mcp_server.py")
    server = subprocess.Popen([sys.executable, str(script), str(port)], stderr=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        settings = {"web": {"url": f"http://127.0.0.1:{port}/mcp", "users": ["ming"]}}
        scripted([("web_big", {"chars": 3_000_000})], "got it", "nothing")
        async with open_app(mcp=settings) as app:
            end, events = await ask(app, "big")
            returned = next(e for e in events if isinstance(e, ToolReturned))
            assert (end.answer, returned.outcome) == ("got it", "success")
            kept = next(r for r in conversation(app).log.scan() if "the whole has" in str(r.message))
            assert "2,999,9" in str(kept.message) and "narrow the query" in str(kept.message)
            anna = Scope("w", "anna", "a")
            await ask(app, "big", anna)
            tools = context_of(conversation(app, anna), texts_too=True)["blocks"][1]["entries"][0]["text"]
            assert "web_big" not in tools and "read_record" in tools
    finally:
        server.kill()
        server.wait()


def test_a_tools_name_from_a_server_is_one_that_providers_take(tmp_path):
    from types import SimpleNamespace

    from tenuto.agent.mcp import McpServer
    from tenuto.settings import McpSettings

    server = McpServer("my.server", McpSettings(command="x"), user="u", log_dir=tmp_path)
    spec = server._spec(
        SimpleNamespace(name="get/all rows" + "x" * 90, description="d" * 9_000, input_schema={})
    )
    assert spec.name.startswith("my_server_get_all_rowsxxx") and len(spec.name) == 64
    assert spec.original.startswith("get/all rows") and len(spec.description) == 4_000


async def test_what_is_stored_is_private_to_the_server(open_app, scripted, home):
    scripted("x")
    async with open_app() as app:
        await ask(app, "q")
    assert (home / "w").stat().st_mode & 0o077 == 0
    assert (home / "w/.logs/conv-t.jsonl").stat().st_mode & 0o077 == 0


def test_headers_take_the_environment_and_the_user(monkeypatch):
    monkeypatch.setenv("TOKEN_X", "t0k")
    assert expand("Bearer ${TOKEN_X} for {user}", "ming") == "Bearer t0k for ming"


# -- scope --------------------------------------------------------------------------------------------------


async def test_i13_a_foreign_thread_doesnt_exist_and_roles_hold(open_app, scripted):
    scripted("secret number 42", "x")
    async with open_app() as app:
        await ask(app, "remember 42")
        with pytest.raises(NotFound):
            await ask(app, "what did ming say?", Scope("w", "anna", "t"))
        with pytest.raises(NotFound):
            app.workspace("w").thread(Scope("w", "stranger", "t"))
        with pytest.raises(Forbidden):
            await ask(app, "hello", Scope("w", "vera", "v"))
        assert [t.thread for t in app.workspace("w").threads.of("anna")] == []


async def test_a_workspace_of_the_same_thread_name_is_another_thread(open_app, scripted):
    scripted("one", "two")
    async with open_app() as app:
        await ask(app, "in w")
        await ask(app, "in v", Scope("v", "ming", "t"))
        assert "in w" not in str(sent(app, Scope("v", "ming", "t")))


async def test_a_preview_is_the_request_that_is_sent_next_and_leaves_nothing_behind(open_app, scripted):
    scripted("one", "two", "three")
    async with open_app() as app:
        await ask(app, "first")
        await ask(app, "second")
        log = app.workspace("w").conversation(app.workspace("w").thread(SCOPE)).log
        before = log.path.read_bytes()
        request, question = await app.preview(SCOPE, "third")
        assert log.path.read_bytes() == before and question.turn == 3
        again, _ = await app.preview(SCOPE, "third")
        await ask(app, "third")
        after = past_request(app.workspace("w").conversation(app.workspace("w").thread(SCOPE)), 3).manifest
        told = [(block["layer"], block["tokens"], block["records"]) for block in request.manifest["blocks"]]
        assert told == [(block["layer"], block["tokens"], block["records"]) for block in after["blocks"]]
        assert request.manifest["through"] == again.manifest["through"] == after["through"]


# -- looking ------------------------------------------------------------------------------------------------


async def test_why_tells_where_words_stand_and_why_they_are_left_out(open_app, scripted):
    scripted(*["noted " * 90] * 20)
    async with open_app(context={"history_tokens": 600}) as app:
        await ask(app, "exclude the Zweifelstage please")
        for n in range(10):
            await ask(app, f"style {n}")
        found = why(app.workspace("w"), SCOPE, "ZWEIFELSTAGE")
        assert [(hit["layer"], hit["state"]) for hit in found["context"]] == [("bridge", "bridge")]
        assert [(hit["seq"], hit["reason"]) for hit in found["log"]] == [(3, "carried in the bridge")]
        old = why(app.workspace("w"), SCOPE, "noted")["log"][0]
        assert old["reason"].startswith("before the window")
        assert why(app.workspace("w"), SCOPE, "nowhere at all") == {
            "words": "nowhere at all", "context": [], "log": [], "task": [], "memory": [], "results": [],
        }  # fmt: skip


async def test_a_long_pasted_text_is_a_file_and_the_log_has_its_outline(open_app, scripted, home):
    scripted("read it")
    async with open_app() as app:
        _, events = await ask(app, "a,b\n" + "1,2\n" * 20_000)
        assert events[0].attached == "pasted.csv"
        assert app.workspace("w").files(SCOPE).path("pasted.csv").stat().st_size == 80_004
    assert (home / "w/.logs/conv-t.jsonl").stat().st_size < 20_000


async def test_i16_an_edit_changes_what_the_model_sees_and_going_back_brings_it_back(open_app, scripted):
    scripted("a1", "a2", "a3", "a4")
    async with open_app() as app:
        await ask(app, "first")
        before = conversation(app).log.page(None, 1)[0]
        await ask(app, "leave out holidays")
        end = conversation(app).log.page(None, 1)[0]
        await ask(app, "count everything", parent=before)
        assert "leave out holidays" not in str(sent(app))
        conversation(app).log.select(end.id, turn=end.turn, epoch=1)
        await ask(app, "and now?")
        assert "leave out holidays" in str(sent(app)) and "count everything" not in str(sent(app))


async def test_i8_a_question_too_large_for_the_window_fails_with_a_number_and_nothing_is_lost(
    open_app, scripted
):
    scripted("never reached", "fine")
    tiny = {
        "tiny": {"model": "openai:x", "base_url": "http://127.0.0.1:9/v1", "window": 2_000, "output": 200}
    }
    async with open_app(models=tiny, results={"paste_chars": 10**6}) as app:
        end, _ = await ask(app, "word " * 5_000, model="tiny")
        assert (end.reason, end.error["code"]) == ("failed", "question_too_large")
        assert end.error["details"]["over_tokens"] > 1_000
        assert logged(app)[-2:] == ["user-prompt", "turn_ended"]
        end, _ = await ask(app, "short", model="demo")
        assert end.answer == "never reached"


async def test_the_log_can_be_read_by_an_older_reader_that_knows_nothing_of_turns(open_app, scripted, home):
    scripted("x")
    async with open_app() as app:
        await ask(app, "q")
    assert len(ThreadLog(home / "w/.logs/conv-t.jsonl").back_to(lambda r: False)) == 6


async def test_i17_an_imported_thread_goes_on_with_the_same_bytes_even_from_the_middle_of_a_turn(
    open_app, scripted, home
):
    """Offsets differ after an import, and a long turn put the window's start inside a turn."""
    from tenuto.log.transfer import export, import_thread

    steps = [[("wait", {"seconds": 0, "name": "data " * 60})]] * 12
    scripted("answer " * 100, "answer " * 100, *steps, "done", "next", "next")
    async with open_app(mcp={"s": stdio_server()}, context={"history_tokens": 900}) as app:
        for text in ("first words", "second words", "third words"):
            await ask(app, text)
        workspace = app.workspace("w")
        marks = past_request(conversation(app)).manifest["marks"]
        third = next(r for r in conversation(app).log.scan() if "third words" in str(r.message))
        assert marks["start"] > third.seq
        lines = list(export(workspace.thread(SCOPE), conversation(app).log))
        copy = Scope("w", "ming", "copy")
        import_thread(workspace.threads, copy, lines)
        await ask(app, "fourth words")
        await ask(app, "fourth words", copy)

        def words(scope):
            return [[p.get("content") for p in m["parts"]] for m in sent(app, scope)][:-1]

        assert words(SCOPE) == words(copy)
        assert str(words(SCOPE)).count("third words") == 1
