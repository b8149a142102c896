"""`tenuto chat`: a conversation in the terminal. Streams, stops with Ctrl-C, keeps a history of inputs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.agent.app import App, RunningTurn
from tenuto.agent.events import ApprovalAsked, Event, TurnEnded, as_json
from tenuto.cli.show import console, plain
from tenuto.cli.text import t
from tenuto.codec import dumps, new_id
from tenuto.context.fence import words
from tenuto.errors import NotFound, TenutoError
from tenuto.scope import Scope
from tenuto.settings import load

if TYPE_CHECKING:
    from tenuto.cli.main import Where

ARGUMENT_CHARS = 120


def run(where: Where, thread: str, model: str, message: str | None, *, allow: bool, as_json: bool) -> int:
    """Run the chat; returns the exit code."""
    return asyncio.run(_run(where, thread, model, message, allow, as_json))


def demo_server() -> dict[str, Any]:
    """Settings of the demo's energy server, as a workspace would write them."""
    return {"command": sys.executable, "args": ["-m", "tenuto.demo.server"], "prefix": ""}


async def _run(where: Where, thread: str, model: str, message: str | None, allow: bool, as_json: bool) -> int:
    settings = load(where.home, where.workspace).settings
    chosen = model or settings.agent.model
    # Whoever tries the demo model without servers of their own gets the data it can talk about.
    demo = chosen == "demo" and not settings.mcp
    overrides: Mapping[str, Any] | None = {"mcp": {"energy": demo_server()}} if demo else None
    scope = Scope(where.workspace, where.user, thread or f"chat-{new_id()[-8:]}")
    async with App(where.home, overrides=overrides) as app:
        chat = _Chat(app, scope, model, allow, as_json)
        if message is not None:
            return await chat.turn(message)
        if demo and not as_json:
            console().print(t("chat_demo"), markup=False)
        return await chat.loop(chosen)


class _Chat:
    def __init__(self, app: App, scope: Scope, model: str, allow: bool, as_json: bool) -> None:
        self._app = app
        self._scope = scope
        self._model = model
        self._allow = allow
        self._as_json = as_json
        self._out = console()
        self._open_line = False

    def _said_before(self) -> list[str]:
        """The user's earlier messages of this thread, for the arrow keys: from the log, so that a clear clears them."""
        workspace = self._app.workspace(self._scope.workspace)
        try:
            conversation = workspace.conversation(workspace.thread(self._scope))
        except NotFound:
            return []
        return [words(record) for record in conversation.log.page(None, 400) if record.is_question]

    async def loop(self, model: str) -> int:
        self._out.print(t("chat_start", thread=self._scope.thread, model=model), markup=False)
        ask = _reader(self._said_before())
        while True:
            try:
                line = (await ask("› ")).strip()
            except (EOFError, KeyboardInterrupt):
                return 0
            if not line:
                continue
            if line in ("/quit", "/exit"):
                return 0
            try:
                if line.startswith("/"):
                    await self._command(line)
                else:
                    await self.turn(line)
            except TenutoError as error:
                self._out.print(
                    f"{t('error')} [{error.code}]: {plain(error.message)} — {plain(error.hint)}", markup=False
                )

    async def _command(self, line: str) -> None:
        from tenuto.agent.inspect import context_of
        from tenuto.cli.show import show_context

        command, _, rest = line.partition(" ")
        workspace = self._app.workspace(self._scope.workspace)
        if command == "/help":
            self._out.print(t("chat_help"), markup=False)
        elif command == "/model":
            self._model = rest.strip() or self._model
            if rest.strip():
                workspace.thread(self._scope, create=True)
                workspace.threads.change(self._scope, model=self._model)
            self._out.print(t("model_now", model=self._model or workspace.settings.agent.model), markup=False)
        elif command == "/context":
            conversation = workspace.conversation(workspace.thread(self._scope))
            show_context(self._out, context_of(conversation, int(rest) if rest.strip().isdigit() else None))
        elif command == "/task":
            from tenuto.task.render import render

            thread = workspace.thread(self._scope)
            items = workspace.tasks.items(thread, workspace.conversation(thread))
            self._out.print(plain(render(items, 4_000).text) or t("task_empty"), markup=False)
        elif command in ("/edit", "/again"):
            await self._branch(command, rest.strip())
        elif command == "/compact":
            report = await self._app.compact(self._scope, rest.strip())
            done = t(f"refresh_{report.result}", reason=plain(report.reason), seq=report.covers_seq)
            self._out.print(done, markup=False)
        elif command == "/clear":
            from tenuto.cli.keep import print_receipt

            workspace.thread(self._scope)
            answer = await asyncio.to_thread(input, t("clear_sure", thread=self._scope.thread) + " [y/N] ")
            if answer.strip().lower() in ("y", "yes", "是"):
                print_receipt(await self._app.clear(self._scope), False)
        elif command == "/files":
            workspace.thread(self._scope)
            for result in workspace.results(self._scope).all():
                self._out.print(f"{result.name}  {result.bytes:,}  {result.state}", markup=False)
            for file in workspace.files(self._scope).all():
                self._out.print(f"{plain(file.name)}  {file.bytes:,}", markup=False)
        else:
            self._out.print(t("chat_unknown", command=plain(command)), markup=False)

    async def _branch(self, command: str, rest: str) -> None:
        number, _, text = rest.partition(" ")
        conversation = self._app.workspace(self._scope.workspace).conversation(
            self._app.workspace(self._scope.workspace).thread(self._scope)
        )
        turn = int(number) if number.isdigit() else conversation.log.page(None, 1)[-1].turn
        more = {"model": self._model or None, "approve": self._approve}
        if command == "/again":
            await self._follow(self._app.regenerate(self._scope, turn, **more))
        elif text.strip():
            await self._follow(self._app.edit(self._scope, turn, text.strip(), **more))
        else:
            self._out.print(t("chat_help"), markup=False)

    async def turn(self, text: str) -> int:
        """Send one message and show what comes; Ctrl-C stops the turn and keeps what came."""
        return await self._follow(
            self._app.send(self._scope, text, model=self._model or None, approve=self._approve)
        )

    async def _follow(self, running: RunningTurn) -> int:
        ended: TurnEnded | None = None
        with _interrupts(running):
            async for event in running.events():
                if self._as_json:
                    sys.stdout.buffer.write(dumps(as_json(event)) + b"\n")
                    sys.stdout.buffer.flush()
                else:
                    self._show(event)
                if isinstance(event, TurnEnded):
                    ended = event
        if ended is None or ended.reason == "failed":
            return _code(ended)
        return 130 if ended.reason == "stopped" else 0

    def _show(self, event: Event) -> None:
        if event.type == "text_delta":
            self._out.print(plain(event.text), end="", markup=False, soft_wrap=True)
            self._open_line = not event.text.endswith("\n")
            return
        if event.type in ("request_sent", "thinking_delta", "tool_output", "approval_asked"):
            return
        if self._open_line:
            self._out.print()
            self._open_line = False
        if event.type == "turn_started":
            if event.attached:
                self._dim(t("attached", name=event.attached))
            for notice in event.notices:
                self._dim(notice)
        elif event.type == "queued":
            self._dim(t("queued", position=event.position))
        elif event.type == "tool_called":
            arguments = dumps(event.arguments).decode()
            self._dim(f"→ {event.tool} {arguments[:ARGUMENT_CHARS]}")
        elif event.type == "tool_returned":
            self._dim(f"← {event.tool}: {event.outcome}, {event.ms:.0f} ms")
            if event.result:
                rows = "" if event.rows is None else f"{event.rows:,}"
                self._dim("  " + t("saved", name=event.result, rows=rows))
            for name in event.files:
                folder = self._app.workspace(self._scope.workspace).files(self._scope).folder
                self._dim("  " + t("file", name=folder / name))
        elif isinstance(event, TurnEnded):
            self._end(event)

    def _end(self, event: TurnEnded) -> None:
        if event.reason == "stopped":
            self._dim(t("stopped"))
        if event.error is not None:
            message, hint = plain(event.error["message"]), plain(event.error["hint"])
            self._out.print(
                f"{t('error')} [{event.error['code']}]: {message} — {hint}", markup=False, style="red"
            )
        if event.not_saved:
            self._out.print(t("not_saved"), style="yellow", markup=False)
        usage = event.usage
        self._dim(
            t(
                "usage",
                input=f"{usage['input_tokens']:,}",
                cached=f"{usage['cached_tokens']:,}",
                output=f"{usage['output_tokens']:,}",
                requests=usage["requests"],
            )
        )

    def _dim(self, text: object) -> None:
        self._out.print(plain(str(text)), style="dim", markup=False)

    async def _approve(self, asked: ApprovalAsked) -> bool:
        if self._allow:
            return True
        if not sys.stdin.isatty():
            return False
        question = t("approve", tool=asked.tool, arguments=dumps(asked.arguments).decode()[:500])
        answer = await asyncio.to_thread(input, plain(question))
        return answer.strip().lower() in ("y", "yes", "是")


def _code(ended: TurnEnded | None) -> int:
    from tenuto import errors

    code = ended.error["code"] if ended is not None and ended.error is not None else ""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, TenutoError) and kind.code == code:
            return kind.exit_code
    return 1


@contextlib.contextmanager
def _interrupts(running: RunningTurn) -> Generator[None]:
    """Ctrl-C stops the turn rather than the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, running.stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _reader(before: Sequence[str]) -> Any:
    """Reads a line: with history and editing on a terminal, plainly from a pipe."""
    if not sys.stdin.isatty():

        async def plain_line(_: str) -> str:
            line = await asyncio.to_thread(sys.stdin.readline)
            if not line:
                raise EOFError
            return line

        return plain_line
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import InMemoryHistory

    session: PromptSession[str] = PromptSession(history=InMemoryHistory(list(before)))
    return session.prompt_async
