"""The ledger as the model reads it: by priority, under a token limit. Pure; O(items).

An item shows the user's own words first; a model's wording stands beside them and never instead of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.context.tokens import count
from tenuto.task.ledger import CLOSED, Item, Kind
from tenuto.words import same_words

HEADINGS: dict[Kind, str] = {
    "goal": "Goal",
    "constraint": "Conditions in force",
    "open": "Open questions",
    "decision": "Decisions",
    "reference": "References",
    "progress": "Progress",
}
"""In order of priority."""
WITHDRAWN = "Taken back, no longer in force"
FINISHED = "Finished, not to be done again"
REST_TOKENS = 24
"""Kept free for the line that says how much is not shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The rendered text, and which items it shows."""

    text: str
    items: tuple[str, ...]
    left_out: tuple[str, ...]


def render(items: Sequence[Item], limit: int) -> Shown:
    """`items` (as seen on the branch) in at most `limit` tokens; what has no room is counted in a last line."""
    living = [item for item in items if item.status not in CLOSED]
    lines: list[str] = []
    shown: list[str] = []
    left: list[str] = []
    spent = 0
    for kind, heading in HEADINGS.items():
        group = sorted((i for i in living if i.kind == kind), key=lambda i: (not i.pinned, not i.verified))
        titled = False
        for item in group:
            line = _line(item)
            cost = count(line) + 1 + (0 if titled else count(heading) + 2)
            if spent + cost > limit - REST_TOKENS:
                left.append(item.id)
                continue
            if not titled:
                lines.append(f"{heading}:")
                titled = True
            lines.append(line)
            shown.append(item.id)
            spent += cost
    if left:
        lines.append(f"[{len(left)} more items are not shown here; read_task shows them]")
    for title, statuses in ((FINISHED, ("done",)), (WITHDRAWN, ("withdrawn", "superseded"))):
        closed = [item for item in reversed(items) if item.status in statuses]
        line, names = _closed_line(title, closed, limit - REST_TOKENS - spent)
        if line:
            lines.append(line)
            shown += names
            spent += count(line) + 1
    return Shown("\n".join(lines), tuple(shown), tuple(left))


def _line(item: Item) -> str:
    mark = f"{item.id}" if item.verified and item.status == "active" else f"{item.id}, unconfirmed"
    quote = item.quote
    if not quote:
        return f"- [{mark}] {one_line(item.text)}"
    place = f"#{item.source[0].record}"
    words = f'"{one_line(quote)}" ({place})'
    if same_words(quote) == same_words(item.text):
        return f"- [{mark}] {words}"
    return f"- [{mark}] {words}: {one_line(item.text)}"


def _closed_line(title: str, items: Sequence[Item], room: int) -> tuple[str, list[str]]:
    """The newest closed items in one line."""
    names: list[str] = []
    line = ""
    for item in items:
        words = one_line(item.quote or item.text)
        trial = f"{line}; [{item.id}] {words}" if line else f"{title}: [{item.id}] {words}"
        if count(trial) + 1 > room:
            break
        line = trial
        names.append(item.id)
    return line, names


def one_line(text: str) -> str:
    return " ".join(text.split())
