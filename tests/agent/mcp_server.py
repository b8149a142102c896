"""A small MCP server for the tests, over stdio or streamable HTTP: `python mcp_server.py [PORT]`."""

import asyncio
import os
import sys

from mcp.server import MCPServer
from mcp.types import ImageContent, TextContent

server = MCPServer("tests")
CALLS = os.environ.get("CALLS_FILE")


def note(name: str) -> None:
    if CALLS:
        with open(CALLS, "a") as stream:
            stream.write(name + "\n")


@server.tool()
async def wait(seconds: float, name: str = "x") -> str:
    """Answer after some time."""
    note(f"wait {name}")
    await asyncio.sleep(seconds)
    return f"{name} waited"


@server.tool()
def big(chars: int) -> str:
    """A text of so many characters."""
    return "line of words\n" * (chars // 14)


@server.tool()
def boom() -> str:
    """Fail."""
    raise ValueError("boom went off")


@server.tool()
def die() -> str:
    """End the whole server."""
    os._exit(1)


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """A picture with words."""
    return [
        TextContent(type="text", text="a dot"),
        ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png"),
    ]


@server.tool()
def secret_names() -> str:
    """The names of this server's environment."""
    return ",".join(sorted(os.environ))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
