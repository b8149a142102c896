"""Clipping and elision: nothing is cut in silence (I9), no character is split, nothing is changed in place (I2)."""

from __future__ import annotations

import copy

import regex
from hypothesis import given
from hypothesis import strategies as st

from tenuto.context.shape import Tier, clip, cut, shape

from ..conftest import calls, returns

TIER = Tier(result_chars=400, images=4, closed=False, provider="openai")


def test_i9_a_clipped_text_says_how_large_the_whole_is_and_where_the_rest_is():
    text = clip("a" * 5_000 + "THE END", 400, "record #7: read_record(7)")
    assert len(text) <= 400
    assert "the whole has 5,007 characters" in text
    assert "record #7: read_record(7)" in text
    assert text.startswith("aaa") and text.endswith("THE END")


def test_a_short_text_is_the_same_object():
    text = "short"
    assert clip(text, 400, "-") is text


@given(st.text(max_size=3_000), st.integers(120, 500))
def test_a_clipped_text_keeps_to_its_limit_and_its_ends(text, limit):
    short = clip(text, limit, "record #1")
    assert len(short) <= max(limit, 0)
    if len(text) > limit:
        head, _, tail = short.partition("\n[clipped: ")
        assert text.startswith(head)
        assert text.endswith(tail.partition("]\n")[2])


def test_a_cut_never_splits_what_a_reader_sees_as_one_character():
    family = "👩‍👩‍👧"
    text = "x" * 200 + family * 40 + "é" * 40 + "中文" * 40
    boundaries = {0} | {match.end() for match in regex.finditer(r"\X", text)}
    assert all(cut(text, at) in boundaries for at in range(len(text) + 1))


def test_a_clipped_emoji_still_makes_valid_json():
    text = "7" * 260 + "👩‍💻" * 400
    for limit in range(380, 400):
        clip(text, limit, "record #1").encode("utf-8")


def test_i2_shaping_never_changes_the_record():
    message = returns("a", content="z" * 2_000)
    before = copy.deepcopy(message)
    shaped = shape(message, 7, TIER)
    assert message == before
    assert shaped.clipped and len(shaped.message["parts"][0]["content"]) <= 400


def test_a_message_that_needs_nothing_is_the_same_object():
    message = returns("a", content="short")
    assert shape(message, 1, TIER).message is message


def test_a_structured_result_is_clipped_as_its_json():
    message = returns("a")
    message["parts"][0]["content"] = [{"row": n} for n in range(300)]
    shaped = shape(message, 3, TIER)
    assert shaped.message["parts"][0]["content"].startswith('[{"row":0}')
    assert "read_record(3)" in shaped.message["parts"][0]["content"]


def picture(name: str) -> dict:
    return {"kind": "binary", "data": name, "media_type": "image/png"}


def test_only_the_last_images_stay_images():
    message = {
        "kind": "request",
        "parts": [{"part_kind": "user-prompt", "content": ["see", *map(picture, "abc")]}],
    }
    shaped = shape(message, 1, Tier(400, 1, False, "openai"))
    content = shaped.message["parts"][0]["content"]
    assert content[0] == "see"
    assert content[1] == content[2] == "[an earlier image/png, no longer shown]"
    assert content[3] == picture("c")
    assert shaped.elided == 2


def thinking(provider: str, **more) -> dict:
    part = {
        "part_kind": "thinking",
        "content": "hm",
        "signature": "s",
        "provider_name": provider,
        "id": "rs_1",
    }
    call = {**calls("a")["parts"][0], "id": "fc_1", "provider_details": {"x": 1}}
    return {"kind": "response", "provider_name": provider, "parts": [part, call], **more}


def test_thinking_of_the_serving_provider_stays_within_the_turn():
    message = thinking("openai")
    assert shape(message, 1, TIER).message is message


def test_what_only_another_provider_understands_is_left_out_of_the_request():
    shaped = shape(thinking("anthropic"), 1, TIER).message
    assert [part["part_kind"] for part in shaped["parts"]] == ["tool-call"]
    assert shaped["parts"][0]["id"] is None and shaped["parts"][0]["provider_details"] is None


def test_thinking_of_an_earlier_turn_is_left_out():
    shaped = shape(thinking("openai"), 1, Tier(400, 4, True, "openai")).message
    assert [part["part_kind"] for part in shaped["parts"]] == ["tool-call"]


def test_i14_an_expired_file_is_marked_with_the_call_that_makes_it_again():
    message = returns("a", content="[saved] /results/q-0001.json has the whole result", tool="query_energy")
    message["parts"][0]["metadata"] = {"result": "q-0001.json", "arguments": {"month": "2026-10"}}
    tier = Tier(8_000, 4, True, "openai", frozenset({"q-0001.json"}))
    text = shape(message, 1, tier).message["parts"][0]["content"]
    assert text.startswith("[expired: the file q-0001.json was reclaimed")
    assert 'query_energy({"month":"2026-10"})' in text
    assert "/results/" not in text
    assert shape(message, 1, Tier(8_000, 4, True, "openai")).message is message
