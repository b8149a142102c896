"""What people do with the workbench. Names in brackets are complaints about other products that a test answers."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.server.conftest import THREAD, calling, events, send, speaking

from .conftest import ask, violations

pytest.importorskip("playwright", reason="Playwright is not installed")
from playwright.async_api import expect

LONG = [f"word{number} " for number in range(60)]


def answers(page):
    return page.locator("[data-testid=transcript] .prose-message")


async def done(page) -> None:
    await expect(page.get_by_role("status")).to_have_text(re.compile("finished|完成"))


async def test_an_answer_goes_on_after_a_reload_with_every_word_once(serve, workbench):
    """[open-webui#29596, dify#35307] Text before the reload is there, none comes twice."""
    gate = asyncio.Event()
    async with serve(speaking(*LONG, gate=gate)) as client, workbench(client) as page:
        await ask(page, "count")
        await expect(answers(page)).to_contain_text("word58")
        await page.reload()
        await expect(answers(page)).to_contain_text("word58")
        await expect(page.get_by_role("button", name="Stop")).to_be_visible()
        gate.set()
        await expect(answers(page)).to_have_text("".join(LONG).strip())
        await page.reload()
        await expect(answers(page)).to_have_text("".join(LONG).strip())


async def test_a_run_is_stopped_after_a_reload_and_keeps_what_came(serve, workbench):
    """[vercel/ai#6502, #10719, #18458] Stop ends the model's call, not only the view."""
    gate = asyncio.Event()
    async with serve(speaking(*LONG, gate=gate)) as client, workbench(client) as page:
        await ask(page, "count")
        await expect(answers(page)).to_contain_text("word58")
        await page.reload()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("Stopped by you")).to_be_visible()
        await expect(answers(page)).to_contain_text("word58")
        records = (await client.get(f"{THREAD}/records")).json()["records"]
        assert records[-1]["event"]["reason"] == "stopped"


async def test_two_tabs_stay_in_step(serve, workbench, chromium):
    gate = asyncio.Event()
    context = await chromium.new_context(viewport={"width": 1280, "height": 800}, locale="en")
    async with (
        serve(speaking("one ", "two", gate=gate)) as client,
        workbench(client, context=context) as here,
        workbench(client, context=context) as there,
    ):
        await expect(there.get_by_text("What would you like to know?")).to_be_visible()
        await ask(here, "hello")
        await expect(there.get_by_text("hello", exact=True).first).to_be_visible()
        await expect(answers(there)).to_have_text("one")
        gate.set()
        await expect(answers(there)).to_have_text("one two")
        await expect(answers(here)).to_have_text("one two")
    await context.close()


async def test_the_page_is_the_same_before_and_after_a_reload(serve, workbench):
    """[nearai/ironclaw#7349, LibreChat#3997] Cards and answers are told from the log as they were told live."""
    async with serve(calling("read_record", {"seq": 1}, "done")) as client, workbench(client) as page:
        await ask(page, "look it up")
        await done(page)
        log = page.get_by_role("log")
        before = await log.aria_snapshot()
        await page.reload()
        await expect(answers(page)).to_have_text("done")
        assert await log.aria_snapshot() == before


async def test_an_edited_question_is_a_branch_and_nothing_is_lost(serve, workbench):
    """[lovia#150, llama.cpp#18115, #16406]"""
    async with serve() as client, workbench(client) as page:
        await ask(page, "first wording")
        await done(page)
        await page.get_by_role("button", name="Edit the question").click()
        field = page.get_by_role("textbox", name="Edit the question")
        await field.fill("second wording")
        await page.get_by_role("button", name="Ask again").click()
        await expect(page.get_by_text("2/2")).to_be_visible()
        await expect(page.get_by_text("second wording").first).to_be_visible()
        await page.get_by_role("button", name="Branch before").click()
        await expect(page.get_by_text("1/2")).to_be_visible()
        await expect(page.locator("article").get_by_text("first wording")).to_be_visible()
        await page.get_by_role("button", name="Answer again").click()
        await expect(page.get_by_text("3/3")).to_be_visible()


async def test_a_failed_send_leaves_the_text_where_it_was_typed(serve, workbench):
    async with serve() as client, workbench(client) as page:
        await page.route("**/messages", lambda route: route.abort())
        await ask(page, "precious words")
        await expect(page.get_by_text("can’t be reached").first).to_be_visible()
        await expect(page.get_by_label("Message")).to_have_value("precious words")
        await page.unroute("**/messages")
        await page.get_by_role("button", name="Send").click()
        await done(page)
        assert len((await client.get(f"{THREAD}/records")).json()["records"]) == 4


async def test_a_draft_outlives_a_reload(serve, workbench):
    """[cherry-studio#2662, open-webui#29596]"""
    async with serve() as client, workbench(client) as page:
        await page.get_by_label("Message").fill("half a thought")
        await page.reload()
        await expect(page.get_by_label("Message")).to_have_value("half a thought")


async def test_enter_while_an_input_method_composes_does_not_send(serve, workbench):
    """[botcord#122]"""
    async with serve() as client, workbench(client) as page:
        field = page.get_by_label("Message")
        await field.fill("nihao")
        await field.evaluate(
            "e => e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, isComposing: true, bubbles: true}))"
        )
        await expect(field).to_have_value("nihao")
        assert (await client.get(f"{THREAD}/records")).status_code == 404


async def test_a_long_paste_is_offered_as_a_file(serve, workbench):
    """[open-webui#7985, #26228]"""
    async with serve() as client, workbench(client) as page:
        field = page.get_by_label("Message")
        await field.evaluate(
            """e => { const data = new DataTransfer(); data.setData('text/plain', 'line\\n'.repeat(20000));
            e.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})) }"""
        )
        await page.get_by_role("button", name="Attach as a file").click()
        await expect(page.get_by_text("Attached: pasted-").first).to_be_visible()
        (file,) = (await client.get(f"{THREAD}/files")).json()["files"]
        assert file["bytes"] == 100_000
        await expect(field).to_have_value("")


async def test_content_of_models_is_never_markup_and_loads_nothing(serve, workbench):
    bad = "<script>window.bad = 1</script> <img src=x onerror='window.bad = 2'> [x](javascript:window.bad=3) ![p](http://127.0.0.1:9/pixel.png)"
    asked: list[str] = []
    async with serve(speaking(bad)) as client, workbench(client) as page:
        page.on("request", lambda request: asked.append(request.url))
        await ask(page, "<b>bold?</b>")
        await done(page)
        await expect(page.locator("article").get_by_text("<b>bold?</b>")).to_be_visible()
        assert await page.evaluate("window.bad") is None
        assert (
            await page.locator("[data-testid=transcript] img, [data-testid=transcript] script").count() == 0
        )
        assert [url for url in asked if "pixel" in url] == []
        hrefs = await page.locator("[data-testid=transcript] a").evaluate_all(
            "all => all.map(a => a.getAttribute('href'))"
        )
        assert [href for href in hrefs if href and href.startswith("javascript")] == []


async def test_an_html_file_runs_nothing(serve, workbench):
    async with serve() as client, workbench(client) as page:
        await ask(page, "hello")
        await done(page)
        html = b"<h1>Report</h1><script>parent.bad = 1; document.title = 'run'</script>"
        await client.post(f"{THREAD}/files", files={"file": ("report.html", html)})
        await page.get_by_role("button", name="Side panel").click()
        await page.get_by_role("tab", name="Files").click()
        await page.get_by_role("button", name="Preview report.html").click()
        frame = page.frame_locator("iframe[title='report.html']")
        await expect(frame.get_by_role("heading", name="Report")).to_be_visible()
        assert await page.evaluate("window.bad") is None
        assert await page.locator("iframe").get_attribute("sandbox") == ""


async def test_a_table_is_uploaded_read_and_drawn(serve, workbench):
    async with serve() as client, workbench(client, "/w/w/t/t?panel=files") as page:
        rows = "building,kwh\n" + "".join(f"B{n % 3},{n}\n" for n in range(300))
        await page.get_by_test_id("file-input").set_input_files(
            [{"name": "a.csv", "mimeType": "text/csv", "buffer": rows.encode()}]
        )
        await page.get_by_role("button", name="Preview a.csv").click()
        table = page.get_by_role("table", name="Table a.csv")
        await expect(table).to_have_attribute("aria-rowcount", "301")
        await expect(table.get_by_role("row").nth(1)).to_contain_text("B0")
        await page.get_by_role("button", name="As a chart").click()
        await expect(page.get_by_test_id("chart").locator("svg path[fill='#2f7fa8']")).to_have_count(3)
        await expect(page.get_by_role("img", name="Sum of kwh by building").first).to_be_visible()


async def test_the_context_panel_shows_the_exact_text_and_why(serve, workbench):
    """[anything-llm#4288] Everything that stands in a request stands in the panel."""
    async with serve() as client, workbench(client) as page:
        await ask(page, "leave out the holidays")
        await done(page)
        await page.get_by_role("button", name=re.compile("Open the context")).click()
        panel = page.get_by_test_id("panel-context")
        await panel.get_by_role("button", name=re.compile("^question")).click()
        await expect(panel.get_by_label("Exact text")).to_have_text("leave out the holidays")
        await panel.get_by_label("Words to look for").fill("holidays")
        await panel.get_by_role("button", name="Look").click()
        await expect(panel.get_by_role("region", name="In the context of this turn")).to_contain_text(
            "leave out the holidays"
        )
        await expect(panel.get_by_role("region", name="In memory")).to_contain_text("Nowhere")
        await page.get_by_label("Message").fill("what next?")
        await panel.get_by_role("combobox", name="Turn").select_option("next")
        await panel.get_by_role("button", name=re.compile("^question")).click()
        await expect(panel.get_by_label("Exact text")).to_have_text("what next?")


async def test_the_task_is_kept_by_hand(serve, workbench):
    async with serve() as client, workbench(client, "/w/w/t/t?panel=task") as page:
        await ask(page, "hello")
        await done(page)
        panel = page.get_by_test_id("panel-task")
        await panel.get_by_label("Text of the item").fill("without holidays")
        await panel.get_by_role("button", name="Add", exact=True).click()
        item = panel.locator("[data-item]")
        await expect(item).to_contain_text("without holidays")
        await item.get_by_role("button", name="Pin").click()
        await expect(item.get_by_role("button", name="Unpin")).to_be_visible()
        await item.get_by_role("button", name="Withdraw").click()
        await expect(panel.get_by_text("1 item no longer in force")).to_be_visible()
        await panel.get_by_role("button", name="History of versions").click()
        await expect(
            panel.get_by_role("list", name="History of versions").get_by_role("listitem")
        ).to_have_count(3)


async def test_memory_is_switched_written_edited_and_deleted(serve, workbench):
    """[agent-zero#701, lobehub#15576]"""
    async with serve() as client, workbench(client, "/w/w/t/t?panel=memory") as page:
        panel = page.get_by_test_id("panel-memory")
        await expect(panel.get_by_text("Memory is off")).to_be_visible()
        await panel.get_by_role("switch", name="Use memory").click()
        await panel.get_by_label("New fact").fill("My reports are in English")
        await panel.get_by_role("button", name="Remember").click()
        await expect(panel.get_by_role("meter", name="Facts")).to_have_attribute("aria-valuenow", "1")
        await panel.get_by_role("button", name="Edit the fact").click()
        await panel.get_by_role("textbox", name="Edit the fact").fill("My reports are in French")
        await page.keyboard.press("Enter")
        await expect(panel.get_by_text("My reports are in French")).to_be_visible()
        await panel.get_by_role("button", name="Delete all").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("button", name="Delete all")).to_be_disabled()
        await dialog.get_by_role("textbox").fill("delete")
        await dialog.get_by_role("button", name="Delete all").click()
        await expect(panel.get_by_role("meter", name="Facts")).to_have_attribute("aria-valuenow", "0")
        await page.reload()
        await expect(panel.get_by_role("meter", name="Facts")).to_have_attribute("aria-valuenow", "0")


async def test_what_the_assistant_remembers_can_be_undone_at_once(serve, workbench):
    """[rikkahub#259]"""
    model = calling("remember", {"text": "I like tea", "quote": "I like tea"}, "Noted.")
    async with serve(model) as client, workbench(client) as page:
        await client.patch("/api/workspaces/w/memory", json={"use": True})
        await ask(page, "Remember that I like tea")
        await expect(page.get_by_text("Remembered: I like tea").first).to_be_visible()
        await page.get_by_role("button", name="Undo").click()
        await expect(page.get_by_text("Undone").first).to_be_visible()
        assert (await client.get("/api/workspaces/w/memory")).json()["facts"] == []


async def test_clear_says_what_goes_stops_what_runs_and_shows_the_receipt(serve, workbench):
    """[LibreChat#13590, open-webui#5151]"""
    gate = asyncio.Event()
    async with serve(speaking("secret ", "word", gate=gate)) as client, workbench(client) as page:
        await ask(page, "a secret question")
        await expect(answers(page)).to_have_text("secret")
        await page.locator("header").get_by_role("button", name=re.compile("^Menu of")).click()
        await page.get_by_role("menuitem", name="Clear the thread").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("row", name=re.compile("^Memory"))).to_contain_text("stays")
        await expect(dialog.get_by_text("It is stopped first")).to_be_visible()
        await dialog.get_by_role("button", name="Clear the thread").click()
        await expect(
            dialog.get_by_test_id("receipt").get_by_role("row", name=re.compile("^log"))
        ).to_be_visible()
        await dialog.get_by_role("button", name="Done").click()
        await expect(page.get_by_text("What would you like to know?")).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("What would you like to know?")).to_be_visible()
        assert (await client.get(f"{THREAD}/records")).json()["records"] == []


async def test_threads_are_renamed_pinned_archived_found_and_deleted(serve, workbench):
    async with serve() as client, workbench(client) as page:
        await events(client, (await send(client, "the tariff of Hamburg"))["run"])
        await page.reload()
        nav = page.get_by_role("navigation", name="Threads")
        menu = nav.get_by_role("button", name=re.compile("^Menu of"))
        await menu.click()
        await page.get_by_role("menuitem", name="Rename").click()
        await page.get_by_role("textbox", name="Rename").fill("Tariffs")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Tariffs", level=1)).to_be_visible()
        await menu.click()
        await page.get_by_role("menuitem", name="Pin").click()
        await expect(nav.get_by_role("region", name="Pinned")).to_contain_text("Tariffs")
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name=re.compile("^Commands")).fill("Hamburg")
        await page.get_by_role("option", name=re.compile("the tariff of Hamburg.*Said before")).first.click()
        await expect(page.locator("article.flash")).to_contain_text("Hamburg")
        await menu.click()
        await page.get_by_role("menuitem", name="Archive").click()
        await expect(nav.get_by_text("No thread yet")).to_be_visible()
        await nav.get_by_role("button", name="Archive", exact=True).click()
        await menu.click()
        await page.get_by_role("menuitem", name="Delete the thread").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete the thread").click()
        await expect(page.get_by_test_id("receipt")).to_be_visible()
        assert (await client.get("/api/workspaces/w/threads")).json()["threads"] == []


async def test_everything_is_reached_by_keyboard(serve, workbench):
    async with serve() as client, workbench(client) as page:
        await expect(page.get_by_label("Message")).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("hello")
        await page.keyboard.press("Enter")
        await done(page)
        await page.keyboard.press("Control+.")
        await expect(page.get_by_test_id("panel-context")).to_be_visible()
        await page.keyboard.press("Control+Shift+Period")
        await expect(page.get_by_test_id("panel-task")).to_be_visible()
        await page.keyboard.press("Control+.")
        await expect(page.get_by_test_id("panel-task")).to_have_count(0)
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox", name=re.compile("^Commands"))).to_be_focused()
        await page.keyboard.type("shortcuts")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await page.get_by_label("Message").focus()
        await page.keyboard.press("ArrowUp")
        await expect(page.get_by_role("textbox", name="Edit the question")).to_be_focused()
        await page.keyboard.press("Escape")
        await page.get_by_role("log").focus()
        await page.keyboard.press("Alt+ArrowUp")
        await expect(page.locator("article:focus")).to_be_visible()


@pytest.mark.parametrize("locale", ["en", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_screen_is_free_of_axe_violations(serve, workbench, locale, scheme):
    async with serve(calling("read_record", {"seq": 1}, "**done**\n\n```python\nx = 1\n```")) as client:
        await events(client, (await send(client, "hello"))["run"])
        await client.post(f"{THREAD}/task", json={"action": "add", "kind": "constraint", "text": "x"})
        await client.post(f"{THREAD}/files", files={"file": ("a.csv", b"a,b\nx,1\n")})
        await client.post("/api/workspaces/w/memory/facts", json={"text": "I like tea"})
        found: dict[str, list[str]] = {}
        for panel in ("context", "task", "memory", "files"):
            async with workbench(client, f"/w/w/t/t?panel={panel}", locale=locale, scheme=scheme) as page:
                await expect(page.get_by_test_id(f"panel-{panel}")).to_be_visible()
                await expect(answers(page)).to_contain_text("done")
                found[panel] = await violations(page)
        async with workbench(client, "/w/w", locale=locale, scheme=scheme, width=360) as page:
            await expect(page.get_by_role("textbox")).to_be_visible()
            found["new at 360"] = await violations(page)
            await page.keyboard.press("Control+k")
            await expect(page.get_by_role("option").first).to_be_visible()
            found["palette"] = await violations(page)
        assert {screen: wrong for screen, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("tab", ["Appearance", "Models", "Tool servers", "All values", "Usage"])
async def test_settings_are_free_of_axe_violations(serve, workbench, tab):
    async with serve() as client, workbench(client) as page:
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_role("tab", name=tab).click()
        await expect(page.get_by_role("tabpanel")).to_be_visible()
        assert await violations(page) == []


async def test_the_language_changes_every_word_and_no_data(serve, workbench):
    """[cherry-studio#16200]"""
    async with serve() as client, workbench(client) as page:
        await ask(page, "hello")
        await done(page)
        await page.get_by_role("button", name="中文 / English").click()
        await expect(page.locator("html")).to_have_attribute("lang", "zh")
        await expect(page.get_by_role("button", name="新会话", exact=True)).to_be_visible()
        await expect(answers(page)).to_have_text("hello there")
        await page.reload()
        await expect(page.get_by_role("button", name="新会话", exact=True)).to_be_visible()


async def test_at_360_pixels_nothing_is_cut_off(serve, workbench):
    async with serve() as client, workbench(client, width=360, height=740) as page:
        await ask(page, "hello " * 40)
        await done(page)
        for press in ("", "Side panel"):
            if press:
                await page.get_by_role("button", name=press).click()
                await expect(page.get_by_test_id("panel-context")).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.get_by_role("button", name="Close the panel").click()
        await page.get_by_role("button", name="Threads").click()
        await expect(page.get_by_role("dialog").get_by_role("button", name="New thread")).to_be_visible()


async def test_the_reader_is_not_moved_while_an_answer_streams(serve, workbench):
    """[jundot/omlx#721, chatwise#1449]"""
    gate = asyncio.Event()
    async with (
        serve(speaking("line\n\n" * 200, "more\n\n" * 50, gate=gate)) as client,
        workbench(client) as page,
    ):
        await ask(page, "go")
        await expect(answers(page)).to_contain_text("line")
        box = page.get_by_test_id("transcript")
        await page.wait_for_function(
            "e => e.scrollHeight > 5000 && e.scrollHeight - e.scrollTop - e.clientHeight < 5",
            arg=await box.element_handle(),
        )
        await box.evaluate("e => { e.scrollTop = 300 }")
        await expect(page.get_by_role("button", name="To the end")).to_be_visible()
        line = answers(page).locator("p").nth(20)
        before = (await line.bounding_box())["y"]
        gate.set()
        await done(page)
        assert abs((await line.bounding_box())["y"] - before) <= 2
