"""The index of one workspace: SQLite FTS5, one table for what users said and one for the longer answers.

A document is a message with its neighbours in columns of their own, which weigh a half and a quarter: a message
is better found together with what stands around it. Who may see it and when it was said are words of the
document, so that permission is part of the match and never a filter behind it.

Nothing here is the truth: a hit is read again from its log. Costs: O(new records) to follow a log, a few
milliseconds for a query over 100,000 records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from tenuto.codec import parse_stamp
from tenuto.search import semantic
from tenuto.search.normal import day_words, month_token, months, normal, original, shared_words, terms, token

Role: TypeAlias = Literal["user", "answer"]
ROLES: tuple[Role, ...] = ("user", "answer")

VERSION = 3
OWN_CHARS = 4_000
"""Most characters of a message that are indexed."""
NEIGHBOUR_CHARS = 400
"""Most characters of each neighbour."""
APART_S = 12 * 3600
"""Messages further apart in time than this are no neighbours."""
WEIGHTS = (1.0, 0.5, 0.25)
"""Of a message's own words, of the two next to it, and of the two beyond."""
CANDIDATES = 200
MOST_MONTHS = 120

_Found: TypeAlias = tuple[str, int, str, int, str, float]
"""A candidate: thread, record, time, offset, its words, score."""

_TABLE = """
CREATE TABLE IF NOT EXISTS {role}_docs (
  id INTEGER PRIMARY KEY AUTOINCREMENT, thread TEXT, user TEXT, seq INTEGER, turn INTEGER, at TEXT, offset INTEGER,
  own TEXT, near TEXT, far TEXT, scope TEXT);
CREATE INDEX IF NOT EXISTS {role}_thread ON {role}_docs (thread, seq);
CREATE VIRTUAL TABLE IF NOT EXISTS {role}_fts USING fts5(
  own, near, far, scope, content='{role}_docs', content_rowid='id', tokenize='porter unicode61');
CREATE TABLE IF NOT EXISTS {role}_vectors (id INTEGER PRIMARY KEY, vector BLOB);
CREATE TRIGGER IF NOT EXISTS {role}_added AFTER INSERT ON {role}_docs BEGIN
  INSERT INTO {role}_fts (rowid, own, near, far, scope) VALUES (new.id, new.own, new.near, new.far, new.scope);
END;
CREATE TRIGGER IF NOT EXISTS {role}_gone AFTER DELETE ON {role}_docs BEGIN
  INSERT INTO {role}_fts ({role}_fts, rowid, own, near, far, scope)
  VALUES ('delete', old.id, old.own, old.near, old.far, old.scope);
  DELETE FROM {role}_vectors WHERE id = old.id;
END;
"""
_THREADS = """
CREATE TABLE IF NOT EXISTS threads (thread TEXT PRIMARY KEY, user TEXT, epoch INTEGER, seq INTEGER, bytes INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Document:
    """A message to be indexed."""

    role: Role
    seq: int
    at: str
    offset: int
    """Where its line begins in the log."""
    text: str
    turn: int = 0
    """A question whose turn isn't above the one before it begins another branch, and has no neighbours there."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found."""

    thread: str
    role: Role
    seq: int
    at: str
    offset: int
    score: float
    later: tuple[int, ...] = ()
    """Sequence numbers of later messages of the thread about the same thing."""


class Index:
    """The index file of a workspace. A file that can't be read is thrown away and built again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            connection = self._connect()
        except sqlite3.DatabaseError:
            self.path.unlink(missing_ok=True)
            connection = self._connect()
        with closing(connection):
            yield connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            connection.execute("DROP TABLE IF EXISTS threads")
            for role in ROLES:
                connection.execute(f"DROP TABLE IF EXISTS {role}_fts")
                connection.execute(f"DROP TABLE IF EXISTS {role}_docs")
                connection.execute(f"DROP TABLE IF EXISTS {role}_vectors")
                connection.executescript(_TABLE.format(role=role))
            connection.executescript(_THREADS)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        return connection

    # -- following the logs -----------------------------------------------------------------------------

    def reached(self) -> dict[str, tuple[int, int, int]]:
        """For each thread `(epoch, last record, bytes of its log)` as far as it is indexed."""
        if not self.path.exists():
            return {}
        with self._open() as connection:
            rows = connection.execute("SELECT thread, epoch, seq, bytes FROM threads").fetchall()
        return {thread: (epoch, seq, size) for thread, epoch, seq, size in rows}

    def follow(
        self,
        thread: str,
        user: str,
        epoch: int,
        documents: Iterable[Document],
        *,
        seq: int,
        size: int,
        still: Callable[[], bool] = lambda: True,
    ) -> int:
        """Add a thread's new messages up to record `seq`; a thread of another epoch is begun anew.

        Nothing is kept unless `still()` holds at the end: the thread may have been cleared meanwhile (I10).
        """
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = connection.execute("SELECT epoch FROM threads WHERE thread = ?", (thread,)).fetchone()
            if known is not None and known[0] != epoch:
                self._drop(connection, "thread = ?", thread)
            fresh = [_Row.of(document) for document in documents]
            before = self._last(connection, thread, fresh[0].seq) if fresh else []
            for row in before:
                connection.execute(
                    f"DELETE FROM {row.role}_docs WHERE thread = ? AND seq = ?", (thread, row.seq)
                )
            _place(rows := [*before, *fresh])
            for row in rows:
                scope = " ".join((token("u", user), token("t", thread), month_token(parse_stamp(row.at))))
                connection.execute(
                    f"INSERT INTO {row.role}_docs (thread, user, seq, turn, at, offset, own, near, far, scope) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (thread, user, row.seq, row.turn, row.at, row.offset, row.own, row.near, row.far, scope),
                )
            connection.execute(
                "INSERT OR REPLACE INTO threads VALUES (?, ?, ?, ?, ?)", (thread, user, epoch, seq, size)
            )
            connection.execute("COMMIT" if still() else "ROLLBACK")
        return len(fresh)

    def _last(self, connection: sqlite3.Connection, thread: str, seq: int) -> list[_Row]:
        """The two messages before record `seq`, whose right neighbours are only known now, oldest first."""
        found: list[_Row] = []
        for role in ROLES:
            rows = connection.execute(
                f"SELECT seq, turn, at, offset, own, near, far FROM {role}_docs WHERE thread = ? AND seq < ? "
                "ORDER BY seq DESC LIMIT 2",
                (thread, seq),
            )
            found += [_Row(role, *row) for row in rows]
        return sorted(found, key=lambda row: row.seq)[-2:]

    # -- meaning ----------------------------------------------------------------------------------------

    def embed(self, user: str, most: int = 256) -> int:
        """Give up to `most` of a user's messages the vectors they lack, the newest first; returns how many."""
        if not self.path.exists():
            return 0
        made = 0
        with self._open() as connection:
            for role in ROLES:
                rows = connection.execute(
                    f"SELECT d.id, d.own FROM {role}_docs d LEFT JOIN {role}_vectors v ON v.id = d.id "
                    "WHERE d.user = ? AND v.id IS NULL ORDER BY d.id DESC LIMIT ?",
                    (user, most - made),
                ).fetchall()
                for at in range(0, len(rows), semantic.BATCH):
                    batch = rows[at : at + semantic.BATCH]
                    texts = [original(own.rpartition("\n")[0]) for _, own in batch]
                    vectors = semantic.passages(texts)
                    # Only for messages that are still there: they may have been cleared meanwhile.
                    connection.executemany(
                        f"INSERT OR REPLACE INTO {role}_vectors "
                        f"SELECT id, ? FROM {role}_docs WHERE id = ? AND user = ?",
                        [(vector, row[0], user) for vector, row in zip(vectors, batch, strict=True)],
                    )
                made += len(rows)
        return made

    # -- asking -----------------------------------------------------------------------------------------

    def search(
        self,
        user: str,
        query: str,
        *,
        limit: int = 10,
        thread: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Sequence[Role] = ROLES,
        visible: Callable[[str, int], bool] = lambda _thread, _seq: True,
        meaning: bool = False,
    ) -> list[Hit]:
        """The user's messages that match best: two of the user's own words for each answer, best first.

        `visible(thread, seq)` leaves out what is on an abandoned branch. With `meaning`, words and vectors count
        together, 0.6 to 0.4.
        """
        words = terms(query)
        if not words or not self.path.exists():
            return []
        match = _match(user, words, thread, since, until)
        with self._open() as connection:
            lists = [
                self._ranked(
                    role,
                    self._candidates(connection, role, match)
                    if not meaning
                    else self._fused(connection, role, match, user, thread, query),
                    since,
                    until,
                    visible,
                    words,
                    limit,
                )
                for role in roles
            ]
        if len(lists) == 1:
            return lists[0][:limit]
        mixed: list[Hit] = []
        said, answers = iter(lists[0]), iter(lists[1])
        for number in range(sum(map(len, lists))):
            first, second = (answers, said) if number % 3 == 2 else (said, answers)
            if (hit := next(first, None) or next(second, None)) is not None:
                mixed.append(hit)
        return mixed[:limit]

    def _candidates(self, connection: sqlite3.Connection, role: Role, match: str) -> list[_Found]:
        """The best by words, best first."""
        return connection.execute(
            f"SELECT d.thread, d.seq, d.at, d.offset, d.own, -r.score FROM "
            f"(SELECT rowid, bm25({role}_fts, ?, ?, ?, 0.0) AS score FROM {role}_fts WHERE {role}_fts MATCH ? "
            f"ORDER BY score LIMIT {CANDIDATES}) r JOIN {role}_docs d ON d.id = r.rowid ORDER BY r.score, d.at DESC",
            (*WEIGHTS, match),
        ).fetchall()

    def _fused(
        self, connection: sqlite3.Connection, role: Role, match: str, user: str, thread: str, query: str
    ) -> list[_Found]:
        """The best by words and meaning together. O(the user's messages that have vectors)."""
        by_words = self._candidates(connection, role, match)
        near = connection.execute(
            f"SELECT d.thread, d.seq, d.at, d.offset, d.own, v.vector FROM {role}_docs d "
            f"JOIN {role}_vectors v ON v.id = d.id WHERE d.user = ? AND (? = '' OR d.thread = ?)",
            (user, thread, thread),
        ).fetchall()
        scores = {
            (row[0], row[1]): semantic.SHARE * value
            for row, value in zip(by_words, semantic.spread([row[5] for row in by_words]), strict=True)
        }
        meanings = semantic.spread(semantic.nearness(query, [row[5] for row in near]))
        for row, value in zip(near, meanings, strict=True):
            key = (row[0], row[1])
            scores[key] = scores.get(key, 0.0) + (1 - semantic.SHARE) * value
        rows: dict[tuple[str, int], Any] = {(row[0], row[1]): row for row in (*near, *by_words)}
        best = sorted(scores, key=lambda key: scores[key], reverse=True)[:CANDIDATES]
        return [cast("_Found", (*rows[key][:5], scores[key])) for key in best]

    def _ranked(
        self,
        role: Role,
        rows: list[_Found],
        since: datetime | None,
        until: datetime | None,
        visible: Callable[[str, int], bool],
        words: list[str],
        limit: int,
    ) -> list[Hit]:
        kept = [
            row
            for row in rows
            if visible(row[0], row[1])
            and (since is None or parse_stamp(row[2]) >= since)
            and (until is None or parse_stamp(row[2]) <= until)
        ]
        shared = [shared_words(row[4], words) for row in kept]

        def hit(at: int) -> Hit:
            thread, seq, moment, offset, _, score = kept[at]
            later = _later(kept[at], shared[at], kept, shared) if at < limit else ()
            return Hit(thread, role, seq, moment, offset, score, later)

        return [hit(at) for at in range(len(kept))]

    # -- removing ---------------------------------------------------------------------------------------

    def remove(self, *, thread: str = "", user: str = "") -> int:
        """Remove a thread's or a user's messages so that nothing of them is left in the file; returns how many."""
        if not self.path.exists():
            return 0
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            where, value = ("thread = ?", thread) if thread else ("user = ?", user)
            removed = self._drop(connection, where, value)
            connection.execute(f"DELETE FROM threads WHERE {where}", (value,))
            connection.execute("COMMIT")
            for role in ROLES:
                # Deleted words stay in FTS5's segments until they are merged.
                connection.execute(f"INSERT INTO {role}_fts ({role}_fts) VALUES ('optimize')")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed

    def _drop(self, connection: sqlite3.Connection, where: str, value: str) -> int:
        return sum(
            connection.execute(f"DELETE FROM {role}_docs WHERE {where}", (value,)).rowcount for role in ROLES
        )


@dataclass(slots=True)
class _Row:
    """A document with its neighbours' words."""

    role: Role
    seq: int
    turn: int
    at: str
    offset: int
    own: str
    near: str = ""
    far: str = ""

    @classmethod
    def of(cls, document: Document) -> _Row:
        own = f"{normal(document.text[:OWN_CHARS])}\n{day_words(document.at)}"
        return cls(document.role, document.seq, document.turn, document.at, document.offset, own)


def _place(rows: Sequence[_Row]) -> None:
    """Write into each row the words of those next to it and beyond, where they are close in time."""
    moments = [parse_stamp(row.at) for row in rows]
    branch = [0] * len(rows)
    for at in range(1, len(rows)):
        asked_anew = rows[at].role == "user" and 0 < rows[at].turn <= rows[at - 1].turn
        branch[at] = branch[at - 1] + asked_anew
    said = [row.own.rpartition("\n")[0][:NEIGHBOUR_CHARS] for row in rows]
    for at, row in enumerate(rows):
        for name, distance in (("near", 1), ("far", 2)):
            around = [
                said[other]
                for other in (at - distance, at + distance)
                if 0 <= other < len(rows)
                and branch[other] == branch[at]
                and abs((moments[other] - moments[at]).total_seconds()) < APART_S
            ]
            # A row that was there already knows what stood before it.
            known = getattr(row, name)
            setattr(row, name, " ".join(dict.fromkeys([*([known] if known else []), *around])))


def _match(user: str, words: list[str], thread: str, since: datetime | None, until: datetime | None) -> str:
    scope = [f"scope : {token('u', user)}"]
    if thread:
        scope.append(f"scope : {token('t', thread)}")
    if since is not None and until is not None and len(span := months(since, until)) <= MOST_MONTHS:
        scope.append(f"scope : ({' OR '.join(span)})")
    wanted = " OR ".join(f'"{word}"' for word in words)
    return f"{' AND '.join(scope)} AND {{own near far}} : ({wanted})"


def _later(
    row: _Found, mine: frozenset[str], rows: Sequence[_Found], shared: Sequence[frozenset[str]]
) -> tuple[int, ...]:
    """Later messages of the thread about the same thing, the newest two: an old value is never shown alone.

    About the same thing are those that hold two thirds of the query's words that the message holds.
    """
    if not mine:
        return ()
    later = [
        other[1]
        for other, theirs in zip(rows, shared, strict=True)
        if other[0] == row[0] and other[1] > row[1] and len(mine & theirs) * 3 >= len(mine) * 2
    ]
    return tuple(sorted(later)[-2:])
