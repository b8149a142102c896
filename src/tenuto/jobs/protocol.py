"""What background work is, as data, so that an engine on many machines can run it as well as one process.

A job names its kind and its key; nothing else is needed to run it, because what is due is found again from the
files when it runs. So a lost job costs nothing: the next turn, or `due`, asks for it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work."""

    kind: str
    """`refresh_task`, `extract_memory`, `embed_history`."""
    key: tuple[str, ...]
    """What it works on: workspace, user, and thread where it has one. Jobs of one kind and key never overlap."""
    epoch: int = 0
    """The epoch it was asked for in; a job of an older one is dropped when it would write (I10)."""


Handler: TypeAlias = Callable[[Job], Awaitable[None]]


class JobEngine(Protocol):
    """Runs jobs: serial for each kind and key, a newer one in the place of one that still waits."""

    def handle(self, kind: str, handler: Handler) -> None:
        """Name who runs the jobs of a kind."""
        ...

    def submit(self, job: Job) -> None:
        """Ask for a job. Returns at once; a waiting job of the same kind and key is replaced."""
        ...

    async def cancel(self, *key: str) -> int:
        """Drop waiting jobs whose key begins with `key`, and end running ones. Returns how many there were."""
        ...

    async def settled(self, *key: str) -> None:
        """Wait until no job whose key begins with `key` waits or runs."""
        ...

    async def close(self, limit: float) -> int:
        """Finish what runs within `limit` seconds, end the rest. Returns how many were ended."""
        ...
