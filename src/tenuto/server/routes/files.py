"""Where data and products are: a thread's files and results, and its sandbox."""

from __future__ import annotations

import mimetypes
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Response, UploadFile

from tenuto.codec import JsonObject
from tenuto.errors import ResultTooLarge, SandboxUnavailable
from tenuto.results.files import ThreadFiles
from tenuto.results.store import ResultStore
from tenuto.results.structure import rows_of
from tenuto.sandbox.protocol import SandboxKey
from tenuto.server.guard import UNTRUSTED_POLICY
from tenuto.server.identity import At, InThread

router = APIRouter(tags=["files"])

THREAD = "/workspaces/{workspace}/threads/{thread}"
MOST_ROWS = 1_000
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})


def _files(at: At) -> ThreadFiles:
    _ = at.thread
    return at.workspace.files(at.scope)


def _results(at: At) -> ResultStore:
    _ = at.thread
    return at.workspace.results(at.scope)


def _bytes(content: bytes, name: str, media_type: str = "") -> Response:
    """A file's bytes: an image may be shown, all else is a download; nothing in it runs here."""
    kind = media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    where = "inline" if kind in IMAGES else "attachment"
    return Response(
        content,
        media_type=kind,
        headers={
            "content-disposition": f'{where}; filename="{name}"',
            "content-security-policy": UNTRUSTED_POLICY,
        },
    )


@router.get(f"{THREAD}/files")
async def list_files(at: InThread) -> JsonObject:
    """Files (charts, reports, uploads) and saved results, with what made them and how long they are kept."""
    files = _files(at)
    return {
        "files": [{**asdict(file), "versions": len(files.versions(file.name))} for file in files.all()],
        "results": [asdict(result) for result in _results(at).all()],
    }


@router.post(f"{THREAD}/files", status_code=201)
async def upload_file(at: InThread, file: UploadFile) -> JsonObject:
    """Put a file beside the thread; a name in use gets a number. The thread is made if it isn't there."""
    at.here.need("send")
    at.workspace.thread(at.scope, create=True)
    most = at.workspace.settings.results.attach_size
    if file.size is not None and file.size > most:
        raise ResultTooLarge(f"the file is larger than {most:,} bytes", hint="attach an archive, or raise it")
    added = _files(at).add(file.filename or "file", await file.read())
    at.runs.changed(at.scope, "files")
    return asdict(added)


@router.get(f"{THREAD}/files/{{name}}")
async def read_file(at: InThread, name: str, version: Annotated[int | None, Query(ge=1)] = None) -> Response:
    """A file's bytes, the newest version unless another is named."""
    return _bytes(_files(at).read(name, version), name)


@router.get(f"{THREAD}/files/{{name}}/difference")
async def compare_versions(at: InThread, name: str, one: int, other: int) -> JsonObject:
    """What changed between two versions of a text, as a unified diff."""
    return {"difference": _files(at).difference(name, one, other)}


def _page(content: bytes, offset: int, limit: int) -> JsonObject:
    """Rows of the table that a text holds, and how many there are in all."""
    rows = rows_of(content.decode("utf-8", "replace"))
    page = rows[offset : offset + limit]
    columns = list(dict.fromkeys(name for row in rows[:MOST_ROWS] for name in row))
    return {"columns": columns, "rows": page, "offset": offset, "total": len(rows)}


Offset = Annotated[int, Query(ge=0)]
Rows = Annotated[int, Query(ge=1, le=MOST_ROWS)]


@router.get(f"{THREAD}/files/{{name}}/rows")
async def file_rows(at: InThread, name: str, offset: Offset = 0, limit: Rows = 200) -> JsonObject:
    """A page of rows of a CSV, JSON or JSON Lines file. O(file)."""
    return _page(_files(at).read(name), offset, limit)


@router.get(f"{THREAD}/results/{{name}}")
async def read_result(at: InThread, name: str) -> Response:
    """A saved result's bytes. 404 with what to do next where it has expired."""
    store = _results(at)
    return _bytes(store.read(name), name, store.get(name).media_type)


@router.get(f"{THREAD}/results/{{name}}/rows")
async def result_rows(at: InThread, name: str, offset: Offset = 0, limit: Rows = 200) -> JsonObject:
    """A page of rows of a saved result. O(result)."""
    return _page(_results(at).read(name), offset, limit)


def _key(at: At) -> SandboxKey:
    return SandboxKey(at.scope.workspace, at.scope.user, at.scope.thread)


@router.get(f"{THREAD}/sandbox", tags=["sandbox"])
async def sandbox_status(at: InThread) -> JsonObject:
    """Whether the thread's interpreter is alive, how long it stays so, and the names of its variables."""
    _ = at.thread
    try:
        manager = await at.app.sandbox(at.workspace.settings)
    except SandboxUnavailable as error:
        return {"available": False, "alive": False, "cause": error.message, "hint": error.hint}
    info = manager.status(_key(at))
    return {"available": True, "alive": False} if info is None else {"available": True, **asdict(info)}


@router.post(f"{THREAD}/sandbox/restart", tags=["sandbox"])
async def restart_sandbox(at: InThread) -> JsonObject:
    """Let the interpreter go: variables are gone, files stay."""
    at.here.need("send")
    _ = at.thread
    await (await at.app.sandbox(at.workspace.settings)).reset(_key(at))
    return {"available": True, "alive": False}
