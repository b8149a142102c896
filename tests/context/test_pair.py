"""I7: every tool call has exactly one result, right after it, whatever the log looks like."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.context.pair import INTERRUPTED, pair_turn, rename_repeated, violations

from ..conftest import calls, returns, says, user


def contents(messages) -> list[str]:
    return [part["content"] for m in messages for part in m["parts"] if part["part_kind"] == "tool-return"]


def test_i7_a_call_without_a_result_is_answered_as_interrupted():
    paired = pair_turn([user("q"), calls("c1")])
    assert contents(paired.messages) == [INTERRUPTED]
    assert paired.repairs == ("missing c1",)
    assert violations(paired.messages) == []


def test_i7_parallel_results_in_another_order_follow_the_order_of_the_calls():
    paired = pair_turn(
        [user("q"), calls("a", "b", "c"), returns("c", content="3"), returns("a", content="1")]
    )
    assert contents(paired.messages) == ["1", INTERRUPTED, "3"]
    assert violations(paired.messages) == []


def test_i7_an_orphan_result_is_left_out():
    paired = pair_turn([user("q"), returns("ghost"), says("done")])
    assert contents(paired.messages) == []
    assert paired.repairs == ("orphan ghost",)


def test_i7_a_second_result_for_one_call_is_left_out():
    paired = pair_turn([user("q"), calls("a"), returns("a", content="first"), returns("a", content="second")])
    assert contents(paired.messages) == ["first"]
    assert paired.repairs == ("duplicate a",)


def test_i7_a_result_before_its_call_is_moved_behind_it():
    paired = pair_turn([user("q"), returns("a", content="early"), calls("a"), says("x")])
    assert contents(paired.messages) == ["early"]
    assert paired.repairs == ("early a",)
    assert violations(paired.messages) == []


def test_i7_one_id_in_two_responses_of_a_turn_is_matched_in_order():
    messages = [user("q"), calls("a"), returns("a", content="1"), calls("a"), returns("a", content="2")]
    paired = pair_turn(messages)
    assert contents(paired.messages) == ["1", "2"]
    renamed = rename_repeated(paired.messages, set(), "1")
    assert violations(renamed) == []
    assert contents(renamed) == ["1", "2"]


def test_i7_an_id_repeated_in_different_turns_is_renamed_the_same_way_each_time():
    first = pair_turn([user("q"), calls("a"), returns("a", content="1")]).messages
    second = pair_turn([user("r"), calls("a"), returns("a", content="2")]).messages
    built = []
    for _ in range(2):
        used: set[str] = set()
        built.append([*rename_repeated(first, used, "1"), *rename_repeated(second, used, "2")])
    assert built[0] == built[1]
    assert violations(built[0]) == []
    assert contents(built[0]) == ["1", "2"]


def test_a_retry_prompt_that_names_its_tool_is_a_result_and_one_that_doesnt_is_not():
    named = {"part_kind": "retry-prompt", "content": "bad", "tool_name": "query", "tool_call_id": "a"}
    free = {"part_kind": "retry-prompt", "content": "say more", "tool_name": None, "tool_call_id": "z"}
    paired = pair_turn([user("q"), calls("a"), {"kind": "request", "parts": [named, free]}])
    assert [part["content"] for part in paired.messages[2]["parts"]] == ["bad", "say more"]
    assert violations(paired.messages) == []


def test_words_that_came_between_call_and_result_follow_the_result():
    paired = pair_turn([user("q"), calls("a"), user("wait"), returns("a", content="1")])
    assert [part["part_kind"] for part in paired.messages[2]["parts"]] == ["tool-return", "user-prompt"]


@pytest.mark.parametrize("messages", [[], [user("q")], [user("q"), says("a")]])
def test_what_has_no_tools_is_passed_through_as_it_is(messages):
    assert pair_turn(messages).messages == messages


identity = st.sampled_from(["a", "b", "c", "d"])
message = st.one_of(
    st.builds(lambda ids: calls(*ids), st.lists(identity, min_size=1, max_size=3)),
    st.builds(lambda ids: returns(*ids), st.lists(identity, min_size=1, max_size=3)),
    st.builds(says, st.text(min_size=1, max_size=3)),
    st.builds(user, st.text(min_size=1, max_size=3)),
)
turn = st.lists(message, max_size=8).map(lambda rest: [user("question"), *rest])


@given(st.lists(turn, min_size=1, max_size=4))
def test_i7_any_log_whatever_gives_a_valid_request_and_is_not_changed(turns):
    before = copy.deepcopy(turns)
    used: set[str] = set()
    built = []
    for number, messages in enumerate(turns):
        built += rename_repeated(pair_turn(messages).messages, used, str(number))
    assert violations(built) == []
    assert turns == before
    wanted = sum(part["part_kind"] == "tool-call" for t in turns for m in t for part in m["parts"])
    assert sum(part["part_kind"] == "tool-return" for m in built for part in m["parts"]) == wanted


@given(turn)
def test_pairing_twice_changes_nothing(messages):
    once = rename_repeated(pair_turn(messages).messages, set(), "1")
    again = rename_repeated(pair_turn(once).messages, set(), "1")
    assert again == once


def test_the_checker_fails_where_pairing_is_switched_off():
    assert violations([user("q"), calls("a"), says("x")]) != []
    assert violations([user("q"), returns("a")]) != []
    assert violations([user("q"), calls("a", "a"), returns("a", "a")]) != []
