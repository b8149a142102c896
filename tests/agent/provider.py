"""A provider's HTTP endpoint that answers with prepared exchanges, shaped as its documentation says.

It records what it is sent. OpenAI Chat, OpenAI Responses and Anthropic streams are built here from the events
their references list.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider:
    """`with Provider(answers) as provider:`; an answer is `(status, headers, body)`."""

    def __init__(self, *answers: tuple[int, dict, bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[dict] = []
        self.headers: list[dict] = []

    def __enter__(self) -> Provider:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append(json.loads(raw))
                outer.headers.append(dict(self.headers))
                status, headers, body = outer.answers.pop(0)
                self.send_response(status)
                for key, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


STREAM = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}


def error(status: int, body: dict, **headers: str) -> tuple[int, dict, bytes]:
    return status, {**JSON, **headers}, json.dumps(body).encode()


def _chunk(delta: dict, finish: str | None = None) -> dict:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def chat(
    text: str = "", calls: list[tuple[str, str, dict]] | None = None, *, prompt: int = 100, cached: int = 0
):
    """One streamed answer of OpenAI's Chat Completions; `calls` are `(id, tool, arguments)`."""
    chunks = [_chunk({"role": "assistant", "content": ""})]
    half = len(text) // 2
    chunks += [_chunk({"content": piece}) for piece in (text[:half], text[half:]) if piece]
    for index, (identity, tool, arguments) in enumerate(calls or []):
        raw = json.dumps(arguments)
        function = {"name": tool, "arguments": ""}
        chunks.append(
            _chunk(
                {"tool_calls": [{"index": index, "id": identity, "type": "function", "function": function}]}
            )
        )
        for piece in (raw[:3], raw[3:]):
            chunks.append(_chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    chunks.append(_chunk({}, "tool_calls" if calls else "stop"))
    usage = {
        "prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7,
        "prompt_tokens_details": {"cached_tokens": cached},
    }  # fmt: skip
    chunks.append({**_chunk({}), "choices": [], "usage": usage})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return 200, STREAM, body.encode()


def _events(events: list[dict]) -> tuple[int, dict, bytes]:
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return 200, STREAM, body.encode()


def responses(items: list[dict], *, prompt: int = 100, cached: int = 0):
    """One streamed answer of OpenAI's Responses API with these complete output items."""
    base = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5", "status": "in_progress", "output": [],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    events: list[dict] = [{"type": "response.created", "response": base, "sequence_number": 0}]

    def add(kind: str, **fields) -> None:
        events.append({"type": kind, "sequence_number": len(events), **fields})

    for at, item in enumerate(items):
        begun = {**item, "status": "in_progress"}
        if item["type"] == "function_call":
            begun["arguments"] = ""
        if item["type"] == "message":
            begun["content"] = []
        add("response.output_item.added", output_index=at, item=begun)
        if item["type"] == "function_call":
            add(
                "response.function_call_arguments.delta",
                item_id=item["id"],
                output_index=at,
                delta=item["arguments"],
            )
            add(
                "response.function_call_arguments.done",
                item_id=item["id"],
                output_index=at,
                arguments=item["arguments"],
            )
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": at, "content_index": 0}
            text = item["content"][0]["text"]
            add(
                "response.content_part.added",
                part={"type": "output_text", "text": "", "annotations": []},
                **place,
            )
            add("response.output_text.delta", delta=text, logprobs=[], **place)
            add("response.output_text.done", text=text, logprobs=[], **place)
        add("response.output_item.done", output_index=at, item=item)
    usage = {
        "input_tokens": prompt, "output_tokens": 9, "total_tokens": prompt + 9,
        "input_tokens_details": {"cached_tokens": cached}, "output_tokens_details": {"reasoning_tokens": 4},
    }  # fmt: skip
    add("response.completed", response={**base, "status": "completed", "output": items, "usage": usage})
    return _events(events)


def reasoning_item(identity: str, encrypted: str) -> dict:
    return {"type": "reasoning", "id": identity, "summary": [], "encrypted_content": encrypted}


def call_item(identity: str, call_id: str, tool: str, arguments: dict) -> dict:
    return {
        "type": "function_call", "id": identity, "call_id": call_id, "name": tool, "arguments": json.dumps(arguments),
        "status": "completed",
    }  # fmt: skip


def message_item(identity: str, text: str) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": identity, "role": "assistant", "status": "completed", "content": content}


def anthropic(blocks: list[dict], *, prompt: int = 100, cached: int = 0, written: int = 0):
    """One streamed answer of Anthropic's Messages API with these complete content blocks."""
    usage = {
        "input_tokens": prompt, "output_tokens": 1, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
    }  # fmt: skip
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        empty: dict
        deltas: list[dict]
        if block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        elif block["type"] == "tool_use":
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        else:
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": block["text"]}]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 11},
        }
    )
    events.append({"type": "message_stop"})
    return _events(events)


def thinking_block(text: str, signature: str) -> dict:
    return {"type": "thinking", "thinking": text, "signature": signature}


def use_block(identity: str, tool: str, arguments: dict) -> dict:
    return {"type": "tool_use", "id": identity, "name": tool, "input": arguments}


def text_block(text: str) -> dict:
    return {"type": "text", "text": text}
