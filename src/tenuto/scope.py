"""Who and where: workspace, user, thread, and what a member may do.

Ids are checked once, on entry; everything behind this module may build paths from them. Values only,
no I/O: the members come from the workspace's settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tenuto.errors import Forbidden, InvalidId, NotFound

Role: TypeAlias = Literal["owner", "member", "viewer"]
Action: TypeAlias = Literal["read", "send", "administer"]

MAX_ID = 64
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")

ALLOWED: Mapping[Role, frozenset[Action]] = {
    "owner": frozenset({"read", "send", "administer"}),
    "member": frozenset({"read", "send"}),
    "viewer": frozenset({"read"}),
}

PYTHON = "python"
"""The grant that lets a user run code; large results are offloaded only for those who have it."""


def check_id(kind: str, value: str) -> str:
    """`value` if it is a valid id; raises `InvalidId`.

    Letters, digits, `.`, `_`, `-`; 1 to 64 characters; no leading dot, so that an id is always one
    harmless path segment.
    """
    if not isinstance(value, str) or not _ID.fullmatch(value):
        shown = repr(value)[:80]
        raise InvalidId(
            f"{kind} id {shown} is not valid",
            hint=f"use 1 to {MAX_ID} letters, digits, '.', '_' or '-', not starting with a dot",
        )
    return value


@dataclass(frozen=True, slots=True)
class Scope:
    """The address of one conversation. All three parts always, so that nothing is shared by accident."""

    workspace: str
    user: str
    thread: str

    def __post_init__(self) -> None:
        check_id("workspace", self.workspace)
        check_id("user", self.user)
        check_id("thread", self.thread)


@dataclass(frozen=True, slots=True)
class Member:
    """A user's place in a workspace."""

    user: str
    role: Role
    grants: frozenset[str] = frozenset()
    """Names of tools that need a grant and that this user has; `python` is one."""

    def may(self, action: Action) -> bool:
        return action in ALLOWED[self.role]

    def has(self, grant: str) -> bool:
        return grant in self.grants


def member_of(members: Mapping[str, Member], user: str, workspace: str) -> Member:
    """The member named `user`; a stranger learns only that the workspace isn't there for them (I13)."""
    check_id("user", user)
    member = members.get(user)
    if member is None:
        raise NotFound(
            f"workspace {workspace!r} has no member {user!r}",
            hint=f"add [members.{user}] to the workspace's workspace.toml",
        )
    return member


def require(member: Member, action: Action) -> None:
    """Raise `Forbidden` unless the member's role allows `action`."""
    if not member.may(action):
        raise Forbidden(
            f"{member.user} is a {member.role} and may not {action}",
            hint="ask an owner of the workspace for another role",
        )
