"""Commands for what a person adds to a workspace: `model` and `tools`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tenuto.cli.text import t

if TYPE_CHECKING:
    from tenuto.agent.app import App, Workspace
    from tenuto.cli.main import Where
    from tenuto.scope import Action

Json = Annotated[bool, typer.Option("--json", help=t("opt_json"))]
NameArg = Annotated[str, typer.Argument(help=t("arg_own_name"))]


def register(app: typer.Typer, here: Where) -> None:
    """Add the commands to the command line; they work on `here`."""
    app.add_typer(_model(here), name="model")
    app.add_typer(_tools(here), name="tools")


def _model(here: Where) -> typer.Typer:
    model = typer.Typer(help=t("model"), no_args_is_help=True)

    @model.command("list", help=t("model_list"))
    def list_(json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        _show_models(_opened(here, "read")[1], as_json=json)

    @model.command(help=t("model_add"))
    def add(  # pyright: ignore[reportUnusedFunction]
        name: NameArg,
        model: Annotated[str, typer.Argument(help=t("arg_model"))],
        base_url: Annotated[str, typer.Option("--base-url", help=t("opt_base_url"))] = "",
        key: Annotated[bool, typer.Option("--key", help=t("opt_key"))] = False,
        default: Annotated[bool, typer.Option("--default", help=t("opt_default"))] = False,
        json: Json = False,
    ) -> None:
        app, workspace = _opened(here, "administer")
        app.add_model(
            workspace, name, model, base_url=base_url, key=_ask_key() if key else "", default=default
        )
        _show_models(workspace, as_json=json)

    @model.command(help=t("model_use"))
    def use(name: NameArg, json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        app, workspace = _opened(here, "administer")
        app.use_model(workspace, name)
        _show_models(workspace, as_json=json)

    return model


def _tools(here: Where) -> typer.Typer:
    tools = typer.Typer(help=t("tools"), no_args_is_help=True)

    @tools.command("list", help=t("tools_list"))
    def list_(json: Json = False) -> None:  # pyright: ignore[reportUnusedFunction]
        _show_servers(_opened(here, "read")[1], as_json=json)

    @tools.command(help=t("tools_add"))
    def add(  # pyright: ignore[reportUnusedFunction]
        name: NameArg, where: Annotated[str, typer.Argument(help=t("arg_where"))], json: Json = False
    ) -> None:
        app, workspace = _opened(here, "administer")
        app.add_server(workspace, name, where)
        _show_servers(workspace, as_json=json)

    return tools


def _opened(here: Where, may: Action) -> tuple[App, Workspace]:
    from tenuto.agent.app import App
    from tenuto.scope import require

    app = App(here.home)
    workspace = app.workspace(here.workspace)
    require(workspace.member(here.user), may)
    return app, workspace


def _ask_key() -> str:
    """A key that reaches neither the list of processes nor the shell's history."""
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass(t("ask_key") + " ")
    return sys.stdin.readline().strip()


def _show_models(workspace: Workspace, *, as_json: bool) -> None:
    from tenuto.agent.found import all_models
    from tenuto.cli.show import console, plain, print_json, table

    models = asyncio.run(all_models(workspace.settings))
    if as_json:
        print_json(models)
        return
    made = table(t("col_name"), t("col_model"), t("col_source"), "")
    for one in models:
        where = " ".join(part for part in (t("found_here") if one["found"] else "", one["base_url"]) if part)
        made.add_row(
            plain(one["name"]), plain(one["model"]), plain(where), t("the_default") if one["default"] else ""
        )
    console().print(made, markup=False)


def _show_servers(workspace: Workspace, *, as_json: bool) -> None:
    from tenuto.additions import servers
    from tenuto.cli.show import console, plain, print_json, table

    found = servers(workspace.settings)
    if as_json:
        print_json(found)
        return
    if not found:
        console().print(t("no_servers"))
        return
    made = table(t("col_name"), t("col_source"))
    for one in found:
        made.add_row(plain(one["name"]), plain(one["where"]))
    console().print(made, markup=False)
