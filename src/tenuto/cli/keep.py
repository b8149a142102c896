"""What the commands for task, memory, search, clearing and verification do."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tenuto.agent.app import App
from tenuto.agent.tasks import Report
from tenuto.agent.verify import verify as verify_workspace
from tenuto.cli.look import scope_of, with_app, workspace_of
from tenuto.cli.show import console, plain, print_json, table
from tenuto.cli.text import t, word
from tenuto.codec import JsonError, JsonObject, dumps_pretty, loads
from tenuto.errors import UsageError
from tenuto.scope import require
from tenuto.task.ledger import KINDS, Item

if TYPE_CHECKING:
    from tenuto.cli.main import Where


def _sure(question: str, sure: bool) -> bool:
    """Whether to go on: asked on a terminal, refused from a pipe unless `--yes` says so."""
    if sure:
        return True
    if not sys.stdin.isatty():
        raise UsageError(t("needs_yes"), hint="--yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes", "是")


# -- task --------------------------------------------------------------------------------------------------


def task_show(where: Where, thread: str, *, as_json: bool) -> None:
    workspace = workspace_of(where)
    known = workspace.thread(scope_of(where, thread))
    ledger = workspace.tasks.store(thread).load()
    items = workspace.tasks.items(known, workspace.conversation(known))
    if as_json:
        print_json({**ledger.as_json(), "items": [item.as_json() for item in items]})
        return
    if not items:
        console().print(t("task_empty"))
        return
    made = table(t("col_item"), t("col_kind"), t("col_state"), t("col_text"), t("col_words"))
    for item in items:
        made.add_row(item.id, word(item.kind), _state(item), plain(item.text), plain(_evidence(item)))
    console().print(made, markup=False)
    console().print(
        t("task_covers", seq=ledger.covers_seq, version=ledger.version), style="dim", markup=False
    )
    if ledger.error:
        console().print(
            t("task_failed", reason=plain(ledger.error), at=ledger.retry_at), style="yellow", markup=False
        )


def _state(item: Item) -> str:
    marks = [
        word(item.status),
        "" if item.verified else word("unconfirmed"),
        word("pinned") if item.pinned else "",
    ]
    return ", ".join(mark for mark in marks if mark)


def _evidence(item: Item) -> str:
    return "; ".join(f"“{change.quote}” #{change.record}" for change in item.source) or word("by hand")


def task_history(where: Where, thread: str, *, as_json: bool) -> None:
    workspace = workspace_of(where)
    workspace.thread(scope_of(where, thread))
    history = workspace.tasks.store(thread).history()
    if as_json:
        print_json(history)
        return
    for line in history:
        ledger, change = line["ledger"], line["change"]
        took = ", ".join(f"#{a}–#{b}" for a, b in change.get("took_in", ()))
        head = t(
            "task_version",
            version=ledger["version"],
            at=ledger["at"][:16].replace("T", " "),
            by=word(change["by"]),
        )
        console().print(plain(f"{head} {took}"), style="bold", markup=False)
        for one in change.get("operations", ()):
            reason = f" ({one['reason']})" if one["reason"] else ""
            words = one.get("text") or one.get("quote", "")
            console().print(
                plain(f"  {word(one['result'])}: {one.get('op', '')} {one['applied_to']} {words}{reason}"),
                markup=False,
            )
        if change["by"] == "user":
            console().print(plain(f"  {change['action']} {change['item']} {change['text']}"), markup=False)


def task_refresh(where: Where, thread: str, focus: str, *, as_json: bool) -> int:
    async def work(app: App) -> Report:
        return await app.compact(scope_of(where, thread), focus)

    report = with_app(where, work)
    if as_json:
        print_json(report.as_json())
    else:
        console().print(
            t(f"refresh_{report.result}", reason=plain(report.reason), seq=report.covers_seq), markup=False
        )
    return 1 if report.result == "failed" else 0


def task_hand(
    where: Where, thread: str, action: str, *, item: str = "", kind: str = "constraint", text: str = ""
) -> None:
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is no kind of item", hint=f"use one of {', '.join(KINDS)}")
    workspace = workspace_of(where)
    require(workspace.member(where.user), "send")
    known = workspace.thread(scope_of(where, thread))
    conversation = workspace.conversation(known)
    workspace.tasks.by_hand(known, conversation, action, item=item, kind=kind, text=text)
    task_show(where, thread, as_json=False)


# -- memory ------------------------------------------------------------------------------------------------


def memory_list(where: Where, *, everything: bool, as_json: bool) -> None:
    workspace = workspace_of(where)
    store = workspace.memories.store(where.user)
    memory, uses = store.load(), store.uses()
    facts = [fact for fact in memory.facts if everything or fact.status == "active"]
    if as_json:
        shown = [{**fact.as_json(), "used": uses.get(fact.id, {"count": 0})["count"]} for fact in facts]
        print_json({"use": memory.use, "extract": memory.extract, "facts": shown})
        return
    console().print(
        t("memory_state", use=t("on" if memory.use else "off"), extract=t("on" if memory.extract else "off"))
    )
    made = table(t("col_fact"), t("col_importance"), t("col_state"), t("col_text"), t("col_uses"))
    for fact in facts:
        held = "; ".join(one for one in (fact.applies_to, fact.until and f"≤ {fact.until}") if one)
        words = f"{fact.text} ({held})" if held else fact.text
        count = str(uses.get(fact.id, {"count": 0})["count"])
        made.add_row(fact.id, str(fact.importance), word(fact.status), plain(words), count)
    console().print(made, markup=False)


def memory_add(
    where: Where, text: str, importance: int, applies_to: str, until: str, *, as_json: bool
) -> None:
    workspace = workspace_of(where)
    require(workspace.member(where.user), "send")
    fact = workspace.memories.add(where.user, text, importance=importance, applies_to=applies_to, until=until)
    if as_json:
        print_json(fact.as_json())
    else:
        console().print(t("memory_added", fact=fact.id), markup=False)


def memory_edit(where: Where, fact: str, text: str) -> None:
    workspace_of(where).memories.edit(where.user, fact, text)
    console().print(t("memory_edited", fact=fact), markup=False)


def memory_explain(where: Where, fact: str, *, as_json: bool) -> None:
    told = workspace_of(where).memories.explain(where.user, fact)
    if as_json:
        print_json(told)
        return
    console().print(plain(told["fact"]["text"]), markup=False)
    used = told["used"]
    if used["count"]:
        last = t("memory_used", count=used["count"], thread=used["thread"], turn=used["turn"])
        console().print(last, markup=False)
    console().print(
        t("memory_next") if told["in_the_next_request"] else t("memory_not_next", reason=word(told["reason"]))
    )


def memory_forget(where: Where, facts: list[str]) -> None:
    count = workspace_of(where).memories.forget(where.user, facts)
    console().print(t("memory_forgotten", count=count), markup=False)


def memory_delete(where: Where, facts: list[str], *, everything: bool, sure: bool, as_json: bool) -> int:
    if not facts and not everything:
        raise UsageError("no fact is named", hint="name facts, or --all")
    if not _sure(t("memory_sure"), sure):
        return 1
    receipt = workspace_of(where).memories.delete(where.user, None if everything else facts)
    if as_json:
        print_json(receipt)
    else:
        console().print(
            t("memory_deleted", count=receipt["facts"], shown=receipt["shown_in_requests"]), markup=False
        )
    return 0


def memory_switch(where: Where, on: bool, *, extraction: bool) -> None:
    memories = workspace_of(where).memories
    memory = memories.switch(where.user, extract=on) if extraction else memories.switch(where.user, use=on)
    console().print(
        t("memory_state", use=t("on" if memory.use else "off"), extract=t("on" if memory.extract else "off"))
    )


def memory_export(where: Where, file: str) -> None:
    memory = workspace_of(where).memories.store(where.user).load()
    raw = dumps_pretty([fact.as_json() for fact in memory.active])
    if file == "-":
        sys.stdout.buffer.write(raw)
    else:
        Path(file).write_bytes(raw)


def memory_import(where: Where, file: Path) -> int:
    try:
        raw: Any = loads(file.read_bytes())
    except (FileNotFoundError, JsonError) as error:
        raise UsageError(
            f"{file} is no export of a memory", hint="give a file made by `tenuto memory export`"
        ) from error
    if not isinstance(raw, list):
        raise UsageError(
            f"{file} is no export of a memory", hint="give a file made by `tenuto memory export`"
        )
    facts = [cast("JsonObject", one) for one in cast("list[Any]", raw) if isinstance(one, dict)]
    taken, refused = workspace_of(where).memories.import_facts(where.user, facts)
    console().print(t("memory_imported", count=taken, refused=len(refused)), markup=False)
    return 1 if refused else 0


# -- branches and files -------------------------------------------------------------------------------------


def branch_list(where: Where, thread: str, *, as_json: bool) -> None:
    workspace_of(where)
    found = App(where.home).branches(scope_of(where, thread))
    if as_json:
        print_json(found)
        return
    made = table(t("col_records"), t("col_turn"), t("col_used"), "", t("layer_question"))
    for branch in found:
        mark = "●" if branch["active"] else ""
        when = branch["at"][:16].replace("T", " ")
        made.add_row(f"#{branch['record']}", str(branch["turn"]), when, mark, plain(branch["question"]))
    console().print(made, markup=False)


def branch_select(where: Where, thread: str, record: int) -> None:
    with_app(where, lambda app: app.go_back(scope_of(where, thread), record))
    branch_list(where, thread, as_json=False)


def attach(where: Where, thread: str, path: Path, name: str, *, as_json: bool) -> None:
    taken = workspace_of(where).attach(scope_of(where, thread), path, name)
    if as_json:
        print_json(asdict(taken))
        return
    line = t(
        "attached_folder",
        name=taken.name,
        files=f"{taken.files:,}",
        bytes=f"{taken.bytes:,}",
        left=taken.passed_over,
    )
    console().print(line, markup=False)


def versions(
    where: Where, thread: str, name: str, one: int | None, other: int | None, *, as_json: bool
) -> None:
    workspace = workspace_of(where)
    scope = scope_of(where, thread)
    workspace.thread(scope)
    files = workspace.files(scope)
    if one is not None and other is not None:
        console().print(plain(files.difference(name, one, other)), markup=False)
        return
    if one is not None:
        console().print(plain(files.read(name, one).decode("utf-8", "replace")), markup=False)
        return
    found = files.versions(name)
    if as_json:
        print_json([asdict(version) for version in found])
        return
    made = table(t("col_version"), t("col_size"), t("col_used"))
    for version in found:
        made.add_row(str(version.version), f"{version.bytes:,}", version.changed[:16].replace("T", " "))
    console().print(made, markup=False)


# -- search, clearing, verification -----------------------------------------------------------------------


def search(
    where: Where, query: str, since: str, until: str, thread: str, limit: int, *, rebuild: bool, as_json: bool
) -> None:
    workspace = workspace_of(where)
    if rebuild:
        workspace.history.rebuild(where.user)
    found = workspace.history.search(where.user, query, since=since, until=until, thread=thread, limit=limit)
    if as_json:
        print_json([hit.as_json() for hit in found])
        return
    if not found:
        console().print(t("search_none"))
    for hit in found:
        head = f"{hit.at[:10]}  {hit.thread} #{hit.record}  {word(hit.speaker)}"
        console().print(plain(head), style="bold", markup=False)
        console().print(plain(hit.text), markup=False)
        for later in hit.later:
            text = t("search_later", at=later["at"][:10], record=later["record"], text=plain(later["text"]))
            console().print(text, style="yellow", markup=False)


def clear(where: Where, thread: str, *, keep_files: bool, sure: bool, as_json: bool) -> int:
    if not _sure(t("clear_sure", thread=thread), sure):
        return 1
    receipt = with_app(where, lambda app: app.clear(scope_of(where, thread), keep_files=keep_files))
    print_receipt(receipt, as_json)
    return 0


def delete(where: Where, thread: str, user: str, *, sure: bool, as_json: bool) -> int:
    if bool(thread) == bool(user):
        raise UsageError("name a thread, or a user with --of-user", hint="tenuto delete --help")
    if not _sure(t("delete_sure", what=thread or user), sure):
        return 1
    if user:
        workspace = workspace_of(where)
        if user != where.user:
            require(workspace.member(where.user), "administer")
        receipt = with_app(where, lambda app: app.delete_user(where.workspace, user))
    else:
        receipt = with_app(where, lambda app: app.delete(scope_of(where, thread)))
    print_receipt(receipt, as_json)
    return 0


def retention(where: Where, *, as_json: bool) -> None:
    require(workspace_of(where).member(where.user), "administer")
    receipts = with_app(where, lambda app: app.retain(where.workspace))
    if as_json:
        print_json(receipts)
    else:
        console().print(t("retained", count=len(receipts)), markup=False)


def print_receipt(receipt: JsonObject, as_json: bool) -> None:
    """What was removed and what was kept."""
    if as_json:
        print_json(receipt)
        return
    for one in receipt.get("receipts", [receipt]):
        console().print(plain(f"{word(one['what'])}: {one.get('thread', '')}"), style="bold", markup=False)
        for name, size in one.get("removed", {}).items():
            line = t("receipt_line", what=word(name), count=size["count"], bytes=f"{size['bytes']:,}")
            console().print(f"  {line}", markup=False)
    for kept in receipt["kept"]:
        console().print(t("receipt_kept", what=word(kept)), style="dim", markup=False)


def verify(where: Where, *, as_json: bool) -> int:
    workspace = workspace_of(where)
    require(workspace.member(where.user), "administer")
    found = verify_workspace(workspace)
    if as_json:
        print_json(asdict(found))
    else:
        for finding in found.findings:
            console().print(
                plain(f"{word(finding.kind)}: {finding.where}: {finding.what}"), style="red", markup=False
            )
        line = t("verified", threads=found.threads, records=f"{found.records:,}", facts=found.facts)
        console().print(line, markup=False)
        console().print(
            t("verify_good") if not found.findings else t("verify_bad", count=len(found.findings))
        )
    return 3 if found.findings else 0
