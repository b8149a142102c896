"""Streams that resume, stop that stops, messages that are sent once. Names of issues: the research's list A2."""

from __future__ import annotations

import asyncio

from .conftest import THREAD, calling, events, send, speaking

WORDS = [f"word{number} " for number in range(200)]


def text_of(found: list[dict]) -> str:
    return "".join(event["data"]["text"] for event in found if event["type"] == "text_delta")


async def test_a_run_is_told_from_the_question_to_the_end_in_dense_numbers(serve):
    async with serve(speaking(*WORDS)) as client:
        run = await send(client, "say it")
        found = await events(client, run["run"])
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    kinds = [event["type"] for event in found]
    assert kinds[:3] == ["run_started", "turn_started", "request_sent"] and kinds[-1] == "turn_ended"
    assert found[0]["data"] == {"thread": "t", "question": "say it", "source": "live"}
    assert text_of(found) == "".join(WORDS)


async def test_open_webui_29596_a_reload_in_mid_stream_loses_and_repeats_nothing(serve):
    gate = asyncio.Event()
    async with serve(speaking(*WORDS, gate=gate)) as client:
        run = (await send(client, "say it"))["run"]
        before = await events(client, run, until="text_delta")
        following = asyncio.create_task(events(client, run, after=before[-1]["seq"]))
        gate.set()
        after = await following
    assert [event["seq"] for event in before + after] == list(range(1, len(before + after) + 1))
    assert text_of(before + after) == "".join(WORDS)


async def test_dify_35307_a_lost_connection_goes_on_from_the_last_event_id(serve):
    async with serve(speaking(*WORDS)) as client:
        run = (await send(client, "say it"))["run"]
        whole = await events(client, run)
        rest = await events(client, run, headers={"last-event-id": "50"})
        assert rest == whole[50:]
        done = await client.get(f"{THREAD}/runs/{run}/events", params={"after": len(whole)})
        assert done.status_code == 204


async def test_vercel_6502_stop_ends_the_run_whoever_follows_it_and_keeps_what_came(serve):
    gate = asyncio.Event()
    async with serve(speaking("kept ", "never", gate=gate)) as client:
        run = (await send(client, "say it"))["run"]
        await events(client, run, until="text_delta")
        stopped = (await client.post(f"{THREAD}/runs/{run}/stop")).json()
        assert stopped["state"] == "stopped"
        end = (await events(client, run))[-1]
        assert end["type"] == "turn_ended" and end["data"]["reason"] == "stopped"
        records = (await client.get(f"{THREAD}/records")).json()["records"]
    answer = next(record for record in records if record["kind"] == "answer")
    assert answer["parts"][0]["text"] == "kept " and answer["cut"] is True


async def test_a_reader_who_goes_away_never_stops_a_run(serve):
    gate = asyncio.Event()
    async with serve(speaking("one ", "two", gate=gate)) as client:
        run = (await send(client, "say it"))["run"]
        await events(client, run, until="text_delta")
        gate.set()
        assert text_of(await events(client, run)) == "one two"


async def test_a_message_sent_twice_is_one_turn_also_after_a_restart(serve):
    async with serve() as client:
        first, second = await asyncio.gather(send(client, "once"), send(client, "once"))
        await events(client, first["run"])
        assert first["run"] == second["run"] == "m1"
    async with serve() as client:
        assert (await send(client, "once"))["state"] == "answered"
        records = (await client.get(f"{THREAD}/records")).json()["records"]
    assert [record["kind"] for record in records].count("question") == 1


async def test_chainlit_1499_after_a_restart_the_run_is_read_from_the_log(serve):
    async with serve(calling("list_files", {}, "nothing yet")) as client:
        live = await events(client, (await send(client, "what is there?"))["run"])
    async with serve() as client:
        told = await events(client, "m1")
    assert told[0]["data"] == {"thread": "t", "question": "what is there?", "source": "log"}
    assert text_of(told) == text_of(live) == "nothing yet"

    def calls(found):
        return [
            (event["type"], event["data"]["call_id"], event["data"]["tool"], event["data"].get("text"))
            for event in found
            if event["type"] in ("tool_called", "tool_returned")
        ]

    assert calls(told) == calls(live) and len(calls(told)) == 2
    assert told[-1]["data"] == live[-1]["data"]


async def test_two_tabs_hear_of_a_run_and_of_its_end(serve):
    async with serve() as client:
        await client.post("/api/workspaces/w/threads", json={"thread": "t"})
        heard: list[str] = []

        async def tab():
            async with client.stream("GET", f"{THREAD}/events") as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        heard.append(line)
                        if "hello" in line:
                            ready.set()
                        if "turn_ended" in line:
                            return

        ready = asyncio.Event()
        listening = asyncio.create_task(tab())
        await ready.wait()
        await send(client, "hi")
        await asyncio.wait_for(listening, 10)
    assert [line for line in heard if "run_started" in line] == ['data: {"type":"run_started","run":"m1"}']


async def test_i11_a_clear_takes_the_runs_out_of_memory(serve):
    async with serve() as client:
        run = (await send(client, "XYLOPHONE"))["run"]
        await events(client, run)
        receipt = await client.post(f"{THREAD}/clear")
        assert receipt.status_code == 200 and receipt.json()["removed"]["log"]["bytes"] > 0
        assert (await client.get(f"{THREAD}/runs/{run}/events")).status_code == 404
        assert (await client.get(f"{THREAD}/records")).json()["records"] == []


async def test_a_turn_that_can_not_begin_says_why_in_its_run(serve):
    async with serve(agent={"model": "nobody:knows"}) as client:
        found = await events(client, (await send(client, "hi"))["run"])
    assert found[-1]["type"] == "turn_ended" and found[-1]["data"]["error"]["code"] == "model_failed"
