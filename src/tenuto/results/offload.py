"""From a large tool result to what the model is shown: the file's place, its structure, a labelled preview.

With the right to run code the whole is saved first and the model gets a path it can compute over. Without it
there is no file: the text is clipped, and the model is told to narrow the query (I9).
"""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.codec import JsonObject
from tenuto.context.shape import clip
from tenuto.errors import DiskFull, ResultTooLarge
from tenuto.results.files import ThreadFile, ThreadFiles
from tenuto.results.store import Result, ResultStore
from tenuto.results.structure import Structure, describe
from tenuto.settings import ResultSettings

RESULTS_IN_SANDBOX = "/results"
FILES_IN_SANDBOX = "/files"


@dataclass(frozen=True, slots=True)
class Offloaded:
    """What the model is told, and the saved result if there is one."""

    text: str
    result: Result | None

    def metadata(self, arguments: JsonObject) -> JsonObject | None:
        """Kept with the tool result in the log, never sent: which file it stands for (I14)."""
        if self.result is None:
            return None
        return {"result": self.result.name, "rows": self.result.rows, "arguments": arguments}


def offload(
    text: str,
    *,
    tool: str,
    arguments: JsonObject,
    store: ResultStore,
    rules: ResultSettings,
    may_run_code: bool,
) -> Offloaded:
    """Treat one text result of an MCP tool. Small ones pass unchanged; never raises for a full disk."""
    if len(text) <= rules.offload_chars:
        return Offloaded(text, None)
    if not may_run_code:
        return Offloaded(_clipped(text, rules, "You can't run code here, so narrow the query."), None)
    structure = describe(text, rules.preview_chars)
    try:
        result = store.save(tool, arguments, text.encode("utf-8", "replace"), structure)
    except (DiskFull, ResultTooLarge) as error:
        advice = f"The whole could not be saved: {error.message}. {error.hint.capitalize()}."
        return Offloaded(_clipped(text, rules, advice), None)
    return Offloaded(notice(result, structure), result)


def _clipped(text: str, rules: ResultSettings, advice: str) -> str:
    return clip(text, rules.offload_chars, advice)


def notice(result: Result, structure: Structure) -> str:
    """The text that stands for a saved result. Its first lines survive the shortest clipping."""
    path = f"{RESULTS_IN_SANDBOX}/{result.name}"
    lines = [f"[saved] {path} has the whole result ({result.bytes:,} bytes, {structure.kind})."]
    lines.extend(_shape_lines(structure))
    lines.append(
        "Only the preview below is shown here; it is not the data. Compute over the whole file: "
        f"{reading_hint(path, structure)}"
    )
    lines.append(f"[preview: {structure.preview_of}]\n{structure.preview}\n[end of preview]")
    return "\n".join(lines)


def _shape_lines(structure: Structure) -> list[str]:
    lines: list[str] = []
    if structure.rows is not None:
        columns = ", ".join(f"{column.name} ({column.type})" for column in structure.columns[:40])
        more = f" and {len(structure.columns) - 40} more" if len(structure.columns) > 40 else ""
        where = f" at {structure.path}" if structure.path else ""
        lines.append(f"{structure.rows:,} rows x {len(structure.columns)} columns{where}: {columns}{more}.")
    if structure.outline:
        lines.append("Structure: " + "; ".join(structure.outline))
    return lines


def reading_hint(path: str, structure: Structure) -> str:
    """One line of Python that opens the file."""
    if structure.kind == "csv":
        return f"run_python: pandas.read_csv({path!r})"
    if structure.kind == "json lines":
        return f"run_python: pandas.read_json({path!r}, lines=True)"
    if structure.kind == "json rows":
        return f"run_python: pandas.DataFrame(json.load(open({path!r})))"
    if structure.path:
        keys = "".join(f"[{key!r}]" for key in structure.path.split("."))
        return f"run_python: pandas.DataFrame(json.load(open({path!r})){keys})"
    return f"run_python: open({path!r}).read()"


def paste(text: str, *, files: ThreadFiles, rules: ResultSettings) -> tuple[str, ThreadFile | None]:
    """A pasted text above the limit becomes a file of the thread; returns what stands in the message."""
    if len(text) <= rules.paste_chars:
        return text, None
    structure = describe(text, rules.preview_chars)
    saved = files.add(f"pasted{structure.extension}", text.encode("utf-8", "replace"))
    path = f"{FILES_IN_SANDBOX}/{saved.name}"
    lines = [f"[pasted text, {len(text):,} characters, saved whole as {path} ({structure.kind})]"]
    lines.extend(_shape_lines(structure))
    lines.append(f"[preview: {structure.preview_of}]\n{structure.preview}\n[end of preview]")
    return "\n".join(lines), saved
