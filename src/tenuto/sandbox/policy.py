"""What a sandbox may see and do: the bubblewrap command line and the system-call filter. Pure but for the filter.

Nothing of the host is writable inside. The root is read-only, `/work` and `/tmp` are tmpfs of fixed size, the
thread's folders are read-only binds. The network namespace is empty. Each rule answers an attack that is a
test in `tests/sandbox`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tenuto.codec import dumps
from tenuto.sandbox.protocol import Limits

INSIDE_UID = "65534"
ENV = "/env"
BASE = "/base"
STAGE = "/mnt"
"""Where a server running as root mounts the sources, so that an unprivileged user can reach them."""

WARM_IMPORTS = ("json", "numpy", "pandas", "matplotlib.pyplot")
VALUE_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Sources:
    """Host paths that a sandbox is built from."""

    bwrap: Path
    env: Path
    """The sandbox's own Python environment."""
    base: Path
    """The interpreter installation that the environment was made from (`sys.base_prefix`)."""
    python: str
    """The interpreter's path below `base`, for example `bin/python3.11`."""
    packages: str
    """The environment's package folder below `env`."""
    worker: Path
    slot: Path
    """Folder with `results`, `files`, `shared` and `skills`, kept in step with the thread's folders."""
    fonts: Path
    """Prepared Matplotlib configuration with its font list."""


def command(
    sources: Sources,
    limits: Limits,
    *,
    control: int,
    info: int,
    seccomp: int,
    as_root: bool,
    uid: int,
    proc: bool = True,
    imports: Sequence[str] = WARM_IMPORTS,
) -> list[str]:
    """The whole command line. As root, the sources are first mounted where `uid` can reach them."""
    if not as_root:
        inner = _inner(sources, sources, limits, control, info, seccomp, proc, imports)
        return [str(sources.bwrap), *inner]
    package = sources.bwrap.parent.parent
    libraries = package.parent / f"{package.name}.libs"
    staged = Sources(
        bwrap=Path(STAGE, package.name, "_bin", "bwrap"),
        env=Path(STAGE, "env"),
        base=Path(STAGE, "base"),
        python=sources.python,
        packages=sources.packages,
        worker=Path(STAGE, "worker.py"),
        slot=Path(STAGE, "slot"),
        fonts=Path(STAGE, "fonts"),
    )
    pairs = [
        (package, Path(STAGE, package.name)),
        (libraries, Path(STAGE, libraries.name)),
        (sources.env, staged.env),
        (sources.base, staged.base),
        (sources.worker, staged.worker),
        (sources.slot, staged.slot),
        (sources.fonts, staged.fonts),
    ]
    present = [(source, target) for source, target in pairs if source.exists()]
    mounts = [word for source, target in present for word in (str(source), str(target))]
    drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    inner = _inner(sources, staged, limits, control, info, seccomp, proc, imports)
    return [
        *("unshare", "--mount", "--propagation", "private", "--", "/bin/sh", "-c", _STAGE_SCRIPT, STAGE),
        *(str(len(present)), *mounts, *drop, str(staged.bwrap), *inner),
    ]


_STAGE_SCRIPT = """
set -e
mount -t tmpfs -o mode=0755,size=64k tmpfs "$0"
left=$1; shift
while [ "$left" -gt 0 ]; do
  if [ -d "$1" ]; then mkdir -p "$2"; else : > "$2"; fi
  mount --bind "$1" "$2"
  shift 2; left=$((left - 1))
done
exec "$@"
"""
"""Runs as root in a mount namespace of its own: shows the sources below STAGE, then becomes the command.

It replaces itself, so that bubblewrap's parent is the server. A process between them without the right to
signal another user would keep the kernel from ending the sandbox when the server dies.
"""


def _inner(
    real: Sources,
    seen: Sources,
    limits: Limits,
    control: int,
    info: int,
    seccomp: int,
    proc: bool,
    imports: Sequence[str],
) -> list[str]:
    """Arguments of the bubblewrap that makes the sandbox; `seen` are the paths it can reach."""
    args = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    args += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--disable-userns"]
    args += ["--cap-drop", "ALL", "--uid", INSIDE_UID, "--gid", INSIDE_UID, "--hostname", "tenuto"]
    for name in ("bin", "lib", "lib64", "lib32"):
        if Path("/usr", name).exists():
            args += ["--ro-bind", f"/usr/{name}", f"/usr/{name}", "--symlink", f"usr/{name}", f"/{name}"]
    for extra in ("/usr/share/zoneinfo", "/usr/share/fonts", "/etc/fonts", "/etc/ssl/certs"):
        args += ["--ro-bind-try", extra, extra]
    base = Path("/usr") if real.base == Path("/usr") else Path(BASE)
    if base == Path(BASE):
        args += ["--ro-bind", str(seen.base), BASE]
    for hidden in _server_packages(real.base):
        inside = str(base / hidden)
        args += ["--size", "4096", "--tmpfs", inside, "--remount-ro", inside]
    args += ["--ro-bind", str(seen.env), ENV]
    args += ["--ro-bind", str(seen.worker), "/worker.py"]
    args += ["--ro-bind-try", str(seen.fonts), "/fonts"]
    args += ["--proc", "/proc"] if proc else ["--dir", "/proc"]
    args += ["--dev", "/dev", "--size", str(limits.tmp_bytes), "--tmpfs", "/dev/shm"]
    args += ["--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"]
    args += ["--size", str(limits.work_bytes), "--tmpfs", "/work"]
    args += ["--ro-bind", str(seen.slot / "results"), "/results"]
    args += ["--ro-bind", str(seen.slot / "files"), "/files"]
    args += ["--ro-bind", str(seen.slot / "shared"), "/shared"]
    args += ["--ro-bind", str(seen.slot / "skills"), "/skills"]
    args += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/work", "--clearenv"]
    for name, value in environment(base, f"{ENV}/{real.packages}").items():
        args += ["--setenv", name, value]
    args += ["--info-fd", str(info), "--seccomp", str(seccomp)]
    args += [str(base / real.python), "-I", "-u", "/worker.py", str(control)]
    args.append(dumps(setup(limits, imports, f"{ENV}/{real.packages}")).decode())
    return args


def _server_packages(base: Path) -> list[str]:
    """Package folders below the base interpreter: code must not see what the host has installed."""
    found = [*base.glob("lib/python3*/site-packages"), *base.glob("lib/python3*/dist-packages")]
    return sorted(str(path.relative_to(base)) for path in found if path.is_dir())


def environment(base: Path, packages: str) -> dict[str, str]:
    """The environment inside: nothing of the server's."""
    return {
        "PATH": f"{ENV}/bin:{base}/bin:/usr/bin",
        "PYTHONPATH": packages,
        "LD_LIBRARY_PATH": f"{base}/lib",
        "HOME": "/work",
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": "/tmp/cache",
        "MPLCONFIGDIR": "/tmp/matplotlib",
        "MPLBACKEND": "Agg",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_NUM_THREADS": "2",
        "POLARS_MAX_THREADS": "2",
    }


def setup(limits: Limits, imports: Sequence[str], packages: str) -> dict[str, object]:
    """What the worker is told at its start."""
    return {
        "packages": packages,
        "imports": list(imports),
        "rlimits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": limits.process_bytes,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_NPROC": limits.processes,
        },
        "limits": {
            "artifacts": limits.artifacts,
            "artifact_bytes": limits.artifact_bytes,
            "value_chars": VALUE_CHARS,
        },
    }


REFUSED = (
    # kernel surface that computing and drawing never need
    "acct add_key bpf clone3 delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick "
    "init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load "
    "kexec_load keyctl lookup_dcookie mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl "
    "open_by_handle_at open_tree perf_event_open personality pivot_root process_madvise process_vm_readv "
    "process_vm_writev ptrace quotactl quotactl_fd reboot request_key setdomainname sethostname setns swapoff "
    "swapon syslog umount2 unshare userfaultfd uselib vhangup "
    # memory that no process limit counts
    "memfd_create memfd_secret shmget shmat shmctl msgget msgsnd semget semop"
).split()
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
SOCKET_FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: the last two live in an empty network namespace."""


@cache
def seccomp_program() -> bytes:
    """The compiled filter: everything is allowed but what is listed, which fails with EPERM.

    `clone3` fails with ENOSYS, so that libc falls back to `clone`, whose flags the filter can read.
    """
    import errno

    import pyseccomp as seccomp  # pyright: ignore[reportMissingTypeStubs]

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse = seccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        action = seccomp.ERRNO(errno.ENOSYS) if name == "clone3" else refuse
        try:
            rules.add_rule(action, name)
        except (OSError, ValueError, RuntimeError):
            continue  # a call that this architecture or library doesn't know can't be made either
    for bit in range(32):
        flag = 1 << bit
        if flag & NEW_NAMESPACES:
            rules.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    low, middle, high = SOCKET_FAMILIES
    rules.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.GT, high))
    for family in range(high):
        if family not in (low, middle):
            rules.add_rule(refuse, "socket", seccomp.Arg(0, seccomp.EQ, family))
    with tempfile.TemporaryFile() as stream:
        rules.export_bpf(stream)
        return os.pread(stream.fileno(), 1 << 20, 0)
