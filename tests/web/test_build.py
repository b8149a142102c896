"""The built workbench is what its source builds; its reducer holds for what the real server says."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tenuto.server import assets
from tests.server.conftest import THREAD, calling, events, send

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
FIRST_LOAD_BYTES = 200_000

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="no Node: npm is not installed")


def run(*command: str, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=WEB, env={**os.environ, **environment}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    lock = WEB / "package-lock.json"
    made = WEB / "node_modules" / ".package-lock.json"
    if not made.is_file() or made.stat().st_mtime < lock.stat().st_mtime:
        run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")


def test_what_is_served_is_what_the_source_builds(tmp_path):
    run("npx", "tsc", "--noEmit")
    run("npx", "vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir")

    def files(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}

    built, kept = files(tmp_path / "built"), files(assets.FOLDER)
    assert sorted(built) == sorted(kept)
    assert [name for name in built if built[name] != kept[name]] == []


async def test_the_reducer_tells_a_turn_of_the_real_server_alike_live_and_from_the_log(serve, tmp_path):
    async with serve(calling("read_record", {"seq": 1}, "done")) as client:
        live = await events(client, (await send(client, "look it up"))["run"])
        page = (await client.get(f"{THREAD}/records")).json()
    (tmp_path / "told.json").write_text(json.dumps({"events": live, "records": page["records"]}))
    run("npx", "vitest", "run", TENUTO_TOLD=str(tmp_path / "told.json"))


def test_the_first_load_is_under_200_kilobytes():
    page = (assets.FOLDER / "index.html").read_text()
    names = set(re.findall(r'(?:src|href)="/(assets/[^"]+)"', page))
    assert {"assets/index.js", "assets/vendor.js", "assets/index.css"} <= names
    names |= {"index.html", "assets/zh.js"}
    sizes = {name: len(gzip.compress((assets.FOLDER / name).read_bytes(), 9)) for name in names}
    assert sum(sizes.values()) < FIRST_LOAD_BYTES, sizes


def test_licences_of_what_is_shipped_allow_it():
    allowed = {"MIT", "ISC", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "0BSD"}
    listed = json.loads((WEB / "package-lock.json").read_text())["packages"]
    shipped = {name: one.get("license", "?") for name, one in listed.items() if name and not one.get("dev")}
    assert {name: found for name, found in shipped.items() if found not in allowed} == {}
