"""`tenuto demo`: the story in the terminal, or as data."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import cast

from tenuto.agent.events import Event
from tenuto.cli.keep import print_receipt
from tenuto.cli.show import console, plain, print_json, show_context, table
from tenuto.cli.text import language as language_of_user
from tenuto.cli.text import t
from tenuto.codec import JsonObject, dumps, dumps_pretty
from tenuto.demo.story import Check, tell
from tenuto.disk import write_atomic
from tenuto.errors import SandboxUnavailable
from tenuto.sandbox import environment

FAILED = 3
CODE_LINES = 6


def run(json: str | None) -> int:
    """Exit code 0 only if everything held; 3 otherwise, after saying what did not."""
    if not environment.is_ready(environment.default_env()):
        raise SandboxUnavailable(
            "the sandbox's Python environment is not built", hint="run `tenuto sandbox setup` first"
        )
    if json is None:
        folder = Path(tempfile.mkdtemp(prefix="tenuto-demo-"))
        checks = asyncio.run(tell(folder, _Terminal()))
        _summary(checks)
    else:
        with tempfile.TemporaryDirectory(prefix="tenuto-demo-") as folder:
            checks = asyncio.run(tell(Path(folder), _Nobody()))
        value = {"ok": all(check.held for check in checks), "checks": [_as_json(check) for check in checks]}
        if json == "-":
            print_json(value)
        else:
            write_atomic(Path(json), dumps_pretty(value))
    return 0 if all(check.held for check in checks) else FAILED


def _as_json(check: Check) -> JsonObject:
    return {
        "name": check.name,
        "language": check.language,
        "shown": check.shown,
        "truth": check.truth,
        "held": check.held,
    }


def _summary(checks: list[Check]) -> None:
    out = console()
    out.rule(t("demo_checks"))
    made = table("", "", t("demo_shown"), t("demo_truth"))
    for check in checks:
        mark = "[green]✓[/]" if check.held else "[red]✗[/]"
        language = f" ({check.language})" if check.language else ""
        name = check.name_zh if language_of_user() == "zh" else check.name
        made.add_row(mark, f"{name}{language}", _value(check.shown), _value(check.truth))
    out.print(made)
    failed = [check for check in checks if not check.held]
    if failed:
        out.print(t("demo_bad", count=len(failed)), style="bold red")
    else:
        out.print(t("demo_good"), style="bold green")


def _value(value: object) -> str:
    if isinstance(value, list):
        items = cast("list[object]", value)
        return " ".join(f"{item:,.2f}" if isinstance(item, float) else str(item) for item in items)
    return str(value)


class _Nobody:
    def heading(self, key: str, **values: object) -> None: ...

    def question(self, text: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def context(self, context: JsonObject) -> None: ...

    def chart(self, path: Path) -> None: ...

    def receipt(self, receipt: JsonObject) -> None: ...


class _Terminal:
    """The story with Rich, as it happens."""

    def __init__(self) -> None:
        self._out = console()
        self._open = False
        self._out.rule(t("demo_title"))
        self._out.print(t("demo_rule"), style="dim")

    def heading(self, key: str, **values: object) -> None:
        self._out.rule(t(key, **values))

    def question(self, text: str) -> None:
        self._out.print(f"\n› {plain(text)}", style="bold", markup=False)

    def chart(self, path: Path) -> None:
        self._out.print(f"{t('demo_chart')}: {path}", style="green", markup=False, soft_wrap=True)

    def receipt(self, receipt: JsonObject) -> None:
        print_receipt(receipt, False)

    def context(self, context: JsonObject) -> None:
        self._out.print(f"\n{t('demo_context')}", style="bold")
        show_context(self._out, context)

    def event(self, event: Event) -> None:
        if event.type == "text_delta":
            self._out.print(plain(event.text), end="", markup=False, soft_wrap=True)
            self._open = True
            return
        if self._open:
            self._out.print()
            self._open = False
        if event.type == "tool_called":
            code = event.arguments.get("code")
            shown = dumps(event.arguments).decode() if code is None else ""
            self._out.print(f"  → {event.tool} {plain(shown)}", style="cyan", markup=False)
            if isinstance(code, str):
                self._code(code)
        elif event.type == "tool_returned":
            self._out.print(
                f"  ← {event.tool}: {event.outcome}, {event.ms:.0f} ms", style="cyan", markup=False
            )
            if event.result:
                rows = "" if event.rows is None else f"{event.rows:,}"
                self._out.print(
                    "    " + t("saved", name=event.result, rows=rows), style="yellow", markup=False
                )
        elif event.type == "turn_ended" and event.error is not None:
            self._out.print(f"{t('error')}: {plain(event.error['message'])}", style="red", markup=False)

    def _code(self, code: str) -> None:
        lines = plain(code).splitlines()
        for line in lines[:CODE_LINES]:
            self._out.print(f"    {line}", style="dim", markup=False)
        if len(lines) > CODE_LINES:
            self._out.print(f"    … ({len(lines)})", style="dim", markup=False)
