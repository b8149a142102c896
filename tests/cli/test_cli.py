"""The command line as a user runs it: real processes, exit codes, one-line errors, both languages."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tenuto.cli.text import TEXTS
from tenuto.demo import energy
from tenuto.settings import Settings, leaves

ROOT = Path(__file__).parents[2]
TENUTO = [sys.executable, "-m", "tenuto.cli.main"]


@pytest.fixture
def run(tmp_path):
    def call(*words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess:
        base = {k: v for k, v in os.environ.items() if not k.startswith("TENUTO_")}
        base |= {"TENUTO_HOME": str(tmp_path / "home"), "TENUTO_LANG": "en", "COLUMNS": "160"}
        return subprocess.run(
            [*TENUTO, *words], input=stdin, capture_output=True, text=True, env={**base, **env}
        )

    return call


def data(done: subprocess.CompletedProcess):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.sandbox
def test_from_a_question_to_its_context_words_results_export_and_import(run, tmp_path):
    asked = "Analyse the energy use of the offices in October 2026, leave out public holidays, draw a chart"
    sent = run("chat", "-t", "oct", "--message", asked, "--json")
    events = [json.loads(line) for line in sent.stdout.splitlines()]
    assert sent.returncode == 0
    assert (
        events[-1]["type"] == "turn_ended"
        and f"{energy.total('2026-10', holidays=False):,.2f}" in events[-1]["answer"]
    )

    threads = data(run("threads", "--json"))
    assert [(t["thread"], t["user"], t["state"]) for t in threads] == [("oct", "local", "ok")]
    assert asked.startswith(threads[0]["title"])

    context = data(run("context", "oct", "--json"))
    assert (context["turn"], context["step"], context["rebuilt_equal"]) == (1, 2, True)
    assert [b["layer"] for b in context["blocks"]] == ["base", "tools", "clock", "question", "turn"]
    assert context["blocks"][3]["entries"][0]["text"] == asked
    assert "base rules" in run("context", "oct").stdout and "byte for byte" in run("context", "oct").stdout

    found = data(run("why", "oct", "public", "holidays", "--json"))
    assert "question" in [hit["layer"] for hit in found["context"]]
    assert found["log"][0]["in_context"] is True
    assert run("why", "oct", "no such words").stdout.strip().endswith("stands nowhere in this thread.")

    kept = data(run("results", "oct", "--json"))
    assert [(r["rows"], r["state"]) for r in kept["results"]] == [(8_928, "kept")]
    assert [f["name"] for f in kept["files"]] == ["figure.png"]
    assert json.loads(run("results", "oct", kept["results"][0]["name"]).stdout) == energy.rows("2026-10")

    path = tmp_path / "oct.jsonl"
    assert run("export", "oct", str(path)).returncode == 0
    assert run("import", str(path), "-t", "copy").returncode == 0
    copy = data(run("context", "copy", "--json"))
    assert copy["hash"] == context["hash"] and copy["rebuilt_equal"] is True
    assert run("export", "copy").stdout.count("\n") == path.read_text().count("\n")
    again = run("import", str(path), "-t", "copy")
    assert again.returncode == 2 and "exists already" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("context", "nowhere"), 4, "not_found"),
        (("context", "../x"), 2, "invalid_id"),
        (("results", "nowhere"), 4, "not_found"),
        (("import", "/nonexistent"), 4, "not_found"),
        (("--user", "eve", "threads"), 4, "not_found"),
        (("chat", "--message", "hi", "-m", "nonsense"), 11, "model_failed"),
    ],
)
def test_an_error_is_one_line_with_its_code_and_what_to_do(run, words, code, error):
    done = run(*words)
    told = done.stderr or done.stdout
    assert done.returncode == code, told
    lines = [line for line in told.strip().splitlines() if f"[{error}]" in line]
    assert len(lines) == 1 and " — " in lines[0]
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_ends_with_code_2_and_names_file_and_line(run, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "tenuto.toml").write_text("[context]\nhistory = 3\n")
    done = run("threads")
    assert done.returncode == 2
    assert f"{tmp_path}/home/tenuto.toml:2: context.history" in done.stderr


def test_config_show_tells_where_each_value_comes_from(run, tmp_path):
    (tmp_path / "home" / "default").mkdir(parents=True)
    (tmp_path / "home" / "default" / "workspace.toml").write_text('[sandbox]\nidle = "5 min"\n')
    rows = {row["key"]: row for row in data(run("config", "show", "--json", TENUTO_CONTEXT__IMAGES="2"))}
    assert rows["sandbox.idle"] == {
        "key": "sandbox.idle", "value": 300.0, "unit": "s", "source": f"{tmp_path}/home/default/workspace.toml:2",
    }  # fmt: skip
    assert rows["context.images"]["source"] == "TENUTO_CONTEXT__IMAGES"
    assert rows["context.history_tokens"]["source"] == "default"


def test_import_refuses_what_is_no_export_and_writes_nothing(run, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"tenuto_export":1,"thread":"x","title":""}\n{"v":1,"broken":true}\n')
    done = run("import", str(path), "-t", "x")
    assert done.returncode == 7 and "line 2" in done.stderr
    assert data(run("threads", "--json")) == []


@pytest.mark.sandbox
def test_doctor_says_what_is_wrong_and_what_to_do(run, tmp_path):
    good = data(run("doctor", "--json"))
    assert {check["name"]: check["state"] for check in good}["sandbox"] == "ok"
    (tmp_path / "home" / "default").mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / "default" / "workspace.toml").write_text(
        '[agent]\nmodel = "mine"\n[models.mine]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[mcp.dead]\ncommand = "/nonexistent"\nstart = "2 s"\n[sandbox]\nenv = "/nonexistent"\n'
        '[members.local]\nrole = "owner"\n'
    )
    done = run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 3
    for name, word in (
        ("sandbox", "tenuto sandbox setup"),
        ("model mine", "base_url"),
        ("mcp dead", "[mcp.dead]"),
    ):
        assert checks[name]["state"] == "problem" and word in checks[name]["remedy"]


def test_i19_a_thread_with_a_damaged_header_stays_in_the_list_and_is_repaired(run, tmp_path):
    run("chat", "-t", "keep", "--message", "hello", TENUTO_SANDBOX__ENABLED="false")
    meta = tmp_path / "home" / "default" / ".logs" / "conv-keep.meta.json"
    meta.write_text("{broken")
    listed = data(run("threads", "--json"))
    assert [t["thread"] for t in listed] == ["keep"]
    assert re.search(r"meta file is damaged; \d+ of \d+ lines readable", listed[0]["state"])
    run("doctor", "--repair", TENUTO_SANDBOX__ENABLED="false")
    assert data(run("threads", "--json"))[0]["state"] == "ok"


def test_chat_reads_commands_from_a_pipe_in_chinese(run):
    lines = "/help\n/model\n你好\n/context\n/nonsense\n/quit\n"
    done = run("chat", "-t", "zh", stdin=lines, TENUTO_LANG="zh", TENUTO_SANDBOX__ENABLED="false")
    assert done.returncode == 0, done.stderr
    for words in ("模型：demo", "给模型的内容", "我是演示用的规则模型", "由日志重建", "未知命令 /nonsense"):
        assert words in done.stdout, words


def test_ctrl_c_stops_the_turn_keeps_what_came_and_the_chat_goes_on(tmp_path):
    home = tmp_path / "home"
    (home / "default").mkdir(parents=True)
    server = json.dumps([str(Path(__file__).parents[1] / "agent" / "mcp_server.py")])
    (home / "default" / "workspace.toml").write_text(
        f'[mcp.s]\ncommand = "{sys.executable}"\nargs = {server}\n'
    )
    patch = (
        "import sys\nfrom tenuto.agent import models\nfrom pydantic_ai.models.function import FunctionModel, DeltaToolCall\n"
        "async def stream(messages, info):\n    import asyncio\n    yield 'the beginning '\n    await asyncio.sleep(60)\n"
        "models._build = lambda *_: FunctionModel(stream_function=stream, model_name='demo')\n"
        "from tenuto.cli.main import main\nsys.argv = ['tenuto', 'chat', '-t', 'stop']\nmain()\n"
    )
    leader, follower = pty.openpty()
    env = {
        **os.environ,
        "TENUTO_HOME": str(home),
        "TENUTO_LANG": "en",
        "TERM": "dumb",
        "TENUTO_SANDBOX__ENABLED": "false",
    }
    chat = subprocess.Popen(
        [sys.executable, "-c", patch],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=env,
        start_new_session=True,
    )
    os.close(follower)
    _until(leader, b"Ctrl-C stops")
    os.write(leader, b"tell me\r")
    _until(leader, b"the beginning")
    os.kill(chat.pid, signal.SIGINT)
    _until(leader, b"what came is kept")
    os.write(leader, b"/quit\r")
    assert chat.wait(20) == 0
    os.close(leader)
    log = (home / "default" / ".logs" / "conv-stop.jsonl").read_text()
    assert '"content":"the beginning "' in log and '"type":"interrupted"' in log


def _until(descriptor: int, words: bytes, limit: float = 30) -> bytes:
    seen, end = b"", time.monotonic() + limit
    while words not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, seen[-500:]
        seen += os.read(descriptor, 65_536)
    return seen


def test_what_a_model_says_cant_move_the_cursor():
    from tenuto.cli.show import plain

    assert plain("a\x1b[2Jb\x07\u202ec\td\n") == "a�[2Jb��c\td\n"


def test_help_imports_nothing_heavy(run):
    code = (
        "import sys\nfrom tenuto.cli.main import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'mcp', 'fastmcp', 'pydantic', 'prompt_toolkit'} & set(sys.modules)\n"
        "sys.exit(f'{heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout


def test_every_error_code_has_a_meaning_in_chinese():
    from tenuto import errors
    from tenuto.cli.text import ERRORS_ZH

    codes = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.TenutoError)
    }
    assert codes <= set(ERRORS_ZH)


def test_every_sentence_is_there_in_both_languages_with_the_same_gaps():
    for key, (english, chinese) in TEXTS.items():
        assert english and chinese, key
        assert set(re.findall(r"\{(\w+)\}", english)) == set(re.findall(r"\{(\w+)\}", chinese)), key
        assert re.search(r"[\u4e00-\u9fff]", chinese), key


@pytest.mark.sandbox
def test_the_demo_as_data_holds_every_promise(run, tmp_path):
    path = tmp_path / "demo.json"
    done = run("demo", "--json", str(path))
    found = json.loads(path.read_text())
    assert done.returncode == 0 and found["ok"] is True
    assert {c["language"] for c in found["checks"]} == {"zh", "en", ""}
    totals = [c for c in found["checks"] if c["name"].startswith("the total")]
    assert len(totals) == 14 and all(c["shown"] == c["truth"] for c in totals)


@pytest.mark.sandbox
def test_the_demo_fails_when_a_promise_doesnt_hold(run):
    done = run("demo", "--json", "-", TENUTO_CONTEXT__BRIDGE_TOKENS="0", TENUTO_TASK__ENABLED="false")
    found = json.loads(done.stdout)
    assert done.returncode == 3 and found["ok"] is False
    broken = {c["name"] for c in found["checks"] if not c["held"]}
    assert (
        "the total after 40 more turns" in broken
        and "the total right after the first question left the window" in broken
        and "the condition stands in the task, in the user's own words" in broken
    )


# -- what the user installs ---------------------------------------------------------------------------------


def test_the_wheel_has_what_is_needed_at_run_time(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("tenuto-*.whl"))).namelist()
    for name in (
        "sandbox/worker.py",
        "sandbox/requirements.txt",
        "agent/prompts/base.md",
        "agent/prompts/run_python.md",
    ):
        assert f"tenuto/{name}" in names


def test_the_documented_settings_are_the_real_ones():
    text = (ROOT / "docs" / "settings.md").read_text()
    for key, value in leaves(Settings()):
        section, _, name = key.partition(".")
        if section not in ("models", "mcp", "members"):
            part = text.split(f"## [{section}]", 1)[1].split("\n## ", 1)[0]
            assert f"| `{name}` | {value if value != '' else ''} |" in part, key


def test_both_readmes_tell_the_same_commands():
    english, chinese = (ROOT / name for name in ("README.md", "README.zh-CN.md"))
    commands = [
        sorted(set(re.findall(r"(?:make|tenuto) [a-z]+", path.read_text()))) for path in (english, chinese)
    ]
    assert commands[0] == commands[1]


def test_a_model_and_a_tool_server_are_added_by_command_and_a_key_is_never_an_argument_or_shown(
    run, tmp_path
):
    secret = "sk-test-1f7d20"
    added = run("model", "add", "mine", "openai:gpt-5", "--key", "--default", "--json", stdin=f"{secret}\n")
    assert {m["name"]: m["default"] for m in data(added) if not m["found"]} == {"demo": False, "mine": True}
    assert {m["name"]: m["default"] for m in data(run("model", "use", "demo", "--json"))}["demo"] is True
    servers = data(run("tools", "add", "shop", "python -m shop --token hidden", "--json"))
    assert servers == [{"name": "shop", "where": "python"}] == data(run("tools", "list", "--json"))
    shown = [
        run(*words).stdout for words in (("config", "show", "--json"), ("model", "list"), ("tools", "list"))
    ]
    assert "openai:gpt-5" in shown[1] and "shop" in shown[2] and not any(secret in text for text in shown)
    unknown = run("model", "use", "nobody")
    assert (unknown.returncode, "[not_found]" in unknown.stderr) == (4, True)


def test_a_damaged_file_of_keys_is_an_error_and_is_not_written_over(run, tmp_path):
    data(run("model", "add", "mine", "openai:gpt-5", "--key", "--json", stdin="sk-test-1\n"))
    file = tmp_path / "home" / "default" / ".keys.json"
    file.write_bytes(b'{"TENUTO_KEY_MINE": "sk-te')
    again = run("model", "add", "other", "openai:gpt-5", "--key", stdin="sk-test-2\n")
    assert (again.returncode, "[settings_invalid]" in again.stderr) == (2, True)
    assert "delete it and give the keys again" in again.stderr
    assert file.read_bytes() == b'{"TENUTO_KEY_MINE": "sk-te'


def test_what_the_screen_shows_of_a_thread_is_had_by_command_too(run, tmp_path):
    run("chat", "-t", "one", "--message", "What is the tariff?", "--json")
    (log,) = (tmp_path / "home").rglob("conv-one.jsonl")
    before = log.read_bytes()
    ahead = data(run("context", "one", "--next", "and in October?", "--json"))
    assert [block["entries"][0]["text"] for block in ahead["blocks"] if block["layer"] == "question"] == [
        "and in October?"
    ]
    assert (ahead["turn"], log.read_bytes()) == (2, before)

    text = run("export", "one", "--format", "markdown").stdout
    assert text.startswith("# What is the tariff?\n") and "\n> What is the tariff?\n" in text
    assert run("export", "one", "--format", "pdf").returncode == 2

    upload = tmp_path / "data"
    upload.mkdir()
    (upload / "a.csv").write_text("a\n1\n")
    assert run("attach", "one", str(upload)).returncode == 0
    receipt = data(run("clear", "one", "--keep-files", "--yes", "--json"))
    assert "the thread's files" in receipt["kept"] and "files" not in receipt["removed"]
    assert [path.read_text() for path in (tmp_path / "home").rglob("a.csv")] == ["a\n1\n"]
    assert "会话的文件" in run("clear", "one", "--keep-files", "--yes", TENUTO_LANG="zh").stdout
    data(run("clear", "one", "--yes", "--json"))
    assert [*(tmp_path / "home").rglob("a.csv")] == []
