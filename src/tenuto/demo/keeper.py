"""What the rule-based model does when it is asked to keep the task or to note facts. Also only from what it reads."""

from __future__ import annotations

import json
import re
from typing import Any

REFRESH = "keep the state of the work up to date"
EXTRACT = "note what is worth remembering about the user"

EXCLUDE = re.compile(
    r"(exclud|leav\w* out|without|ignor)\w*\s+(the\s+)?(public\s+)?holidays?"
    r"|(排除|剔除|去掉|不含|不算|不计)(法定|公共)?(节假日|假日|节日)",
    re.IGNORECASE,
)
INCLUDE = re.compile(
    r"(includ|count|with)\w*\s+(the\s+)?(public\s+)?holidays?( after all)?"
    r"|(?<!不)(包含|包括|算上|计入|加上|加回)(法定|公共)?(节假日|假日|节日)",
    re.IGNORECASE,
)
PREFER = re.compile(
    r"(?:my monthly reports are|i (?:always )?(?:prefer|want) (?:my )?(?:monthly )?reports?) in (english|chinese)"
    r"|(?:我的)?月报(?:都|以后都|今后都)?(?:用|使用|改用)(英文|中文)",
    re.IGNORECASE,
)


def json_lines(text: str, after: str) -> list[dict[str, Any]]:
    """The JSON objects that stand one a line behind the heading `after`."""
    found: list[dict[str, Any]] = []
    for line in text.partition(after)[2].splitlines()[1:]:
        if not line.startswith("{"):
            break
        found.append(json.loads(line))
    return found


def answer(prompt: str) -> str:
    """The operations for a refresh or an extraction, as JSON."""
    operations = _refresh(prompt) if REFRESH in prompt else _extract(prompt)
    return json.dumps({"operations": operations}, ensure_ascii=False)


def _refresh(prompt: str) -> list[dict[str, Any]]:
    items = json_lines(prompt, "\nKnown items:")
    known = next((i["id"] for i in items if i["kind"] == "constraint" and i["status"] == "active"), "")
    state: tuple[bool, int, str] | None = None
    for record in json_lines(prompt, "\nRecords that left the window:"):
        if record["speaker"] != "user":
            continue
        places = [(match.start(), True, match[0]) for match in EXCLUDE.finditer(record["text"])]
        places += [(match.start(), False, match[0]) for match in INCLUDE.finditer(record["text"])]
        if places:
            _, excluded, quote = max(places)
            state = (excluded, record["record"], quote)
    if state is None or state[0] == bool(known):
        return []
    base = {"kind": "", "item": known, "text": "", "record": state[1], "quote": state[2]}
    if state[0]:
        return [{**base, "op": "add", "kind": "constraint", "item": "", "text": state[2]}]
    return [{**base, "op": "withdraw"}]


def _extract(prompt: str) -> list[dict[str, Any]]:
    facts = json_lines(prompt, "\nKnown facts:")
    said = json_lines(prompt, "\nWhat was said:")
    text = next((line["text"] for line in said if line["speaker"] == "user"), "")
    match = PREFER.search(text)
    if match is None:
        return []
    language = {"english": "English", "chinese": "Chinese", "英文": "英文", "中文": "中文"}[
        (match[1] or match[2]).lower()
    ]
    chinese = bool(re.search(r"[一-鿿]", match[0]))
    fact = f"月报用{language}" if chinese else f"Monthly reports are written in {language}"
    old = next((f["id"] for f in facts if "月报" in f["text"] or "onthly reports" in f["text"]), "")
    base = {"text": fact, "quote": match[0], "importance": 4, "fact": old, "applies_to": "", "until": ""}
    return [{**base, "op": "supersede" if old else "add"}]
