"""Printing for people. What comes from models, tools and users is cleaned of control characters first, and
never read as markup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tenuto.cli.text import t, word
from tenuto.codec import JsonObject, dumps_pretty

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

LAYER_COLOURS = {
    "base": "grey50",
    "tools": "grey50",
    "history": "blue",
    "clock": "grey50",
    "bridge": "yellow",
    "task": "magenta",
    "memory": "cyan",
    "question": "green",
    "turn": "green",
}


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def plain(text: str) -> str:
    """Text without terminal control and direction characters: it can't move the cursor or hide anything."""
    return _CONTROL.sub("�", text)


def print_json(value: Any) -> None:
    import sys

    sys.stdout.buffer.write(dumps_pretty(value))
    sys.stdout.buffer.flush()


def table(*columns: str) -> Table:
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def ranges(value: list[list[int]]) -> str:
    """`#3, #7 to #12` for inclusive ranges of record numbers."""
    return ", ".join(f"#{a}" if a == b else f"#{a}–#{b}" for a, b in value[:6]) + (
        " …" if len(value) > 6 else ""
    )


def show_context(out: Console, context: JsonObject, *, texts: bool = False) -> None:
    """One request layer by layer, with a bar of its size."""
    from rich.text import Text

    budget = context["budget"]
    head = t(
        "context_head",
        turn=context["turn"],
        step=context["step"],
        model=plain(context["model"]),
        used=f"{budget['used']:,}",
        window=f"{budget['window']:,}",
        how=word(budget["estimated_by"]),
        coverage=word(context["coverage"]),
    )
    out.print(Text(head))
    out.print(_bar(context["blocks"]))
    listing = table(t("col_layer"), t("col_tokens"), t("col_records"), "")
    for block in context["blocks"]:
        colour = LAYER_COLOURS.get(block["layer"], "white")
        name = Text(t(f"layer_{block['layer']}"), style=colour)
        state = block["state"] if block["state"] not in ("whole", "bridge") else ""
        note = ", ".join(word(part) for part in (state, block["note"]) if part)
        listing.add_row(
            name, f"{block['tokens']:,}", ranges(block["records"]), Text(plain(note), style="dim")
        )
    out.print(listing)
    for left in context["left_out"]:
        line = t(
            "left_out",
            first=left["from_seq"],
            last=left["to_seq"],
            reason=word(left["reason"]),
            covered=word(left["covered_by"]),
        )
        out.print(Text(line, style="dim"))
    if context["coverage"] == "partial":
        out.print(Text(t("partial"), style="bold red"))
    if "rebuilt_equal" in context:
        equal = context["rebuilt_equal"]
        out.print(Text(t("rebuilt") if equal else t("not_rebuilt"), style="dim" if equal else "bold red"))
    if texts:
        for block in context["blocks"]:
            for entry in block["entries"]:
                number = f"#{entry['seq']} " if entry["seq"] else ""
                out.print(Text(f"── {t('layer_' + block['layer'])} {number}{entry['kind']}", style="bold"))
                out.print(Text(plain(entry.get("text", ""))))


def _bar(blocks: list[JsonObject], width: int = 60) -> Any:
    from rich.text import Text

    total = sum(block["tokens"] for block in blocks) or 1
    bar = Text()
    for block in blocks:
        cells = round(block["tokens"] / total * width)
        bar.append("█" * cells, style=LAYER_COLOURS.get(block["layer"], "white"))
    return bar
