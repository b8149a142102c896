"""What a person adds to a workspace without opening its file: models, tool servers, and the keys of models.

Settings go into `workspace.toml`, whose comments and order stay. Keys go into a private file of their own, which
nothing exports, logs or shows; a variable of the environment comes before it.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import tomlkit
from tomlkit.items import Table

from tenuto.codec import JsonError, JsonObject, dumps_pretty, loads
from tenuto.disk import locked, write_atomic
from tenuto.errors import SettingsError, UsageError
from tenuto.scope import check_id

if TYPE_CHECKING:
    from tenuto.settings import Settings


class Keys:
    """The keys that were given by hand."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str) -> str:
        """The key of a name: from the environment, else from the file; empty if there is none.

        Raises `SettingsError` if the file is damaged.
        """
        return os.environ.get(name) or self._read().get(name, "")

    def put(self, name: str, key: str) -> None:
        with locked(self._path.with_suffix(".lock")):
            write_atomic(self._path, dumps_pretty({**self._read(), name: key}), mode=0o600)

    def _read(self) -> dict[str, str]:
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            return {str(name): str(key) for name, key in loads(raw).items()}
        except (JsonError, AttributeError) as error:
            where = f"{self._path.parent.name}/{self._path.name}"
            raise SettingsError(
                f"the file of keys is damaged: {where}",
                hint="delete it and give the keys again",
            ) from error


def _table(document: tomlkit.TOMLDocument, *names: str) -> Table:
    at: Any = document
    for name in names:
        if name not in at:
            at[name] = tomlkit.table(is_super_table=name in ("models", "mcp"))
        at = at[name]
    return cast("Table", at)


def _set(path: Path, changes: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Put values into tables of a TOML file; a table with other values of that name is replaced."""
    with locked(path.with_suffix(".lock")):
        document = tomlkit.parse(path.read_text("utf-8") if path.is_file() else "")
        for names, values in changes.items():
            table = _table(document, *names)
            if len(names) > 1:
                table.clear()
            for name, value in values.items():
                table[name] = value
        write_atomic(path, tomlkit.dumps(document).encode(), mode=0o600)


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise UsageError("that is no address of a server", hint="write https://host/path, without a password")
    return value


def add_model(
    path: Path, keys: Keys, name: str, *, model: str, base_url: str = "", key: str = "", default: bool = False
) -> None:
    """A model under a name of one's own. Raises `InvalidId` or `UsageError`."""
    check_id("model", name)
    values: dict[str, Any] = {"model": model}
    if base_url:
        values["base_url"] = _url(base_url)
    if key:
        values["api_key_env"] = "TENUTO_KEY_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        keys.put(values["api_key_env"], key)
    changes: dict[tuple[str, ...], dict[str, Any]] = {("models", name): values}
    if default:
        changes["agent",] = {"model": name}
    _set(path, changes)


def use_model(path: Path, name: str) -> None:
    """The model of new threads."""
    _set(path, {("agent",): {"model": name}})


def add_server(path: Path, name: str, where: str) -> None:
    """An MCP server: an address (streamable HTTP), or the command that starts it. Raises `UsageError`."""
    check_id("server", name)
    if re.match(r"https?://", where):
        values: dict[str, Any] = {"url": _url(where)}
    else:
        try:
            command, *arguments = shlex.split(where)
        except ValueError as error:
            raise UsageError(
                "that is no command", hint='write it as in a shell: python -m "my server"'
            ) from error
        values = {"command": command, "args": arguments}
    _set(path, {("mcp", name): values})


def servers(settings: Settings) -> list[JsonObject]:
    """`{name, where}` of the MCP servers; arguments and headers may hold secrets and are not told."""
    return [{"name": name, "where": one.url or one.command or ""} for name, one in settings.mcp.items()]
