from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.bench.tokens import SAMPLES
from tenuto.context.tokens import Anchor, Measure, count, family_of, measure, measure_message, predict, total

from ..conftest import calls, returns, user


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_counts_equal_those_of_a_second_independent_tokenizer(kind):
    import bpe_openai

    truth = bpe_openai.get_encoding("o200k_base")
    assert count(SAMPLES[kind]) == len(truth.encode(SAMPLES[kind]))


@given(st.text(max_size=200))
def test_any_text_is_counted_even_broken_unicode(text):
    assert count(text) >= (1 if text else 0)
    assert count(text + "\ud83d") >= 1


def test_measures_add_up():
    parts = [measure("能耗 12"), measure("a\nb"), measure("")]
    assert total(parts) == parts[0] + parts[1] + parts[2]
    assert parts[0] == Measure(tokens=count("能耗 12"), chars=5, digits=2, cjk=2, newlines=0)


def test_a_familys_formula_weighs_digits_and_characters():
    size = Measure(tokens=1_000, digits=100, cjk=50, newlines=10)
    assert size.of("o200k") == 1_000
    assert size.of("qwen") == round(990 + 54 - 5.5 - 0.4)
    assert size.of("claude") == round(1_020 + 14 + 2.9)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("openai:gpt-5", "o200k"),
        ("anthropic:claude-sonnet-4-6", "claude"),
        ("ollama:qwen3", "qwen"),
        ("x", "o200k"),
    ],
)
def test_the_family_comes_from_the_models_name(model, family):
    assert family_of(model) == family


def test_tool_calls_and_results_count_with_their_names_and_arguments():
    assert measure_message(calls("a")).tokens > count("query{}")
    assert measure_message(returns("a", content="12345")).tokens > count("12345")
    assert measure_message(user("hello")).tokens == count("hello") + 4


def test_an_image_counts_as_the_most_a_provider_charges():
    message = user("see")
    message["parts"][0]["content"] = ["see", {"kind": "binary", "data": "x", "media_type": "image/png"}]
    assert measure_message(message).tokens == count("see") + 4 + 1_600


def test_an_anchored_prediction_is_the_reported_count_plus_what_was_added():
    assert predict(1_300, "k", Anchor("k", 2_000, 1_000)) == (2_300, "anchor")
    assert predict(1_300, "other", Anchor("k", 2_000, 1_000)) == (1_430, "formula")
    assert predict(1_000, "k", None) == (1_100, "formula")
