"""A real small model over real HTTP: SmolLM2-135M on llama.cpp, through the ordinary OpenAI path."""

from __future__ import annotations

import pytest

from tenuto.bench.server import small_model

from .conftest import ask, conversation, sent


@pytest.fixture(scope="module")
def url():
    with small_model(4_096) as address:
        yield address


@pytest.mark.model
async def test_one_conversation_streams_counts_and_is_served_from_the_prompt_cache(open_app, url):
    models = {"small": {"model": "smollm2", "base_url": url, "window": 4_096, "output": 48}}
    async with open_app(models=models, agent={"model": "small"}) as app:
        ends, deltas = [], []
        for question in (
            "Write one sentence about energy in offices.",
            "And one about holidays.",
            "Thanks. One more.",
        ):
            end, events = await ask(app, question)
            ends.append(end)
            deltas.append([e.text for e in events if e.type == "text_delta"])
        responses = [
            r.message for r in conversation(app).log.scan() if r.message and r.message["kind"] == "response"
        ]
        history = [part["content"] for message in sent(app) for part in message["parts"]]
    assert [end.reason for end in ends] == ["answered"] * 3
    assert ["".join(pieces) for pieces in deltas] == [end.answer for end in ends]
    assert len(deltas[0]) > 3, "it streams"
    assert [answer in history for answer in (ends[0].answer, ends[1].answer)] == [True, True]
    assert all(r["usage"]["input_tokens"] > 300 and r["usage"]["output_tokens"] > 0 for r in responses)
    assert ends[0].usage["cached_tokens"] < ends[0].usage["input_tokens"] / 2
    assert ends[2].usage["cached_tokens"] > ends[2].usage["input_tokens"] * 0.5


@pytest.mark.model
async def test_the_next_requests_size_is_predicted_from_what_the_server_reported(open_app, url):
    models = {"small": {"model": "smollm2", "base_url": url, "window": 4_096, "output": 16}}
    async with open_app(models=models, agent={"model": "small"}) as app:
        predicted, reported = [], []
        for n in range(5):
            end, events = await ask(app, f"Tell me something about floor number {n} of the building.")
            predicted.append(next(e.manifest["budget"] for e in events if e.type == "request_sent"))
            reported.append(end.usage["input_tokens"])
    assert [budget["estimated_by"] for budget in predicted] == ["formula"] + ["anchor"] * 4
    errors = [abs(b["used"] - real) / real for b, real in zip(predicted[1:], reported[1:], strict=True)]
    assert max(errors) <= 0.06, errors


@pytest.mark.model
async def test_a_conversation_that_outgrows_the_servers_window_goes_on(open_app, url):
    """The settings believe in a larger window than the server has; its refusal teaches the true one."""
    models = {"small": {"model": "smollm2", "base_url": url, "window": 20_000, "output": 16}}
    async with open_app(models=models, agent={"model": "small"}, results={"paste_chars": 10**6}) as app:
        for n in range(4):
            end, _ = await ask(app, f"{n} " + "The offices use less energy at night. " * 120)
            assert end.reason == "answered", end.error
        assert app.learned.get("small") is not None
