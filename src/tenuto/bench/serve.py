"""The server as its users meet it: start, many streams at once, and what HTTP adds to a turn.

A real `tenuto serve` in a process of its own, the demo model, an empty home. The client shares the machine with it.
Floors of the same run: an interpreter that imports FastAPI and uvicorn, the same turns without a server, and the same
exchange of bytes with an application that does nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from tenuto.agent.app import App
from tenuto.codec import JsonObject, dumps, loads
from tenuto.scope import Scope
from tenuto.server.app import ensure_workspace

STREAMS = 500
TURNS = 60
QUESTION = "Make the grid teal"
"""Answered by the demo model in one request without a tool."""
BASE = "/api/workspaces/default"


def measure() -> list[JsonObject]:
    """The rows of `tenuto bench serve`."""
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        home = Path(folder) / "home"
        started, floor, server, url = _start(home)
        idle, idle_url = _launch(_IDLE)
        try:
            turn, plain, exchange = asyncio.run(_one_by_one(url, idle_url, Path(folder) / "plain"))
            many = asyncio.run(_at_once(url, server.pid))
        finally:
            for process in (server, idle):
                process.terminate()
                process.wait(20)
    return [
        {
            "what": "start, s",
            "value": round(started, 2),
            "floor": round(floor, 2),
            "ratio": round(started / floor, 2),
        },
        *many,
        {
            "what": "turn over HTTP, ms (median)",
            "value": round(turn * 1000, 2),
            "floor": round((plain + exchange) * 1000, 2),
            "ratio": round(turn / (plain + exchange), 2),
        },
        {
            "what": "the server adds to a turn, ms",
            "value": round((turn - plain - exchange) * 1000, 2),
            "floor": "",
            "ratio": "",
        },
    ]


def _start(home: Path) -> tuple[float, float, subprocess.Popen[str], str]:
    """`(seconds to the first answer, floor, process, address)`."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import fastapi, uvicorn"], check=True)
    floor = time.perf_counter() - began
    began = time.perf_counter()
    server, url = _launch(
        ("-c", "from tenuto.cli.main import main; main()", "serve", "--port", "0"), TENUTO_HOME=str(home)
    )
    httpx.get(f"{url}/readyz", timeout=20).raise_for_status()
    return time.perf_counter() - began, floor, server, url


def _launch(arguments: Sequence[str], **environment: str) -> tuple[subprocess.Popen[str], str]:
    """A Python process that prints the address it serves, and that address."""
    surroundings = {**os.environ, "TENUTO_LANG": "en", "PYTHONUNBUFFERED": "1", **environment}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, env=surroundings, text=True
    )
    assert process.stdout is not None
    found = re.search(r"http://[^/\s]+", process.stdout.readline())
    if found is None:
        raise RuntimeError("the server didn't start")
    return process, found[0]


def _memory(pid: int) -> int:
    """Resident bytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) * 1024


def _client(url: str) -> httpx.AsyncClient:
    """A client for one stream: a pool of many connections costs its owner more than the server's work."""
    return httpx.AsyncClient(base_url=url, timeout=120, verify=False, trust_env=False)


async def _one_by_one(url: str, idle_url: str, home: Path) -> tuple[float, float, float]:
    """Median seconds of a turn over HTTP, of a turn in this process, and of the bare exchange, taken in turn."""
    ensure_workspace(home, "default")
    spent: list[tuple[float, float, float]] = []
    async with _client(url) as client, _client(idle_url) as idle, App(home) as app:
        for number in range(TURNS + 2):
            turn = await _turn(client, "one", f"m{number}")
            began = time.perf_counter()
            async for _ in app.send(Scope("default", "local", "one"), QUESTION).events():
                pass
            plain = time.perf_counter() - began
            spent.append((turn, plain, await _turn(idle, "one", f"m{number}")))
    turn, plain, exchange = zip(*spent[2:], strict=True)
    return median(turn), median(plain), median(exchange)


async def _at_once(url: str, pid: int) -> list[JsonObject]:
    memory = await _open_feeds(url, pid)
    began = time.perf_counter()
    told = await asyncio.gather(
        *(_streamed(url, number) for number in range(STREAMS)), return_exceptions=True
    )
    spent = time.perf_counter() - began
    good = sorted(one for one in told if isinstance(one, float))
    rows: list[JsonObject] = [
        {
            "what": f"errors of {STREAMS} streams at once",
            "value": STREAMS - len(good),
            "floor": "",
            "ratio": "",
        },
        {"what": "first event, p95, ms", "value": _share(good, 0.95), "floor": "", "ratio": ""},
        {"what": "first event, median, ms", "value": _share(good, 0.5), "floor": "", "ratio": ""},
        {"what": "turns a second", "value": round(STREAMS / spent, 1), "floor": "", "ratio": ""},
        {"what": "memory of an open stream, KiB", "value": round(memory / 1024, 1), "floor": "", "ratio": ""},
    ]
    return rows


def _share(values: list[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(len(values) * share))] * 1000, 1) if values else float("nan")


async def _turn(client: httpx.AsyncClient, thread: str, identity: str) -> float:
    """Seconds from the question to the last event of one turn."""
    began = time.perf_counter()
    await _events(client, thread, identity)
    return time.perf_counter() - began


async def _events(client: httpx.AsyncClient, thread: str, identity: str) -> float:
    """Ask, follow to the end; seconds to the first event of the turn itself. Raises for anything that went wrong."""
    began = time.perf_counter()
    at = f"{BASE}/threads/{thread}"
    asked = await client.post(f"{at}/messages", json={"id": identity, "text": QUESTION})
    asked.raise_for_status()
    first, last = 0.0, ""
    async with client.stream("GET", f"{at}/runs/{identity}/events") as stream:
        stream.raise_for_status()
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                event: Any = loads(line[6:].encode())
                first = first or time.perf_counter() - began
                last = f"{event['type']} {event['data'].get('reason', '')}"
    if last != "turn_ended answered":
        raise RuntimeError(last)
    return first


async def _streamed(url: str, number: int) -> float:
    async with _client(url) as client:
        return await _events(client, f"s{number}", f"r{number}")


async def _open_feeds(url: str, pid: int) -> float:
    """Resident bytes that each of `STREAMS` open streams takes."""
    before = _memory(pid)
    opened, close = asyncio.Semaphore(0), asyncio.Event()

    async def follow(number: int) -> None:
        at = f"{BASE}/threads/s{number}/events"
        async with _client(url) as client, client.stream("GET", at) as stream:
            async for _ in stream.aiter_lines():
                opened.release()
                await close.wait()
                return

    following = [asyncio.create_task(follow(number)) for number in range(STREAMS)]
    for _ in following:
        await opened.acquire()
    held = _memory(pid) - before
    close.set()
    await asyncio.gather(*following)
    return held / STREAMS


_IDLE = ("-c", "from tenuto.bench.serve import idle; idle()")


def idle() -> None:
    """Serve answers of a turn's shape by an application that does nothing, and print the address."""
    import uvicorn

    from tenuto.cli.serve import listen

    started: JsonObject = {"type": "run_started", "data": {}}
    events = [started] * 6 + [{"type": "turn_ended", "data": {"reason": "answered"}}]
    stream = [f"id: {n}\ndata: {dumps(event).decode()}\n\n".encode() for n, event in enumerate(events)]

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await receive()
            status, kind, body = 202, b"application/json", [b"{}"]
        else:
            status, kind, body = 200, b"text/event-stream", stream
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for piece in body:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with listen("127.0.0.1", 0) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        config = uvicorn.Config(answer, log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])
