"""Search over one's own history: permission inside the match, Chinese, dates, later words, and nothing that was cleared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tenuto.codec import stamp
from tenuto.search.index import Document, Index
from tenuto.search.normal import day_words, normal, original, terms

START = datetime(2026, 5, 8, 9, tzinfo=UTC)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "history.sqlite")


def fill(
    index: Index, thread: str, user: str, *texts: str, epoch: int = 1, role="user", start=START, first=1
) -> None:
    documents = [
        Document(role, first + at, stamp(start + timedelta(hours=at)), 0, text, first + at)
        for at, text in enumerate(texts)
    ]
    index.follow(thread, user, epoch, documents, seq=first + len(texts) - 1, size=1)


def found(index: Index, user: str, query: str, **more) -> list[tuple[str, int]]:
    return [(hit.thread, hit.seq) for hit in index.search(user, query, **more)]


def test_chinese_is_found_by_its_pairs(index):
    fill(index, "t", "ming", "对办公楼能耗做了分析", "今天天气不错")
    assert found(index, "ming", "能耗分析")[0] == ("t", 1)
    assert normal("能耗A分析x") == " 能耗 A 分析 x" and normal("好") == " 好 "


def test_english_words_are_found_in_other_forms(index):
    fill(index, "t", "ming", "We analysed the holidays of the offices", "Nothing else")
    assert found(index, "ming", "analysing office holiday")[0] == ("t", 1)


def test_i13_a_users_search_never_sees_anothers_words(index):
    fill(index, "a", "ming", "the budget is fifty")
    fill(index, "b", "anna", "the budget is sixty")
    assert found(index, "ming", "budget") == [("a", 1)] and found(index, "anna", "budget") == [("b", 1)]
    assert found(index, "ming' OR scope:b", "budget") == []


@pytest.mark.parametrize("query", ['"', "x) OR scope : (", "NEAR(a b)", "own:budget*", "", "的"])
def test_no_query_is_read_as_syntax(index, query):
    fill(index, "a", "ming", "the budget is fifty")
    fill(index, "b", "anna", "x budget NEAR scope own")
    assert all(thread == "a" for thread, _ in found(index, "ming", query))


def test_a_message_is_found_together_with_what_stands_around_it(index):
    fill(
        index,
        "t",
        "ming",
        "How large is the budget for heating?",
        "Fifty thousand.",
        "Good.",
        "Bye.",
        "x",
        "y",
    )
    assert found(index, "ming", "heating budget")[:2] == [("t", 1), ("t", 2)]


def test_without_the_neighbours_columns_it_would_not(index, monkeypatch):
    from tenuto.search import index as module

    monkeypatch.setattr(module, "WEIGHTS", (1.0, 0.0, 0.0))
    fill(
        index,
        "t",
        "ming",
        "How large is the budget for heating?",
        "Fifty thousand.",
        "Good.",
        "Bye.",
        "x",
        "y",
    )
    scores = {hit.seq: hit.score for hit in index.search("ming", "heating budget")}
    assert scores.get(2, 0) < scores[1] / 10


def test_neighbours_come_together_also_when_the_log_is_followed_piece_by_piece(index):
    for at, text in enumerate(["How large is the budget?", "Fifty thousand.", "Fine."]):
        fill(index, "t", "ming", text, first=at + 1, start=START + timedelta(hours=at))
    whole = Index(index.path.with_name("whole.sqlite"))
    fill(whole, "t", "ming", "How large is the budget?", "Fifty thousand.", "Fine.")
    assert found(index, "ming", "fifty budget") == found(whole, "ming", "fifty budget")
    assert len(found(index, "ming", "budget")) == 3


def test_messages_far_apart_in_time_are_no_neighbours(index):
    fill(index, "t", "ming", "the heating budget")
    fill(index, "t", "ming", "lunch", first=2, start=START + timedelta(days=2))
    assert found(index, "ming", "heating") == [("t", 1)]


def test_what_the_user_said_is_ranked_apart_from_the_longer_answers(index):
    fill(index, "t", "ming", *["the budget matters"] * 3, start=START)
    fill(index, "u", "ming", *["budget " * 50] * 3, role="answer")
    roles = [hit.role for hit in index.search("ming", "budget")]
    assert roles[:6] == ["user", "user", "answer", "user", "answer", "answer"]


def test_days_and_threads_narrow_and_dates_can_be_words(index):
    fill(index, "t", "ming", "the budget is fifty")
    fill(index, "u", "ming", "the budget is sixty", start=START + timedelta(days=60))
    june = START + timedelta(days=30)
    assert found(index, "ming", "budget", since=june, until=june + timedelta(days=90)) == [("u", 1)]
    assert found(index, "ming", "budget", thread="t") == [("t", 1)]
    assert found(index, "ming", "budget in July 2026")[0] == ("u", 1)
    assert found(index, "ming", "2026年5月的 budget")[0] == ("t", 1)
    assert "8 May 2026" in day_words(stamp(START))


def test_an_old_value_comes_with_the_later_one(index):
    fill(
        index,
        "t",
        "ming",
        "the heating budget is fifty",
        *["other things"] * 5,
        "the heating budget is now sixty",
    )
    hits = {hit.seq: hit.later for hit in index.search("ming", "heating budget")}
    assert hits[1] == (7,) and hits[7] == ()


def test_a_cleared_thread_leaves_no_word_in_the_file(index):
    fill(index, "t", "ming", "XYLOPHONE budget", "XYLOPHONE again")
    fill(index, "u", "ming", "another budget")
    assert index.remove(thread="t") == 2
    assert found(index, "ming", "xylophone") == [] and found(index, "ming", "budget") == [("u", 1)]
    content = b"".join(path.read_bytes() for path in index.path.parent.iterdir()).lower()
    assert b"xylophon" not in content


def test_another_epoch_begins_anew_and_a_late_follower_keeps_nothing(index):
    fill(index, "t", "ming", "old words")
    fill(index, "t", "ming", "new words", epoch=2)
    assert found(index, "ming", "old") == [] and len(found(index, "ming", "words")) == 1
    late = [Document("user", 9, stamp(START), 0, "late words")]
    index.follow("t", "ming", 2, late, seq=9, size=1, still=lambda: False)
    assert found(index, "ming", "late") == []


def test_an_index_that_cant_be_read_is_built_again(index):
    fill(index, "t", "ming", "the budget")
    index.path.write_bytes(b"not a database" * 100)
    fill(index, "t", "ming", "the budget")
    assert found(index, "ming", "budget") == [("t", 1)]


def test_function_words_are_dropped_unless_there_is_nothing_else():
    assert terms("What is the budget of the office?") == ["budget", "office"]
    assert terms("what is it") == ["what", "is", "it"]


def test_meaning_finds_what_no_word_shares_and_goes_with_its_message(index):
    texts = ["The heating failed last night", "Lunch was good", "供暖昨晚坏了", "The chart is blue"]
    fill(index, "t", "ming", *texts, start=START)
    assert 1 not in [hit.seq for hit in index.search("ming", "radiators stayed cold", limit=4)]
    assert index.embed("ming") == 4 and index.embed("ming") == 0
    hits = [hit.seq for hit in index.search("ming", "radiators stayed cold", limit=2, meaning=True)]
    assert set(hits) == {1, 3}, "in both languages"
    assert index.search("anna", "radiators stayed cold", meaning=True) == []
    index.remove(thread="t")
    assert index.search("ming", "radiators stayed cold", meaning=True) == []


def test_pairs_are_joined_again():
    assert (
        original(normal("对办公楼能耗做了分析 and more")).split() == "对办公楼能耗做了分析 and more".split()
    )
