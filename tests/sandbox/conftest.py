from __future__ import annotations

from pathlib import Path

import pytest_asyncio

from tenuto.sandbox.bubblewrap import BubblewrapEngine
from tenuto.sandbox.protocol import Folders, Limits

SMALL = Limits(call_s=5, grace_s=2, output_kill=64 << 20)


def folders(path: Path) -> Folders:
    made = Folders(path / "results", path / "files")
    made.results.mkdir(parents=True, exist_ok=True)
    made.files.mkdir(parents=True, exist_ok=True)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(tmp_path_factory):
    return BubblewrapEngine(tmp_path_factory.mktemp("run"), SMALL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(engine, tmp_path_factory):
    """One sandbox for many attacks: none of them may break it for the next."""
    made = await engine.create()
    place = folders(tmp_path_factory.mktemp("thread"))
    (place.results / "rows.json").write_text('[{"a": 1}]')
    made.bind(place)
    yield made
    await made.destroy()
