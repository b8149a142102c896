"""The socket that `tenuto serve` listens on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tenuto.cli.serve import listen
from tenuto.errors import UsageError


async def test_an_event_is_sent_at_once_and_waits_for_no_acknowledgement():
    with listen("127.0.0.1", 0) as listening:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def connected(_, writer: asyncio.StreamWriter) -> None:
            own = writer.get_extra_info("socket")
            told.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(connected, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            assert await told != 0
            writer.close()


def test_an_address_in_use_is_said_with_what_to_do():
    with listen("127.0.0.1", 0) as taken:
        with pytest.raises(UsageError) as refused:
            listen("127.0.0.1", taken.getsockname()[1])
        assert refused.value.hint == "--port 0"
