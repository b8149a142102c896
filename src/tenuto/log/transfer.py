"""Export and import of one thread as JSON Lines: a header, the records as they are, then the blobs.

An import is checked whole before anything is written; the importer becomes the owner.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tenuto.codec import JsonError, JsonObject, dumps, loads, stamp
from tenuto.disk import write_atomic
from tenuto.errors import LogInvalid, UsageError
from tenuto.log.record import DamagedLine, Record, parse
from tenuto.log.store import ThreadLog
from tenuto.log.threads import CREATED, Thread, Threads
from tenuto.scope import Scope

EXPORT_VERSION = 1


def export(thread: Thread, log: ThreadLog) -> Iterator[bytes]:
    """The lines of an export. Unreadable lines of the log are left out and counted in the last line."""
    header = {"tenuto_export": EXPORT_VERSION, "thread": thread.thread, "title": thread.title, "at": stamp()}
    yield dumps(header) + b"\n"
    blobs: dict[str, None] = {}
    for record in log.scan():
        yield record.dump()
        blobs |= dict.fromkeys(_blobs_of(record.message or record.event))
    for name in blobs:
        if (content := log.blobs.get(name)) is not None:
            yield dumps({"blob": name, "data": base64.b64encode(content).decode()}) + b"\n"
    yield dumps({"end": True, "damaged": sum(gap.kind == "damaged" for gap in log.gaps)}) + b"\n"


def _blobs_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            if key == "blob" and isinstance(item, str):
                yield item
            elif key == "source" and isinstance(item, str) and item.startswith("sha256:"):
                yield item.removeprefix("sha256:")
            else:
                yield from _blobs_of(item)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _blobs_of(item)


def import_thread(threads: Threads, scope: Scope, lines: Iterable[bytes]) -> int:
    """Make a new thread from an export; returns its number of records.

    Raises `LogInvalid` naming the line, `LogVersion`, or `UsageError` if the thread exists.
    """
    title, records, blobs = _check(lines)
    log = ThreadLog(threads.log_path(scope.thread))
    if log.path.exists():
        raise UsageError(f"thread {scope.thread!r} exists already", hint="choose another name with --thread")
    epoch = threads.next_epoch()
    created = threads.created_record(scope, epoch)
    rest = records
    if records and records[0].event_type == CREATED:
        created, rest = replace(created, id=records[0].id), records[1:]
    rest = [replace(record, epoch=epoch) for record in rest]
    for content in blobs:
        log.blobs.put(content)
    write_atomic(log.path, b"".join(record.dump() for record in [created, *rest]), mode=0o600)
    threads.open(scope, create=True)
    if title:
        threads.change(scope, title=title)
    return len(rest) + 1


def _check(lines: Iterable[bytes]) -> tuple[str, list[Record], list[bytes]]:
    title, records, blobs = "", list[Record](), list[bytes]()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        value = _object(line, number)
        if number == 1:
            if value.get("tenuto_export") != EXPORT_VERSION:
                raise LogInvalid(
                    "line 1: this is no Tenuto export", hint="use a file made by `tenuto export`"
                )
            title = str(value.get("title", ""))
        elif "blob" in value:
            blobs.append(base64.b64decode(str(value.get("data", ""))))
        elif "end" not in value:
            try:
                records.append(parse(line))
            except DamagedLine as error:
                raise LogInvalid(
                    f"line {number}: {error.message}", hint="export again; nothing was imported"
                ) from error
    return title, records, blobs


def _object(line: bytes, number: int) -> JsonObject:
    try:
        value = loads(line)
    except JsonError as error:
        raise LogInvalid(f"line {number}: not JSON: {error}", hint="nothing was imported") from error
    if not isinstance(value, dict):
        raise LogInvalid(f"line {number}: not an object", hint="nothing was imported")
    return value  # pyright: ignore[reportUnknownVariableType]
