"""The life of each thread's interpreter: claimed from the spares, warm between calls, gone with a reason.

One call at a time for a thread. Idle time counts from the end of a call, age is checked between calls, a busy
sandbox is never reclaimed. A lost one is told exactly once, before the output of the next call, with the names
that are gone; code that reads such names is not run (I14). `clear` raises the generation first, so that a
result which comes late is discarded (I11).
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tenuto.codec import JsonError, dumps, loads
from tenuto.disk import write_atomic
from tenuto.errors import SandboxBusy, SandboxCleared
from tenuto.sandbox.protocol import (
    Folders,
    LossReason,
    OnOutput,
    RunResult,
    Sandbox,
    SandboxEngine,
    SandboxInfo,
    SandboxKey,
)

STATE = ".sandbox.json"
"""Beside the thread's results: the names a lost interpreter held."""
MAX_PARSED = 200_000
"""Characters of code looked through for names; longer code is simply run."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds and counts; the defaults stand in `settings`."""

    idle_s: float = 900
    age_s: float = 14_400
    call_s: float = 60
    boxes: int = 16
    spares: int = 1


@dataclass(slots=True)
class _Slot:
    """One thread's place."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    generation: int = 0
    box: Sandbox | None = None
    started: float = 0
    used: float = 0
    busy: bool = False
    names: Sequence[str] = ()


class Manager:
    """Implements `SandboxManager` on any engine."""

    def __init__(
        self,
        engine: SandboxEngine,
        lifetimes: Lifetimes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._lifetimes = lifetimes
        self._clock = clock
        self._slots: dict[SandboxKey, _Slot] = {}
        self._spares: list[Sandbox] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._filling = 0
        self._closed = False

    # -- spares -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Reap what a crashed server left, and warm the spares in the background."""
        self._engine.reap()
        self._fill()

    async def ready(self) -> None:
        """Wait until the spares that are being started are there."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        if not self._closed and len(self._spares) + self._filling < self._lifetimes.spares:
            self._filling += 1
            task = asyncio.create_task(self._add_spare())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _add_spare(self) -> None:
        try:
            box = await self._engine.create()
            await box.park()
            self._spares.append(box)
        finally:
            self._filling -= 1
        if self._closed:
            await self._retire_spares()

    async def _retire_spares(self) -> None:
        while self._spares:
            await self._spares.pop().destroy()

    async def _claim(self) -> Sandbox:
        """A spare if one is alive, else a new sandbox; a replacement starts in the background."""
        while self._spares:
            box = self._spares.pop(0)
            if box.alive:
                self._fill()
                return box
            await box.destroy()
        box = await self._engine.create()
        self._fill()
        return box

    # -- calls ------------------------------------------------------------------------------------------

    async def run(
        self, key: SandboxKey, folders: Folders, code: str, *, on_output: OnOutput | None = None
    ) -> RunResult:
        """Run `code` in the thread's interpreter.

        Raises `SandboxUnavailable`, `SandboxBusy`, and `SandboxCleared` if the thread was cleared meanwhile.
        """
        slot = self._slots.setdefault(key, _Slot())
        generation = slot.generation
        async with slot.lock:
            _same(slot, generation)
            state = folders.results / STATE
            await self._drop_due(slot, state)
            lost, lost_names = _take_loss(state) if slot.box is None else (None, [])
            missing = sorted(read_names(code) & set(lost_names))
            if missing:
                return _not_run(lost, lost_names, missing)
            slot.busy = True
            try:
                box = await self._box(slot)
                _same(slot, generation)
                box.bind(folders)
                result = await box.run(code, timeout=self._lifetimes.call_s, on_output=on_output)
                _same(slot, generation)
                await self._after(slot, box, result, state)
            finally:
                slot.busy = False
                slot.used = self._clock()
            self._expire_later()
            return replace(result, lost_before=lost, lost_names=lost_names)

    async def _box(self, slot: _Slot) -> Sandbox:
        if slot.box is None:
            await self._make_room()
            slot.box = await self._claim()
            slot.started = self._clock()
            slot.names = ()
        return slot.box

    async def _after(self, slot: _Slot, box: Sandbox, result: RunResult, state: Path) -> None:
        if box.alive:
            await box.park()
            if result.names != slot.names:
                slot.names = result.names
                _write_state(state, "server_restart", slot.names)
        else:
            _write_state(state, result.lost_after or "crashed", slot.names)
            slot.box = None
            await box.destroy()

    async def _drop_due(self, slot: _Slot, state: Path) -> None:
        """Let go of a sandbox that died, or whose time is over."""
        box = slot.box
        if box is None:
            return
        reason = self._due(slot) if box.alive else "crashed"
        if reason is not None:
            await self._lose(slot, reason, state)

    def _due(self, slot: _Slot) -> LossReason | None:
        if slot.busy or slot.box is None:
            return None
        if self._clock() - slot.used >= self._lifetimes.idle_s:
            return "idle"
        if self._clock() - slot.started >= self._lifetimes.age_s:
            return "max_age"
        return None

    async def _lose(self, slot: _Slot, reason: LossReason, state: Path | None) -> None:
        box, slot.box = slot.box, None
        if state is not None and slot.names:
            _write_state(state, reason, slot.names)
        slot.names = ()
        if box is not None:
            await box.destroy()

    async def _make_room(self) -> None:
        """Keep within the number of live sandboxes; the least recently used idle one goes."""
        live = [slot for slot in self._slots.values() if slot.box is not None]
        if len(live) < self._lifetimes.boxes:
            return
        idle = sorted((slot for slot in live if not slot.busy), key=lambda slot: slot.used)
        if not idle:
            raise SandboxBusy(
                f"all {len(live)} sandboxes are busy", hint="try again when another calculation has ended"
            )
        await self._lose(idle[0], "evicted", self._state_of(idle[0]))

    # -- lifetimes --------------------------------------------------------------------------------------

    def _expire_later(self) -> None:
        loop = asyncio.get_running_loop()
        delay = min(self._lifetimes.idle_s, self._lifetimes.age_s) + 0.05
        loop.call_later(delay, self._expire_soon)

    def _expire_soon(self) -> None:
        if not self._closed:
            task = asyncio.create_task(self.expire())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def expire(self) -> int:
        """Let go of every sandbox whose idle time or age is over; returns how many went."""
        gone = 0
        for slot in list(self._slots.values()):
            reason = self._due(slot)
            if reason is not None and not slot.lock.locked():
                async with slot.lock:
                    await self._lose(slot, reason, self._state_of(slot))
                gone += 1
        return gone

    def _state_of(self, slot: _Slot) -> Path | None:
        folders = slot.box.folders if slot.box is not None else None
        return folders.results / STATE if folders is not None else None

    # -- by hand ----------------------------------------------------------------------------------------

    async def interrupt(self, key: SandboxKey) -> bool:
        slot = self._slots.get(key)
        return bool(slot and slot.box and slot.busy and await slot.box.interrupt())

    def status(self, key: SandboxKey) -> SandboxInfo | None:
        slot = self._slots.get(key)
        if slot is None or slot.box is None:
            return None
        now = self._clock()
        return SandboxInfo(
            alive=slot.box.alive,
            busy=slot.busy,
            idle_left_s=max(0.0, self._lifetimes.idle_s - (0 if slot.busy else now - slot.used)),
            age_left_s=max(0.0, self._lifetimes.age_s - (now - slot.started)),
            names=slot.names,
        )

    async def reset(self, key: SandboxKey) -> None:
        if slot := self._slots.get(key):
            async with slot.lock:
                await self._lose(slot, "user_reset", self._state_of(slot))

    async def clear(self, key: SandboxKey) -> None:
        slot = self._slots.setdefault(key, _Slot())
        slot.generation += 1
        box, slot.box, slot.names = slot.box, None, ()
        if box is not None:
            await box.destroy()

    async def close(self) -> None:
        """Destroy every sandbox; the threads' notices then say `server_restart`."""
        self._closed = True
        for slot in self._slots.values():
            box, slot.box = slot.box, None
            if box is not None:
                await box.destroy()
        for task in list(self._tasks):
            with contextlib.suppress(Exception):
                await task
        await self._retire_spares()


def _same(slot: _Slot, generation: int) -> None:
    if slot.generation != generation:
        raise SandboxCleared("the thread was cleared", hint="ask again")


def _not_run(lost: LossReason | None, names: Sequence[str], missing: Sequence[str]) -> RunResult:
    return RunResult("not_run", "", 0.0, lost_before=lost, lost_names=names, missing=missing)


def _write_state(state: Path, reason: LossReason, names: Sequence[str]) -> None:
    write_atomic(state, dumps({"v": 1, "reason": reason, "names": list(names)}), durable=False)


def _take_loss(state: Path) -> tuple[LossReason | None, list[str]]:
    """What was lost, once: reading it removes it."""
    try:
        value = loads(state.read_bytes())
        reason, names = value["reason"], [str(name) for name in value["names"]]
    except FileNotFoundError:
        return None, []
    except (JsonError, KeyError, TypeError):
        reason, names = "crashed", []
    state.unlink(missing_ok=True)
    return (reason, names) if names else (None, [])


def read_names(code: str) -> set[str]:
    """Names that `code` reads and doesn't bind itself: an approximation by its syntax tree.

    Code that doesn't parse, or is too long, reads nothing: running it will tell.
    """
    if len(code) > MAX_PARSED:
        return set()
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    read: set[str] = set()
    bound: set[str] = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            read.add(node.target.id)
    augmented = {
        node.target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    return (read - bound) | (augmented & read - _assigned_plainly(tree))


def _assigned_plainly(tree: ast.AST) -> set[str]:
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
