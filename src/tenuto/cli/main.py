"""Entry of the command line: options that all commands share, errors in one line, exit codes.

Exit codes: 0 fine; 1 failed; 2 wrong use or settings; 3 `doctor` or `demo` found a problem; 4 not found;
5 forbidden; 6 thread busy; 7 log can't be read; 8 doesn't fit the model's window; 9 no space; 10 sandbox;
11 model; 12 tool server; 130 stopped.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tenuto.cli.added import register as register_added
from tenuto.cli.kept import register as register_kept
from tenuto.cli.text import error_label, t
from tenuto.errors import TenutoError
from tenuto.process import tune

app = typer.Typer(help=t("app"), no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
config_app = typer.Typer(help=t("config"), no_args_is_help=True)
sandbox_app = typer.Typer(help=t("sandbox"), no_args_is_help=True)
bench_app = typer.Typer(help=t("bench"), no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(bench_app, name="bench")


@dataclass(slots=True)
class Where:
    """Which home, workspace and user a command works on."""

    home: Path
    workspace: str
    user: str


HERE = Where(Path(), "default", "local")

Json = Annotated[bool, typer.Option("--json", help=t("opt_json"))]
ThreadArg = Annotated[str, typer.Argument(help=t("arg_thread"))]


@app.callback()
def options(
    home: Annotated[Path | None, typer.Option("--home", help=t("opt_home"))] = None,
    workspace: Annotated[str, typer.Option("--workspace", "-w", help=t("opt_workspace"))] = "",
    user: Annotated[str, typer.Option("--user", "-u", help=t("opt_user"))] = "",
) -> None:
    from tenuto.settings import home as default_home

    HERE.home = home or default_home()
    HERE.workspace = workspace or os.environ.get("TENUTO_WORKSPACE") or "default"
    HERE.user = user or os.environ.get("TENUTO_USER") or "local"


register_added(app, HERE)
register_kept(app, HERE)


@app.command(help=t("demo"))
def demo(json: Annotated[str | None, typer.Option("--json", help=t("demo_json"))] = None) -> None:
    from tenuto.cli.demo import run

    raise typer.Exit(run(json))


@app.command(help=t("chat"))
def chat(
    thread: Annotated[str, typer.Option("--thread", "-t", help=t("opt_thread"))] = "",
    model: Annotated[str, typer.Option("--model", "-m", help=t("opt_model"))] = "",
    message: Annotated[str | None, typer.Option("--message", help=t("opt_message"))] = None,
    yes: Annotated[bool, typer.Option("--yes", help=t("opt_yes"))] = False,
    json: Json = False,
) -> None:
    from tenuto.cli.chat import run

    raise typer.Exit(run(HERE, thread, model, message, allow=yes, as_json=json))


@app.command(help=t("serve"))
def serve(
    host: Annotated[str, typer.Option("--host", help=t("serve_host"))] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help=t("serve_port"))] = 8321,
) -> None:
    from tenuto.cli.serve import run

    run(HERE, host, port)


@app.command(help=t("threads"))
def threads(json: Json = False) -> None:
    from tenuto.cli.look import threads as run

    run(HERE, as_json=json)


@app.command(help=t("context"))
def context(
    thread: ThreadArg,
    turn: Annotated[int | None, typer.Argument(help=t("arg_turn"))] = None,
    step: Annotated[int | None, typer.Option("--step", help=t("opt_step"))] = None,
    draft: Annotated[str | None, typer.Option("--next", help=t("opt_next"))] = None,
    texts: Annotated[bool, typer.Option("--texts", help=t("opt_texts"))] = False,
    json: Json = False,
) -> None:
    from tenuto.cli.look import context as run

    run(HERE, thread, turn, step, draft, texts=texts, as_json=json)


@app.command(help=t("why"))
def why(
    thread: ThreadArg,
    words: Annotated[list[str], typer.Argument(help=t("arg_words"))],
    turn: Annotated[int | None, typer.Option("--turn", help=t("arg_turn"))] = None,
    json: Json = False,
) -> None:
    from tenuto.cli.look import why as run

    run(HERE, thread, " ".join(words), turn, as_json=json)


@app.command(help=t("results"))
def results(
    thread: ThreadArg,
    name: Annotated[str | None, typer.Argument(help=t("arg_name"))] = None,
    json: Json = False,
) -> None:
    from tenuto.cli.look import results as run

    run(HERE, thread, name, as_json=json)


@app.command(help=t("export"))
def export(
    thread: ThreadArg,
    file: Annotated[str, typer.Argument(help=t("arg_file"))] = "-",
    form: Annotated[str, typer.Option("--format", help=t("opt_format"))] = "jsonl",
) -> None:
    from tenuto.cli.look import export as run

    run(HERE, thread, file, form)


@app.command("import", help=t("import"))
def import_(
    file: Annotated[str, typer.Argument(help=t("arg_file"))],
    thread: Annotated[str, typer.Option("--thread", "-t", help=t("arg_thread"))] = "",
) -> None:
    from tenuto.cli.look import import_ as run

    run(HERE, file, thread)


@config_app.command("show", help=t("config_show"))
def config_show(json: Json = False) -> None:
    from tenuto.cli.look import config as run

    run(HERE, as_json=json)


@app.command(help=t("doctor"))
def doctor(
    json: Json = False, repair: Annotated[bool, typer.Option("--repair", help=t("repair"))] = False
) -> None:
    from tenuto.cli.doctor import run

    raise typer.Exit(run(HERE, as_json=json, repair=repair))


@sandbox_app.command("setup", help=t("sandbox_setup"))
def sandbox_setup() -> None:
    from tenuto.sandbox import environment
    from tenuto.settings import load

    env = load(HERE.home, HERE.workspace).settings.sandbox.env
    environment.build(Path(env) if env else environment.default_env(), lambda line: print(line, flush=True))


@bench_app.command("turn", help="CPU and disk of one more turn, by length. 每多一轮的开销。")
def bench_turn(lengths: str = "10,100,1000,10000,100000", json: Json = False) -> None:
    from tenuto.bench.turns import measure_length

    _print_bench([measure_length(int(length)) for length in lengths.split(",")], json)


@bench_app.command("threads", help="Many conversations at once. 多个会话并行。")
def bench_threads(json: Json = False) -> None:
    from tenuto.bench.threads import measure

    _print_bench(measure(), json)


@bench_app.command("tokens", help="Error of the token counts. 词元计数误差。")
def bench_tokens(json: Json = False) -> None:
    from tenuto.bench.tokens import as_rows, measure_all
    from tenuto.cli.show import print_json

    found = measure_all()
    if json:
        print_json(found)
        return
    _print_bench(as_rows(found), json)
    _print_bench(found["anchored"], json)


@bench_app.command("cache", help="Share of the prompt a cache can serve. 可缓存的提示比例。")
def bench_cache(json: Json = False, real: bool = True) -> None:
    from tenuto.bench.cache import measure

    _print_bench(measure(real=real), json)


@bench_app.command(
    "continuity", help="Builders of requests on a long conversation. 长对话中各种上下文构建方式的比较。"
)
def bench_continuity(turns: int = 400, budgets: str = "8000,16000,32000", json: Json = False) -> None:
    from tenuto.bench.continuity import measure

    _print_bench(measure(turns, [int(budget) for budget in budgets.split(",")]), json)


@bench_app.command(
    "live", help="A real weak model at refresh and extraction; downloads 1.1 GB once. 真实弱模型测试。"
)
def bench_live(cache: Path | None = None, json: Json = False) -> None:
    from tenuto.bench.live import measure

    _print_bench(measure(cache or Path.home() / ".cache" / "tenuto" / "live"), json)


@bench_app.command("search", help="Recall and speed of the history search. 历史搜索的召回与速度。")
def bench_search(
    data: Annotated[Path | None, typer.Option("--data", help=t("bench_data"))] = None,
    json: Json = False,
    scale: bool = True,
    semantic: bool = False,
) -> None:
    from tenuto.bench.search import measure

    found = measure(data, scale=scale, semantic=semantic)
    for row in found if not json else [found]:
        _print_bench(row, json)


@bench_app.command("sandbox", help="Start, call and kill of a sandbox. 沙箱的启动、调用和销毁。")
def bench_sandbox(json: Json = False) -> None:
    from tenuto.bench.sandbox import measure

    _print_bench(measure(), json)


@bench_app.command("serve", help="The server: start, 500 streams at once, what HTTP adds. 服务器的开销。")
def bench_serve(json: Json = False) -> None:
    from tenuto.bench.serve import measure

    _print_bench(measure(), json)


def _print_bench(rows: Any, as_json: bool) -> None:
    from tenuto.cli.show import console, print_json, table

    if as_json:
        print_json(rows)
        return
    listed = cast("list[dict[str, Any]]", rows if isinstance(rows, list) else [rows])
    made = table(*listed[0])
    for row in listed:
        made.add_row(*(str(value) for value in row.values()))
    console().print(made)


def main() -> None:
    """Run a command; every error ends in one line that says what to do."""
    tune()
    try:
        code = app(standalone_mode=False)
    except TenutoError as error:
        _fail(error.code, error.message, error.hint)
        sys.exit(error.exit_code)
    except typer.Abort:
        _fail("stopped", t("interrupted"), "")
        sys.exit(130)
    except KeyboardInterrupt:
        _fail("stopped", t("interrupted"), "")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        import click

        if isinstance(error, click.ClickException):
            error.show()
            sys.exit(error.exit_code)
        if os.environ.get("TENUTO_TRACEBACK"):
            raise
        _fail("internal", f"{type(error).__name__}: {error}", "TENUTO_TRACEBACK=1")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(code: str, message: str, hint: str) -> None:
    from tenuto.cli.show import plain

    line = f"{error_label(code)}: {message}"
    if hint:
        line += f" — {t('do_next')}: {hint}"
    print(plain(" ".join(line.split())), file=sys.stderr)


if __name__ == "__main__":
    main()
