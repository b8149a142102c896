"""A long conversation whose conditions are known at every turn, a summariser for it, and a reader that says which
conditions a request puts in force. All by rules, reading nothing but what they are given.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.bench import workload

_SET = re.compile(r"From now on rule-(\d+): ([a-z ]+?)\.|从现在起规则-(\d+)：([一-鿿]+)。")
_DROP = re.compile(r"Forget rule-(\d+) again\.|规则-(\d+)不再需要。")
_CONDITIONS = re.compile(r"^Conditions in force:\n((?:- .*\n?)*)", re.MULTILINE)
_FENCE = re.compile(r'<context id="([^"]+)">\n(.*?)\n</context id="\1">\n', re.DOTALL)
_WORDS = (
    "leave out the holidays",
    "round to full numbers",
    "use the net tariff",
    "name every source",
    "skip floor two",
)
_WORDS_ZH = ("排除节假日", "数字取整", "使用不含税电价", "注明每个来源", "跳过二楼")

MOST_ACTIVE = 20


@dataclass(slots=True)
class Talk:
    """The conversation, and what holds after each turn."""

    questions: list[str] = field(default_factory=list[str])
    active: list[dict[int, str]] = field(default_factory=list[dict[int, str]])
    """Number to the sentence that set it, after each question."""
    facts: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """`(turn, sentence)`: values that the user gave once."""


def talk(turns: int, seed: int = 7) -> Talk:
    """`turns` questions, half Chinese: conditions set, taken back and replaced among ordinary work."""
    rng = random.Random(seed)
    made = Talk()
    now: dict[int, str] = {}
    number = 0
    for turn in range(1, turns + 1):
        chance, chinese = rng.random(), turn % 2 == 0
        filler = workload.text(rng, 120, chinese=chinese)
        said = ""
        if turn == 1 or (chance < 0.06 and len(now) < MOST_ACTIVE):
            number += 1
            said = (
                f"从现在起规则-{number}：{rng.choice(_WORDS_ZH)}。"
                if chinese
                else f"From now on rule-{number}: {rng.choice(_WORDS)}."
            )
            now = {**now, number: said}
        elif chance < 0.10 and len(now) > 3:
            gone = rng.choice(sorted(now))
            said = f"规则-{gone}不再需要。" if chinese else f"Forget rule-{gone} again."
            now = {known: text for known, text in now.items() if known != gone}
        elif chance < 0.14:
            said = f"The budget of project P{turn} is {turn * 37} thousand."
            made.facts.append((turn, said))
        made.questions.append(f"{said} {filler}".strip())
        made.active.append(now)
    return made


def changes(text: str) -> list[tuple[int, bool, str]]:
    """`(number, whether it is set, the words)` in the order of the text."""
    found = [(m.start(), int(m[1] or m[3]), True, m[0]) for m in _SET.finditer(text)]
    found += [(m.start(), int(m[1] or m[2]), False, m[0]) for m in _DROP.finditer(text)]
    return [(number, on, words) for _, number, on, words in sorted(found)]


def in_force(texts: Sequence[str]) -> set[int]:
    """Which conditions a request puts in force: the task's, then whatever the user's words change, in order."""
    said: list[str] = []
    task: list[str] = []
    for text in texts:
        fence = _FENCE.search(text)
        if fence is not None:
            block, text = fence[2], text[fence.end() :]
            conditions = _CONDITIONS.findall(block.partition("[task] ")[2])
            task = conditions or task
            said.append(block.partition("[task] ")[0])
        said.append(text)
    force: set[int] = set()
    for text in [*task, *said]:
        for number, on, _ in changes(text):
            force = force | {number} if on else force - {number}
    return force


def summarise(prompt: str) -> str:
    """The operations for a refresh, from the items and records of the prompt alone."""
    items = {
        _number(item["text"]): item["id"]
        for item in _lines(prompt, "\nKnown items:")
        if item["status"] == "active"
    }
    operations: list[dict[str, Any]] = []
    fresh: dict[int, dict[str, Any]] = {}
    for record in _lines(prompt, "\nRecords that left the window:"):
        if record["speaker"] != "user":
            continue
        for number, on, words in changes(record["text"]):
            base = {"kind": "", "item": "", "text": "", "record": record["record"], "quote": words}
            if on:
                fresh[number] = {**base, "op": "add", "kind": "constraint", "text": words}
            elif number in fresh:
                del fresh[number]
            elif number in items:
                operations.append({**base, "op": "withdraw", "item": items[number]})
    return json.dumps({"operations": [*operations, *fresh.values()]}, ensure_ascii=False)


def _number(text: str) -> int:
    found = changes(text)
    return found[0][0] if found else 0


def _lines(prompt: str, heading: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in prompt.partition(heading)[2].splitlines()[1:]:
        if not line.startswith("{"):
            break
        found.append(json.loads(line))
    return found
