"""Values and protocols of code execution. An engine for containers or remote machines implements the same.

Every text that comes from inside is untrusted: it may be shown, never executed, joined to a path or parsed as
markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

LossReason: TypeAlias = Literal[
    "idle", "max_age", "evicted", "crashed", "oom", "timeout_kill", "server_restart", "user_reset", "output"
]
RunStatus: TypeAlias = Literal["ok", "error", "interrupted", "timeout", "died", "not_run"]
Stream: TypeAlias = Literal["out", "err"]
OnOutput: TypeAlias = Callable[[Stream, bytes], None]


@dataclass(frozen=True, slots=True)
class SandboxKey:
    """Whose interpreter it is. All three always (I13)."""

    workspace: str
    user: str
    thread: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use. Seconds and bytes; the defaults stand in `settings`."""

    call_s: float = 60
    grace_s: float = 2
    process_bytes: int = 2 << 30
    total_bytes: int = 2560 << 20
    processes: int = 64
    open_files: int = 512
    file_bytes: int = 256 << 20
    work_bytes: int = 256 << 20
    tmp_bytes: int = 64 << 20
    output_kept: int = 1 << 20
    output_kill: int = 256 << 20
    frame_bytes: int = 4 << 20
    artifacts: int = 20
    artifact_bytes: int = 25 << 20


@dataclass(frozen=True, slots=True)
class Folders:
    """The thread's own folders on the host: shown inside, read-only and live."""

    results: Path
    files: Path
    shared: Path | None = None
    """The workspace's own folder, for all its threads."""
    skills: tuple[tuple[str, Path], ...] = ()
    """Skills by name: their scripts and resources."""

    def named(self) -> list[tuple[str, Path]]:
        """The folders with their names inside."""
        named = [("results", self.results), ("files", self.files)]
        if self.shared is not None:
            named.append(("shared", self.shared))
        return [*named, *((f"skills/{name}", folder) for name, folder in self.skills)]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something the code made, as it left through the control channel."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class CodeError:
    type: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one call."""

    status: RunStatus
    sandbox_id: str
    ms: float
    stdout: str = ""
    stderr: str = ""
    value: str = ""
    """Text of the last expression's value."""
    output_bytes: int = 0
    """All that was printed, also what was not kept."""
    truncated: bool = False
    error: CodeError | None = None
    artifacts: Sequence[Artifact] = ()
    skipped: Sequence[str] = ()
    """Artifacts that were too many or too large, with the reason."""
    names: Sequence[str] = ()
    """Variables that exist now."""
    lost_before: LossReason | None = None
    """Why the state of earlier calls was gone before this call; told exactly once (I14)."""
    lost_names: Sequence[str] = ()
    missing: Sequence[str] = ()
    """Lost names that the code reads; it was then not run."""
    lost_after: LossReason | None = None


@dataclass(frozen=True, slots=True)
class EngineCaps:
    """What an engine can promise; the tool's description is made from it."""

    boundary: Literal["namespaces", "container", "microvm", "none"]
    memory: Literal["cgroup", "watchdog", "remote", "none"]
    interrupt: bool
    park: bool
    prewarm: bool


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Whether code can run here, found out with the very command line that will be used."""

    ok: bool
    cause: str = ""
    remedy: str = ""
    checks: Mapping[str, bool] = field(default_factory=dict[str, bool])
    notes: Sequence[str] = ()


class Sandbox(Protocol):
    """One live interpreter."""

    id: str

    @property
    def alive(self) -> bool: ...

    @property
    def folders(self) -> Folders | None:
        """The folders of the thread that this interpreter belongs to; None for a spare."""
        ...

    def bind(self, folders: Folders) -> None:
        """Show these folders inside from now on."""
        ...

    async def run(self, code: str, *, timeout: float, on_output: OnOutput | None = None) -> RunResult:
        """Run one cell; never raises for what the code does."""
        ...

    async def interrupt(self) -> bool:
        """Stop the running cell and keep its state; False if nothing runs."""
        ...

    async def park(self) -> None:
        """No process inside gets the CPU until the next call."""
        ...

    async def destroy(self) -> None:
        """Idempotent; no process is left when it returns."""
        ...


class SandboxEngine(Protocol):
    """Makes sandboxes."""

    name: str
    caps: EngineCaps

    async def probe(self) -> ProbeReport: ...

    async def create(self) -> Sandbox:
        """A fresh interpreter with the usual libraries imported and no user yet.

        Raises `SandboxUnavailable`.
        """
        ...

    def reap(self) -> int:
        """Remove what an earlier, crashed server left; returns how many sandboxes."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What a user interface shows of a thread's interpreter."""

    alive: bool
    busy: bool
    idle_left_s: float
    age_left_s: float
    names: Sequence[str]


class SandboxManager(Protocol):
    """The life of each thread's interpreter; one implementation for all engines."""

    async def run(
        self, key: SandboxKey, folders: Folders, code: str, *, on_output: OnOutput | None = None
    ) -> RunResult: ...

    async def interrupt(self, key: SandboxKey) -> bool: ...

    def status(self, key: SandboxKey) -> SandboxInfo | None: ...

    async def reset(self, key: SandboxKey) -> None:
        """A fresh interpreter at the user's wish; the next call carries the notice."""
        ...

    async def clear(self, key: SandboxKey) -> None:
        """Kill without a notice; a result that comes late is discarded (I11)."""
        ...

    async def close(self) -> None: ...
