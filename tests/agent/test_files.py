"""Reports and code in a conversation: written, changed in place, read on demand, and the same inside the sandbox."""

from __future__ import annotations

import pytest

from .conftest import SCOPE, ask


async def test_a_report_is_written_and_changed_in_place_by_the_model(open_app, scripted):
    scripted(
        [("write_file", {"path": "files/report.md", "content": "# Energy\ntotal: 1\n"})],
        [("edit_file", {"path": "files/report.md", "old": "total: 1", "new": "total: 2"})],
        [("read_file", {"path": "files/report.md"})],
        "done",
    )
    async with open_app() as app:
        _, events = await ask(app, "write the report")
        told = [event.text for event in events if event.type == "tool_returned"]
        assert told[1].startswith("files/report.md: version 2") and "2\ttotal: 2" in told[2]
        assert len(app.workspace("w").files(SCOPE).versions("report.md")) == 2


async def test_a_code_base_is_searched_and_read_not_pasted(open_app, scripted, tmp_path):
    code = tmp_path / "project"
    (code / "src").mkdir(parents=True)
    (code / "src" / "big.py").write_text("\n".join(f"line_{n} = {n}" for n in range(5_000)))
    scripted("hi")
    async with open_app() as app:
        await ask(app, "hello")
        workspace = app.workspace("w")
        workspace.attach(SCOPE, code)
    async with open_app() as app:
        seen = scripted(
            [("list_files", {})], [("search_files", {"pattern": "line_4999"})],
            [("read_file", {"path": "files/project/src/big.py", "first": 4_998, "lines": 5})], "done",
        )  # fmt: skip
        _, events = await ask(app, "where is line 4999?")
        told = [event.text for event in events if event.type == "tool_returned"]
        assert (
            "files/project/src/" in told[0] and told[1] == "files/project/src/big.py:5000: line_4999 = 4999"
        )
        assert told[2].startswith("[lines 4,998 to 5,000 of 5,000; this is the end]")
        assert "line_2500" not in str(seen), "nothing was pasted"


@pytest.mark.sandbox
async def test_the_same_folders_stand_in_the_sandbox_read_only(open_app, scripted, tmp_path):
    code = tmp_path / "project"
    (code / "src").mkdir(parents=True)
    (code / "src" / "a.py").write_text("x = 41 + 1\n")
    read = "print(open('/files/project/src/a.py').read(), open('/shared/rates/r.txt').read())\nopen('/shared/new', 'w')"
    async with open_app(sandbox={"enabled": True, "spares": 0}) as app:
        scripted("hello", [("run_python", {"code": read})], "done")
        await ask(app, "hello")
        workspace = app.workspace("w")
        workspace.attach(SCOPE, code)
        (workspace.shared / "rates").mkdir(parents=True)
        (workspace.shared / "rates" / "r.txt").write_text("0.19")
        _, events = await ask(app, "run it")
        told = next(event.text for event in events if event.type == "tool_returned")
        assert "x = 41 + 1" in told and "0.19" in told and "Read-only file system" in told
