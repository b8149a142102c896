"""Fifty conversations of twenty turns, run by a few worker threads: turns a second, from empty and on 100 stored turns.

The floor, in the same run: the same number of turns whose four lines are appended with an fsync each, the
last 128 KB read and parsed.
"""

from __future__ import annotations

import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenuto.agent.conversation import Conversation
from tenuto.bench.turns import floor_lines, floor_once, run_turn, turn_texts
from tenuto.codec import JsonObject
from tenuto.log.store import ThreadLog

THREADS = 50
TURNS = 20
WORKERS = 4
"""Threads that run turns: while one waits for the disk, another computes."""


def measure() -> list[JsonObject]:
    """The rows of `tenuto bench threads`."""
    return [_run(stored) for stored in (0, 100)]


def _run(stored: int) -> JsonObject:
    rng = random.Random(stored)
    texts = [[turn_texts(rng, stored + n + 1) for n in range(TURNS)] for _ in range(THREADS)]
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        conversations = [
            Conversation(ThreadLog(Path(folder) / f"conv-{n}.jsonl"), epoch=1) for n in range(THREADS)
        ]
        for conversation in conversations:
            for number in range(stored):
                run_turn(conversation, turn_texts(rng, number + 1))

        def talk(place: int) -> None:
            for turn in texts[place]:
                run_turn(conversations[place], turn)

        with ThreadPoolExecutor(WORKERS) as workers:
            started = time.perf_counter()
            list(workers.map(talk, range(THREADS)))
            spent = time.perf_counter() - started
        lines = [floor_lines(rng, n + 1) for n in range(40)]
        began = time.perf_counter()
        for thread in range(5):
            for number in range(TURNS):
                floor_once(Path(folder) / f"floor-{thread}.jsonl", lines[number])
        floor = (time.perf_counter() - began) / (5 * TURNS)
    rate = THREADS * TURNS / spent
    return {
        "stored": stored,
        "threads": THREADS,
        "turns": TURNS,
        "turns_per_s": round(rate, 1),
        "floor_turns_per_s": round(1 / floor, 1),
        "ratio": round(1 / floor / rate, 2),
    }
