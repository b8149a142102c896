"""Text as the index sees it: NFKC, CJK as bigrams, dates as words, scopes as tokens. Pure; O(text)."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from hashlib import blake2b

from tenuto.codec import parse_stamp

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_PAIRS = re.compile(r"(?:[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,2}(?: |$))+")
_WORD = re.compile(r"\w+")
MOST_TERMS = 16

STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "him",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "she",
        "so",
        "that",
        "the",
        "their",
        "them",
        "they",
        "this",
        "to",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "s",
        "t",
        "d",
        "m",
        "re",
        "ll",
        "ve",
        "not",
        "no",
        "about",
        "any",
        "some",
        "there",
        "then",
        "than",
        "just",
        "also",
        "very",
    ]
)
"""English function words: they match everything and mean nothing to BM25."""
STOP_CJK = frozenset(
    [
        "什么",
        "哪个",
        "哪些",
        "怎么",
        "如何",
        "是否",
        "多少",
        "为何",
        "请问",
        "我们",
        "你们",
        "他们",
        "这个",
        "那个",
        "的是",
        "了吗",
        "是什",
        "么时",
        "时候",
    ]
)


def normal(text: str) -> str:
    """`text` in NFKC with runs of CJK characters as overlapping pairs (a lone one as it is)."""

    def pairs(match: re.Match[str]) -> str:
        run = match[0]
        return " " + " ".join(run[at : at + 2] for at in range(len(run) - 1) or (0,)) + " "

    return _CJK.sub(pairs, unicodedata.normalize("NFKC", text))


def original(text: str) -> str:
    """About the text that `normal` was given: pairs of CJK characters joined again."""

    def joined(match: re.Match[str]) -> str:
        pairs = match[0].split()
        return pairs[0] + "".join(pair[1:] for pair in pairs[1:])

    return _PAIRS.sub(joined, text)


def terms(query: str) -> list[str]:
    """The words of a query that are worth looking for, in order, without repeats."""
    found = list(dict.fromkeys(_WORD.findall(normal(query).casefold())))
    telling = [word for word in found if word not in STOP and word not in STOP_CJK]
    return (telling or found)[:MOST_TERMS]


def day_words(at: str) -> str:
    """A moment as words people use for it: `8 May 2026 2026-05-08 2026年5月8日`."""
    moment = parse_stamp(at).astimezone(UTC)
    english = f"{moment.day} {moment.strftime('%B')} {moment.year}"
    return f"{english} {normal(f'{moment.year}年{moment.month}月{moment.day}日')}"


def token(kind: str, value: str) -> str:
    """One word for a scope: a hash, so that no tokenizer splits it and no stemmer shortens it."""
    return f"{kind}{blake2b(value.encode(), digest_size=10).hexdigest()}0"


def month_token(moment: datetime) -> str:
    """The scope token of a month."""
    return token("m", moment.astimezone(UTC).strftime("%Y-%m"))


def months(since: datetime, until: datetime) -> list[str]:
    """The tokens of all months from `since` to `until`."""
    first, last = since.astimezone(UTC), until.astimezone(UTC)
    count = (last.year - first.year) * 12 + last.month - first.month
    return [
        token("m", f"{first.year + (first.month - 1 + step) // 12}-{(first.month - 1 + step) % 12 + 1:02d}")
        for step in range(max(0, count) + 1)
    ]


def shared_words(text: str, words: list[str]) -> frozenset[str]:
    """Which of a query's words a normalised text holds; endings are not looked at."""
    folded = text.casefold()
    return frozenset(
        word for word in words if (word[: max(4, len(word) - 3)] if word.isascii() else word) in folded
    )
