"""Who asks: the one place that turns a request into a user, and with the path into a scope.

Sign-in is added by giving `create_app` another `Identity`; no route knows how a user was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Path, Request

from tenuto.agent.app import App, Workspace
from tenuto.agent.conversation import Conversation
from tenuto.log.threads import Thread
from tenuto.scope import Action, Member, Scope, require
from tenuto.server.runs import Runs


class Identity(Protocol):
    async def user(self, request: Request) -> str:
        """The id of the user who asks. Raises `Forbidden` for a stranger."""
        ...


@dataclass(frozen=True, slots=True)
class LocalUser:
    """Everybody who reaches a loopback address is the one local user."""

    name: str

    async def user(self, request: Request) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Here:
    """A workspace as its member sees it."""

    app: App
    runs: Runs
    workspace: Workspace
    member: Member

    @property
    def user(self) -> str:
        return self.member.user

    def need(self, action: Action) -> None:
        """Raises `Forbidden`."""
        require(self.member, action)


@dataclass(frozen=True, slots=True)
class At:
    """One of the user's threads, which may not exist yet."""

    here: Here
    scope: Scope

    @property
    def app(self) -> App:
        return self.here.app

    @property
    def runs(self) -> Runs:
        return self.here.runs

    @property
    def workspace(self) -> Workspace:
        return self.here.workspace

    @property
    def thread(self) -> Thread:
        """Raises `NotFound`, also for somebody else's (I13)."""
        return self.workspace.thread(self.scope)

    @property
    def conversation(self) -> Conversation:
        return self.workspace.conversation(self.thread)


async def user_of(request: Request) -> str:
    identity: Identity = request.app.state.identity
    return await identity.user(request)


async def here(
    request: Request,
    workspace: Annotated[str, Path(description="Workspace id.", examples=["demo"])],
    user: Annotated[str, Depends(user_of)],
) -> Here:
    app: App = request.app.state.tenuto
    found = app.known(workspace)
    return Here(app, request.app.state.runs, found, found.member(user))


async def at(
    place: Annotated[Here, Depends(here)],
    thread: Annotated[str, Path(description="Thread id.", examples=["october"])],
) -> At:
    return At(place, Scope(place.workspace.name, place.user, thread))


InWorkspace = Annotated[Here, Depends(here)]
InThread = Annotated[At, Depends(at)]
User = Annotated[str, Depends(user_of)]
