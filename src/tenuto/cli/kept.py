"""Commands for what is kept: `task`, `memory`, `search`, `clear`, `delete`, `retention`, `verify`.

Only their form; what they do is in `tenuto.cli.keep`, imported when one runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.text import t

if TYPE_CHECKING:
    from tenuto.cli.main import Where

Json = Annotated[bool, typer.Option("--json", help=t("opt_json"))]
ThreadArg = Annotated[str, typer.Argument(help=t("arg_thread"))]
ItemArg = Annotated[str, typer.Argument(help=t("arg_item"))]
FactArg = Annotated[str, typer.Argument(help=t("arg_fact"))]
TextArg = Annotated[list[str], typer.Argument(help=t("arg_text"))]
Yes = Annotated[bool, typer.Option("--yes", help=t("opt_sure"))]
Importance = Annotated[int, typer.Option("--importance", min=1, max=5, help=t("opt_importance"))]
AppliesTo = Annotated[str, typer.Option("--applies-to", help=t("opt_applies"))]
Until = Annotated[str, typer.Option("--until", help=t("opt_until"))]


def register(app: typer.Typer, here: Where) -> None:
    """Add the commands to the command line; they work on `here`."""
    app.add_typer(_task(here), name="task")
    app.add_typer(_memory(here), name="memory")

    app.add_typer(_branch(here), name="branch")

    @app.command(help=t("attach"))
    def attach(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg,
        path: Annotated[Path, typer.Argument(help=t("arg_path"))],
        name: Annotated[str, typer.Option("--name", help=t("opt_name"))] = "",
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        keep.attach(here, thread, path, name, as_json=json)

    @app.command(help=t("versions"))
    def versions(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg,
        name: Annotated[str, typer.Argument(help=t("arg_name"))],
        one: Annotated[int | None, typer.Argument(help=t("arg_version"))] = None,
        other: Annotated[int | None, typer.Argument(help=t("arg_version"))] = None,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        keep.versions(here, thread, name, one, other, as_json=json)

    @app.command(help=t("search"))
    def search(  # pyright: ignore[reportUnusedFunction]
        query: TextArg,
        since: Annotated[str, typer.Option("--since", help=t("opt_since"))] = "",
        until: Annotated[str, typer.Option("--until", help=t("opt_to"))] = "",
        thread: Annotated[str, typer.Option("--thread", "-t", help=t("arg_thread"))] = "",
        limit: Annotated[int, typer.Option("--limit", min=1, max=50)] = 10,
        rebuild: Annotated[bool, typer.Option("--rebuild", help=t("opt_rebuild"))] = False,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        keep.search(here, " ".join(query), since, until, thread, limit, rebuild=rebuild, as_json=json)

    @app.command(help=t("clear"))
    def clear(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg,
        keep_files: Annotated[bool, typer.Option("--keep-files", help=t("opt_keep_files"))] = False,
        yes: Yes = False,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        raise typer.Exit(keep.clear(here, thread, keep_files=keep_files, sure=yes, as_json=json))

    @app.command(help=t("delete"))
    def delete(  # pyright: ignore[reportUnusedFunction]
        thread: Annotated[str, typer.Argument(help=t("arg_thread"))] = "",
        user: Annotated[str, typer.Option("--of-user", help=t("opt_of_user"))] = "",
        yes: Yes = False,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        raise typer.Exit(keep.delete(here, thread, user, sure=yes, as_json=json))

    @app.command(help=t("retention"))
    def retention(json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.retention(here, as_json=json)

    @app.command(help=t("verify"))
    def verify(json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        raise typer.Exit(keep.verify(here, as_json=json))


def _branch(here: Where) -> typer.Typer:
    branch = typer.Typer(help=t("branch"), no_args_is_help=True)

    @branch.command("list", help=t("branch_list"))
    def list_(thread: ThreadArg, json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.branch_list(here, thread, as_json=json)

    @branch.command(help=t("branch_select"))
    def select(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg, record: Annotated[int, typer.Argument(help=t("arg_record"))]
    ) -> None:
        from tenuto.cli import keep

        keep.branch_select(here, thread, record)

    return branch


def _task(here: Where) -> typer.Typer:
    task = typer.Typer(help=t("task"), no_args_is_help=True)

    @task.command(help=t("task_show"))
    def show(thread: ThreadArg, json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.task_show(here, thread, as_json=json)

    @task.command(help=t("task_history"))
    def history(thread: ThreadArg, json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.task_history(here, thread, as_json=json)

    @task.command(help=t("task_refresh"))
    def refresh(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg,
        focus: Annotated[list[str] | None, typer.Argument(help=t("arg_focus"))] = None,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        raise typer.Exit(keep.task_refresh(here, thread, " ".join(focus or []), as_json=json))

    @task.command(help=t("task_add"))
    def add(  # pyright: ignore[reportUnusedFunction]
        thread: ThreadArg,
        text: TextArg,
        kind: Annotated[str, typer.Option("--kind", help=t("opt_kind"))] = "constraint",
    ) -> None:
        from tenuto.cli import keep

        keep.task_hand(here, thread, "add", kind=kind, text=" ".join(text))

    @task.command(help=t("task_edit"))
    def edit(thread: ThreadArg, item: ItemArg, text: TextArg) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.task_hand(here, thread, "edit", item=item, text=" ".join(text))

    for action in ("pin", "unpin", "withdraw", "done", "reopen"):
        task.command(action, help=t(f"task_{action}"))(_hand(here, action))
    return task


def _hand(here: Where, action: str):
    def run(thread: ThreadArg, item: ItemArg) -> None:
        from tenuto.cli import keep

        keep.task_hand(here, thread, action, item=item)

    return run


def _memory(here: Where) -> typer.Typer:
    memory = typer.Typer(help=t("memory"), no_args_is_help=True)

    @memory.command("list", help=t("memory_list"))
    def list_(  # pyright: ignore[reportUnusedFunction]
        everything: Annotated[bool, typer.Option("--all", help=t("opt_past"))] = False, json: Json = False
    ) -> None:
        from tenuto.cli import keep

        keep.memory_list(here, everything=everything, as_json=json)

    @memory.command(help=t("memory_add"))
    def add(  # pyright: ignore[reportUnusedFunction]
        text: TextArg,
        importance: Importance = 3,
        applies_to: AppliesTo = "",
        until: Until = "",
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        keep.memory_add(here, " ".join(text), importance, applies_to, until, as_json=json)

    @memory.command(help=t("memory_edit"))
    def edit(fact: FactArg, text: TextArg) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.memory_edit(here, fact, " ".join(text))

    @memory.command(help=t("memory_explain"))
    def explain(fact: FactArg, json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.memory_explain(here, fact, as_json=json)

    @memory.command(help=t("memory_forget"))
    def forget(facts: Annotated[list[str], typer.Argument(help=t("arg_fact"))]) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.memory_forget(here, facts)

    @memory.command(help=t("memory_delete"))
    def delete(  # pyright: ignore[reportUnusedFunction]
        facts: Annotated[list[str] | None, typer.Argument(help=t("arg_fact"))] = None,
        everything: Annotated[bool, typer.Option("--all", help=t("opt_all"))] = False,
        yes: Yes = False,
        json: Json = False,
    ) -> None:
        from tenuto.cli import keep

        raise typer.Exit(keep.memory_delete(here, facts or [], everything=everything, sure=yes, as_json=json))

    for on in (True, False):
        memory.command("on" if on else "off", help=t("memory_on" if on else "memory_off"))(_switch(here, on))

    @memory.command("export", help=t("memory_export"))
    def export(file: Annotated[str, typer.Argument(help=t("arg_file"))] = "-") -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        keep.memory_export(here, file)

    @memory.command("import", help=t("memory_import"))
    def import_(file: Annotated[Path, typer.Argument(help=t("arg_file"))]) -> None:  # pyright: ignore[reportUnusedFunction]
        from tenuto.cli import keep

        raise typer.Exit(keep.memory_import(here, file))

    return memory


def _switch(here: Where, on: bool):
    def run(
        extraction: Annotated[bool, typer.Option("--extraction", help=t("opt_extraction"))] = False,
    ) -> None:
        from tenuto.cli import keep

        keep.memory_switch(here, on, extraction=extraction)

    return run
