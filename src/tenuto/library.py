"""Tenuto as a library: an app on one folder, threads, memory, search, and a capability for agents of one's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.agent.app import App
from tenuto.agent.events import Event
from tenuto.agent.history import Found
from tenuto.agent.inspect import context_of
from tenuto.agent.inspect import why as why_of
from tenuto.agent.tasks import Report
from tenuto.agent.tools import Approve
from tenuto.agent.verify import Verified, verify
from tenuto.codec import JsonObject
from tenuto.log.record import Record
from tenuto.memory.facts import Fact
from tenuto.scope import Scope, require
from tenuto.settings import home as default_home
from tenuto.task.ledger import Item

if TYPE_CHECKING:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.models import Model

DEFAULT_WORKSPACE = "default"
DEFAULT_USER = "local"


class Tenuto:
    """One home folder. An async context manager; background work is finished when it closes.

    `settings` are nested values above every other layer, for example `{"agent": {"model": "openai:gpt-5"}}`.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        models: Mapping[str, Model] | None = None,
    ) -> None:
        """`models` are ready Pydantic AI models by the name under which threads use them."""
        place = Path(home) if home is not None else default_home()
        self.app = App(place, overrides=settings, models=models)

    async def __aenter__(self) -> Tenuto:
        await self.app.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.app.__aexit__(*error)

    def thread(
        self, *, thread: str, workspace: str = DEFAULT_WORKSPACE, user: str = DEFAULT_USER
    ) -> ThreadHandle:
        """A thread by its address; it is made when something is sent. Raises `InvalidId`."""
        return ThreadHandle(self.app, Scope(workspace, user, thread))

    def threads(self, *, workspace: str = DEFAULT_WORKSPACE, user: str = DEFAULT_USER) -> list[ThreadHandle]:
        """The user's threads, the latest used first."""
        found = self.app.workspace(workspace).threads.of(user)
        return [ThreadHandle(self.app, Scope(workspace, user, thread.thread)) for thread in found]

    def memory(self, *, workspace: str = DEFAULT_WORKSPACE, user: str = DEFAULT_USER) -> MemoryHandle:
        """What is remembered of a user. Raises `NotFound` for a stranger."""
        self.app.workspace(workspace).member(user)
        return MemoryHandle(self.app, workspace, user)

    def search(
        self,
        query: str,
        *,
        workspace: str = DEFAULT_WORKSPACE,
        user: str = DEFAULT_USER,
        since: str = "",
        until: str = "",
        thread: str = "",
        limit: int = 10,
    ) -> list[Found]:
        """The user's own history, in the original words. `since` and `until` are days: `2026-11-30`."""
        place = self.app.workspace(workspace)
        require(place.member(user), "read")
        return place.history.search(user, query, since=since, until=until, thread=thread, limit=limit)

    def verify(self, *, workspace: str = DEFAULT_WORKSPACE) -> Verified:
        """Prove on disk that nothing cleared or deleted is left, and that every file is sound."""
        return verify(self.app.workspace(workspace))

    async def delete_user(self, user: str, *, workspace: str = DEFAULT_WORKSPACE) -> JsonObject:
        """Everything of a user: threads, memory, results, files. Returns the receipt."""
        return await self.app.delete_user(workspace, user)


class ThreadHandle:
    """One thread."""

    def __init__(self, app: App, scope: Scope) -> None:
        self._app = app
        self.scope = scope

    def send(
        self, text: str, *, model: str | None = None, approve: Approve | None = None
    ) -> AsyncIterator[Event]:
        """Ask; yields typed events, the last one `TurnEnded`. The turn goes on if nobody reads."""
        return self._app.send(self.scope, text, model=model, approve=approve).events()

    async def ask(self, text: str, *, model: str | None = None) -> str:
        """Ask and wait for the answer. Raises what kept the turn from starting; see `send` for everything else."""
        return (await self._app.send(self.scope, text, model=model).ended()).answer

    def edit(self, turn: int, text: str) -> AsyncIterator[Event]:
        """Ask an earlier turn's question in other words, on a branch."""
        return self._app.edit(self.scope, turn, text).events()

    def regenerate(self, turn: int) -> AsyncIterator[Event]:
        """Answer an earlier turn's question once more, on a branch."""
        return self._app.regenerate(self.scope, turn).events()

    def branches(self) -> list[JsonObject]:
        """Every branch, `{record, turn, at, active, question}`."""
        return self._app.branches(self.scope)

    async def go_back(self, record: int) -> None:
        """Make the branch that ends in this record the active one."""
        await self._app.go_back(self.scope, record)

    def records(self, *, before: int | None = None, limit: int = 100) -> list[Record]:
        """A page of the active branch, oldest first; `before` is the first record of the page that follows it."""
        place = self._app.workspace(self.scope.workspace)
        return place.conversation(place.thread(self.scope)).log.page(before, limit)

    def context(self, turn: int | None = None, step: int | None = None) -> JsonObject:
        """What the model was given in a turn: the manifest with the exact text of every block."""
        place = self._app.workspace(self.scope.workspace)
        return context_of(place.conversation(place.thread(self.scope)), turn, step, texts_too=True)

    def why(self, words: str, turn: int | None = None) -> JsonObject:
        """Each place where words stand: in the context by layer, in the log, in files; and why not."""
        return why_of(self._app.workspace(self.scope.workspace), self.scope, words, turn)

    def task(self) -> list[Item]:
        """The items of the task that apply on the active branch."""
        place = self._app.workspace(self.scope.workspace)
        thread = place.thread(self.scope)
        return place.tasks.items(thread, place.conversation(thread))

    async def compact(self, focus: str = "") -> Report:
        """Refresh the task now and move the window to the last turns."""
        return await self._app.compact(self.scope, focus)

    def attach(self, path: Path | str, name: str = "") -> JsonObject:
        """Attach a folder or an archive, to be read on demand: `{name, files, bytes, passed_over}`."""
        from dataclasses import asdict

        return asdict(self._app.workspace(self.scope.workspace).attach(self.scope, Path(path), name))

    async def clear(self) -> JsonObject:
        """Clear the thread; when this returns, nothing holds its content. Returns the receipt."""
        return await self._app.clear(self.scope)

    async def delete(self) -> JsonObject:
        """Clear the thread and forget that there was one. Returns the receipt."""
        return await self._app.delete(self.scope)

    def continuity(self) -> AbstractCapability[Any]:
        """A Pydantic AI capability that gives your own agent this thread's context layers."""
        from tenuto.agent.capability import Continuity

        return Continuity(self._app, self.scope)


class MemoryHandle:
    """What is remembered of one user in one workspace."""

    def __init__(self, app: App, workspace: str, user: str) -> None:
        self._memories = app.workspace(workspace).memories
        self._user = user

    def facts(self) -> list[Fact]:
        """The active facts."""
        return self._memories.store(self._user).load().active

    def switch(self, *, use: bool | None = None, extract: bool | None = None) -> None:
        """Switch use and extraction, each by itself."""
        self._memories.switch(self._user, use=use, extract=extract)

    def add(self, text: str, *, importance: int = 3, applies_to: str = "", until: str = "") -> Fact:
        """Add a fact. Raises `FactRefused`."""
        return self._memories.add(self._user, text, importance=importance, applies_to=applies_to, until=until)

    def edit(self, fact: str, text: str) -> None:
        """Change a fact's text. Raises `FactRefused` or `NotFound`."""
        self._memories.edit(self._user, fact, text)

    def forget(self, *facts: str) -> int:
        """Take facts out of use; a bounded history keeps them."""
        return self._memories.forget(self._user, facts)

    def delete(self, *facts: str) -> JsonObject:
        """Delete facts for good, without arguments all of them. Returns the receipt."""
        return self._memories.delete(self._user, facts or None)

    def explain(self, fact: str) -> JsonObject:
        """When a fact was used, and why it isn't in the next request if it isn't."""
        return self._memories.explain(self._user, fact)

    def import_facts(self, facts: Sequence[JsonObject]) -> tuple[int, list[str]]:
        """Facts of an export; returns how many were taken, and why others were not."""
        return self._memories.import_facts(self._user, facts)
