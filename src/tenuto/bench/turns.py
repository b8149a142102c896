"""The cost of one more turn without the model, on threads that already hold many (I15).

A turn of the workload: an 80-character question, one tool call, its result of 2 KB of JSON (60 KB every tenth
turn), a 600-character answer. Both requests are assembled within 32,000 tokens, and each of the four steps is
appended durably. The floor, measured between the turns: four JSON lines, each appended with an fsync, and the
last 128 KB read and parsed.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tenuto.agent.conversation import TURN_ENDED, Conversation, RequestRules
from tenuto.bench import workload
from tenuto.codec import JsonObject, dumps, loads
from tenuto.context.assemble import Fixed, ModelFacts
from tenuto.context.tokens import count, measure
from tenuto.log.record import Draft
from tenuto.log.store import ThreadLog
from tenuto.process import tune
from tenuto.settings import ContextSettings

RULES = RequestRules(
    fixed=Fixed("bench", "bench", measure("You are a careful analyst."), measure("{}")),
    model=ModelFacts("bench", "bench", "o200k", 200_000, 8_192),
    settings=ContextSettings(),
)
FLOOR_TAIL = 128 * 1024
COLD_PROCESSES = 5
"""Fresh processes for the cold turn: the same first turn, repeated, differs by a factor of two here."""


def run_turn(conversation: Conversation, texts: tuple[JsonObject, ...]) -> None:
    """One turn of the workload: four durable appends, two requests."""
    asked, called, returned, answered = texts
    turn = conversation.begin(asked).turn
    first = conversation.request(RULES, step=0)
    conversation.settle_response(turn, first, called)
    conversation.settle_results(turn, [returned])
    second = conversation.request(RULES, step=1)
    conversation.settle_response(turn, second, answered, {"type": TURN_ENDED, "reason": "answered"})


def turn_texts(rng: random.Random, number: int) -> tuple[JsonObject, ...]:
    """The messages of one turn, made beforehand: making text is no part of a turn."""
    identity = f"call_{number}"
    size = 60_000 if number % 10 == 0 else 2_000
    return (
        workload.question(rng),
        workload.call(rng, identity),
        workload.result(rng, identity, size),
        workload.answer(rng),
    )


def fill(path: Path, turns: int, rng: random.Random) -> None:
    """A log with `turns` turns, the last hundred run as real turns so that the window has its marks."""
    log = ThreadLog(path)
    real = min(turns, 100)
    batch: list[Draft] = []
    for number in range(1, turns - real + 1):
        asked, called, returned, answered = turn_texts(rng, number)
        for message in (asked, called, {"kind": "request", "parts": [returned]}, answered):
            batch.append(Draft(number, message=message, tokens=_quick_tokens(message)))
        if len(batch) > 2_000:
            log.forget_before(log.append(batch, epoch=1)[-1].seq)
            batch.clear()
    if batch:
        log.append(batch, epoch=1)
    conversation = Conversation(ThreadLog(path), epoch=1)
    for number in range(turns - real + 1, turns + 1):
        run_turn(conversation, turn_texts(rng, number))


def _quick_tokens(message: JsonObject) -> int:
    return sum(count(str(part.get("content", ""))) for part in message["parts"]) + 10


def floor_once(path: Path, lines: list[bytes]) -> float:
    """CPU milliseconds of the floor: four appends with fsync, the last 128 KB read and parsed."""
    started = time.process_time()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for line in lines:
        os.write(descriptor, line)
        os.fsync(descriptor)
    os.close(descriptor)
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - FLOOR_TAIL))
        for line in stream.read().split(b"\n")[1:-1]:
            loads(line)
    return (time.process_time() - started) * 1000


def measure_length(stored: int, repeats: int = 60) -> JsonObject:
    """One row of `tenuto bench turn`."""
    rng = random.Random(stored)
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        path = Path(folder) / "conv-bench.jsonl"
        fill(path, stored, rng)
        cold = _cold(path, stored)
        conversation = Conversation(ThreadLog(path), epoch=1)
        floor_path = Path(folder) / "floor.jsonl"
        floor_path.write_bytes(b"".join(line for number in range(80) for line in floor_lines(rng, number)))
        first = stored + COLD_PROCESSES + 1
        run_turn(conversation, turn_texts(rng, first))
        cpu: list[float] = []
        wall: list[float] = []
        floor: list[float] = []
        written, synced, fresh = conversation.log.bytes_written, conversation.log.fsyncs, 0
        for number in range(first + 1, first + 1 + repeats):
            texts = turn_texts(rng, number)
            fresh += sum(len(dumps(text)) for text in texts)
            lines = floor_lines(rng, number)
            floor.append(floor_once(floor_path, lines))
            began, began_cpu = time.perf_counter(), time.process_time()
            run_turn(conversation, texts)
            cpu.append((time.process_time() - began_cpu) * 1000)
            wall.append((time.perf_counter() - began) * 1000)
        written, synced = conversation.log.bytes_written - written, conversation.log.fsyncs - synced
        base = statistics.median(floor)
        return {
            "stored": stored,
            "cpu_ms": round(statistics.median(cpu), 3),
            "wall_ms": round(statistics.median(wall), 3),
            "p95_ms": round(sorted(wall)[int(len(wall) * 0.95)], 3),
            "cold_ms": cold["cold_ms"],
            "floor_ms": round(base, 3),
            "ratio": round(statistics.median(cpu) / base, 2),
            "cold_ratio": round(cold["cold_ms"] / base, 2),
            "kb_written": round(written / repeats / 1024, 2),
            "written_ratio": round(written / fresh, 3),
            "fsyncs": round(synced / repeats, 2),
            "rss_mb": cold["rss_mb"],
        }


def floor_lines(rng: random.Random, number: int) -> list[bytes]:
    """The four lines of one floor turn."""
    asked, called, returned, answered = turn_texts(rng, number if number % 10 else number + 1)
    return [
        dumps(message) + b"\n"
        for message in (asked, called, {"kind": "request", "parts": [returned]}, answered)
    ]


def _cold(path: Path, stored: int) -> JsonObject:
    """The first turn of a fresh process (CPU, imports aside) and the memory it then holds: medians."""
    runs = [_cold_once(path, stored + number) for number in range(COLD_PROCESSES)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def _cold_once(path: Path, stored: int) -> JsonObject:
    code = "import sys\nfrom tenuto.bench.turns import cold_turn\ncold_turn(sys.argv[1], int(sys.argv[2]))\n"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(stored)], capture_output=True, check=True
    )
    return loads(done.stdout)


def cold_turn(path: str, stored: int) -> None:
    """Run one turn in this fresh process and print its cost as JSON."""
    tune()
    texts = turn_texts(random.Random(1), stored + 1)
    count("warm the vocabulary: loading it is an import")
    started = time.process_time()
    run_turn(Conversation(ThreadLog(Path(path)), epoch=1), texts)
    spent = (time.process_time() - started) * 1000
    # Not ru_maxrss: it survives exec, and would show the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(re.findall(r"VmHWM:\s+([0-9]+) kB", status)[0]) / 1024
    sys.stdout.buffer.write(dumps({"cold_ms": round(spent, 3), "rss_mb": round(peak, 1)}))
