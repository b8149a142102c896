from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.context.pair import pair_turn, violations
from tenuto.context.prune import ToolRule, prune
from tenuto.errors import UsageError

from ..conftest import calls, returns, says, user
from .test_pair import turn


def thoughtful(text: str, thought: str = "hm") -> dict:
    message = says(text)
    return {**message, "parts": [{"part_kind": "thinking", "content": thought}, *message["parts"]]}


def kinds(messages) -> list[list[str]]:
    return [[part["part_kind"] for part in message["parts"]] for message in messages]


HISTORY = [
    user("q"),
    thoughtful("a"),
    calls("1"),
    returns("1"),
    calls("2", tool="other"),
    returns("2", tool="other"),
    says("b"),
]


def test_nothing_is_pruned_by_default():
    assert prune(HISTORY) == HISTORY


def test_reasoning_can_go_everywhere_or_before_the_last_message():
    assert kinds(prune(HISTORY, reasoning="all"))[1] == ["text"]
    last = [user("q"), thoughtful("a"), user("r"), thoughtful("b")]
    assert kinds(prune(last, reasoning="before-last-message")) == [
        ["user-prompt"],
        ["text"],
        ["user-prompt"],
        ["thinking", "text"],
    ]


def test_all_tool_calls_go_with_their_results():
    assert kinds(prune(HISTORY, tool_calls="all")) == [["user-prompt"], ["thinking", "text"], ["text"]]


def test_the_last_messages_protect_their_calls_and_the_partners_of_them():
    kept = prune(HISTORY, tool_calls="before-last-2-messages")
    assert [m for m in kept if m in HISTORY[4:]] == HISTORY[4:]
    assert HISTORY[2] not in kept
    assert prune(HISTORY, tool_calls="before-last-message") == prune(HISTORY, tool_calls="all")


def test_before_the_last_0_messages_means_all():
    assert prune(HISTORY, tool_calls="before-last-0-messages") == prune(HISTORY, tool_calls="all")


def test_a_rule_for_named_tools_leaves_the_others():
    kept = prune(HISTORY, tool_calls=[ToolRule("all", ("other",))])
    assert HISTORY[2] in kept and HISTORY[3] in kept and HISTORY[4] not in kept and HISTORY[5] not in kept


def test_emptied_messages_stay_if_asked():
    kept = prune(HISTORY, tool_calls="all", empty_messages="keep")
    assert len(kept) == len(HISTORY)
    assert kept[2]["parts"] == []


@pytest.mark.parametrize(
    "wrong", [{"tool_calls": "some"}, {"reasoning": "most"}, {"tool_calls": "before-last-x-messages"}]
)
def test_an_unknown_rule_is_an_error_that_lists_the_known_ones(wrong):
    with pytest.raises(UsageError) as caught:
        prune(HISTORY, **wrong)
    assert "use none" in caught.value.hint


@given(turn, st.integers(0, 6))
def test_i7_pruning_paired_messages_leaves_them_paired(messages, last):
    paired = pair_turn(messages).messages
    from tenuto.context.pair import rename_repeated

    unique = rename_repeated(paired, set(), "1")
    kept = prune(unique, tool_calls=f"before-last-{last}-messages")
    wrong = [line for line in violations(kept) if "orphan" in line or "twice" in line]
    called = {p["tool_call_id"] for m in kept for p in m["parts"] if p["part_kind"] == "tool-call"}
    answered = {p["tool_call_id"] for m in kept for p in m["parts"] if p["part_kind"] == "tool-return"}
    assert wrong == [] and called == answered
