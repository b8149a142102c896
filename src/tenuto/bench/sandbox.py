"""Start, call and kill of a sandbox, in seconds; the floor is an empty `python -c pass` in the same run."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tenuto.codec import JsonObject
from tenuto.sandbox.bubblewrap import BubblewrapEngine
from tenuto.sandbox.manager import Lifetimes, Manager
from tenuto.sandbox.protocol import Folders, Limits, SandboxKey

REPEATS = 5
FIRST = "import pandas, matplotlib.pyplot\n1 + 1"


def measure() -> JsonObject:
    """The row of `tenuto bench sandbox`."""
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        row = asyncio.run(_measure(Path(folder)))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
    return {**row, "floor_s": round(time.perf_counter() - began, 4)}


async def _measure(folder: Path) -> JsonObject:
    engine = BubblewrapEngine(folder / "run", Limits())
    cold: list[float] = []
    kill: list[float] = []
    warm: list[float] = []
    spare: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        box = await engine.create()
        await box.run(FIRST, timeout=60)
        cold.append(time.perf_counter() - began)
        for _ in range(20):
            began = time.perf_counter()
            await box.run("1", timeout=60)
            await box.park()
            warm.append(time.perf_counter() - began)
        began = time.perf_counter()
        await box.destroy()
        kill.append(time.perf_counter() - began)
    manager = Manager(engine, Lifetimes(spares=1, boxes=REPEATS + 1))
    manager.start()
    for number in range(REPEATS):
        await manager.ready()
        folders = Folders(folder / f"r{number}", folder / f"f{number}")
        folders.results.mkdir()
        folders.files.mkdir()
        began = time.perf_counter()
        await manager.run(SandboxKey("w", "u", f"t{number}"), folders, FIRST)
        spare.append(time.perf_counter() - began)
    await manager.close()
    return {
        "cold_s": round(statistics.median(cold), 4),
        "spare_s": round(statistics.median(spare), 4),
        "warm_call_s": round(statistics.median(warm), 5),
        "kill_s": round(statistics.median(kill), 4),
        "memory": engine.caps.memory,
    }
