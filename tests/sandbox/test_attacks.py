"""The attacks that docs/sandbox.md lists, run inside a real sandbox.

Not applicable: those through a host that opens files of a shared writable folder or of
`/proc/PID/root` (no folder is shared, and the host never opens a path that comes from inside).
"""

from __future__ import annotations

import os
import socket

import pytest

from tenuto.sandbox import processes

from .conftest import folders

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.sandbox]


async def value(box, code: str, timeout: float = 5):
    result = await box.run(code, timeout=timeout)
    assert result.status == "ok", (result.status, result.error, result.stderr)
    return result.value


BLOCKED = """
def blocked(action):
    try:
        action()
    except (OSError, MemoryError, ImportError, AttributeError) as error:
        return type(error).__name__
    return "THROUGH"
"""


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        ("read the host's passwd", "open('/etc/passwd')"),
        ("read the host's shadow", "open('/etc/shadow')"),
        ("look into the server's home", "__import__('os').listdir('/root')"),
        ("look into other homes", "__import__('os').listdir('/home')"),
        ("see the server's package", "__import__('tenuto')"),
        ("see the server's libraries", "__import__('pydantic_ai')"),
        ("write a result", "open('/results/rows.json', 'w')"),
        ("make a file beside the results", "open('/results/new', 'w')"),
        ("write into the environment", "open('/env/evil.py', 'w')"),
        ("write the interpreter", "open(__import__('sys').executable, 'r+')"),
        ("write the worker", "open('/worker.py', 'a')"),
        ("fill the root", "open('/fill', 'wb').write(b'x' * 1000)"),
        ("fill /dev", "open('/dev/fill', 'wb').write(b'x' * 1000)"),
        ("fill the masked package folder", "open('/usr/lib/python3/dist-packages/x', 'w')"),
        ("connect to the host's loopback", "__import__('socket').create_connection(('127.0.0.1', PORT), 1)"),
        ("connect to the world", "__import__('socket').create_connection(('1.1.1.1', 53), 1)"),
        ("send UDP", "__import__('socket').socket(2, 2).sendto(b'x', ('1.1.1.1', 53))"),
        ("a vsock socket", "__import__('socket').socket(40, 1)"),
        ("a netlink socket", "__import__('socket').socket(16, 3)"),
        ("a packet socket", "__import__('socket').socket(17, 3)"),
        ("the host's unix socket by path", "__import__('socket').socket(1).connect(PATH)"),
        ("the host's abstract unix socket", "__import__('socket').socket(1).connect('\\0' + ABSTRACT)"),
    ],
)
async def test_an_attack_is_blocked(box, host, attack, code):
    port, path, abstract = host
    setup = f"{BLOCKED}\nPORT, PATH, ABSTRACT = {port}, {path!r}, {abstract!r}\n"
    assert await value(box, f"{setup}\nblocked(lambda: {code})") != "'THROUGH'", attack


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """Real listeners on the host: TCP, a socket file that all may use, an abstract socket."""
    tcp = socket.create_server(("127.0.0.1", 0))
    path = "/tmp/tenuto-test-" + os.urandom(4).hex()
    by_path = socket.socket(socket.AF_UNIX)
    by_path.bind(path)
    os.chmod(path, 0o777)
    by_path.listen()
    abstract = "tenuto-" + os.urandom(4).hex()
    nameless = socket.socket(socket.AF_UNIX)
    nameless.bind("\0" + abstract)
    nameless.listen()
    yield tcp.getsockname()[1], path, abstract
    for listener in (tcp, by_path, nameless):
        listener.close()
    os.unlink(path)


SYSCALLS = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    got = libc.syscall(number, *args)
    return got, ctypes.get_errno()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="call numbers of x86_64")
@pytest.mark.parametrize(
    ("name", "number", "args"),
    [
        ("ptrace", 101, (16, 1, 0, 0)),
        ("io_uring_setup", 425, (1, 0)),
        ("keyctl", 250, (0, 0, 0)),
        ("userfaultfd", 323, (0,)),
        ("mount", 165, (0, 0, 0, 0, 0)),
        ("unshare user", 272, (0x10000000,)),
        ("setns", 308, (0, 0)),
        ("bpf", 321, (0, 0, 0)),
        ("perf_event_open", 298, (0, 0, -1, -1, 0)),
        ("memfd_create", 319, (0, 0)),
        ("shmget", 29, (0, 4096, 0o1600)),
        ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)),
        ("open_by_handle_at", 304, (0, 0, 0)),
        ("personality", 135, (0xFFFFFFFF,)),
        ("clone with a new user namespace", 56, (0x10000000 | 17, 0, 0, 0, 0)),
    ],
)
async def test_a_dangerous_system_call_is_refused(box, name, number, args):
    assert await value(box, f"{SYSCALLS}\ncall({number}, *{args!r})") == "(-1, 1)", name


async def test_setuid_gains_nothing(box):
    code = "import os\nfrom contextlib import suppress\nwith suppress(OSError): os.setuid(0)\nos.getuid()"
    assert await value(box, code) == "65534"


async def test_t5_no_secret_of_the_server_stands_in_any_environment(engine, monkeypatch, tmp_path):
    monkeypatch.setenv("TENUTO_TEST_SECRET", "SUPERSECRET-1")
    fresh = await engine.create()
    try:
        code = (
            "import glob\nfound = b''\n"
            "for path in glob.glob('/proc/*/environ'):\n"
            "    try: found += open(path, 'rb').read()\n"
            "    except OSError: pass\n"
            "(b'SUPERSECRET' in found, len(found) > 0)"
        )
        assert await value(fresh, code) == "(False, True)"
    finally:
        await fresh.destroy()


async def test_only_its_own_processes_are_seen(box):
    assert await value(box, "import os\nlen([p for p in os.listdir('/proc') if p.isdigit()])") == "2"


async def test_a_symlink_among_the_inputs_is_not_shown(box, tmp_path):
    place = folders(tmp_path)
    (place.results / "good.json").write_text("[1]")
    (place.results / "link").symlink_to("/etc/passwd")
    os.mkfifo(place.results / "pipe")
    box.bind(place)
    assert await value(box, "import os\nsorted(os.listdir('/results'))") == "['good.json']"


async def test_t11_a_file_is_there_on_the_first_run_and_new_ones_on_the_next(engine, tmp_path):
    place = folders(tmp_path)
    (place.results / "one.json").write_text("[1]")
    fresh = await engine.create()
    try:
        fresh.bind(place)
        assert await value(fresh, "open('/results/one.json').read()") == "'[1]'"
        (place.files / "two.txt").write_text("2")
        os.unlink(place.results / "one.json")
        assert (
            await value(fresh, "import os\n(os.listdir('/results'), os.listdir('/files'))")
            == "([], ['two.txt'])"
        )
    finally:
        await fresh.destroy()


async def test_the_work_folder_is_full_at_its_size_and_the_host_disk_is_untouched(engine):
    fresh = await engine.create()
    try:
        code = (
            "written = 0\ntry:\n"
            "    with open('/work/.fill', 'wb') as f:\n"
            "        while True: written += f.write(b'x' * (1 << 20))\n"
            "except OSError as e: print(e.errno)\n"
            "import os; os.unlink('/work/.fill')\nwritten <= 256 << 20"
        )
        assert await value(fresh, code, timeout=20) == "True"
    finally:
        await fresh.destroy()


async def test_dev_shm_and_tmp_are_limited(box):
    code = (
        "import os\ngot = {}\nfor folder in ('/dev/shm', '/tmp'):\n"
        "    path = folder + '/fill'\n    size = 0\n    try:\n"
        "        with open(path, 'wb') as f:\n            while size < 300 << 20: size += f.write(b'x' * (1 << 20))\n"
        "    except OSError: pass\n    os.unlink(path)\n    got[folder] = size <= 64 << 20\ngot"
    )
    assert await value(box, code, timeout=20) == "{'/dev/shm': True, '/tmp': True}"


@pytest.mark.parametrize("code", ["bytearray(8 << 30)", "__import__('numpy').ones(1 << 30)"])
async def test_a_memory_bomb_ends_in_a_memory_error_and_the_state_lives(box, code):
    await box.run("kept = 7", timeout=5)
    result = await box.run(code, timeout=5)
    assert result.status == "error" and "MemoryError" in result.error.type
    assert await value(box, "kept") == "7"


async def test_a_fork_bomb_is_held_and_leaves_no_child(box):
    code = (
        "import os\nforked = 0\ntry:\n    while forked < 500:\n"
        "        if os.fork() == 0:\n            import time; time.sleep(60)\n        forked += 1\n"
        "except OSError: pass\nforked"
    )
    assert int(await value(box, code, timeout=20)) < 64
    assert processes.living(box.init) == [box.worker]
    assert int(await value(box, code, timeout=20)) > 40, "the killed children still count"


async def test_t23_a_gigabyte_of_output_is_counted_and_cut_and_a_flood_ends_the_sandbox(engine):
    fresh = await engine.create()
    result = await fresh.run("import os\nfor _ in range(1024): os.write(1, b'x' * (1 << 20))", timeout=20)
    assert result.status == "died" and result.lost_after == "output"
    assert len(result.stdout) <= 1 << 20
    assert not fresh.alive
    await fresh.destroy()


async def test_output_below_the_flood_is_kept_in_part_and_counted_whole(box):
    result = await box.run("import sys\nsys.stdout.write('y' * (3 << 20))\nNone", timeout=10)
    assert (len(result.stdout), result.output_bytes, result.truncated) == (1 << 20, 3 << 20, True)


async def test_a_forged_frame_reaches_only_its_own_result(box):
    code = (
        "import os, socket, struct, json, gc\n"
        "for fd in range(3, 40):\n"
        "    try: s = socket.socket(fileno=os.dup(fd))\n"
        "    except OSError: continue\n"
        "    h = json.dumps({'op': 'artifact', 'name': '../../evil', 'media_type': 'x'}).encode()\n"
        "    s.sendall(struct.pack('>II', len(h), 3) + h + b'abc')\n"
        "    h = json.dumps({'op': 'done', 'id': 'forged', 'status': 'ok'}).encode()\n"
        "    s.sendall(struct.pack('>II', len(h), 0) + h)\n"
        "'end'"
    )
    result = await box.run(code, timeout=5)
    assert result.status == "ok" and result.value == "'end'"
    assert [artifact.name for artifact in result.artifacts] == ["../../evil"]
    from tenuto.results.files import safe_name

    assert safe_name(result.artifacts[0].name) == "evil"


async def test_a_frame_of_four_gigabytes_ends_the_sandbox(engine):
    fresh = await engine.create()
    code = (
        "import os, socket, struct\nfor fd in range(3, 40):\n"
        "    try: socket.socket(fileno=os.dup(fd)).sendall(struct.pack('>II', 0xFFFFFFFF, 0))\n"
        "    except OSError: pass\nimport time; time.sleep(9)"
    )
    result = await fresh.run(code, timeout=8)
    assert result.status == "died"
    await fresh.destroy()


async def test_a_daemon_doesnt_outlive_its_call(box):
    code = (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        while True: pass\n    os._exit(0)\n'parent'"
    )
    assert await value(box, code) == "'parent'"
    assert processes.living(box.init) == [box.worker]


async def test_too_many_and_too_large_artifacts_are_named_and_not_kept(box):
    code = "for n in range(25): open(f'/work/f{n:02d}.txt', 'w').write('x')\nopen('/work/big.bin', 'wb').write(b'x' * (26 << 20))"
    result = await box.run(code, timeout=10)
    assert len(result.artifacts) == 20
    assert any(line.startswith("big.bin: ") for line in result.skipped)
    assert any("too many" in line for line in result.skipped)
    await box.run("import os\nfor n in os.listdir('/work'): os.unlink('/work/' + n)", timeout=5)


async def test_links_and_fifos_in_work_are_no_artifacts(box):
    code = "import os\nos.symlink('/worker.py', '/work/link.txt')\nos.mkfifo('/work/pipe')\n1"
    result = await box.run(code, timeout=5)
    assert result.status == "ok" and result.artifacts == []
    await box.run("import os\nos.unlink('/work/link.txt'); os.unlink('/work/pipe')", timeout=5)
