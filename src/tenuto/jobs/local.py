"""The engine in one process: a task for each kind and key."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tenuto.errors import LateWrite, TenutoError
from tenuto.jobs.protocol import Handler, Job

log = logging.getLogger("tenuto.jobs")


@dataclass(slots=True)
class _Lane:
    """The jobs of one kind and key: one that runs, and the newest that waits."""

    task: asyncio.Task[None]
    waiting: Job | None = None


class LocalJobs:
    """`JobEngine` on the running event loop. Cost of a submit: O(1)."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._lanes: dict[tuple[str, ...], _Lane] = {}
        self._closed = False
        self._held: dict[str, asyncio.Event] = {}
        self.counts: Counter[str] = Counter()
        """How many jobs ended how: `done`, `replaced`, `cancelled`, `late`, `failed`."""

    def handle(self, kind: str, handler: Handler) -> None:
        self._handlers[kind] = handler

    def hold(self, kind: str) -> Callable[[], None]:
        """Let jobs of a kind begin and wait, to show or test what happens meanwhile. Returns what lets them go."""
        gate = self._held.setdefault(kind, asyncio.Event())

        def release() -> None:
            self._held.pop(kind, None)
            gate.set()

        return release

    def running(self, *key: str) -> set[str]:
        """The kinds of the jobs that run and whose key begins with `key`."""
        return {kind for kind, *known in self._lanes if tuple(known[: len(key)]) == key}

    def submit(self, job: Job) -> None:
        if self._closed:
            return
        lane_key = (job.kind, *job.key)
        lane = self._lanes.get(lane_key)
        if lane is not None:
            self.counts["replaced"] += lane.waiting is not None
            lane.waiting = job
            return
        lane = _Lane(asyncio.create_task(self._run(lane_key, job)))
        self._lanes[lane_key] = lane
        # A task that is cancelled before its first step never reaches its own `finally`.
        lane.task.add_done_callback(lambda _: self._lanes.get(lane_key) is lane and self._lanes.pop(lane_key))

    async def _run(self, lane_key: tuple[str, ...], job: Job) -> None:
        """Run the job, then whatever waits behind it."""
        following: Job | None = job
        try:
            while following is not None:
                await self._one(following)
                lane = self._lanes[lane_key]
                following, lane.waiting = lane.waiting, None
        finally:
            self._lanes.pop(lane_key, None)

    async def _one(self, job: Job) -> None:
        try:
            if (gate := self._held.get(job.kind)) is not None:
                await gate.wait()
            await self._handlers[job.kind](job)
        except LateWrite:
            self.counts["late"] += 1
        except asyncio.CancelledError:
            self.counts["cancelled"] += 1
            raise
        except (TenutoError, OSError) as error:
            # The files still say what is due; the next turn asks for it again.
            self.counts["failed"] += 1
            log.warning("%s failed: %s", job.kind, error)
        except Exception:
            self.counts["failed"] += 1
            log.exception("%s failed", job.kind)
        else:
            self.counts["done"] += 1

    def _of(self, key: tuple[str, ...]) -> list[_Lane]:
        return [lane for known, lane in self._lanes.items() if known[1 : 1 + len(key)] == key]

    async def cancel(self, *key: str) -> int:
        lanes = self._of(key)
        for lane in lanes:
            lane.waiting = None
            lane.task.cancel()
        await asyncio.gather(*(lane.task for lane in lanes), return_exceptions=True)
        return len(lanes)

    async def settled(self, *key: str) -> None:
        while lanes := self._of(key):
            await asyncio.gather(*(lane.task for lane in lanes), return_exceptions=True)

    async def close(self, limit: float) -> int:
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values()]
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=limit)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return len(late)
