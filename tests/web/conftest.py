"""The workbench in a real browser, against the real server on a socket. Without a browser these tests are skipped."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.server.conftest import home, serve  # noqa: F401  (fixtures)

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
).split()
EXPECTED = ("Failed to load resource", "Blocked script execution in 'about:srcdoc'")
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def browser_path() -> str | None:
    return next(
        (found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None
    )


@pytest.fixture
async def chromium():
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    path = browser_path()
    if path is None:
        pytest.skip("no browser: install Debian's chromium")
    async with playwright.async_playwright() as made:
        browser = await made.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
def workbench(chromium):
    """`async with workbench(client) as page`: a page of its own browser context; it fails on errors of the page."""

    @asynccontextmanager
    async def opened(
        client, path="/w/w/t/t", *, width=1280, height=800, locale="en", scheme="light", context=None
    ):
        wrong: list[str] = []
        own = context or await chromium.new_context(
            viewport={"width": width, "height": height},
            locale=locale,
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = await own.new_page()
        page.set_default_timeout(10_000)

        def heard(message) -> None:
            # A refused request is told in the page, a script in a report is meant to be stopped: both are noted.
            if message.type == "error" and not message.text.startswith(EXPECTED):
                wrong.append(message.text)

        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        await page.goto(str(client.base_url).rstrip("/") + path)
        try:
            yield page
        finally:
            await (own.close() if context is None else page.close())
        assert wrong == []

    return opened


async def violations(page) -> list[str]:
    """What axe finds on the page as it stands."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci --prefix web")
    await page.evaluate(AXE.read_text())
    found = await page.evaluate(
        "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
        ".map(v => v.id + ': ' + v.nodes.map(n => n.target.join(' ')).slice(0, 3).join(' | '))"
    )
    return list(found)


async def ask(page, text: str) -> None:
    await page.get_by_label("Message").or_(page.get_by_label("消息", exact=True)).fill(text)
    await page.keyboard.press("Enter")
