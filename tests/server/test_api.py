"""The resources over a real socket: who may see what, errors, files, kept information."""

from __future__ import annotations

import subprocess
import sys
from urllib.request import urlopen

import orjson
import pytest

from .conftest import THREAD, events, send, speaking

HERE = "/api/workspaces/w"


# -- guard and errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8321"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
)
async def test_a_page_of_another_site_is_refused_before_any_route(serve, headers):
    async with serve() as client:
        refused = await client.post(f"{THREAD}/messages", json={"text": "hi"}, headers=headers)
        assert refused.status_code == 403 and refused.json()["code"] == "foreign_origin"
        assert (await client.get(f"{HERE}/threads")).json()["threads"] == []


async def test_the_own_page_is_answered_with_a_policy_that_runs_nothing_foreign(serve):
    async with serve() as client:
        answered = await client.get("/healthz", headers={"origin": str(client.base_url).rstrip("/")})
    assert answered.json()["status"] == "ok"
    policy = answered.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "object-src 'none'" in policy
    assert answered.headers["x-content-type-options"] == "nosniff"


async def test_errors_are_problem_details_with_a_stable_code_and_a_next_step(serve):
    async with serve() as client:
        missing = await client.get(f"{HERE}/threads/none")
        assert missing.status_code == 404
        assert missing.headers["content-type"] == "application/problem+json"
        assert missing.json()["code"] == "not_found" and missing.json()["hint"]
        bad = await client.get(f"{HERE}/threads/..%2f..%2fetc")
        assert bad.status_code in (404, 422)
        wrong = await client.post(f"{THREAD}/messages", json={"text": "", "secret": "sk-123"})
        assert wrong.status_code == 422 and wrong.json()["code"] == "invalid_request"
        assert "sk-123" not in wrong.text
        unknown = await client.get("/api/nothing")
        assert unknown.status_code == 404 and unknown.json()["code"] == "not_found"


async def test_asking_for_a_workspace_does_not_make_one(serve, home):
    async with serve() as client:
        assert (await client.get("/api/workspaces/other/threads")).status_code == 404
        found = (await client.get("/api/workspaces")).json()
    assert [one["workspace"] for one in found["workspaces"]] == ["w"]
    assert not (home / "other").exists()


# -- who may see what ------------------------------------------------------------------------------------------


async def test_i13_another_users_thread_looks_like_one_that_is_not_there(serve):
    async with serve() as client:
        await events(client, (await send(client, "XYLOPHONE"))["run"])
    async with serve(user="anna") as client:
        answers = [
            (await client.get(path)).json()
            for path in (THREAD, f"{HERE}/threads/none")
            for path in (path, f"{path}/records", f"{path}/context", f"{path}/task", f"{path}/files")
        ]
        assert {answer["code"] for answer in answers} == {"not_found"}
        assert (await client.get(f"{THREAD}/runs/m1/events")).status_code == 404
        assert (await client.get(f"{HERE}/search", params={"q": "XYLOPHONE"})).json()["found"] == []
        assert (await client.get(f"{HERE}/threads")).json()["threads"] == []


async def test_a_viewer_may_read_and_not_send(serve):
    async with serve(user="vera") as client:
        assert (await client.get(f"{HERE}/threads")).status_code == 200
        refused = await client.post(f"{THREAD}/messages", json={"text": "hi"})
        assert refused.status_code == 403 and refused.json()["code"] == "forbidden"


# -- threads and records ---------------------------------------------------------------------------------------


async def test_threads_are_listed_in_pages_pinned_ones_first_and_archived_ones_apart(serve):
    async with serve() as client:
        for name in ("a", "b", "c"):
            await client.post(f"{HERE}/threads", json={"thread": name, "title": f"title {name}"})
        await client.patch(f"{HERE}/threads/a", json={"pinned": True})
        await client.patch(f"{HERE}/threads/b", json={"archived": True, "title": "put away"})
        first = (await client.get(f"{HERE}/threads", params={"limit": 1})).json()
        second = (await client.get(f"{HERE}/threads", params={"limit": 1, "cursor": first["next"]})).json()
        put_away = (await client.get(f"{HERE}/threads", params={"archived": True})).json()
        found = (await client.get(f"{HERE}/threads", params={"q": "TITLE c"})).json()
    assert [one["thread"] for one in first["threads"] + second["threads"]] == ["a", "c"]
    assert second["next"] == ""
    assert [(one["thread"], one["title"]) for one in put_away["threads"]] == [("b", "put away")]
    assert [one["thread"] for one in found["threads"]] == ["c"]


async def test_records_come_in_pages_from_the_end_with_bounded_previews(serve):
    async with serve(speaking("y" * 100_000)) as client:
        for number in range(3):
            await events(client, (await send(client, f"question {number}", f"m{number}"))["run"])
        last = (await client.get(f"{THREAD}/records", params={"limit": 5})).json()
        earlier = (
            await client.get(f"{THREAD}/records", params={"limit": 50, "before": last["before"]})
        ).json()
        part = next(record for record in last["records"] if record["kind"] == "answer")
        whole = (await client.get(f"{THREAD}/records/{part['seq']}")).json()
    assert part["parts"][0]["chars"] == 100_000 and part["parts"][0]["cut"] is True
    assert len(part["parts"][0]["text"]) == 12_000 and whole["parts"][0]["text"] == "y" * 100_000
    seqs = [record["seq"] for record in earlier["records"] + last["records"]]
    assert seqs == sorted(set(seqs)) and earlier["before"] is None
    questions = [record for record in earlier["records"] + last["records"] if record["kind"] == "question"]
    assert [one["parts"][0]["text"] for one in questions] == [f"question {number}" for number in range(3)]


async def test_an_edit_makes_a_branch_and_one_can_go_back(serve):
    async with serve() as client:
        await events(client, (await send(client, "first words"))["run"])
        edited = await client.post(f"{THREAD}/turns/1/edit", json={"id": "m2", "text": "other words"})
        await events(client, edited.json()["run"])
        branches = (await client.get(f"{THREAD}/branches")).json()["branches"]
        assert sorted(one["question"] for one in branches) == ["first words", "other words"]
        old = next(one for one in branches if not one["active"])
        await client.post(f"{THREAD}/branches", json={"record": old["record"]})
        records = (await client.get(f"{THREAD}/records")).json()["records"]
        missing = await client.post(f"{THREAD}/turns/99/regenerate", json={})
    assert [r["parts"][0]["text"] for r in records if r["kind"] == "question"] == ["first words"]
    assert missing.status_code == 404


async def test_the_context_of_an_answer_is_shown_with_its_exact_texts_and_why_finds_words_in_it(serve):
    async with serve() as client:
        await events(client, (await send(client, "排除节假日"))["run"])
        context = (await client.get(f"{THREAD}/context")).json()
        why = (await client.get(f"{THREAD}/why", params={"words": "节假日"})).json()
    assert context["rebuilt_equal"] is True
    question = next(block for block in context["blocks"] if block["layer"] == "question")
    assert question["entries"][0]["text"] == "排除节假日"
    assert [hit["layer"] for hit in why["context"]] == ["question"]


async def test_the_export_is_the_log(serve, home):
    async with serve() as client:
        await events(client, (await send(client, "hi"))["run"])
        exported = await client.get(f"{THREAD}/export")
    assert exported.content == (home / "w" / ".logs" / "conv-t.jsonl").read_bytes()


# -- task and memory -------------------------------------------------------------------------------------------


async def test_a_constraint_is_added_pinned_and_withdrawn_by_hand(serve):
    async with serve(task={"enabled": True}) as client:
        await client.post(f"{HERE}/threads", json={"thread": "t"})
        added = await client.post(f"{THREAD}/task", json={"action": "add", "text": "no holidays"})
        item = added.json()["items"][0]
        assert item["text"] == "no holidays" and item["kind"] == "constraint"
        pinned = await client.post(f"{THREAD}/task", json={"action": "pin", "item": item["id"]})
        assert pinned.json()["items"][0]["pinned"] is True
        gone = await client.post(f"{THREAD}/task", json={"action": "withdraw", "item": item["id"]})
        assert gone.json()["items"][0]["status"] == "withdrawn"
        assert len((await client.get(f"{THREAD}/task/history")).json()["versions"]) == 3
        unknown = await client.post(f"{THREAD}/task", json={"action": "pin", "item": "x"})
    assert unknown.status_code == 404


async def test_a_fact_is_added_used_explained_and_deleted_for_good(serve, home):
    async with serve() as client:
        assert (await client.patch(f"{HERE}/memory", json={"use": True})).json()["use"] is True
        fact = (await client.post(f"{HERE}/memory/facts", json={"text": "likes XYLOPHONE music"})).json()
        await events(client, (await send(client, "hi"))["run"])
        context = (await client.get(f"{THREAD}/context")).json()
        assert "XYLOPHONE" in str(context["blocks"])
        explained = (await client.get(f"{HERE}/memory/facts/{fact['id']}")).json()
        assert explained["in_the_next_request"] is True and explained["used"]["count"] == 1
        meters = (await client.get(f"{HERE}/memory")).json()["meters"]
        assert meters == {"facts": 1, "most_facts": 50, "chars": 21, "most_chars": 8_000}
        unnamed = await client.post(f"{HERE}/memory/delete", json={})
        assert unnamed.status_code == 422 and unnamed.json()["code"] == "usage"
        await client.post(f"{HERE}/memory/delete", json={"facts": [fact["id"]]})
        assert (await client.get(f"{HERE}/memory")).json()["facts"] == []
        secret = await client.post(f"{HERE}/memory/facts", json={"text": "my key is AKIAIOSFODNN7EXAMPLE"})
    assert secret.status_code == 422 and secret.json()["code"] == "fact_refused"
    assert "AKIA" not in secret.text
    assert "XYLOPHONE" not in (home / "w" / ".memory" / "conv-ming.json").read_text()


# -- files -----------------------------------------------------------------------------------------------------


async def test_an_uploaded_table_is_listed_paged_and_downloaded(serve):
    rows = "building,kwh\n" + "".join(f"B{number},{number * 2}\n" for number in range(5_000))
    async with serve() as client:
        added = await client.post(f"{THREAD}/files", files={"file": ("../../energy.csv", rows.encode())})
        assert added.status_code == 201 and added.json()["name"] == "energy.csv"
        listed = (await client.get(f"{THREAD}/files")).json()["files"]
        assert [(one["name"], one["bytes"]) for one in listed] == [("energy.csv", len(rows))]
        page = (await client.get(f"{THREAD}/files/energy.csv/rows", params={"offset": 4_999})).json()
        assert page == {
            "columns": ["building", "kwh"],
            "rows": [{"building": "B4999", "kwh": "9998"}],
            "offset": 4_999,
            "total": 5_000,
        }
        download = await client.get(f"{THREAD}/files/energy.csv")
        assert (await client.get(f"{THREAD}/files/none.csv")).status_code == 404
    assert download.text == rows and download.headers["content-disposition"].startswith("attachment")


async def test_nothing_in_a_files_bytes_can_run_in_the_interfaces_place(serve):
    async with serve() as client:
        for name in ("page.html", "drawing.svg"):
            await client.post(f"{THREAD}/files", files={"file": (name, b"<script>alert(1)</script>")})
        page = await client.get(f"{THREAD}/files/page.html")
        drawing = await client.get(f"{THREAD}/files/drawing.svg")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in drawing.headers["content-security-policy"].split("; ")
    assert drawing.headers["content-security-policy"].startswith("default-src 'none'")


# -- the place -------------------------------------------------------------------------------------------------


async def test_search_finds_the_original_words_with_their_place(serve):
    async with serve() as client:
        await events(client, (await send(client, "对办公楼能耗做了分析"))["run"])
        found = (await client.get(f"{HERE}/search", params={"q": "能耗分析"})).json()["found"]
    assert (found[0]["thread"], found[0]["text"]) == ("t", "对办公楼能耗做了分析")


async def test_settings_name_secrets_and_never_show_them(serve):
    energy = {
        "url": "http://127.0.0.1:9/mcp",
        "headers": {"authorization": "Bearer TOPSECRET", "x": "${NAME}"},
    }
    async with serve(mcp={"energy": energy}) as client:
        shown = await client.get(f"{HERE}/settings")
    assert "TOPSECRET" not in shown.text and "${NAME}" in shown.text and "(hidden)" in shown.text


async def test_metrics_count_by_route_and_never_by_id(serve):
    async with serve() as client:
        await events(client, (await send(client, "hi"))["run"])
        usage = (await client.get(f"{HERE}/usage")).json()["threads"]
        text = (await client.get("/metrics")).text
        assert (await client.get("/readyz")).status_code == 200
    assert usage[0]["thread"] == "t" and usage[0]["requests"] == 1
    assert 'route="/workspaces/{workspace}/threads/{thread}/messages",status="202"} 1.0' in text
    assert "tenuto_runs_running 0.0" in text


async def test_the_description_names_every_route_with_its_errors(serve):
    async with serve() as client:
        described = (await client.get("/openapi.json")).json()
    problem = described["components"]["schemas"]["Problem"]
    assert {"type", "status", "detail", "code", "hint"} <= set(problem["properties"])
    operations = [
        (path, operation)
        for path, methods in described["paths"].items()
        for operation in methods.values()
        if path.startswith("/api")
    ]
    assert len(operations) > 35
    assert [path for path, one in operations if "4XX" not in one["responses"]] == []
    assert len({one["operationId"] for _, one in operations}) == len(operations)


def test_serve_opens_without_any_configuration_and_refuses_other_addresses(tmp_path):
    command = [sys.executable, "-m", "tenuto.cli.main", "--home", str(tmp_path / "home"), "serve"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            url = next(word for word in line.split() if word.startswith("http://"))
            with urlopen(f"{url}api/workspaces") as answered:
                found = orjson.loads(answered.read())
        finally:
            server.terminate()
    assert [(one["workspace"], one["role"]) for one in found["workspaces"]] == [("default", "owner")]
    refused = subprocess.run([*command, "--host", "0.0.0.0"], capture_output=True, text=True)
    assert refused.returncode == 2 and "loopback" in refused.stderr


# -- what the workbench needs beside ----------------------------------------------------------------------------


async def test_the_next_request_can_be_seen_before_it_is_sent(serve):
    async with serve() as client:
        assert (await client.post(f"{THREAD}/context/next", json={"text": "x"})).status_code == 404
        await events(client, (await send(client, "leave out holidays"))["run"])
        seen = (await client.post(f"{THREAD}/context/next", json={"text": "and now?"})).json()
        assert [block["layer"] for block in seen["blocks"]][-1] == "question"
        assert seen["blocks"][-1]["entries"][0]["text"] == "and now?"
        assert (seen["turn"], len((await client.get(f"{THREAD}/records")).json()["records"])) == (2, 4)
        await events(client, (await send(client, "and now?", "m2"))["run"])
        sent = (await client.get(f"{THREAD}/context")).json()
        assert (sent["summed"], sent["through"]) == (seen["summed"], seen["through"])


async def test_a_context_says_what_grew_and_when_the_window_will_step(serve):
    async with serve(context={"history_tokens": 500}) as client:
        await events(client, (await send(client, "one " * 20, "a"))["run"])
        first = (await client.get(f"{THREAD}/context")).json()
        assert first["outlook"] == {"since": None, "grew": None, "turns_left": None}
        await events(client, (await send(client, "two", "b"))["run"])
        second = (await client.get(f"{THREAD}/context")).json()
        history = next(block["tokens"] for block in second["blocks"] if block["layer"] == "history")
        assert second["outlook"] == {
            "since": 1,
            "grew": {"layer": "history", "tokens": history},
            "turns_left": (500 - history) // history,
        }


async def test_siblings_are_told_with_the_record_that_selects_them(serve):
    async with serve() as client:
        await events(client, (await send(client, "one", "a"))["run"])
        await events(client, (await send(client, "two", "b"))["run"])
        edited = await client.post(f"{THREAD}/turns/2/edit", json={"id": "c", "text": "zwei"})
        await events(client, edited.json()["run"])
        (fork,) = (await client.get(f"{THREAD}/branches")).json()["forks"]
        assert [(one["turn"], one["active"]) for one in fork["options"]] == [(2, False), (2, True)]
        await client.post(f"{THREAD}/branches", json={"record": fork["options"][0]["record"]})
        texts = [
            r["parts"][0]["text"]
            for r in (await client.get(f"{THREAD}/records")).json()["records"]
            if r["kind"] == "question"
        ]
        assert texts == ["one", "two"]


async def test_a_clear_leaves_the_files_that_it_was_told_to_leave(serve):
    async with serve() as client:
        await events(client, (await send(client, "one"))["run"])
        await client.post(f"{THREAD}/files", files={"file": ("a.csv", b"x\n1\n")})
        kept = (await client.post(f"{THREAD}/clear", json={"keep_files": True})).json()
        assert "files" not in kept["removed"] and "the thread's files" in kept["kept"]
        assert [f["name"] for f in (await client.get(f"{THREAD}/files")).json()["files"]] == ["a.csv"]
        gone = (await client.post(f"{THREAD}/clear")).json()
        assert gone["removed"]["files"]["count"] == 1
        assert (await client.get(f"{THREAD}/files")).json()["files"] == []


async def test_a_thread_is_exported_to_read_and_as_it_is(serve):
    async with serve(speaking("```\nfence")) as client:
        await events(client, (await send(client, "# not a heading"))["run"])
        text = (await client.get(f"{THREAD}/export", params={"format": "markdown"})).text
        assert "> # not a heading" in text and "fence" in text
        log = (await client.get(f"{THREAD}/export")).text.splitlines()
        assert len(log) == 6


async def test_the_page_and_its_files_are_served_and_asked_for_again_cheaply(serve):
    async with serve() as client:
        page = await client.get("/w/w/t/anything")
        assert (
            "/assets/index.js" in page.text and "script-src 'self'" in page.headers["content-security-policy"]
        )
        first = await client.get("/assets/index.js")
        assert first.headers["content-encoding"] == "gzip"
        again = await client.get("/assets/index.js", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/assets/..%2Findex.html")).status_code == 404
