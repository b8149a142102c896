"""What `tenuto serve` does: one process, one home folder, one local user, on a loopback address."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from tenuto.agent.app import App
from tenuto.cli.show import console
from tenuto.cli.text import t
from tenuto.errors import UsageError
from tenuto.server.app import create_app, ensure_workspace
from tenuto.server.identity import LocalUser

if TYPE_CHECKING:
    from tenuto.cli.main import Where

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def run(where: Where, host: str, port: int) -> None:
    """Serve until interrupted. Raises `UsageError` for an address that other machines reach."""
    if host not in LOOPBACK:
        raise UsageError(t("serve_loopback"), hint=t("serve_use"))
    with listen(host, port) as listening:
        bound = listening.getsockname()[1]
        ensure_workspace(where.home, where.workspace)
        web = create_app(App(where.home), LocalUser(where.user))
        shown = f"[{host}]" if ":" in host else host
        console().print(t("serving", url=f"http://{shown}:{bound}/"), markup=False)
        config = uvicorn.Config(
            web,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=5,
            server_header=False,
            # longer than clients keep an idle connection: else they ask on one that is being closed
            timeout_keep_alive=75,
        )
        uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; 0 finds a free port. Raises `UsageError` where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where a socket names TCP; without it each event waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"{host}:{port}: {error.strerror}", hint="--port 0") from error
    listening.listen(2048)
    return listening
