"""Which builder of requests keeps a long conversation whole: ours against full history, a sliding window and
langchain-core's `trim_messages`, on the same labelled conversation at several budgets.

Counted at every turn: the share of the conditions that hold and are in the request, the share of values the user
gave once that are in the request or can be found by the history search, conditions that the request puts in force
though they were taken back, and messages that are in neither window, bridge, task nor index. The summariser is
rule-based: the builders are compared here, not models.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tenuto.bench.probe import Talk, in_force, summarise, talk
from tenuto.codec import JsonObject, dumps
from tenuto.context.assemble import common_prefix
from tenuto.context.tokens import count
from tenuto.errors import NotFound

TURNS = 400
BUDGETS = (8_000, 16_000, 32_000)
RESULT = dumps([{"building": f"B{n % 12:02d}", "kwh": n * 7.5} for n in range(60)]).decode()
ANSWER = "The total is computed over all rows; holidays and tariffs as agreed. " * 4
USER = "u"

Message = tuple[str, str]
"""`(role, text)`, role one of `user`, `assistant`, `tool`."""


def measure(turns: int = TURNS, budgets: Sequence[int] = BUDGETS) -> list[JsonObject]:
    """The rows of `tenuto bench continuity`."""
    said = talk(turns)
    rows: list[JsonObject] = []
    for budget in budgets:
        for name, build in _builders(budget).items():
            rows.append({"builder": name, "budget": budget} | _plain(said, build))
        rows.append({"builder": "tenuto", "budget": budget} | asyncio.run(_ours(said, budget)))
    return rows


def _builders(budget: int) -> dict[str, Callable[[list[Message]], list[Message]]]:
    found: dict[str, Callable[[list[Message]], list[Message]]] = {
        "full history": lambda history: history,
        "sliding window": lambda history: _sliding(history, budget),
    }
    try:
        found["langchain-core trim_messages"] = _langchain(budget)
    except NotFound:
        pass
    return found


def _sliding(history: list[Message], budget: int) -> list[Message]:
    kept: list[Message] = []
    spent = 0
    for role, text in reversed(history):
        spent += _count(text)
        if kept and spent > budget:
            break
        kept.append((role, text))
    return kept[::-1]


_counted: dict[str, int] = {}


def _count(text: str) -> int:
    if text not in _counted:
        _counted[text] = count(text) + 4
    return _counted[text]


def _langchain(budget: int) -> Callable[[list[Message]], list[Message]]:
    try:
        langchain: Any = import_module("langchain_core.messages")
    except ImportError as error:
        raise NotFound("langchain-core is not installed", hint="pip install tenuto[bench]") from error

    def one(at: int, role: str, text: str) -> Any:
        if role == "user":
            return langchain.HumanMessage(text)
        return (
            langchain.ToolMessage(text, tool_call_id=f"c{at}")
            if role == "tool"
            else langchain.AIMessage(text)
        )

    def tokens(messages: Any) -> int:
        return sum(_count(str(message.content)) for message in messages)

    def build(history: list[Message]) -> list[Message]:
        # Only a tail can be kept: what lies further back than twice the budget need not be converted.
        tail = _sliding(history, budget * 2)
        made = [one(at, role, text) for at, (role, text) in enumerate(tail)]
        kept = langchain.trim_messages(
            made, max_tokens=budget, token_counter=tokens, strategy="last", start_on="human"
        )
        names = {"human": "user", "ai": "assistant", "tool": "tool"}
        return [(names[message.type], str(message.content)) for message in kept]

    return build


class _Score:
    """What is counted over all turns of one builder."""

    def __init__(self, said: Talk) -> None:
        self._said = said
        self.least_conditions = 1.0
        self.least_evidence = 1.0
        self.stale = 0
        self.tokens: list[int] = []
        self.lost = 0
        self._before: list[Any] = []
        self._shares: list[float] = []

    def request(self, turn: int, users: list[str], whole: list[Any], tokens: int, found: set[str]) -> None:
        """One request at turn `turn` (from 0): the user texts in it, all of it for the prefix, its tokens."""
        force, valid = in_force(users), set(self._said.active[turn])
        share = len(force & valid) / len(valid) if valid else 1.0
        self.least_conditions = min(self.least_conditions, share)
        self.stale += len(force - valid)
        known = [text for at, text in self._said.facts if at <= turn + 1]
        everything = "\n".join(users)
        evidence = sum(text in everything or text in found for text in known) / len(known) if known else 1.0
        self.least_evidence = min(self.least_evidence, evidence)
        self.tokens.append(tokens)
        if self._before:
            equal = common_prefix(self._before, whole)
            size = sum(map(_size, whole))
            self._shares.append(sum(map(_size, whole[:equal])) / max(1, size))
        self._before = whole

    def row(self) -> JsonObject:
        return {
            "conditions_least": round(self.least_conditions, 3),
            "evidence_least": round(self.least_evidence, 3),
            "stale_exposed": self.stale,
            "messages_lost": self.lost,
            "tokens_mean": round(sum(self.tokens) / len(self.tokens)),
            "common_prefix": round(sum(self._shares) / max(1, len(self._shares)), 3),
        }


def _size(message: Any) -> int:
    return len(dumps(message))


def _plain(said: Talk, build: Callable[[list[Message]], list[Message]]) -> JsonObject:
    score = _Score(said)
    history: list[Message] = []
    for turn, question in enumerate(said.questions):
        history.append(("user", question))
        request = build(history)
        users = [text for role, text in request if role == "user"]
        tokens = sum(_count(text) for _, text in request)
        score.request(turn, users, list(request), tokens, set())
        score.lost = max(score.lost, turn + 1 - len(users))
        history += [("tool", RESULT), ("assistant", f"{ANSWER}{turn}")]
    return score.row()


async def _ours(said: Talk, budget: int) -> JsonObject:
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    from tenuto.library import Tenuto

    score = _Score(said)
    turn = 0

    async def stream(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        raw = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
        users = [
            str(part["content"]) for m in raw for part in m["parts"] if part.get("part_kind") == "user-prompt"
        ]
        if "keep the state of the work up to date" in users[-1]:
            yield summarise(users[-1])
            return
        if any(part.get("part_kind") == "tool-return" for part in raw[-1]["parts"]):
            yield f"{ANSWER}{turn}"
            return
        plain = [[part.get("content", part.get("args")) for part in message["parts"]] for message in raw]
        tokens = sum(_count(dumps(message).decode()) for message in plain)
        found = _searched(turn)
        score.request(turn, users, plain, tokens, found)
        yield {0: DeltaToolCall(name="list_results", json_args="{}", tool_call_id=f"c{turn}")}

    def _searched(turn: int) -> set[str]:
        """Each value is asked for by its project, as a user would; only at every fortieth turn: it costs."""
        if turn % 40 and turn != len(said.questions) - 1:
            return {text for _, text in said.facts}
        hits: set[str] = set()
        for at, text in said.facts:
            if at <= turn + 1:
                query = f"budget of project P{at}"
                hits |= {text for hit in app.search(query, user=USER, limit=5) if text in hit.text}
        return hits

    settings: JsonObject = {
        "members": {USER: {}},
        "agent": {"model": "probe"},
        "sandbox": {"enabled": False},
        "context": {"history_tokens": budget},
    }
    models = {"probe": FunctionModel(stream_function=stream, model_name="probe")}
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        async with Tenuto(Path(folder), settings=settings, models=models) as app:
            thread = app.thread(user=USER, thread="long")
            for question in said.questions:
                await thread.ask(question)
                turn += 1
            await app.app.jobs.settled()
            score.lost = _lost(app, said, thread)
    return score.row()


def _lost(app: Any, said: Talk, thread: Any) -> int:
    """Questions that no place has: not the last request, not the task, not the index."""
    context = thread.context()
    shown = "\n".join(entry["text"] for block in context["blocks"] for entry in block["entries"])
    covered = max((left["to_seq"] for left in context["left_out"] if left["covered_by"] == "task"), default=0)
    place = app.app.workspace("default")
    indexed = {hit for hit in place.history.index.reached()}
    return sum(
        question not in shown and not covered and thread.scope.thread not in indexed
        for question in said.questions
    )
