"""Recall of the history search on conversations with labelled evidence, and its speed at 100,000 records.

The data is a list of `{turns: [[id, text, date]…], qa: [{q, ev: [id…]}…]}`; every turn counts as said by the
user. The floor, in the same run: SQLite's own BM25 with a Porter stemmer, one turn a document.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

from tenuto.codec import JsonObject, loads, stamp
from tenuto.search.index import Document, Index
from tenuto.search.normal import terms

CUTS = (5, 10, 20, 50)
RECORDS = 100_000
OWN_SET = Path(__file__).with_name("history-evidence.json")
"""Our own questions in Chinese and English over work conversations."""
_FORMATS = ("%I:%M %p on %d %B, %Y", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M", "%Y-%m-%d")


def measure(data: Path | None = None, *, scale: bool = True, semantic: bool = False) -> list[JsonObject]:
    """The rows of `tenuto bench search`."""
    conversations: list[Any] = loads((data or OWN_SET).read_bytes())
    with tempfile.TemporaryDirectory(prefix="tenuto-bench-") as folder:
        rows = [_recall(conversations, Path(folder) / "recall.sqlite"), _floor(conversations)]
        if semantic:
            rows.append(_recall(conversations, Path(folder) / "meaning.sqlite", meaning=True))
        if scale:
            rows.append(_speed(Path(folder) / "scale.sqlite"))
    return rows


def _moment(text: str) -> datetime:
    for form in _FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return datetime(2026, 1, 1, tzinfo=UTC)


def _recall(conversations: list[Any], path: Path, *, meaning: bool = False) -> JsonObject:
    index = Index(path)
    found: list[list[float]] = []
    for number, conversation in enumerate(conversations):
        user = f"user-{number}"
        turns = conversation["turns"]
        documents = [
            Document("user", seq, stamp(_moment(turn[2])), 0, turn[1]) for seq, turn in enumerate(turns, 1)
        ]
        index.follow(f"t{number}", user, 1, documents, seq=len(turns), size=1)
        while meaning and index.embed(user):
            pass
        place = {turn[0]: seq for seq, turn in enumerate(turns, 1)}
        for asked in conversation["qa"]:
            evidence = {place[one] for one in asked["ev"] if one in place}
            if evidence:
                found_here = index.search(user, asked["q"], limit=max(CUTS), roles=("user",), meaning=meaning)
                hits = [hit.seq for hit in found_here]
                found.append([len(evidence & set(hits[:cut])) / len(evidence) for cut in CUTS])
    return _row("tenuto, semantic" if meaning else "tenuto", found)


def _floor(conversations: list[Any]) -> JsonObject:
    found: list[list[float]] = []
    for conversation in conversations:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(x, tokenize='porter unicode61')")
        turns = conversation["turns"]
        connection.executemany(
            "INSERT INTO f (rowid, x) VALUES (?, ?)", [(at, turn[1]) for at, turn in enumerate(turns)]
        )
        place = {turn[0]: at for at, turn in enumerate(turns)}
        for asked in conversation["qa"]:
            evidence = {place[one] for one in asked["ev"] if one in place}
            if evidence:
                match = " OR ".join(f'"{word}"' for word in terms(asked["q"]))
                rows = connection.execute(
                    "SELECT rowid FROM f WHERE f MATCH ? ORDER BY bm25(f) LIMIT ?", (match, max(CUTS))
                ).fetchall()
                hits = [row[0] for row in rows]
                found.append([len(evidence & set(hits[:cut])) / len(evidence) for cut in CUTS])
        connection.close()
    return _row("plain BM25, porter", found)


def _row(method: str, found: list[list[float]]) -> JsonObject:
    means = [round(statistics.mean(one[at] for one in found), 3) for at in range(len(CUTS))]
    return {"method": method, "questions": len(found)} | {
        f"recall@{cut}": mean for cut, mean in zip(CUTS, means, strict=True)
    }


def _speed(path: Path) -> JsonObject:
    """Fifty users with 2,000 messages each; every query is one user's.

    Words are drawn from 20,000 with the frequencies of natural language (Zipf), a third of them Chinese; a
    query has eight words, none of the hundred most frequent: those are the function words that a search drops.
    """
    rng = random.Random(11)
    vocabulary = [
        "".join(chr(0x4E00 + rng.randrange(3_000)) for _ in range(2)) if at % 3 == 0 else f"w{at:x}"
        for at in range(20_000)
    ]
    shares = list(accumulate(1 / (at + 3) for at in range(len(vocabulary))))
    rare = list(accumulate(1 / (at + 3) for at in range(100, len(vocabulary))))

    def text(words: int) -> str:
        return " ".join(rng.choices(vocabulary, cum_weights=shares, k=words))

    index = Index(path)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    users, each = 50, RECORDS // 50
    began = time.perf_counter()
    for user in range(users):
        documents = [
            Document(
                "user" if seq % 2 else "answer",
                seq,
                stamp(start + timedelta(hours=seq * 3)),
                0,
                text(15 if seq % 2 else 100),
            )
            for seq in range(1, each + 1)
        ]
        index.follow(f"t{user}", f"u{user}", 1, documents, seq=each, size=1)
    built = time.perf_counter() - began
    spent: list[float] = []
    for number in range(200):
        query = " ".join(rng.choices(vocabulary[100:], cum_weights=rare, k=8))
        began = time.perf_counter()
        index.search(f"u{number % users}", query)
        spent.append((time.perf_counter() - began) * 1000)
    spent.sort()
    return {
        "method": "tenuto",
        "records": RECORDS,
        "p50_ms": round(spent[len(spent) // 2], 2),
        "p95_ms": round(spent[int(len(spent) * 0.95)], 2),
        "indexed_per_s": round(RECORDS / built),
        "mb": round(path.stat().st_size / 1e6, 1),
    }
