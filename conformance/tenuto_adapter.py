"""Tenuto's side of the pack: one case on standard input, one answer on standard output."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tenuto.agent.conversation import Conversation, RequestRules
from tenuto.context.assemble import Fixed, ModelFacts
from tenuto.context.tokens import Measure, measure_message
from tenuto.errors import TenutoError
from tenuto.log.record import Draft
from tenuto.log.store import ThreadLog
from tenuto.settings import ContextSettings


def message_of(entry):
    if "user" in entry:
        return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": entry["user"]}]}
    if "results" in entry:
        parts = [
            {"part_kind": "tool-return", "tool_name": "query", "content": r["text"], "tool_call_id": r["id"]}
            for r in entry["results"]
        ]
        return {"kind": "request", "parts": parts}
    parts = [{"part_kind": "text", "content": entry["assistant"]}] if entry["assistant"] else []
    for call in entry.get("calls", []):
        arguments = json.dumps(call["args"])
        parts.append(
            {"part_kind": "tool-call", "tool_name": call["tool"], "args": arguments, "tool_call_id": call["id"]}
        )
    return {"kind": "response", "parts": parts}


def drafts_of(entries):
    turn = 0
    for entry in entries:
        turn += "user" in entry
        message = message_of(entry)
        yield Draft(entry.get("turn", turn), message=message, tokens=measure_message(message).tokens)


def rules_of(case):
    window = case.get("window", 200_000)
    output = case.get("output", 8_192)
    facts = ModelFacts("case", "openai", "o200k", window, max(256, window // 4))
    settings = ContextSettings(history_tokens=case.get("budget", 32_000), output_tokens=output)
    return RequestRules(Fixed("rules", "tools", Measure(20, 80), Measure(2, 8)), facts, settings)


def neutral(message):
    texts, called, answered = [], [], []
    for part in message["parts"]:
        if part["part_kind"] == "tool-call":
            called.append(part["tool_call_id"])
        else:
            texts.append(str(part["content"]))
        if part["part_kind"] == "tool-return":
            answered.append(part["tool_call_id"])
    role = "assistant" if message["kind"] == "response" else "tool" if answered else "user"
    return {"role": role, "text": "\n".join(texts), "calls": called, "results": answered}


def build(case, log):
    log.append(list(drafts_of(case["entries"])), epoch=1)
    try:
        request = Conversation(log, epoch=1).request(rules_of(case), step=0)
    except TenutoError as error:
        return {"error": error.as_json(), "attempts": 2}
    return {"messages": [neutral(m) for m in request.messages], "attempts": request.marks.squeeze}


def grow(case, log):
    living = Conversation(log, epoch=1)
    rules = rules_of(case)
    requests, rebuilt = [], []
    for entry, draft in zip(case["entries"], drafts_of(case["entries"])):
        if "assistant" in entry:
            fresh = Conversation(ThreadLog(log.path), epoch=1).request(rules, step=0)
            request = living.request(rules, step=0)
            requests.append([neutral(m) for m in request.messages])
            rebuilt.append([neutral(m) for m in fresh.messages])
            living.settle_response(draft.turn, request, draft.message)
        else:
            log.append([draft], epoch=1)
    return {"requests": requests, "rebuilt": rebuilt}


def load(case, log):
    fault = case.get("fault", {})
    records = log.append(list(drafts_of(case["entries"])), epoch=1)
    if "edit" in fault:
        parent = records[fault["edit"] - 1]
        log.append([Draft(parent.turn + 1, message=message_of({"user": "edited"}))], epoch=1, parent=parent.id)
    lines = log.path.read_bytes().splitlines(keepends=True)
    lines = [b"{garbled\n" if n in fault.get("garble", []) else line for n, line in enumerate(lines, 1)]
    raw = b"".join(line for n, line in enumerate(lines, 1) if n not in fault.get("drop", []))
    log.path.write_bytes(raw[: len(raw) - fault.get("tear", 0)])
    fresh = ThreadLog(log.path)
    texts = [neutral(record.message)["text"] for record in fresh.back_to(lambda _: False)]
    branches = len(ThreadLog(log.path).leaves())
    return {"texts": texts, "gaps": len(fresh.gaps), "branches": branches}


def answer(case):
    """What Tenuto makes of a case."""
    if case["do"] == "talk":
        from tenuto_talk import talk

        return asyncio.run(talk(case))
    with tempfile.TemporaryDirectory() as folder:
        log = ThreadLog(Path(folder) / "conv-case.jsonl")
        return {"build": build, "grow": grow, "load": load}[case["do"]](case, log)


if __name__ == "__main__":
    json.dump(answer(json.load(sys.stdin)), sys.stdout)
