"""What the host sees and does of a sandbox's processes: list, stop, continue, kill, weigh.

Process numbers come from the kernel's own tree below the sandbox's init, never from inside.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

CGROUP_V1 = Path("/sys/fs/cgroup/memory")
CGROUP_V2 = Path("/sys/fs/cgroup")


def descendants(init: int) -> list[int]:
    """Every process below `init`, which is left out. Orphans inside are re-parented to init."""
    found: list[int] = []
    waiting = [init]
    while waiting:
        pid = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
                waiting.extend(int(child) for child in children)
                found.extend(int(child) for child in children)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def living(init: int) -> list[int]:
    """The descendants of `init` that can still run: zombies, which wait to be reaped, are left out."""
    return [pid for pid in descendants(init) if state(pid) not in ("", "Z")]


def state(pid: int) -> str:
    """The kernel's letter for a process's state (`R`, `S`, `T`, `Z`…), empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return ""


def start_time(pid: int) -> str:
    """The kernel's start tick of a process, empty if it is gone: tells a number from its reuse."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return ""


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process; False if it is gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_tree(init: int) -> None:
    """Kill init, and with it everything in its namespace (the kernel does that)."""
    send(init, signal.SIGKILL)


def weigh(pids: list[int]) -> int:
    """Proportional set size in bytes, shared memory counted once."""
    total = 0
    for pid in pids:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError, PermissionError, OSError):
            continue
    return total


def cpu_ticks(pids: list[int]) -> int:
    """User and system ticks spent by `pids` so far."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += int(fields[11]) + int(fields[12])
    return total


class MemoryGroup:
    """A cgroup that holds one sandbox's total memory. Only where one is writable."""

    def __init__(self, folder: Path, version: int) -> None:
        self._folder = folder
        self._version = version

    @classmethod
    def create(cls, name: str, limit: int) -> MemoryGroup | None:
        """A group with `limit` bytes, or None where cgroups can't be written."""
        for root, version, knob in (
            (CGROUP_V1, 1, "memory.limit_in_bytes"),
            (CGROUP_V2, 2, "memory.max"),
        ):
            folder = root / f"tenuto-{name}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / knob).write_text(str(limit))
            except OSError:
                folder.rmdir()
                continue
            return cls(folder, version)
        return None

    def add(self, pid: int) -> bool:
        """Put a process, and what it will fork, into the group."""
        try:
            (self._folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            return False
        return True

    def killed(self) -> int:
        """How many processes the kernel killed here for want of memory."""
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        try:
            for line in (self._folder / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        except OSError:
            return 0
        return 0

    def remove(self) -> None:
        """Delete the group once it is empty."""
        try:
            self._folder.rmdir()
        except OSError:
            return


def cgroups_writable() -> bool:
    """Whether total memory can be held by the kernel here."""
    group = MemoryGroup.create(f"probe-{os.getpid()}", 1 << 30)
    if group is None:
        return False
    group.remove()
    return True
