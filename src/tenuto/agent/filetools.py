"""Tools over files: listing, reading by lines, searching, writing and changing reports in place."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tenuto.agent.offers import Offer, ToolResult, schema
from tenuto.codec import JsonObject
from tenuto.context.shape import clip
from tenuto.results.browse import MOST_ENTRIES, MOST_MATCHES, Browser
from tenuto.results.files import ThreadFiles

READ_CHARS = 7_000
READ_LINES = 200


def file_tools(files: ThreadFiles, shared: Path) -> list[Offer]:
    """The file tools of a thread: its own files, and the workspace's shared folder to read."""
    browser = Browser({"files": files.folder, "shared": shared})
    text: JsonObject = {"type": "string"}
    number: JsonObject = {"type": "integer", "minimum": 1}
    place = "Paths begin with files/ (this conversation's) or shared/ (the workspace's, read-only)."

    async def list_files(_: str, a: JsonObject) -> ToolResult:
        return await asyncio.to_thread(_list, browser, str(a.get("path") or ""))

    async def read_file(_: str, a: JsonObject) -> ToolResult:
        count = min(int(a.get("lines") or READ_LINES), 2_000)
        return await asyncio.to_thread(_read, browser, str(a["path"]), int(a.get("first") or 1), count)

    async def search_files(_: str, a: JsonObject) -> ToolResult:
        where, glob = str(a.get("path") or ""), str(a.get("glob") or "")
        return await asyncio.to_thread(_search, browser, str(a["pattern"]), where, glob)

    async def write_file(_: str, a: JsonObject) -> ToolResult:
        written = await asyncio.to_thread(files.write, _name(str(a["path"])), str(a["content"]).encode())
        told = f"files/{written.name}: version {written.version}, {written.bytes:,} bytes"
        return ToolResult(told, {"files": [written.name], "version": written.version})

    async def edit_file(_: str, a: JsonObject) -> ToolResult:
        name = _name(str(a["path"]))
        written = await asyncio.to_thread(files.edit, name, str(a["old"]), str(a["new"]))
        told = f"files/{written.name}: version {written.version}; earlier versions are kept"
        return ToolResult(told, {"files": [written.name], "version": written.version})

    return [
        Offer(
            "list_files",
            f"List files and folders, two levels deep. {place}",
            schema([], path=text),
            list_files,
        ),
        Offer(
            "read_file",
            f"Read a text file by lines ({READ_LINES} unless told). {place}",
            schema(["path"], path=text, first=number, lines=number),
            read_file,
        ),
        Offer(
            "search_files",
            "Search files with a regular expression; small letters match both cases. Returns path:line: text. "
            f"`glob` narrows by name (*.py). {place}",
            schema(["pattern"], pattern=text, path=text, glob=text),
            search_files,
        ),
        Offer(
            "write_file",
            "Write a text file of this conversation, for example a report. An existing one gets a new version; all "
            "versions are kept.",
            schema(["path", "content"], path=text, content=text),
            write_file,
        ),
        Offer(
            "edit_file",
            "Change a file of this conversation in place: `old` must stand in it exactly once and is replaced by "
            "`new`. Use this instead of writing the whole again.",
            schema(["path", "old", "new"], path=text, old=text, new=text),
            edit_file,
        ),
    ]


def _name(path: str) -> str:
    return path.removeprefix("/").removeprefix("files/")


def _list(browser: Browser, path: str) -> ToolResult:
    found = browser.list(path)
    lines = [f"{name}/" if size is None else f"{name}  {size:,} bytes" for name, size in found[:MOST_ENTRIES]]
    if len(found) > MOST_ENTRIES:
        lines.append(f"[{len(found) - MOST_ENTRIES:,} more; list a folder below]")
    return ToolResult(
        clip("\n".join(lines), READ_CHARS, "list a folder below") if lines else "There are no files."
    )


def _read(browser: Browser, path: str, first: int, count: int) -> ToolResult:
    lines, total = browser.read(path, first, count)
    shown: list[str] = []
    spent = 0
    for number, line in enumerate(lines, max(1, first)):
        piece = f"{number}\t{line[:2_000]}"
        spent += len(piece) + 1
        if shown and spent > READ_CHARS:
            break
        shown.append(piece)
    last = max(1, first) + len(shown) - 1
    if first <= 1 and last >= total:
        return ToolResult("\n".join(shown) or "[the file is empty]")
    more = f"; continue with first={last + 1}" if last < total else "; this is the end"
    return ToolResult(f"[lines {max(1, first):,} to {last:,} of {total:,}{more}]\n" + "\n".join(shown))


def _search(browser: Browser, pattern: str, path: str, glob: str) -> ToolResult:
    found, more = browser.search(pattern, path, glob)
    if not found:
        return ToolResult("No line matches.")
    lines = [f"{match.path}:{match.line}: {match.text}" for match in found]
    if more:
        lines.append(f"[more than {MOST_MATCHES} lines match; narrow the pattern or the path]")
    return ToolResult(clip("\n".join(lines), READ_CHARS, "narrow the pattern or the path"))
