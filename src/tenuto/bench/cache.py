"""How much of a prompt a cache can serve: the stepped window against a sliding one.

`computed`: the share of identical leading tokens between consecutive requests, 200 turns of the workload at the
full 32,000. `server`: the share that a real prompt cache served, as the local model's server reports it, on a
plain conversation with a history budget of 6,000.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tenuto.agent.conversation import TURN_ENDED, Conversation
from tenuto.bench import workload
from tenuto.bench.turns import RULES, turn_texts
from tenuto.codec import JsonObject
from tenuto.context.assemble import Request, common_prefix
from tenuto.context.tokens import count, measure_message
from tenuto.log.store import ThreadLog
from tenuto.settings import ContextSettings

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    import httpx2

TURNS = 200
SERVER_BUDGET = 6_000
SERVER_WINDOW = 12_288
SLIDING_TURNS = 6
"""Turns measured of the sliding window on the server, once it is full: each costs a whole prompt."""
ANSWER_CHARS = 400

Policy = Literal["stepped", "sliding"]
POLICIES: tuple[Policy, ...] = ("stepped", "sliding")


def measure(*, real: bool = True) -> list[JsonObject]:
    """The rows of `tenuto bench cache`."""
    rows = [computed(policy, 32_000) for policy in POLICIES]
    if real:
        rows += [served(policy) for policy in POLICIES]
    return rows


def computed(policy: Policy, budget: int) -> JsonObject:
    """Identical leading tokens between consecutive requests, over all requests of 200 turns."""
    rng = random.Random(5)
    rules = replace(RULES, settings=ContextSettings(policy=policy, history_tokens=budget))
    requests: list[tuple[list[JsonObject], int]] = []
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        conversation = Conversation(ThreadLog(Path(folder) / "conv-cache.jsonl"), epoch=1)
        for number in range(1, TURNS + 1):
            asked, called, returned, answered = turn_texts(rng, number)
            turn = conversation.begin(asked).turn
            first = conversation.request(rules, step=0)
            conversation.settle_response(turn, first, called)
            conversation.settle_results(turn, [returned])
            second = conversation.request(rules, step=1)
            conversation.settle_response(turn, second, answered, {"type": TURN_ENDED, "reason": "answered"})
            requests += [_sent(first), _sent(second)]
    fixed = rules.fixed.cost.tokens
    shared = total = 0
    for (before, _), (after, size) in pairwise(requests):
        equal = common_prefix(before, after)
        shared += fixed + sum(measure_message(message).tokens for message in after[:equal])
        shared += _equal_start(before, after, equal)
        total += fixed + size
    return _row(policy, budget, "computed", shared / total, TURNS)


def _sent(request: Request) -> tuple[list[JsonObject], int]:
    return request.messages, sum(measure_message(message).tokens for message in request.messages)


def _equal_start(before: list[JsonObject], after: list[JsonObject], at: int) -> int:
    """Tokens of the equal beginning of the first two messages that differ."""
    if at >= min(len(before), len(after)):
        return 0
    first, second = (str(messages[at]["parts"][0].get("content", "")) for messages in (before, after))
    length = next((n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    return count(first[:length])


def served(policy: Policy) -> JsonObject:
    """What the model server's own prompt cache served."""
    from tenuto.bench.server import small_model

    with small_model(SERVER_WINDOW) as url, tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        return asyncio.run(_served(policy, url, Path(folder)))


async def _served(policy: Policy, url: str, folder: Path) -> JsonObject:
    import httpx2

    rng = random.Random(6)
    rules = replace(
        RULES, settings=ContextSettings(policy=policy, history_tokens=SERVER_BUDGET, bridge_tokens=200)
    )
    conversation = Conversation(ThreadLog(folder / "conv-cache.jsonl"), epoch=1)
    prompt = cached = measured = 0
    async with httpx2.AsyncClient(timeout=300) as client:
        for number in range(1, TURNS + 1):
            if number % 20 == 0:
                print(f"cache, {policy}: turn {number} of {TURNS}", file=sys.stderr, flush=True)
            asked = {"part_kind": "user-prompt", "content": workload.text(rng, 80, chinese=False)}
            turn = conversation.begin({"kind": "request", "parts": [asked]}).turn
            request = conversation.request(rules, step=0)
            answer = workload.text(rng, ANSWER_CHARS, chinese=False)
            full = request.marks.start > 0
            if policy == "stepped" or full:
                usage = await _ask(client, url, request)
                prompt += usage["prompt_tokens"]
                cached += usage["prompt_tokens_details"]["cached_tokens"]
                measured += 1
            message = {"kind": "response", "parts": [{"part_kind": "text", "content": answer}]}
            conversation.settle_response(turn, request, message, {"type": TURN_ENDED, "reason": "answered"})
            if policy == "sliding" and measured == SLIDING_TURNS:
                break
    return _row(policy, SERVER_BUDGET, "server", cached / prompt, measured)


async def _ask(client: httpx2.AsyncClient, url: str, request: Request) -> JsonObject:
    messages = [
        {
            "role": "user" if message["kind"] == "request" else "assistant",
            "content": "\n".join(str(part["content"]) for part in message["parts"]),
        }
        for message in request.messages
    ]
    body = {"model": "small", "messages": messages, "max_tokens": 1, "cache_prompt": True}
    answer = await client.post(f"{url}/chat/completions", json=body)
    answer.raise_for_status()
    return answer.json()["usage"]


def _row(policy: Policy, budget: int, source: str, share: float, turns: int) -> JsonObject:
    return {
        "policy": policy,
        "budget": budget,
        "source": source,
        "cached_share": round(share, 4),
        "turns": turns,
    }
