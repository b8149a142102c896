"""The commands that look: threads, context, why, results, config, export, import."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tenuto.agent.app import App, Workspace
from tenuto.agent.inspect import PastRequest, context_of, opened
from tenuto.agent.inspect import why as why_of
from tenuto.cli.show import console, plain, print_json, show_context, table
from tenuto.cli.text import t, word
from tenuto.codec import JsonObject, new_id
from tenuto.errors import NotFound, UsageError
from tenuto.log.transfer import export as export_lines
from tenuto.log.transfer import import_thread
from tenuto.results.files import ThreadFiles
from tenuto.results.store import ResultStore
from tenuto.scope import Scope, require
from tenuto.settings import load

if TYPE_CHECKING:
    from tenuto.cli.main import Where

T = TypeVar("T")


def with_app(where: Where, work: Callable[[App], Awaitable[T]]) -> T:
    """Do a piece of work with an app that is started before and closed after it."""

    async def run() -> T:
        async with App(where.home) as app:
            return await work(app)

    return asyncio.run(run())


def workspace_of(where: Where) -> Workspace:
    """The workspace of a command that doesn't run turns; checks that the user is a member."""
    workspace = App(where.home).workspace(where.workspace)
    require(workspace.member(where.user), "read")
    return workspace


def scope_of(where: Where, thread: str) -> Scope:
    return Scope(where.workspace, where.user, thread)


def threads(where: Where, *, as_json: bool) -> None:
    workspace = workspace_of(where)
    found = workspace.threads.of(where.user)
    rows = [{**asdict(thread), "used": workspace.threads.used(thread.thread)} for thread in found]
    if as_json:
        print_json(rows)
        return
    if not rows:
        console().print(t("no_threads"))
        return
    made = table(t("col_thread"), t("col_title"), t("col_used"), t("col_state"))
    for row in rows:
        made.add_row(
            row["thread"], plain(row["title"]), row["used"][:16].replace("T", " "), plain(row["state"])
        )
    console().print(made, markup=False)


def context(
    where: Where,
    thread: str,
    turn: int | None,
    step: int | None,
    draft: str | None,
    *,
    texts: bool,
    as_json: bool,
) -> None:
    scope = scope_of(where, thread)
    workspace = workspace_of(where)
    conversation = workspace.conversation(workspace.thread(scope))
    if draft is None:
        found = context_of(conversation, turn, step, texts_too=texts or as_json)
    else:
        request, question = with_app(where, lambda app: app.preview(scope, draft))
        past = PastRequest(request.manifest, request, True, question)
        found = opened(conversation, past, texts_too=texts or as_json)
    if as_json:
        print_json(found)
    else:
        show_context(console(), found, texts=texts)


def why(where: Where, thread: str, words: str, turn: int | None, *, as_json: bool) -> None:
    from rich.text import Text

    found = why_of(workspace_of(where), scope_of(where, thread), words, turn)
    if as_json:
        print_json(found)
        return
    out = console()
    places = (
        ("context", _context_line),
        ("log", _log_line),
        ("task", _kept_line),
        ("memory", _kept_line),
        ("results", _file_line),
    )
    if not any(found[key] for key, _ in places):
        out.print(Text(t("why_none", words=plain(words))))
        return
    for key, line in places:
        if found[key]:
            out.print(Text(t(f"why_{key}"), style="bold"))
            for entry in found[key]:
                out.print(Text("  " + plain(line(entry))))


def _context_line(entry: JsonObject) -> str:
    number = f"#{entry['seq']} " if entry["seq"] else ""
    return f"{t('layer_' + entry['layer'])} {number}({word(entry['state'])}): {entry['text']}"


def _log_line(entry: JsonObject) -> str:
    return f"#{entry['seq']} ({t('in_context') if entry['in_context'] else word(entry['reason'])}): {entry['text']}"


def _kept_line(entry: JsonObject) -> str:
    return f"{entry['id']} ({word(entry['status'])}): {entry['text']}"


def _file_line(entry: JsonObject) -> str:
    return f"{entry['name']}:{entry['line']}: {entry['text']}"


def results(where: Where, thread: str, name: str | None, *, as_json: bool) -> None:
    workspace = workspace_of(where)
    scope = scope_of(where, thread)
    workspace.thread(scope)
    store, files = workspace.results(scope), workspace.files(scope)
    if name is not None:
        content = _content(store, files, name)
        if sys.stdout.isatty():
            content = plain(content.decode("utf-8", "replace")).encode()
        sys.stdout.buffer.write(content)
        return
    kept, listed = store.all(), files.all()
    if as_json:
        print_json({"results": [asdict(r) for r in kept], "files": [asdict(f) for f in listed]})
        return
    if not kept and not listed:
        console().print(t("no_results"))
        return
    made = table(t("col_name"), t("col_size"), t("col_rows"), t("col_state"), t("col_from"), t("col_expires"))
    for result in kept:
        rows = "" if result.rows is None else f"{result.rows:,}"
        made.add_row(
            result.name,
            f"{result.bytes:,}",
            rows,
            word(result.state),
            plain(result.tool),
            result.expires[:16],
        )
    for file in listed:
        made.add_row(plain(file.name), f"{file.bytes:,}", "", "", "", "")
    console().print(made, markup=False)


def _content(store: ResultStore, files: ThreadFiles, name: str) -> bytes:
    try:
        return store.read(name)
    except NotFound as error:
        if "reclaimed" in error.message:
            raise
        return files.path(name).read_bytes()


def export(where: Where, thread: str, file: str, form: str) -> None:
    workspace = workspace_of(where)
    known = workspace.thread(scope_of(where, thread))
    log = workspace.conversation(known).log
    if form == "markdown":
        from tenuto.server.records import as_markdown

        lines = iter([as_markdown(known.title, log).encode()])
    elif form == "jsonl":
        lines = export_lines(known, log)
    else:
        raise UsageError(f"{form!r} is no format", hint="use jsonl or markdown")
    if file == "-":
        sys.stdout.buffer.writelines(lines)
        return
    count = 0
    with Path(file).open("wb") as stream:
        for line in lines:
            stream.write(line)
            count += 1
    console().print(t("exported", thread=thread, records=count), markup=False)


def import_(where: Where, file: str, thread: str) -> None:
    workspace = workspace_of(where)
    require(workspace.member(where.user), "send")
    name = thread or f"import-{new_id()[-8:]}"
    if file != "-" and not Path(file).is_file():
        raise NotFound(f"there is no file {file!r}", hint="give the path of an export")
    with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
        count = import_thread(workspace.threads, scope_of(where, name), stream)
    console().print(t("imported", thread=name, records=count), markup=False)


def config(where: Where, *, as_json: bool) -> None:
    loaded = load(where.home, where.workspace)
    rows = loaded.rows()
    if as_json:
        print_json(rows)
        return
    made = table(t("col_key"), t("col_value"), t("col_unit"), t("col_source"))
    for row in rows:
        made.add_row(row["key"], plain(str(row["value"])), row["unit"], plain(row["source"]))
    console().print(made, markup=False)
