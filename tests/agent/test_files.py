"""Reports and code in a conversation: written, changed in place, read on demand, and the same inside the sandbox."""

from __future__ import annotations

import pytest

from tenuto.errors import NotFound

from .conftest import SCOPE, ask, conversation, sent


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


async def test_i16_an_edit_and_a_regeneration_are_branches_and_one_can_go_back(open_app, scripted):
    scripted("first answer", "second answer", "other answer", "again", "after going back")
    async with open_app() as app:
        await ask(app, "the budget is 50 thousand")
        await ask(app, "what is the XYLOPHONE budget?")
        old = conversation(app).log.page(None, 1)[-1].seq
        edited = app.edit(SCOPE, 1, "the budget is 60 thousand")
        assert (await edited.ended()).answer == "other answer"
        assert "50 thousand" not in str(sent(app)) and "60 thousand" in str(sent(app))
        assert app.workspace("w").history.search("ming", "XYLOPHONE") == [], "search follows the branch"
        again = app.regenerate(SCOPE, 1)
        assert (await again.ended()).answer == "again"
        assert [branch["active"] for branch in app.branches(SCOPE)] == [False, False, True]
        await app.go_back(SCOPE, old)
        assert app.workspace("w").history.search("ming", "XYLOPHONE")
        await ask(app, "and now?")
        assert "50 thousand" in str(sent(app)) and "60 thousand" not in str(sent(app))
        with pytest.raises(NotFound):
            app.edit(SCOPE, 99, "x")
