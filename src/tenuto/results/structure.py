"""What a large text holds: JSON rows, nested JSON, JSON Lines, CSV or prose. Pure; O(text).

The description goes to the model in place of the text, so it names columns with types and row counts exactly,
and its preview says what it is a part of (I9).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tenuto.codec import JsonError, dumps, loads

SAMPLE_ROWS = 5
TYPE_ROWS = 2_000
"""Rows looked at to tell a column's type; rows are always counted exactly."""
CELL_CHARS = 200


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """`number`, `text`, `true/false`, `object`, `list`, `empty`, or several joined by ` or `."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The shape of a text."""

    kind: str
    """`json rows`, `json`, `json lines`, `csv` or `text`."""
    media_type: str
    extension: str
    rows: int | None = None
    columns: tuple[Column, ...] = ()
    path: str = ""
    """For nested JSON: where its largest table stands, for example `data.items`."""
    outline: tuple[str, ...] = ()
    """Keys of nested JSON with their sizes, or headings of a text."""
    preview: str = ""
    preview_of: str = ""
    """What the preview shows, for example `first 5 of 3,912 rows`."""


def describe(text: str, preview_chars: int) -> Structure:
    """Recognise what `text` holds; never raises."""
    return (
        _json(text, preview_chars)
        or _json_lines(text, preview_chars)
        or _csv(text, preview_chars)
        or _prose(text, preview_chars)
    )


def _json(text: str, preview_chars: int) -> Structure | None:
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value = loads(text)
    except (JsonError, UnicodeEncodeError):
        return None
    rows = _rows(value)
    if rows is not None:
        return Structure(
            "json rows",
            "application/json",
            ".json",
            len(rows),
            _columns(rows),
            **_row_preview(rows, preview_chars),
        )
    path, nested = _largest_table(value)
    outline = tuple(_outline(value))
    if nested is None:
        shown = dumps(value).decode()
        return Structure(
            "json",
            "application/json",
            ".json",
            outline=outline,
            preview=_cut(shown, preview_chars),
            preview_of=f"first {min(preview_chars, len(shown)):,} of {len(shown):,} characters",
        )
    preview = _row_preview(nested, preview_chars)
    preview["preview_of"] += f" at {path}"
    return Structure(
        "json", "application/json", ".json", len(nested), _columns(nested), path, outline, **preview
    )


def _rows(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in cast("list[Any]", value)):
        return cast("list[dict[str, Any]]", value)
    return None


def _largest_table(value: Any, path: str = "", depth: int = 0) -> tuple[str, list[dict[str, Any]] | None]:
    best: tuple[str, list[dict[str, Any]] | None] = ("", None)
    if depth > 5 or not isinstance(value, dict):
        return best
    for key, item in cast("dict[str, Any]", value).items():
        here = f"{path}.{key}" if path else key
        rows = _rows(item)
        found = (here, rows) if rows is not None else _largest_table(item, here, depth + 1)
        if found[1] is not None and (best[1] is None or len(found[1]) > len(best[1])):
            best = found
    return best


def _outline(value: Any, path: str = "", depth: int = 0) -> Iterable[str]:
    if isinstance(value, list):
        yield f"{path or '(top)'}: list of {len(cast('list[Any]', value)):,}"
    elif isinstance(value, dict) and depth < 3:
        items = cast("dict[str, Any]", value)
        for key, item in list(items.items())[:20]:
            here = f"{path}.{key}" if path else str(key)
            if isinstance(item, dict | list):
                yield from _outline(item, here, depth + 1)
            else:
                yield f"{here}: {type_of(item)}"
        if len(items) > 20:
            yield f"{path or '(top)'}: {len(items) - 20:,} more keys"
    elif isinstance(value, dict):
        yield f"{path}: object with {len(cast('dict[str, Any]', value)):,} keys"


def rows_of(text: str) -> list[dict[str, Any]]:
    """The rows of the table that `text` holds (the largest one of nested JSON); none where there is no table."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            value = loads(text)
        except (JsonError, UnicodeEncodeError):
            return _line_rows(text) or []
        return _rows(value) or _largest_table(value)[1] or []
    table = _csv_table(text)
    if table is None:
        return []
    header = [name.strip() for name in table[0]]
    return [dict(zip(header, row, strict=False)) for row in table[1:]]


def _json_lines(text: str, preview_chars: int) -> Structure | None:
    rows = _line_rows(text)
    if rows is None:
        return None
    return Structure(
        "json lines",
        "application/x-ndjson",
        ".jsonl",
        len(rows),
        _columns(rows),
        **_row_preview(rows, preview_chars),
    )


def _line_rows(text: str) -> list[dict[str, Any]] | None:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not lines[0].lstrip().startswith("{"):
        return None
    rows: list[dict[str, Any]] = []
    for line in lines:
        try:
            row = loads(line)
        except (JsonError, UnicodeEncodeError):
            return None
        if not isinstance(row, dict):
            return None
        rows.append(cast("dict[str, Any]", row))
    return rows


def _csv_table(text: str) -> list[list[str]] | None:
    """Header and rows, none where the text is no table."""
    sample = text[:8_192]
    first = sample.split("\n", 1)[0]
    try:
        dialect = csv.Sniffer().sniff(sample, delimiters=",;\t|")
    except csv.Error:
        return None
    if dialect.delimiter not in first:
        return None
    try:
        table = list(csv.reader(io.StringIO(text), dialect))
    except csv.Error:
        return None
    table = [row for row in table if row]
    if len(table) < 3 or len(table[0]) < 2:
        return None
    header, body = table[0], table[1:]
    ragged = sum(len(row) != len(header) for row in body[:200])
    if ragged > len(body[:200]) * 0.05 or not all(name.strip() for name in header):
        return None
    return table


def _csv(text: str, preview_chars: int) -> Structure | None:
    table = _csv_table(text)
    if table is None:
        return None
    header, body = table[0], table[1:]
    columns = tuple(
        Column(name.strip(), _join(_cell_type(row[at]) for row in body[:TYPE_ROWS] if at < len(row)))
        for at, name in enumerate(header)
    )
    lines = text.splitlines()
    shown = "\n".join(lines[: SAMPLE_ROWS + 1])
    return Structure(
        "csv",
        "text/csv",
        ".csv",
        len(body),
        columns,
        preview=_cut(shown, preview_chars),
        preview_of=f"header and first {min(SAMPLE_ROWS, len(body))} of {len(body):,} rows",
    )


def _prose(text: str, preview_chars: int) -> Structure:
    lines = text.splitlines()
    headings = [
        line.strip()[:120]
        for line in lines
        if re.match(r"(#{1,6}\s+\S|\d+(\.\d+)*[.)、]?\s+\S{1,80}$)", line)
    ]
    shown = _cut(text, preview_chars)
    return Structure(
        "text",
        "text/plain",
        ".txt",
        outline=tuple([f"{len(lines):,} lines", *headings[:30]]),
        preview=shown,
        preview_of=f"first {len(shown):,} of {len(text):,} characters",
    )


def _columns(rows: Sequence[dict[str, Any]]) -> tuple[Column, ...]:
    types: dict[str, set[str]] = {}
    for row in rows[:TYPE_ROWS]:
        for name, value in row.items():
            types.setdefault(name, set()).add(type_of(value))
    for row in rows[TYPE_ROWS:]:
        for name in row:
            if name not in types:
                types[name] = {type_of(row[name])}
    return tuple(Column(name, _join(found)) for name, found in types.items())


def type_of(value: Any) -> str:
    """The name of a JSON value's type, as a person would say it."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true/false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"


def _cell_type(cell: str) -> str:
    if not cell.strip():
        return "empty"
    return "number" if re.fullmatch(r"\s*[-+]?[0-9][0-9,]*(\.[0-9]+)?([eE][-+]?[0-9]+)?\s*", cell) else "text"


def _join(types: Iterable[str]) -> str:
    found = sorted(set(types))
    return " or ".join(found) if found else "empty"


def _row_preview(rows: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    lines: list[str] = []
    length = 0
    for row in rows[:SAMPLE_ROWS]:
        line = dumps({key: _cell(value) for key, value in row.items()}).decode()
        if lines and length + len(line) > limit:
            break
        lines.append(_cut(line, limit))
        length += len(line)
    return {"preview": "\n".join(lines), "preview_of": f"first {len(lines)} of {len(rows):,} rows"}


def _cell(value: Any) -> Any:
    text: str = value if isinstance(value, str) else dumps(value).decode()
    return f"{text[:CELL_CHARS]}…" if len(text) > CELL_CHARS else value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
