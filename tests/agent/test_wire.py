"""The provider paths on real HTTP: tool calls, parallel ones, thinking with signatures, cache marks, errors."""

from __future__ import annotations

import pytest

from .conftest import ask, conversation, stdio_server
from .provider import (
    Provider,
    anthropic,
    call_item,
    chat,
    error,
    message_item,
    reasoning_item,
    responses,
    text_block,
    thinking_block,
    use_block,
)
from .rules import check_anthropic, check_openai

TWO = [("call_1", "wait", {"seconds": 0, "name": "a"}), ("call_2", "wait", {"seconds": 0, "name": "b"})]


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")

    def point(provider: Provider) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)

    return point


def own(provider: Provider, **more) -> dict:
    return {"own": {"model": "m", "base_url": provider.url, **more}}


async def test_openai_chat_parallel_calls_usage_and_cached_tokens(open_app):
    answers = [chat(calls=TWO, prompt=200), chat("both waited", prompt=260, cached=192)]
    with Provider(*answers) as provider:
        async with open_app(models=own(provider), mcp={"s": stdio_server()}) as app:
            end, _ = await ask(app, "wait for both", model="own")
    assert end.answer == "both waited"
    assert end.usage == {
        "requests": 2, "input_tokens": 460, "cached_tokens": 192, "output_tokens": 14, "cost_usd": None,
    }  # fmt: skip
    assert provider.requests[0]["max_completion_tokens"] == 4_096, (
        "the reserved output is what may be answered"
    )
    second = provider.requests[1]["messages"]
    assert [m["role"] for m in second] == ["system", "user", "assistant", "tool", "tool"]
    assert [m["content"] for m in second[3:]] == ["a waited", "b waited"]
    assert check_openai(second) == []
    assert second[:2] == provider.requests[0]["messages"], "the prefix stands still within a turn"


async def test_an_estimate_is_anchored_on_the_reported_usage(open_app):
    with Provider(chat(calls=TWO[:1], prompt=5_000), chat("done", prompt=5_040)) as provider:
        async with open_app(models=own(provider), mcp={"s": stdio_server()}) as app:
            _, events = await ask(app, "wait", model="own")
    budgets = [e.manifest["budget"] for e in events if e.type == "request_sent"]
    assert [b["estimated_by"] for b in budgets] == ["formula", "anchor"]
    assert 5_000 < budgets[1]["used"] < 5_100


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_provider_is_asked_again(open_app, status):
    busy = error(status, {"error": {"message": "busy"}}, **{"retry-after-ms": "10"})
    with Provider(busy, busy, chat("at last")) as provider:
        async with open_app(models=own(provider)) as app:
            end, _ = await ask(app, "hello", model="own")
    assert end.answer == "at last" and len(provider.requests) == 3


async def test_when_it_stays_busy_the_turn_fails_with_a_next_step_and_the_question_is_kept(open_app):
    busy = error(429, {"error": {"message": "slow down"}}, **{"retry-after-ms": "5"})
    with Provider(*[busy] * 4, chat("now")) as provider:
        async with open_app(models=own(provider), agent={"retries": 3}) as app:
            end, _ = await ask(app, "hello", model="own")
            assert (end.reason, end.error["code"]) == ("failed", "model_failed")
            assert "429" in end.error["message"] and "try later" in end.error["hint"]
            again, _ = await ask(app, "again", model="own")
    assert again.answer == "now"
    contents = [m["content"] for m in provider.requests[-1]["messages"] if m["role"] == "user"]
    assert "hello" in contents[0]


async def test_a_wrong_key_says_so_and_never_shows_it(open_app, keys):
    refused = error(401, {"error": {"message": "Incorrect API key provided: sk-test-***"}})
    with Provider(refused) as provider:
        keys(provider)
        async with open_app() as app:
            end, events = await ask(app, "hello", model="openai-chat:gpt-4o")
            log = str(list(conversation(app).log.scan()))
    assert "check the key" in end.error["hint"]
    assert "sk-test-secret" not in str(events) + log


async def test_without_a_key_the_turn_fails_with_the_variable_to_set_and_the_question_is_kept(
    open_app, monkeypatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with open_app() as app:
        end, _ = await ask(app, "hello", model="openai:gpt-5")
        assert (end.reason, end.error["code"]) == ("failed", "model_failed")
        assert "OPENAI_API_KEY" in end.error["hint"]
        assert [r.is_question for r in conversation(app).log.scan()].count(True) == 1


async def test_i18_a_refusal_for_length_teaches_the_window_cuts_and_asks_once_more(open_app, home):
    message = (
        "This model's maximum context length is 4000 tokens. However, your messages resulted in 9000 tokens."
    )
    refused = error(400, {"error": {"message": message, "code": "context_length_exceeded"}})
    answers = [*[chat("word " * 400)] * 8, refused, chat("short enough"), chat("still")]
    with Provider(*answers) as provider:
        models = own(provider, window=100_000)
        async with open_app(models=models) as app:
            for n in range(8):
                await ask(app, f"question {n}", model="own")
            end, _ = await ask(app, "the last straw", model="own")
            assert end.answer == "short enough"
        async with open_app(models=models) as app:
            _, events = await ask(app, "after a restart", model="own")
    before, after = provider.requests[8]["messages"], provider.requests[9]["messages"]
    assert len(after) < len(before) and "the last straw" in after[-1]["content"]
    window = next(e.manifest["budget"]["window"] for e in events if e.type == "request_sent")
    assert window == 4_000
    assert '"own": 4000' in (home / "windows.json").read_text()


async def test_openai_responses_reasoning_rides_along_within_the_turn_and_is_left_out_after_it(
    open_app, keys
):
    first = [
        reasoning_item("rs_1", "ENCRYPTED"),
        call_item("fc_1", "call_1", "wait", {"seconds": 0, "name": "a"}),
    ]
    answers = [
        responses(first),
        responses([message_item("msg_1", "done")], cached=64),
        responses([message_item("msg_2", "two")]),
    ]
    with Provider(*answers) as provider:
        keys(provider)
        async with open_app(mcp={"s": stdio_server()}) as app:
            end, _ = await ask(app, "wait", model="openai:gpt-5")
            await ask(app, "and?", model="openai:gpt-5")
            stored = [p for r in conversation(app).log.scan() if r.message for p in r.message["parts"]]
    assert (end.answer, end.usage["cached_tokens"]) == ("done", 64)
    assert end.usage["cost_usd"] > 0
    within = provider.requests[1]["input"]
    assert [item.get("type", item.get("role")) for item in within] == [
        "user", "reasoning", "function_call", "function_call_output",
    ]  # fmt: skip
    assert within[1]["encrypted_content"] == "ENCRYPTED"
    assert provider.requests[0]["store"] is False
    later = provider.requests[2]["input"]
    assert "reasoning" not in [item.get("type") for item in later] and "ENCRYPTED" not in str(later)
    assert any(p["part_kind"] == "thinking" and p["signature"] == "ENCRYPTED" for p in stored), (
        "the log keeps it"
    )


async def test_anthropic_thinking_keeps_its_signature_within_the_turn(open_app, keys):
    first = [thinking_block("let me see", "SIGNED"), use_block("toolu_1", "wait", {"seconds": 0, "name": "a"}),
             use_block("toolu_2", "wait", {"seconds": 0, "name": "b"})]  # fmt: skip
    answers = [
        anthropic(first, written=900),
        anthropic([text_block("done")], cached=900),
        anthropic([text_block("two")]),
    ]
    with Provider(*answers) as provider:
        keys(provider)
        async with open_app(mcp={"s": stdio_server()}) as app:
            end, events = await ask(app, "wait", model="anthropic:claude-sonnet-4-6")
            await ask(app, "and?", model="anthropic:claude-sonnet-4-6")
    assert (end.answer, end.usage["cached_tokens"]) == ("done", 900)
    assert "".join(e.text for e in events if e.type == "thinking_delta") == "let me see"
    within = provider.requests[1]["messages"]
    assert within[1]["content"][0] == {"type": "thinking", "thinking": "let me see", "signature": "SIGNED"}
    assert check_anthropic(within) == []
    assert "SIGNED" not in str(provider.requests[2]["messages"])
    assert check_anthropic(provider.requests[2]["messages"]) == []


async def test_openai_responses_parallel_calls_and_errors(open_app, keys):
    both = [call_item(f"fc_{n}", f"call_{n}", "wait", {"seconds": 0, "name": n}) for n in "ab"]
    busy = error(503, {"error": {"message": "overloaded"}}, **{"retry-after-ms": "5"})
    refused = error(400, {"error": {"message": "Unsupported value", "code": "invalid_value"}})
    answers = [responses(both), busy, responses([message_item("msg_1", "both")]), refused]
    with Provider(*answers) as provider:
        keys(provider)
        async with open_app(mcp={"s": stdio_server()}) as app:
            end, _ = await ask(app, "wait for both", model="openai:gpt-5")
            failed, _ = await ask(app, "again", model="openai:gpt-5")
    assert end.answer == "both"
    outputs = [
        item["output"] for item in provider.requests[1]["input"] if item.get("type") == "function_call_output"
    ]
    assert outputs == ["a waited", "b waited"]
    assert provider.requests[2] == provider.requests[1]
    assert (failed.reason, failed.error["code"]) == ("failed", "model_failed") and "400" in failed.error[
        "message"
    ]


async def test_anthropic_errors_are_retried_told_or_learned_from(open_app, keys, home):
    def refusal(status: int, kind: str, message: str, **headers: str):
        return error(status, {"type": "error", "error": {"type": kind, "message": message}}, **headers)

    overloaded = refusal(529, "overloaded_error", "Overloaded", **{"retry-after-ms": "5"})
    wrong_key = refusal(401, "authentication_error", "invalid x-api-key")
    too_long = refusal(400, "invalid_request_error", "prompt is too long: 210000 tokens > 190000 maximum")
    answers = [
        overloaded,
        anthropic([text_block("after all")]),
        wrong_key,
        too_long,
        anthropic([text_block("cut")]),
    ]
    with Provider(*answers) as provider:
        keys(provider)
        async with open_app() as app:
            model = "anthropic:claude-sonnet-4-6"
            ends = [(await ask(app, text, model=model))[0] for text in ("one", "two", "three")]
    assert [end.answer for end in ends] == ["after all", "", "cut"]
    assert "check the key" in ends[1].error["hint"]
    assert '"anthropic:claude-sonnet-4-6": 190000' in (home / "windows.json").read_text()


async def test_cache_marks_stand_on_rules_tools_and_at_the_end_of_the_stable_prefix(open_app, keys):
    answers = [anthropic([text_block(f"answer {n}")]) for n in range(3)]
    with Provider(*answers) as provider:
        keys(provider)
        async with open_app() as app:
            for n in range(3):
                await ask(app, f"question {n}", model="anthropic:claude-sonnet-4-6")
    third = provider.requests[2]
    assert any("cache_control" in block for block in third["system"])
    assert "cache_control" in third["tools"][-1]
    marked = [
        (at, block.get("text", "")[:9])
        for at, message in enumerate(third["messages"])
        for block in message["content"]
        if isinstance(block, dict) and "cache_control" in block
    ]
    assert marked[0] == (3, "answer 1"), "the end of the history, before the block and the question"
    assert str(third).count("cache_control") <= 4


async def test_the_model_may_change_from_turn_to_turn(open_app, keys):
    thought = [thinking_block("private thought", "SIGNED"), text_block("from anthropic")]
    with Provider(anthropic(thought), chat("from openai"), anthropic([text_block("back")])) as provider:
        keys(provider)
        async with open_app() as app:
            await ask(app, "one", model="anthropic:claude-sonnet-4-6")
            end, _ = await ask(app, "two", model="openai-chat:gpt-4o")
            await ask(app, "three", model="anthropic:claude-sonnet-4-6")
            log = str([r.message for r in conversation(app).log.scan()])
    assert end.answer == "from openai"
    assert "private thought" not in str(provider.requests[1])
    assert "from anthropic" in str(provider.requests[1]["messages"])
    assert "private thought" in log and "SIGNED" in log
    assert "from openai" in str(provider.requests[2]["messages"])


async def test_a_stream_that_breaks_off_keeps_what_came_and_fails_with_a_next_step(open_app):
    status, headers, body = chat("half of an answer that never ends")
    cut = body[: body.index(b"that never")] if b"that never" in body else body[: len(body) // 3]
    broken = cut[: cut.rindex(b"\n\n") + 2]
    with Provider((status, {**headers, "Content-Length": "99999"}, broken)) as provider:
        provider.answers = [
            (status, headers, broken + b'data: {"error": {"message": "server fell over"}}\n\n')
        ]
        async with open_app(models=own(provider)) as app:
            end, _ = await ask(app, "tell", model="own")
            kinds = [r.event_type for r in conversation(app).log.scan()]
    assert end.reason == "failed" and end.error["code"] == "model_failed"
    assert end.answer and "half of an answer that never ends".startswith(end.answer)
    assert kinds[-2:] == ["interrupted", "turn_ended"]
