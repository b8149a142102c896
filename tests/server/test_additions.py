"""Models and tool servers added without opening a file; keys that nothing shows."""

from __future__ import annotations

import asyncio
import stat
import sys
import tomllib
from pathlib import Path

import httpx
import orjson
import pytest

from tenuto.additions import Keys, add_model
from tenuto.agent.found import running_models

from .conftest import THREAD, events, send

HERE = "/api/workspaces/w"
OWNER = {"members": {"ming": {"role": "owner"}, "vera": {"role": "member"}}}
SECRET = "sk-test-4f9a0c77e1"


async def listening(answer: bytes, seen: list[bytes]):
    """A server that answers every request with the same bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        body = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        writer.write(body % (len(answer), answer))
        await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


def address(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def test_a_model_that_was_added_is_asked_with_its_key_and_the_key_is_shown_nowhere(serve, home):
    seen: list[bytes] = []
    async with await listening(b"{}", seen) as server, serve(**OWNER) as client:
        new = {
            "name": "mine",
            "model": "some-model",
            "base_url": address(server),
            "api_key": SECRET,
            "default": True,
        }
        added = await client.post(f"{HERE}/models", json=new)
        assert added.status_code == 201, added.text
        await client.post(f"{HERE}/threads", json={"thread": "t", "model": "mine"})
        await events(client, (await send(client, "hello"))["run"])
        assert f"Bearer {SECRET}".encode() in seen[0]
        texts = [(await client.get(f"{HERE}/{what}")).text for what in ("settings", "models")]
        texts += [added.text, (await client.get(f"{THREAD}/export")).text]
    assert not any(SECRET in text for text in texts)
    holding = [
        path.name
        for path in home.rglob("*")
        if path.is_file() and SECRET in path.read_text("utf-8", "replace")
    ]
    assert holding == [".keys.json"]
    assert stat.S_IMODE((home / "w" / ".keys.json").stat().st_mode) == 0o600


def test_a_file_keeps_its_comments_and_order_when_a_model_is_added(tmp_path: Path):
    path = tmp_path / "workspace.toml"
    path.write_text('# ours\n[agent]\nmodel = "demo"  # for now\n\n[models.old]\nmodel = "openai:gpt-5"\n')
    add_model(path, Keys(tmp_path / "k.json"), "new", model="ollama:qwen3", default=True)
    text = path.read_text()
    assert text.startswith('# ours\n[agent]\nmodel = "new"  # for now\n')
    assert tomllib.loads(text)["models"] == {
        "old": {"model": "openai:gpt-5"},
        "new": {"model": "ollama:qwen3"},
    }


def test_the_environment_comes_before_the_file(tmp_path: Path, monkeypatch):
    keys = Keys(tmp_path / "keys.json")
    keys.put("TENUTO_KEY_A", "from the file")
    assert keys.get("TENUTO_KEY_A") == "from the file"
    monkeypatch.setenv("TENUTO_KEY_A", "from outside")
    assert (keys.get("TENUTO_KEY_A"), keys.get("TENUTO_KEY_B")) == ("from outside", "")


async def test_a_server_on_this_machine_is_found_and_a_silent_place_offers_nothing():
    listed = orjson.dumps({"data": [{"id": "qwen3:8b"}, {"id": "gemma"}]})
    async with await listening(listed, []) as server, await listening(b"no json", []) as other:
        url = address(server)
        places = (("ollama", url), ("lmstudio", address(other)), ("llamacpp", "http://127.0.0.1:9/v1"))
        found = await running_models(places)
    assert found == [
        {"name": "ollama-qwen3-8b", "model": "qwen3:8b", "base_url": url},
        {"name": "ollama-gemma", "model": "gemma", "base_url": url},
    ]


async def test_a_tool_server_that_was_added_has_its_tools_in_the_next_request(serve):
    async with serve(**OWNER) as client:
        await events(client, (await send(client, "before"))["run"])
        where = f"{sys.executable} -m tenuto.demo.server"
        added = await client.post(f"{HERE}/tools", json={"name": "energy", "where": where})
        assert added.json() == {"servers": [{"name": "energy", "where": sys.executable}]}
        await events(client, (await send(client, "after", "m2"))["run"])
        tools = {}
        for turn in (1, 2):
            view = (await client.get(f"{THREAD}/context", params={"turn": turn})).json()
            tools[turn] = next((b["entries"][0]["text"] for b in view["blocks"] if b["layer"] == "tools"), "")
        assert "query_energy" not in tools[1] and "query_energy" in tools[2]


@pytest.mark.parametrize("bad", ["ftp://x/v1", "http://me:secret@x/v1", "http://", "nonsense"])
async def test_an_address_that_is_none_is_refused_and_nothing_is_written(serve, home, bad):
    async with serve(**OWNER) as client:
        refused = await client.post(f"{HERE}/models", json={"name": "mine", "model": "m", "base_url": bad})
    assert (refused.status_code, refused.json()["code"]) == (422, "usage")
    assert (home / "w" / "workspace.toml").read_text() == ""


async def test_who_is_no_owner_adds_nothing(serve):
    async with serve(user="vera", **OWNER) as client:
        for what, body in (("models", {"name": "a", "model": "m"}), ("tools", {"name": "a", "where": "x"})):
            answer: httpx.Response = await client.post(f"{HERE}/{what}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
