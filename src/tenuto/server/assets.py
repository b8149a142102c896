"""The workbench's files: built beforehand and part of the package, so that serving them needs no Node."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from tenuto.errors import NotFound

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parent / "web"
TEXT = (".js", ".css", ".html", ".svg")


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    compressed: bytes
    """Empty where compressing gains nothing."""
    etag: str
    media_type: str


@cache
def asset(name: str) -> Asset | None:
    """A built file, read and compressed once a process; None where there is none of that name."""
    path = FOLDER / name
    if not path.is_file():
        return None
    content = path.read_bytes()
    compressed = gzip.compress(content, 9, mtime=0) if path.suffix in TEXT else b""
    kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(name)[0]
    etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    return Asset(content, compressed, etag, kind or "application/octet-stream")


def _answer(request: Request, name: str) -> Response:
    found = asset(name)
    if found is None:
        raise NotFound(f"there is no file {name[:80]!r}", hint="open /")
    # The names carry no hash: a browser asks each time, and is mostly told that nothing changed.
    headers = {"etag": found.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    content = found.content
    if found.compressed and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = found.compressed, "gzip"
    return Response(content, media_type=found.media_type, headers=headers)


@router.get("/assets/{name}")
async def built(request: Request, name: str) -> Response:
    # A path parameter holds no slash, so that the name stays in the folder.
    return _answer(request, f"assets/{name}")


@router.get("/icon.svg")
async def icon(request: Request) -> Response:
    return _answer(request, "icon.svg")


@router.get("/")
@router.get("/w/{rest:path}")
async def page(request: Request) -> Response:
    """The one page; which thread it shows is read from its address in the browser."""
    return _answer(request, "index.html")
