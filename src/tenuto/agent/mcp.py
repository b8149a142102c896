"""MCP servers of a workspace, over stdio and streamable HTTP.

A server that is down fails its tool, not the turn: the model is told, and the next call tries to connect
again. A call that was under way when a connection broke is not repeated, since it may have had an effect.
Sessions are shared, except where a header names the user: then each user has their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenuto.codec import JsonObject
from tenuto.errors import ToolServerFailed
from tenuto.settings import McpSettings

if TYPE_CHECKING:
    from fastmcp.client import Client

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")
"""All of the server's environment that a stdio server gets, beside its own settings: no secrets."""
EVENT_BYTES = 64 << 20
"""Largest result over HTTP. The library's default, 1 MB, would cut off a large query."""


TOOL_NAME = 64
"""Characters of a tool's name that every provider takes; one bad name would make them refuse the whole request."""
TOOL_TEXT = 4_000
"""Most characters of a server's description of a tool: it is part of every request."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool of a server, as the model sees it."""

    name: str
    """With the server's prefix."""
    original: str
    server: str
    description: str
    schema: JsonObject
    needs_approval: bool


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call returned."""

    text: str
    media: Sequence[tuple[bytes, str]]
    """`(content, media type)` of images and audio."""
    is_error: bool


class McpServer:
    """One server, for one user or for all."""

    def __init__(self, name: str, settings: McpSettings, *, user: str, log_dir: Path) -> None:
        self.name = name
        self._settings = settings
        self._user = user
        self._log_dir = log_dir
        self._client: Client[Any] | None = None
        self._lock = asyncio.Lock()
        self._tools: list[ToolSpec] | None = None

    async def tools(self) -> list[ToolSpec]:
        """The server's tools; from memory while the connection lives. Raises `ToolServerFailed`."""
        client = await self._connected()
        if self._tools is None:
            try:
                async with asyncio.timeout(self._settings.start):
                    listed = await client.list_tools()
            except Exception as error:
                raise await self._failed("doesn't list its tools", error) from error
            self._tools = [self._spec(tool) for tool in listed]
        return self._tools

    @property
    def known_tools(self) -> list[ToolSpec]:
        """The tools it had when it was last reached."""
        return self._tools or []

    async def call(self, tool: str, arguments: JsonObject) -> ToolAnswer:
        """Call a tool by its original name. Raises `ToolServerFailed`."""
        client = await self._connected()
        try:
            async with asyncio.timeout(self._settings.call):
                result = await client.call_tool_mcp(tool, arguments)
        except TimeoutError as error:
            raise ToolServerFailed(
                f"{self.name}: {tool} didn't answer within {self._settings.call:g} s",
                hint=f"raise mcp.{self.name}.call, or narrow the query",
            ) from error
        except Exception as error:
            raise await self._failed(f"failed while {tool} ran", error) from error
        return _answer(result)

    async def _connected(self) -> Client[Any]:
        async with self._lock:
            if self._client is not None and self._client.is_connected():
                return self._client
            await self._drop()
            client = self._make()
            try:
                async with asyncio.timeout(self._settings.start):
                    await client.__aenter__()
            except Exception as error:
                with contextlib.suppress(Exception):
                    await client.close()
                raise ToolServerFailed(
                    f"MCP server {self.name} can't be reached: {_first_line(error)}",
                    hint=f"check [mcp.{self.name}] with `tenuto doctor`",
                ) from error
            self._client = client
            self._tools = None
            return client

    async def _failed(self, what: str, error: Exception) -> ToolServerFailed:
        async with self._lock:
            await self._drop()
        return ToolServerFailed(
            f"MCP server {self.name} {what}: {_first_line(error)}", hint="the next call connects again"
        )

    async def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()

    def _make(self) -> Client[Any]:
        from fastmcp.client import Client
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

        settings = self._settings
        if settings.url:
            headers = {key: expand(value, self._user) for key, value in settings.headers.items()}
            transport: Any = StreamableHttpTransport(
                settings.url, headers=headers, max_sse_event_size=EVENT_BYTES
            )
        else:
            environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
            environment |= {key: expand(value, self._user) for key, value in settings.env.items()}
            self._log_dir.mkdir(parents=True, exist_ok=True)
            transport = StdioTransport(
                settings.command or "",
                settings.args,
                env=environment,
                keep_alive=False,
                log_file=self._log_dir / f"mcp-{self.name}.log",
            )
        return Client(transport, timeout=settings.call + 5, init_timeout=settings.start)

    def _spec(self, tool: Any) -> ToolSpec:
        prefix = self.name if self._settings.prefix is None else self._settings.prefix
        full = f"{prefix}_{tool.name}" if prefix else tool.name
        return ToolSpec(
            name=re.sub(r"[^A-Za-z0-9_-]", "_", full)[:TOOL_NAME],
            original=tool.name,
            server=self.name,
            description=(tool.description or "")[:TOOL_TEXT],
            schema=tool.input_schema,
            needs_approval=tool.name in self._settings.approval,
        )

    async def close(self) -> None:
        async with self._lock:
            await self._drop()


class McpHub:
    """All servers of a workspace."""

    def __init__(self, servers: dict[str, McpSettings], log_dir: Path) -> None:
        self._settings = servers
        self._log_dir = log_dir
        self._open: dict[tuple[str, str], McpServer] = {}
        self._retired: list[McpServer] = []
        """No longer offered, but a running turn may still call them."""

    def configure(self, servers: dict[str, McpSettings]) -> None:
        """Other servers from now on; one whose settings are the same keeps its connection."""
        self._retired += [
            self._open.pop(key)
            for key in list(self._open)
            if servers.get(key[0]) != self._settings.get(key[0])
        ]
        self._settings = servers

    def visible(self, user: str) -> list[McpServer]:
        """The servers that `user` may use."""
        return [
            self._server(name, settings, user)
            for name, settings in self._settings.items()
            if settings.users is None or user in settings.users
        ]

    def _server(self, name: str, settings: McpSettings, user: str) -> McpServer:
        personal = any("{user}" in value for value in [*settings.headers.values(), *settings.env.values()])
        key = (name, user if personal else "")
        if key not in self._open:
            self._open[key] = McpServer(name, settings, user=user, log_dir=self._log_dir)
        return self._open[key]

    async def tools(self, user: str) -> tuple[list[tuple[McpServer, ToolSpec]], list[str]]:
        """`(tools, notices)`: tools of the servers that answer, and one line for each that doesn't.

        The tools of a server that is down but was reached before stay on offer; calling one tries again.
        """
        servers = self.visible(user)
        found = await asyncio.gather(*(server.tools() for server in servers), return_exceptions=True)
        tools: list[tuple[McpServer, ToolSpec]] = []
        notices: list[str] = []
        for server, listed in zip(servers, found, strict=True):
            if isinstance(listed, ToolServerFailed):
                notices.append(listed.message)
                tools.extend((server, spec) for spec in server.known_tools)
            elif isinstance(listed, BaseException):
                raise listed
            else:
                tools.extend((server, spec) for spec in listed)
        return tools, notices

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in (*self._open.values(), *self._retired)))


def expand(value: str, user: str) -> str:
    """Fill `${NAME}` from the environment and `{user}` with the caller, in a header or variable."""
    filled = re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", lambda match: os.environ.get(match[1], ""), value)
    return filled.replace("{user}", user)


def _answer(result: Any) -> ToolAnswer:
    import base64

    texts: list[str] = []
    media: list[tuple[bytes, str]] = []
    for block in result.content:
        kind = getattr(block, "type", "")
        if kind == "text":
            texts.append(block.text)
        elif kind in ("image", "audio"):
            media.append((base64.b64decode(block.data), block.mime_type))
        elif kind == "resource" and getattr(block.resource, "text", None) is not None:
            texts.append(block.resource.text)
        else:
            texts.append(f"[{kind or 'unknown'} content is not shown]")
    return ToolAnswer("\n".join(texts), media, bool(result.is_error))


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
