"""A process that dies in mid-turn, for the demo: `python -m tenuto.demo.crash HOME USER THREAD QUESTION`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tenuto.agent.app import App
from tenuto.agent.events import ToolReturned
from tenuto.demo.story import WORKSPACE, settings
from tenuto.scope import Scope


async def main(home: str, user: str, thread: str, question: str) -> None:
    """Ask, and end this process the hard way at the first tool's result."""
    async with App(Path(home), overrides=settings()) as app:
        async for event in app.send(Scope(WORKSPACE, user, thread), question, model="demo").events():
            if isinstance(event, ToolReturned):
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
