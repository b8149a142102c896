"""Background work in one process: serial for a key, newest wins, ended on clear, drained within a limit (I10)."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.errors import LateWrite, TenutoError
from tenuto.jobs.local import LocalJobs
from tenuto.jobs.protocol import Job, JobEngine


@pytest.fixture
def jobs() -> LocalJobs:
    return LocalJobs()


def recorder(jobs: LocalJobs, kind: str = "work"):
    """A handler that notes what runs and waits until it is let go."""
    begun: list[Job] = []
    gate = asyncio.Event()
    together: list[int] = [0, 0]

    async def handle(job: Job) -> None:
        begun.append(job)
        together[0] += 1
        together[1] = max(together)
        try:
            await gate.wait()
        finally:
            together[0] -= 1

    jobs.handle(kind, handle)
    return begun, gate, together


async def steps(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_engine_keeps_the_protocol():
    engine: JobEngine = LocalJobs()
    assert engine is not None


async def test_jobs_of_one_key_run_one_after_the_other_and_the_newest_waiting_one_wins(jobs):
    begun, gate, together = recorder(jobs)
    for epoch in range(1, 5):
        jobs.submit(Job("work", ("w", "ming", "t"), epoch))
    jobs.submit(Job("work", ("w", "ming", "other"), 9))
    await steps()
    assert [job.epoch for job in begun] == [1, 9]
    gate.set()
    await jobs.settled("w")
    assert [job.epoch for job in begun] == [1, 9, 4] and together[1] == 2
    assert jobs.counts == {"replaced": 2, "done": 3}


async def test_cancel_ends_what_runs_and_drops_what_waits_below_a_key_only(jobs):
    begun, gate, _ = recorder(jobs)
    jobs.submit(Job("work", ("w", "ming", "t"), 1))
    jobs.submit(Job("work", ("w", "ming", "t"), 2))
    jobs.submit(Job("work", ("w", "anna", "u"), 3))
    await steps()
    assert await jobs.cancel("w", "ming", "t") == 1
    assert jobs.running("w") == {"work"} and jobs.running("w", "ming") == set()
    gate.set()
    await jobs.settled()
    assert [job.epoch for job in begun] == [1, 3]


async def test_a_job_cancelled_before_its_first_step_leaves_the_lane_free(jobs):
    begun, gate, _ = recorder(jobs)
    gate.set()
    jobs.submit(Job("work", ("w",), 1))
    await jobs.cancel("w")
    jobs.submit(Job("work", ("w",), 2))
    await jobs.settled()
    assert [job.epoch for job in begun] == [2]


async def test_a_failing_job_does_not_take_its_lane_with_it(jobs):
    async def fails(job: Job) -> None:
        raise [LateWrite("late"), TenutoError("known"), RuntimeError("unknown")][job.epoch]

    jobs.handle("work", fails)
    for epoch in range(3):
        jobs.submit(Job("work", ("w",), epoch))
        await jobs.settled()
    assert jobs.counts == {"late": 1, "failed": 2}


async def test_close_waits_for_what_runs_then_ends_the_rest_and_takes_nothing_new(jobs):
    begun, _, _ = recorder(jobs)
    jobs.submit(Job("work", ("w",), 1))
    await steps()
    assert await jobs.close(0.01) == 1
    jobs.submit(Job("work", ("w",), 2))
    await steps()
    assert len(begun) == 1
