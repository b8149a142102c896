"""Words compared: when two texts say the same, and whether a quote stands in a text. Pure; O(text)."""

from __future__ import annotations

import re
import unicodedata

LEAST_WEIGHT = 6
"""A quote shorter than this (a CJK character weighs two) proves nothing, unless it is the whole message."""

_SPACE = re.compile(r"\s+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_NUMBER = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")
_END = " .。!！?？;；,，"


def folded(text: str) -> str:
    """`text` after NFKC with white space folded: what a quote is compared in."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text)).strip()


def same_words(text: str) -> str:
    """The key under which two texts say the same: folded, without case and final punctuation."""
    return folded(text).casefold().strip(_END)


def stands_in(quote: str, text: str) -> bool:
    """Whether `quote` is found in `text` and long enough to prove something."""
    wanted, whole = folded(quote), folded(text)
    if not wanted or wanted not in whole:
        return False
    return len(wanted) + len(_CJK.findall(wanted)) >= LEAST_WEIGHT or wanted == whole


def overlaps(one: str, other: str) -> bool:
    """Whether one quote contains the other."""
    a, b = folded(one), folded(other)
    return bool(a and b) and (a in b or b in a)


def faithful(text: str, evidence: str, quote: str) -> bool:
    """Whether `text` claims no number that `evidence` lacks, and is written in the script of the quote."""
    known = folded(evidence)
    if any(number not in known for number in _NUMBER.findall(folded(text))):
        return False
    return bool(_CJK.search(text)) == bool(_CJK.search(quote))
