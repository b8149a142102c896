"""`tenuto doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from tenuto.agent.app import App, Workspace
from tenuto.agent.models import find
from tenuto.cli.show import console, plain, print_json, table
from tenuto.cli.text import t
from tenuto.disk import free_bytes
from tenuto.errors import TenutoError
from tenuto.log.store import ThreadLog
from tenuto.settings import load

if TYPE_CHECKING:
    from tenuto.cli.main import Where

LOW_DISK = 1 << 30
PROBLEM = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    state: Literal["ok", "warning", "problem"]
    found: str
    remedy: str = ""


def run(where: Where, *, as_json: bool, repair: bool) -> int:
    """Print every check; exit code 3 if there is a problem."""
    checks = asyncio.run(_collect(where, repair))
    problems = sum(check.state == "problem" for check in checks)
    if as_json:
        print_json([asdict(check) for check in checks])
        return PROBLEM if problems else 0
    made = table(t("col_check"), "", t("col_found"), t("col_do"))
    colours = {"ok": "green", "warning": "yellow", "problem": "red"}
    for check in checks:
        state = f"[{colours[check.state]}]{t(check.state)}[/]"
        made.add_row(plain(check.name), state, _safe(check.found), _safe(check.remedy))
    console().print(made)
    console().print(t("doctor_bad", count=problems) if problems else t("doctor_good"))
    return PROBLEM if problems else 0


def _safe(text: str) -> str:
    from rich.markup import escape

    return escape(plain(text))


async def _collect(where: Where, repair: bool) -> list[Check]:
    checks = [_disk(where)]
    try:
        load(where.home, where.workspace)
    except TenutoError as error:
        return [*checks, Check("settings", "problem", error.message, error.hint)]
    checks.append(Check("settings", "ok", where.workspace))
    async with App(where.home) as app:
        workspace = app.workspace(where.workspace)
        checks.append(await _sandbox(app, workspace))
        checks.extend([check async for check in _models(workspace)])
        checks.extend([check async for check in _servers(workspace, where.user)])
        checks.extend(_logs(workspace, repair))
    return checks


def _disk(where: Where) -> Check:
    free = free_bytes(where.home)
    found = f"{free / (1 << 30):.1f} GB free, {where.home}"
    if not os.access(where.home if where.home.exists() else where.home.parent, os.W_OK):
        return Check("disk", "problem", f"{where.home} can't be written", "choose another folder with --home")
    if free < LOW_DISK:
        return Check("disk", "warning", found, "free some disk space")
    return Check("disk", "ok", found)


async def _sandbox(app: App, workspace: Workspace) -> Check:
    if not workspace.settings.sandbox.enabled:
        return Check("sandbox", "warning", "switched off", "set sandbox.enabled = true")
    report = await app.engine(workspace.settings).probe()
    if report.ok:
        return Check("sandbox", "ok", "; ".join(report.notes))
    return Check("sandbox", "problem", report.cause, report.remedy)


async def _models(workspace: Workspace) -> AsyncIterator[Check]:
    settings = workspace.settings
    for name in dict.fromkeys([settings.agent.model, *settings.models]):
        try:
            served = find(name, settings)
            served.build()
        except TenutoError as error:
            state = "problem" if name == settings.agent.model else "warning"
            yield Check(f"model {name}", state, error.message, error.hint)
            continue
        chosen = settings.models.get(name)
        if chosen is not None and chosen.base_url and (wrong := await _unreachable(chosen.base_url)):
            yield Check(f"model {name}", "problem", wrong, "start the model server, or correct base_url")
        else:
            label = "rule-based" if name == "demo" else f"window {served.facts.window:,} tokens"
            yield Check(f"model {name}", "ok", label)


async def _unreachable(url: str) -> str:
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=5) as client:
            await client.get(url.rstrip("/") + "/models")
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"{url}: {error or type(error).__name__}"
    return ""


async def _servers(workspace: Workspace, user: str) -> AsyncIterator[Check]:
    for server in workspace.mcp.visible(user):
        try:
            tools = await server.tools()
        except TenutoError as error:
            yield Check(f"mcp {server.name}", "problem", error.message, error.hint)
        else:
            yield Check(f"mcp {server.name}", "ok", f"{len(tools)} tools")


def _logs(workspace: Workspace, repair: bool) -> list[Check]:
    checks: list[Check] = []
    folder = workspace.folder / ".logs"
    for path in sorted(folder.glob("conv-*.jsonl")):
        log = ThreadLog(path)
        try:
            readable = sum(1 for _ in log.scan())
        except TenutoError as error:
            checks.append(Check(path.name, "problem", error.message, error.hint))
            continue
        lost = [gap for gap in log.gaps if gap.kind in ("damaged", "missing")]
        if lost:
            what = "; ".join(f"{gap.kind} near #{gap.near_seq}: {gap.detail}" for gap in lost[:5])
            checks.append(
                Check(path.name, "warning", f"{readable} lines readable; {what}", "the rest is kept")
            )
    repaired = workspace.threads.repair() if repair else []
    checks.extend(Check(name, "ok", "its meta file was written anew from the log") for name in repaired)
    return checks or [Check("logs", "ok", str(folder))]
